"""Measures how large the project is: lines, files, names, commands, options, words.

    python lab/size.py

Prints a table in Markdown. Lines are those of `wc -l`, words those of `wc -w`.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import tokengraft as tg
from tokengraft.cli import build_parser

ROOT = Path(__file__).parents[1]


def lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def words(pages: Iterable[Path]) -> int:
    return sum(len(page.read_text(encoding="utf-8").split()) for page in pages)


def first_options(command: str) -> int:
    """How many options the first help screen of a command shows, without those for help."""
    parser = build_parser([command])._subparsers._group_actions[0].choices[command]
    listed = re.findall(r"^  (?:-h, )?(--[a-z-]+)", parser.format_help(), flags=re.MULTILINE)
    return len({*listed} - {"--help", "--help-all"})


def definitions(stub: Path) -> int:
    nodes = ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
    return sum(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in nodes)


def rows() -> Iterator[tuple[str, str]]:
    src, tests = [*(ROOT / "src").rglob("*.py")], [*(ROOT / "tests").rglob("*.py")]
    docs = [*(ROOT / "docs").rglob("*.md")]
    yield "Python in `src`", f"{lines(src):,} lines, {len(src)} files"
    yield "Rust", f"{lines((ROOT / 'rust' / 'src').rglob('*.rs')):,} lines"
    yield "Python in `tests`", f"{lines(tests):,} lines"
    yield "Python in `lab`", f"{lines((ROOT / 'lab').rglob('*.py')):,} lines"
    yield "names in `dir(tg)`", str(sum(not name.startswith("_") for name in dir(tg)))
    yield "commands", str(len(build_parser()._subparsers._group_actions[0].choices))
    numbers = ", ".join(str(first_options(command)) for command in ("adapt", "extend", "prune"))
    yield "options in the first help screen of `adapt`, `extend`, `prune`", numbers
    yield "definitions in `_core.pyi`", str(definitions(ROOT / "src" / "tokengraft" / "_core.pyi"))
    yield "README", f"{lines([ROOT / 'README.md'])} lines"
    yield "`docs/architecture.md` / all docs", f"{words([ROOT / 'docs' / 'architecture.md']):,} / {words(docs):,} words"


if __name__ == "__main__":
    print("| measure | now |\n|---|---|")
    for name, value in rows():
        print(f"| {name} | {value} |")
