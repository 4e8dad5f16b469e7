"""`Totals`: how much of a corpus was read, replaced and skipped."""

from dataclasses import dataclass, fields

from tokengraft.arguments import checked
from tokengraft.representation import shown


@shown
@checked
@dataclass(frozen=True)
class Totals:
    """How much of a corpus was read, replaced and skipped."""

    documents: int = 0
    bytes: int = 0
    """Of text, in UTF-8."""
    characters: int = 0
    pretokens: int = 0
    """Occurrences, before any minimum count."""
    replaced: int = 0
    """Byte sequences that were not UTF-8, each replaced by U+FFFD."""
    skipped: int = 0
    """Documents and files that were skipped because they could not be read."""

    @checked
    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
