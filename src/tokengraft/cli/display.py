"""Tables, warnings and tokens as text: with colours on a terminal, plain text if the output is piped."""

import sys
from collections.abc import Iterable

from tokengraft.errors import escaped
from tokengraft.representation import aligned
from tokengraft.tokenizer.alphabet import Kind, token_bytes
from tokengraft.tokenizer.inspect import Engine, IdRange, Inspection

MAX_RUNS = 10
MAX_CHARACTERS = 24
NARROW_TEXT = 10
"""The width to which a column of text is folded at most."""
ENGINES: dict[Engine, str] = {
    "hand-written scanner": "a hand-written scanner for this pipeline",
    "automata": "automata made from the steps of this pipeline",
    "tokenizers crate": "the `tokenizers` crate, about ten times slower: a step is one that no faster engine knows",
}


def describe(inspection: Inspection) -> list[tuple[str, str]]:
    """An inspection as rows of (label, text)."""
    rows = [
        ("kind", f"{inspection.kind} BPE"),
        ("pipeline", f"normalizer: {_steps(inspection.normalizer)}; pre-tokenizer: {_steps(inspection.pre_tokenizer)}"),
        ("counted with", ENGINES[inspection.engine]),
        ("tokens", _token_numbers(inspection)),
        ("merges", f"{inspection.merges:,}"),
        ("flags", f"ignore_merges {_on(inspection.ignore_merges)}, byte_fallback {_on(inspection.byte_fallback)}"),
        ("ids", _layout(inspection.id_layout)),
        ("embedding rows", f"{inspection.rows:,} (highest id + 1), {inspection.holes:,} of them without a token"),
        ("unreachable", _unreachable(inspection)),
        ("not UTF-8", f"{inspection.not_utf8:,} tokens are not valid UTF-8 by themselves"),
        ("shared bytes", f"{inspection.shared_bytes:,} tokens have the same bytes as another token"),
        ("longest", _longest(inspection)),
        ("other files", ", ".join(inspection.files) or "none"),
    ]
    return rows + list(_warnings(inspection))


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
        is_text = not any(row[at].strip("+-.%0123456789,") == "" and row[at] for row in rows)
        width = max(cell_len(line[at]) for line in [heads, *rows])
        least = min(width, NARROW_TEXT) if is_text else width
        table.add_column(Text(head), justify="left" if is_text else "right", min_width=least, overflow="fold")
        narrowest += least + 2
    for row in rows:
        table.add_row(*map(Text, row))  # a string would be read as markup
    console = Console()
    console.width = max(console.width, narrowest)
    console.print(table, soft_wrap=console.width == narrowest)


def readable(string: str, kind: Kind) -> str:
    """A token for display: its text, or its string in the vocabulary if it is not valid UTF-8. Long tokens are cut.

    >>> readable("Ġviá»ĩc", "byte-level"), readable("Ċ", "byte-level"), readable("á»", "byte-level")
    ('`␠việc`', '`\\\\n`', '`á»`')
    """
    try:
        text = token_bytes(string, kind).decode()
    except UnicodeDecodeError:
        text = string
    shown = "".join(map(_visible, text[:MAX_CHARACTERS]))
    return f"`{shown}{'…' if len(text) > MAX_CHARACTERS else ''}`"


def visible(text: str) -> str:
    """A text in one line: spaces as they are, line breaks and control characters escaped.

    >>> visible("a b\\n\\x1b[31m")
    'a b\\\\n\\\\x1b[31m'
    """
    return "".join(character if character == " " else _visible(character) for character in text)


def _visible(character: str) -> str:
    if character == " ":
        return "␠"
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _token_numbers(inspection: Inspection) -> str:
    learned = f"{inspection.learned:,} learned (of them {inspection.atomic:,} atomic)"
    return f"{inspection.tokens:,}: {learned}, {inspection.added:,} added ({inspection.special:,} special)"


def _tokens(strings: Iterable[str], kind: Kind) -> str:
    return " ".join(readable(string, kind) for string in strings)


def _longest(inspection: Inspection) -> str:
    return " ".join(
        f"{readable(s, inspection.kind)} ({len(token_bytes(s, inspection.kind))})" for s in inspection.longest
    )


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _steps(names: Iterable[str]) -> str:
    return " → ".join(names) or "none"


def _layout(runs: tuple[IdRange, ...]) -> str:
    shown = [f"{run.first:,}–{run.last:,} {run.use}" for run in runs[:MAX_RUNS]]
    more = [f"and {len(runs) - MAX_RUNS:,} more ranges"] if len(runs) > MAX_RUNS else []
    return ", ".join(shown + more)


def _unreachable(inspection: Inspection) -> str:
    if not inspection.unreachable:
        return "0: merges produce every learned token"
    whole = f", {inspection.usable_whole:,} of them usable as a whole pretoken" if inspection.ignore_merges else ""
    return f"{inspection.unreachable:,} by merges{whole}: " + _tokens(inspection.unreachable_examples, inspection.kind)


def _warnings(inspection: Inspection) -> Iterable[tuple[str, str]]:
    if inspection.missing_bytes:
        yield "warning", f"{inspection.missing_bytes} of the 256 bytes have no token: text with them is lost"
    if inspection.ignored_ids:
        token, listed, real = inspection.ignored_ids[0]
        yield (
            "warning",
            f"{len(inspection.ignored_ids):,} added tokens do not have the id that added_tokens lists: "
            f"{readable(token, inspection.kind)} is {real:,}, not {listed:,}. Loaders use the id in "
            "model.vocab, or the next free one",
        )
