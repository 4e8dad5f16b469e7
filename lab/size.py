"""Measures how large the project is: lines, files, names, commands, options, words.

    python lab/size.py

Prints a table in Markdown. Lines are those of `wc -l`, words those of `wc -w`.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path

import tokengraft as tg
from tokengraft.cli import build_parser
from tokengraft.options.table import options_of

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


def functions(paths: Iterable[Path]) -> list[ast.FunctionDef]:
    """All functions and methods, those inside others too."""
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return [node for node in nodes if isinstance(node, ast.FunctionDef)]


def n_parameters(function: ast.FunctionDef) -> int:
    found = function.args
    names = [argument.arg for argument in (*found.posonlyargs, *found.args, *found.kwonlyargs)]
    return sum(name not in ("self", "cls") for name in names)


def used_once(paths: Iterable[Path]) -> int:
    """Private functions of at most 8 lines whose name occurs once beside its definition."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    named = Counter(re.findall(r"\b_\w+", text))
    short = [f for f in functions(paths) if f.name.startswith("_") and not f.name.startswith("__")]
    return sum(named[f.name] == 2 and (f.end_lineno or 0) - f.lineno < 8 for f in short)


def readers_of_options(paths: Iterable[Path]) -> int:
    """Modules that read a field of `AdaptOptions`."""
    names = "|".join(field.name for field in fields(tg.AdaptOptions))
    pattern = re.compile(rf"\boptions\.(?:{names})\b")
    return sum(bool(pattern.search(path.read_text(encoding="utf-8"))) for path in paths)


def rows() -> Iterator[tuple[str, str]]:
    src, docs = [*(ROOT / "src").rglob("*.py")], [*(ROOT / "docs").rglob("*.md")]
    yield "Python in `src`", f"{lines(src):,} lines, {len(src)} files"
    yield "Rust", f"{lines((ROOT / 'rust' / 'src').rglob('*.rs')):,} lines"
    python = (f"{lines((ROOT / name).rglob('*.py')):,}" for name in ("tests", "lab"))
    yield "Python in `tests` / `lab`", " / ".join(python)
    three = ("adapt", "extend", "prune")
    yield "options of `adapt` / `extend` / `prune`", " / ".join(str(len(options_of(command))) for command in three)
    yield "in their first help screens", " / ".join(str(first_options(command)) for command in three)
    many = [function for function in functions(src) if n_parameters(function) > 6]
    named = ", ".join(f"`{function.name}` {n_parameters(function)}" for function in many)
    yield "functions with more than six parameters", f"{len(many)}: {named}"
    yield "functions per 1,000 lines", f"{1000 * len(functions(src)) / lines(src):.0f}"
    yield "private functions of at most 8 lines that are used once", str(used_once(src))
    yield "functions and methods in `_core.pyi`", str(len(functions([ROOT / "src" / "tokengraft" / "_core.pyi"])))
    yield "modules that read a field of the options of `adapt`", str(readers_of_options(src))
    yield "names in `dir(tg)`", str(sum(not name.startswith("_") for name in dir(tg)))
    yield "commands", str(len(build_parser()._subparsers._group_actions[0].choices))
    yield "README", f"{len((ROOT / 'README.md').read_text(encoding='utf-8').splitlines())} lines"
    yield "`docs/architecture.md` / all docs", f"{words([ROOT / 'docs' / 'architecture.md']):,} / {words(docs):,} words"


if __name__ == "__main__":
    print("| measure | now |\n|---|---|")
    for name, value in rows():
        print(f"| {name} | {value} |")
