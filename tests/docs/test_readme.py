"""What README and other pages say of the command line and the tests is true."""

import json
import re
import shlex
from pathlib import Path

import pytest

from tokengraft import cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *(ROOT / "docs" / name for name in ("index.md", "gguf.md", "serving.md"))]
"""Pages whose commands are not run by another test."""


def commands(text):
    """The commands of shell blocks, and of the table of commands."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines() if line.startswith("tokengraft ")]
    cells = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `tokengraft ")]
    return lines + [command for cell in cells for command in re.findall(r"`(tokengraft .*?)`", cell)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_command_of_a_page_parses(page):
    found = commands(page.read_text(encoding="utf-8"))
    assert found
    for command in found:
        cli.build_parser().parse_args(shlex.split(command.replace(" N ", " 1000 "))[1:])


def test_the_documentation_has_the_number_of_architectures():
    table = json.loads((ROOT / "src" / "tokengraft" / "checkpoint" / "architectures.json").read_bytes())
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [n for page in pages for n in re.findall(r"(\d+) architectures by name", page.read_text(encoding="utf-8"))]
    assert {*map(int, found)} == {len(table["architectures"])}


def test_every_command_is_in_readme():
    parser = cli.build_parser()
    assert [name for name in parser._subparsers._group_actions[0].choices if f"tokengraft {name} " not in README] == []


def test_every_test_that_the_architecture_names_exists():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    tests = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", page)
    assert named
    assert [name for name in named if f"def {name}(" not in tests] == []
