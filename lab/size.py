"""Measures how large the project is: lines, files, names, commands, options, words.

    python lab/size.py

Prints a table in Markdown. Lines are those of `wc -l`, words those of `wc -w`, without comments (`<!-- ... -->`): they
hold the markers of figures, which no reader sees.
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


def words(paths: Iterable[Path]) -> int:
    texts = (path.read_text(encoding="utf-8") for path in paths)
    return sum(len(re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).split()) for text in texts)


def first_options(command: str) -> int:
    """How many options the first help screen of a command shows, without those for help."""
    parser = build_parser([command])._subparsers._group_actions[0].choices[command]
    shown = re.findall(r"^  (?:-h, )?(--[a-z-]+)", parser.format_help(), flags=re.MULTILINE)
    return len({*shown} - {"--help", "--help-all"})


def definitions(stub: Path) -> int:
    nodes = ast.walk(ast.parse(stub.read_text(encoding="utf-8")))
    return sum(isinstance(node, ast.FunctionDef | ast.ClassDef) for node in nodes)


def rows() -> Iterator[tuple[str, str]]:
    src, tests = [*(ROOT / "src").rglob("*.py")], [*(ROOT / "tests").rglob("*.py")]
    docs = [*(ROOT / "docs").rglob("*.md")]
    yield "Python in `src`", f"{lines(src):,} lines, {len(src)} files"
    yield "Rust", f"{lines((ROOT / 'rust' / 'src').rglob('*.rs')):,} lines"
    yield "Python in `tests`", f"{lines(tests):,} lines"
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
