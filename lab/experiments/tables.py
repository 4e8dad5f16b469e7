"""Tables in Markdown, and rows as CSV."""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from lab.page_parts import markdown

NOTHING = "–"


@dataclass(frozen=True)
class Table:
    """A table of a result page."""

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[object]]
    note: str = ""

    def markdown(self) -> str:
        """The title in bold, the note, and the table."""
        lines = [f"**{self.title}**", "", *([self.note, ""] if self.note else [])]
        rows = ([NOTHING if cell is None else cell for cell in row] for row in self.rows)
        return "\n".join([*lines, markdown(self.heads, rows)]) + "\n"


def number(value: float | None, digits: int = 3) -> str:
    """A number for a table; a dash if it was not measured."""
    return NOTHING if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1, *, signed: bool = False) -> str:
    """A share as a percentage. What is rounded to zero has no sign.

    >>> percent(0.0334, signed=True), percent(-0.00001, signed=True), percent(None)
    ('+3.3 %', '0.0 %', '–')
    """
    if value is None:
        return NOTHING
    rounded = round(100 * value, digits) or 0.0  # never -0.0
    return f"{rounded:{'+' if signed and rounded else ''}.{digits}f} %"


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of what was measured; None if nothing was."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def with_paper(ours: str, paper: object) -> str:
    """Our figure with the paper's in brackets."""
    return ours if paper is None else f"{ours} ({paper})"


def select(rows: Iterable[Mapping[str, Any]], **values: object) -> list[Mapping[str, Any]]:
    """The rows with some values."""
    found = list(rows)
    for name, value in values.items():
        found = [row for row in found if row.get(name) == value]
    return found


def only(rows: Iterable[Mapping[str, Any]], **values: object) -> Mapping[str, Any] | None:
    """The first row with some values; None if there is none."""
    return next(iter(select(rows, **values)), None)


def distinct(rows: Iterable[Mapping[str, Any]], name: str) -> list[Any]:
    """The values of a column, each once, in the order of the rows."""
    return list(dict.fromkeys(row[name] for row in rows if row.get(name) is not None))


def shown_language(rows: Iterable[Mapping[str, Any]]) -> str:
    """Estonian, or the first language of the rows."""
    languages = distinct(rows, "language")
    return "et" if "et" in languages else languages[0]


def groups(rows: Iterable[Mapping[str, Any]], *names: str) -> Iterator[tuple[tuple[Any, ...], list[Mapping[str, Any]]]]:
    """The values of some columns, and the rows that have them; the first column varies slowest."""
    rows = list(rows)
    for values in product(*(distinct(rows, name) for name in names)):
        if found := select(rows, **dict(zip(names, values, strict=True))):
            yield values, found


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV, with all columns that any row has. None is an empty field."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval=None, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _field(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def from_csv(text: str) -> list[dict[str, Any]]:
    """The rows of `to_csv`, with numbers as numbers.

    >>> from_csv(to_csv([{"model": "a", "size": 1000, "rate": 2.5, "unused": None}]))
    [{'model': 'a', 'size': 1000, 'rate': 2.5, 'unused': None}]
    """
    return [{name: _value(field) for name, field in row.items()} for row in csv.DictReader(io.StringIO(text))]


def _field(value: object) -> object:
    return f"{value:.7g}" if isinstance(value, float) else value


def _value(field: str | None) -> Any:
    if not field:
        return None
    if re.fullmatch(r"-?\d+", field):
        return int(field)
    return float(field) if re.fullmatch(r"-?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?", field) else field
