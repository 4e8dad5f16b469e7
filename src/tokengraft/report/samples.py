"""`samples`: documents that the reader shows, split by both tokenizers."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from tokengraft.report.content import BASE, NEW, Content, ReportText
from tokengraft.tokenizer.tokenizer import Tokenizer

EACH = 4
"""Documents of each sort that the page shows for a text."""
CHARACTERS = 1_500
"""Longer documents are cut there."""
LOST, GAINED, TYPICAL = "most tokens lost", "most tokens saved", "one of the first"


class Change(NamedTuple):
    """How the number of tokens of a document changed."""

    place: int
    before: int
    after: int

    @property
    def ratio(self) -> float:
        """Tokens after, divided by tokens before."""
        return self.after / self.before if self.before else 1.0


def changes(content: Content, text: ReportText) -> list[Change]:
    """The change of every document, in order."""
    if not text.documents:
        return []
    before, after = (content.token_totals[side, text.name].lengths.tolist() for side in (BASE, NEW))
    return [Change(place, *counts) for place, counts in enumerate(zip(before, after, strict=True))]


def samples(content: Content, text: ReportText) -> Iterator[dict[str, Any]]:
    """The documents with the largest relative changes, and the first ones that have at least 40 characters."""
    found = changes(content, text)
    by_ratio = sorted(found, key=lambda change: (change.ratio, change.place))
    sorts = {
        LOST: [change for change in by_ratio[::-1] if change.ratio > 1],
        GAINED: [change for change in by_ratio if change.ratio < 1],
        TYPICAL: [change for change in found if len(text.documents[change.place]) >= 40] or found,
    }
    shown: set[int] = set()
    for sort, ordered in sorts.items():
        new = [change for change in ordered if change.place not in shown][:EACH]
        shown |= {change.place for change in new}
        yield from (_sample(content, text, change, sort) for change in new)


def _sample(content: Content, text: ReportText, change: Change, sort: str) -> dict[str, Any]:
    document = text.documents[change.place]
    cut = document[:CHARACTERS]
    return {
        "text": text.name,
        "sort": sort,
        "before": change.before,
        "after": change.after,
        "content": cut,
        "isCut": len(cut) < len(document),
        "base": _ids(content.base, cut),
        "new": _ids(content.new, cut),
    }


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text)
