"""Tables and warnings as text: with colours on a terminal, plain text if the output is piped."""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tokengraft.errors import escaped
from tokengraft.representation import aligned

if TYPE_CHECKING:
    import argparse

    from tokengraft.measure.scores import Evaluation

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
    from tokengraft.measure.scores import LEGEND

    heads, rows = evaluation.table(wide=wide)
    print_columns(heads, rows)
    if not wide:
        print_note("; ".join(f"{head}: {LEGEND[head]}" for head in heads if head in LEGEND))


def print_note(text: str) -> None:
    """Prints a line about a table: wrapped at spaces on a terminal, otherwise as it is."""
    if not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console().print(Text(text, "dim"))
