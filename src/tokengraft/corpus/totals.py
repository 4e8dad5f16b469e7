"""`Totals`: how much of a corpus was read, and how much of it could not be."""

from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Totals:
    """What was read."""

    documents: int = 0
    bytes: int = 0
    """Of text, in UTF-8."""
    characters: int = 0
    pretokens: int = 0
    """Occurrences, before any minimum count."""
    replaced: int = 0
    """Stretches that were not UTF-8, each replaced by U+FFFD."""
    skipped: int = 0
    """Documents and files left out because they could not be read."""

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
