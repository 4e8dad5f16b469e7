"""What commands share: options of the table, and results as tables and JSON.

Tables have colours on a terminal, and are plain text if the output is piped.
"""

import argparse
import glob
import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from tokengraft.corpus.files import local_name
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import escaped
from tokengraft.options.option import given_options, require_effect
from tokengraft.options.table import options_of
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.representation import aligned

_Options = TypeVar("_Options")

if TYPE_CHECKING:
    from tokengraft.measure.scores import Evaluation


def given(name: str, options: argparse.Namespace, *facts: str, **positional: Any) -> dict[str, Any]:
    """The options of a command that were given, after refusing those without effect."""
    found = given_options(options_of(name), options)
    require_effect(options_of(name), found | positional, facts)
    return found


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a message to stderr, unless --quiet was given."""
    if not options.quiet:
        print(escaped(text), file=sys.stderr)


def require_output(options: argparse.Namespace, *inputs: Iterable[str | os.PathLike[str] | None] | None) -> None:
    """Refuses an output that exists, unless --force was given, or that is an input."""
    require_new(options.out, force=options.force)
    require_distinct(input_paths(*inputs), options.out)


def input_paths(*groups: Iterable[str | os.PathLike[str] | None] | None) -> list[str]:
    """All input paths given by options, with globs expanded, for `require_distinct`."""
    items = [local_name(os.fspath(item)) for group in groups for item in group or () if item is not None]
    matches = ([item] if os.path.lexists(item) else glob.glob(item, recursive=True) for item in items)  # noqa: PTH207
    return [*(path for paths in matches for path in paths), *(["/dev/stdin"] if "-" in items else [])]


def options_in(kind: type[_Options], given: Mapping[str, Any]) -> _Options:
    """Options of the library, with the values that were given by the names of its fields."""
    return kind(**{each.name: given[each.name] for each in fields(kind) if each.name in given})  # type: ignore[arg-type]


def text_read_options_of(given: Mapping[str, Any]) -> ReadOptions | None:
    """How to read a text to measure on; None if no option says it."""
    is_said = any(each.name in given for each in fields(ReadOptions))
    return options_in(ReadOptions, {"documents": "lines", **given}) if is_said else None


NARROW_TEXT = 10
"""The width to which a column of text is folded at most."""


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Prints rows of (label, text): a grid on a terminal, otherwise one line per row."""
    rows = [(label, escaped(text)) for label, text in rows]
    if not sys.stdout.isatty():
        for label, text in rows:
            print(f"{label:<16}{text}")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold cyan", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in rows:
        style = "yellow" if label == "warning" else ""
        grid.add_row(Text(label, style), Text(text, style))
    Console().print(grid)


def print_result(options: "argparse.Namespace", data: Mapping[str, Any], rows: Iterable[tuple[str, str]]) -> None:
    """Prints a result: with --json as JSON, otherwise as a table."""
    if options.json:
        print(json.dumps(data, ensure_ascii=False))
    else:
        print_table(rows)


def print_warnings(warnings: Iterable[str]) -> None:
    """Prints warnings to stderr, one per line."""
    for warning in warnings:
        print(f"warning: {escaped(warning)}", file=sys.stderr)


def print_columns(heads: list[str], rows: list[list[str]]) -> None:
    """Prints a table with column heads: a grid on a terminal, otherwise aligned text. No cell is cut.

    Columns of text are folded if the terminal is narrow. If the numbers alone are wider than the terminal, so are the
    lines.
    """
    heads, *rows = ([escaped(cell).replace("\n", "\\n") for cell in line] for line in [heads, *rows])
    if not sys.stdout.isatty():
        print("\n".join(aligned(heads, rows)))
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold cyan", pad_edge=False, padding=(0, 2, 0, 0))
    narrowest = 0
    for at, head in enumerate(heads):
        is_text = not any(row[at].strip("+-.%0123456789, →") == "" and row[at] for row in rows)
        width = max(cell_len(line[at]) for line in [heads, *rows])
        least = min(width, NARROW_TEXT) if is_text else width
        table.add_column(Text(head), justify="left" if is_text else "right", min_width=least, overflow="fold")
        narrowest += least + 2
    for row in rows:
        table.add_row(*map(Text, row))  # a string would be read as markup
    console = Console()
    console.width = max(console.width, narrowest)
    console.print(table, soft_wrap=console.width == narrowest)


def print_scores(evaluation: "Evaluation", *, wide: bool) -> None:
    """Prints the table of an evaluation. Below the short one, a line says what its columns mean."""
    from tokengraft.measure.scores import legend

    heads, rows = evaluation.table(wide=wide)
    print_columns(heads, rows)
    if not wide:
        print_note(legend(heads))


def print_note(text: str) -> None:
    """Prints a line about a table: wrapped at spaces on a terminal, otherwise as it is."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, "dim"))
