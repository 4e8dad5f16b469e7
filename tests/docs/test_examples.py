"""Every option of the command line has an example, and every example runs."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

from tokengraft import cli

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "examples.md"
OTHER_PAGES = [ROOT / "docs" / name for name in ("concepts.md", "gguf.md", "serving.md")]
PAGES = [ROOT / "README.md", *OTHER_PAGES, PAGE, *(ROOT / "docs" / "guides").glob("*.md")]
BLOCK = re.compile(r"(?:<!-- needs (\w+) -->\n)?```sh\n(.*?)```", re.DOTALL)
NAMES_ONLY = {"--help", "--json", "--quiet", "--force", "--workers", "--memory", "--min-count"}
"""Options of many commands with one meaning: an example of one command is enough."""
NEEDED_FIXTURES = {"torch": "runnable_model", "ray": "ray_started"}
SHARED_GROUPS = ("reading", "which tokens are learned", "number of new tokens")
"""Groups of such options, by the start of their titles."""


def blocks(page):
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def commands(text):
    return [line for line in text.splitlines() if line.startswith("tokengraft ")]


def options(parser, command="tokengraft"):
    """Every command with its options, and whether other commands share them."""
    for group in parser._action_groups:
        shared = (group.title or "").startswith(SHARED_GROUPS)
        for action in group._group_actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    yield from options(inner, f"{command} {name}")
            for option in action.option_strings:
                if option.startswith("--"):
                    yield command, option, shared or option in NAMES_ONLY


def test_every_option_has_an_example():
    lines = [line for page in PAGES for _, text in blocks(page) for line in commands(text)]

    def is_shown(command, option, shared):
        prefix = "tokengraft " if shared else f"{command} "
        return any(line.startswith(prefix) and option in shlex.split(line) for line in lines)

    missing = [
        f"{command} {option}"
        for command, option, shared in options(cli.build_parser())
        if not is_shown(command, option, shared)
    ]
    assert missing == []


def run(line, capsys):
    arguments = shlex.split(re.sub(r"\b(\d+)(?:000|k)\b", r"\1", line))[1:]
    if arguments[-1] in ("--help", "--version"):
        with pytest.raises(SystemExit) as stopped:
            cli.main(arguments)
        assert stopped.value.code == 0
        return
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
