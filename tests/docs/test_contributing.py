"""What CONTRIBUTING.md and the templates for issues name exists."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

import tokengraft as tg
from tokengraft import cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_every_file_that_it_names_exists():
    named = {*re.findall(r"`([\w.-]+/[\w./-]*|[\w-]+\.md)`", PAGE), *re.findall(r"\]\(([^):]+)\)", PAGE)}
    named |= {*re.findall(r"(?<![\w/])(?:docs|tests|examples|lab|src)/[\w./-]+\w", PAGE)}
    assert len(named) > 15
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def test_every_test_make_target_and_constant_that_it_names_exists():
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("*.py"))
    assert [name for name in re.findall(r"`(test_\w+)`", PAGE) if f"def {name}(" not in tests] == []
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert [name for name in re.findall(r"^make ([\w-]+)", PAGE, re.MULTILINE) if f"\n{name}:" not in makefile] == []
    for row in re.findall(r"^\| an? .*", PAGE, re.MULTILINE):
        places = re.findall(r"`((?:src|tests)/[\w/.]+\.py)` \(([^)]*)\)", row)
        for path, names in places:
            text = (ROOT / path).read_text(encoding="utf-8")
            assert [name for name in re.findall(r"`(\w+)`", names) if name not in text] == []


def test_it_fits_on_a_page_and_names_the_version_of_the_crate():
    assert len(PAGE.splitlines()) <= 75
    assert f'\nversion = "{tg.__version__}"' in (ROOT / "rust" / "Cargo.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_a_template_for_issues_is_valid_and_its_commands_parse(path):
    template = yaml.safe_load(path.read_bytes())
    if path.stem == "config":
        return
    assert {"name", "description", "body"} <= template.keys()
    assert [field["id"] for field in template["body"]]
    for command in re.findall(r"`(tokengraft [a-z]+ [A-Z]+)`", path.read_text(encoding="utf-8")):
        cli.build_parser().parse_args(shlex.split(command)[1:])
    assert "tokengraft inspect MODEL" in path.read_text(encoding="utf-8")
