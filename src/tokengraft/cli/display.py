"""Findings in words, for people: rich on a terminal, plain where the output is piped."""

import sys
from collections.abc import Iterable

from tokengraft.evaluate.evaluation import aligned
from tokengraft.tokenizer.alphabet import Kind, token_bytes
from tokengraft.tokenizer.inspect import IdRange, Inspection

MAX_RUNS = 10
MAX_CHARACTERS = 24


def describe(found: Inspection) -> list[tuple[str, str]]:
    """An inspection as rows of (label, text)."""
    rows = [
        ("kind", f"{found.kind} BPE"),
        ("pipeline", f"normalizer: {_steps(found.normalizer)}; pre-tokenizer: {_steps(found.pre_tokenizer)}"),
        ("tokens", f"{found.tokens:,}: {found.learned:,} learned (of them {found.atomic:,} atomic), {_added(found)}"),
        ("merges", f"{found.merges:,}"),
        ("flags", f"ignore_merges {_on(found.ignore_merges)}, byte_fallback {_on(found.byte_fallback)}"),
        ("ids", _layout(found.id_layout)),
        ("embedding rows", f"{found.rows:,} (highest id + 1), {found.holes:,} of them without a token"),
        ("unreachable", _unreachable(found)),
        ("not UTF-8", f"{found.not_utf8:,} tokens are no text by themselves"),
        ("shared bytes", f"{found.shared_bytes:,} tokens stand for the same bytes as another"),
        ("longest", _longest(found)),
        ("other files", ", ".join(found.files) or "none"),
    ]
    return rows + list(_warnings(found))


def print_table(rows: Iterable[tuple[str, str]]) -> None:
    """Prints rows of (label, text): a grid on a terminal, a line a row elsewhere."""
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
    """Prints warnings to stderr, a line each."""
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)


def print_columns(heads: list[str], rows: list[list[str]]) -> None:
    """Prints a table with heads: a grid on a terminal, aligned text elsewhere."""
    if not sys.stdout.isatty():
        print("\n".join(aligned(heads, rows)))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, header_style="bold cyan")
    for at, head in enumerate(heads):
        is_text = not any(row[at].strip("+-.%0123456789,") == "" and row[at] for row in rows)
        table.add_column(head, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def readable(string: str, kind: Kind) -> str:
    """A token fit to be read: its text where it is text, else as the vocabulary spells it; cut where long.

    >>> readable("Ġviá»ĩc", "byte-level"), readable("Ċ", "byte-level"), readable("á»", "byte-level")
    ('`␠việc`', '`\\\\n`', '`á»`')
    """
    try:
        text = token_bytes(string, kind).decode()
    except UnicodeDecodeError:
        text = string
    shown = "".join(map(_visible, text[:MAX_CHARACTERS]))
    return f"`{shown}{'…' if len(text) > MAX_CHARACTERS else ''}`"


def _visible(character: str) -> str:
    if character == " ":
        return "␠"
    return character if character.isprintable() else character.encode("unicode_escape").decode()


def _added(found: Inspection) -> str:
    return f"{found.added:,} added ({found.special:,} special)"


def _tokens(strings: Iterable[str], kind: Kind) -> str:
    return " ".join(readable(string, kind) for string in strings)


def _longest(found: Inspection) -> str:
    return " ".join(f"{readable(s, found.kind)} ({len(token_bytes(s, found.kind))})" for s in found.longest)


def _on(flag: bool) -> str:
    return "on" if flag else "off"


def _steps(names: Iterable[str]) -> str:
    return " → ".join(names) or "none"


def _layout(runs: tuple[IdRange, ...]) -> str:
    shown = [f"{run.first:,}–{run.last:,} {run.use}" for run in runs[:MAX_RUNS]]
    more = [f"and {len(runs) - MAX_RUNS:,} more runs"] if len(runs) > MAX_RUNS else []
    return ", ".join(shown + more)


def _unreachable(found: Inspection) -> str:
    if not found.unreachable:
        return "0: merges make every learned token"
    whole = f", {found.usable_whole:,} of them usable as a whole pretoken" if found.ignore_merges else ""
    return f"{found.unreachable:,} by merges{whole}: " + _tokens(found.unreachable_examples, found.kind)


def _warnings(found: Inspection) -> Iterable[tuple[str, str]]:
    if found.missing_bytes:
        yield "warning", f"{found.missing_bytes} of the 256 bytes have no token: text with them does not survive"
    if found.ignored_ids:
        token, listed, real = found.ignored_ids[0]
        yield (
            "warning",
            f"{len(found.ignored_ids):,} added tokens have another id than the file lists under added_tokens: "
            f"{readable(token, found.kind)} is {real:,}, not {listed:,} (the id in model.vocab, or the next free one)",
        )
