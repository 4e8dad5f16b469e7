"""The guides do what they say: every snippet is run, with a tiny model and small numbers."""

import importlib.util
import inspect
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tokengraft as tg
from tokengraft import cli

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "initialisers.md"]
SNIPPET = re.compile(r"(?:<!-- needs (\w+) -->\n)?```(sh|python)\n(.*?)```", re.DOTALL)


def smaller(text):
    """The same with numbers that a tiny model has: 16000 becomes 16, 64_000 becomes 64."""
    return re.sub(r"\b(\d+)_?000\b", r"\1", text)


def snippets(guide):
    return SNIPPET.findall(guide.read_text(encoding="utf-8"))


def run(guide, language, text, capsys):
    if language == "python":
        exec(compile(smaller(text), str(guide), "exec"), {"__name__": "guide"})
    for line in text.splitlines() if language == "sh" else ():
        assert cli.main(shlex.split(smaller(line))[1:]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("guide", [guide for guide in GUIDES if guide.stem != "ci"], ids=lambda path: path.stem)
def test_every_snippet_of_a_guide_runs(guide, capsys, request):
    """Those that need torch too. The guide for CI has a test of its own."""
    found = [(needs, language, text) for needs, language, text in snippets(guide) if needs in ("", "torch")]
    assert found
    if any(needs for needs, _, _ in found):
        request.getfixturevalue("runnable_model")
    for _, language, text in found:
        run(guide, language, text, capsys)


@pytest.mark.usefixtures("place")
def test_the_commands_of_the_workflow_for_ci_run(capsys):
    guide = DOCS / "guides" / "ci.md"
    for _, language, text in snippets(guide):
        run(guide, language, text, capsys)
    workflow = guide.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    commands = [shlex.split(line)[1:] for line in re.findall(r"- run: (tokengraft .*)", workflow)]
    assert len(commands) == 2
    for command in commands:
        assert cli.main(command[: command.index(">")] if ">" in command else command) == 0
    assert cli.main(["check", "no-such-folder"]) == 2
    Path("tokenizer", "merges.txt").write_text("a b\n")
    vocab = Path("tokenizer", "tokenizer.json").read_text(encoding="utf-8")
    Path("tokenizer", "tokenizer.json").write_text(vocab.replace("<|end|>", "<|other|>"), encoding="utf-8")
    assert cli.main(["check", "tokenizer", "--base", "model"]) == 1


OPTIONAL = sorted({(path, needs) for path in GUIDES for needs, _, _ in snippets(path)} - {(p, "") for p in GUIDES})


@pytest.mark.usefixtures("place")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("guide", "package"),
    [(path, name) for path, name in OPTIONAL if name != "torch"],
    ids=lambda value: str(value)[-9:],
)
def test_snippets_that_need_another_package_run(guide, package, capsys, request):
    pytest.importorskip(package, reason=f"{package} is not installed: the snippets that need it are not run")
    if package == "pyspark":
        request.getfixturevalue("spark")
    for needs, language, text in snippets(guide):
        if needs == package:
            run(guide, language, text, capsys)
    if package == "pyspark":
        expected = tg.count(tg.load("model"), "corpus").save("expected.parquet").read_bytes()
        assert Path("counts.parquet").read_bytes() == Path("counts-merged.parquet").read_bytes() == expected


def builder(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_command_reference_is_what_help_says():
    module = builder("build_cli")
    if sys.version_info[:2] != (3, 11):
        pytest.skip("argparse words its help differently in other versions of Python than 3.11")
    assert module.PAGE.read_text(encoding="utf-8") == module.page()


def test_the_python_reference_has_every_public_name():
    module = builder("build_api")
    folders = [path.parent.name for path in Path(tg.__file__).parent.glob("*/__init__.py")]
    packages = [import_module(f"tokengraft.{name}") for name in [*folders, "distributed"]]
    modules = {name for name in tg.__all__ if inspect.ismodule(getattr(tg, name))}
    public = [*({*tg.__all__} - modules - {"__version__"})]
    for package in packages:
        names = (
            getattr(package, "__all__", ()) if package.__name__ not in ("tokengraft.cli", "tokengraft.formats") else ()
        )
        public += [f"{package.__name__.removeprefix('tokengraft.')}.{name}" for name in names]
    assert sorted(" ".join(module.GROUPS.values()).split()) == sorted(public)
    assert module.PAGE.read_text(encoding="utf-8") == module.page()
