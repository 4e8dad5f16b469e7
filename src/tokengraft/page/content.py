"""What a page shows: the tokenizers, texts before and after, examples of tokens."""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from tokengraft.checkpoint.result import Transplant
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.learn.extension import Extension
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import Segmenter, Text, TokenTotals, batches, token_totals
from tokengraft.page.pack import varints
from tokengraft.pruning.cost import PrunePoint
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.marks import joined_like
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import Check
from tokengraft.vocab_plan import VocabPlan

Role = Literal["target", "keep", "text"]
BASE, NEW = "base", "new"
"""The names of the two tokenizers in the evaluation."""


class NextStep(NamedTuple):
    """What to do with the result of an adaptation."""

    what: str
    why: str
    """One sentence."""
    command: list[str]

    @property
    def lines(self) -> str:
        """The command for a shell, every option on a line of its own."""
        return "".join((" \\\n  " if part.startswith("--") else " ") + shlex.quote(part) for part in self.command)[1:]


@dataclass(frozen=True)
class ReportText:
    """A text that both tokenizers are measured on."""

    name: str
    measured_on: str
    """What the measures are from, such as `held-out documents`."""
    role: Role = "text"
    documents: tuple[str, ...] = ()
    """The documents that are measured and shown; none if there are only counts."""
    counts: PretokenCounts | None = None
    """Where the frequencies of tokens are from; by default from the documents."""

    @classmethod
    def of(cls, name: str, measured_on: str, text: Text | PretokenCounts) -> "ReportText":
        """A text that was opened."""
        if isinstance(text, PretokenCounts):
            return cls(name, measured_on, counts=text)
        return cls(name, measured_on, documents=text.documents)

    @property
    def source(self) -> Text | PretokenCounts:
        """What is measured."""
        return Text(self.name, self.documents) if self.counts is None or self.documents else self.counts


@dataclass(frozen=True)
class Content:
    """Two tokenizers, and everything that is known about the way from one to the other."""

    title: str
    base: Tokenizer
    new: Tokenizer
    plan: VocabPlan
    texts: tuple[ReportText, ...]
    evaluation: Evaluation
    """Of the tokenizers `base` and `new` on the texts."""
    check: Check | None = None
    pruned: Tokenizer | None = None
    """What the extension was learned for; None if it was the base."""
    extension: Extension | None = None
    size_reason: str | None = None
    """How the number of tokens was chosen."""
    training_text: int | None = None
    """Bytes of target text that the model will be trained on; None if it is the counted text."""
    prune_curve: tuple[PrunePoint, ...] = ()
    """What it costs to remove more or fewer tokens."""
    transplant: Transplant | None = None
    next_step: NextStep | None = None
    warnings: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    """What was asked: `command`, `date`, `versions`, `options`, and `inputs` as a list of mappings."""
    bits: Mapping[str, Any] | None = None
    """An evaluation of models, as its JSON has it."""

    @cached_property
    def token_totals(self) -> dict[tuple[str, str], TokenTotals]:
        """The number of tokens of every text that has documents, by tokenizer and text."""
        return {
            (side, text.name): token_totals(tokenizer, text.documents)
            for text in self.texts
            for side, tokenizer in ((BASE, self.base), (NEW, self.new))
            if text.documents
        }

    @cached_property
    def added(self) -> list[int]:
        """The ids of new tokens."""
        return [token_id for token_id, source in enumerate(self.plan.sources) if isinstance(source, tuple)]

    @cached_property
    def frequencies(self) -> dict[tuple[str, str], Mapping[int, int]]:
        """How often each token occurs in each text, by tokenizer and text."""
        found: dict[tuple[str, str], Mapping[int, int]] = {}
        # Counts have the pretokens of the new tokenizer.
        for side, tokenizer in ((BASE, joined_like(self.base, self.new)), (NEW, self.new)):
            for text in self.texts:
                totals = self.token_totals.get((side, text.name))
                counted = totals.counted if totals else Counter()
                found[side, text.name] = counted if text.counts is None else text.counts.tokens(tokenizer)
        return found


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
        for change in new:
            document = text.documents[change.place]
            cut = document[:CHARACTERS]
            yield {
                "text": text.name,
                "sort": sort,
                "before": change.before,
                "after": change.after,
                "content": cut,
                "isCut": len(cut) < len(document),
                "base": content.base.encode(cut),
                "new": content.new.encode(cut),
            }


AROUND = 48
"""Bytes of text before and after a token."""
MOST_BYTES = 600_000
"""Bytes of text with examples in a page, for each tokenizer. Tokens that are left without one are counted."""

LONGEST = 1 << 20
"""Characters. Longer documents have no examples: the place of every token would need gigabytes."""


class Examples(NamedTuple):
    """Examples of tokens."""

    snippets: tuple[str, ...]
    places: Mapping[int, tuple[int, int, int]]
    """By id: the number of the snippet, and where the token begins and ends in it, in UTF-16 as JavaScript counts."""

    def columns(self, order: Iterable[int]) -> bytes:
        """The places as numbers for tokens in some order: 0 without an example; else 1 + snippet, start, end."""
        found = (self.places.get(token_id) for token_id in order)
        return varints(value for place in found for value in ((place[0] + 1, *place[1:]) if place else (0,)))


def examples(tokenizer: Tokenizer, wanted: Iterable[int], texts: Iterable[Iterable[str]]) -> Examples:
    """An example for each of some tokens that occurs in the documents, until the snippets have `MOST_BYTES`."""
    missing, strings = set(wanted), tokenizer.strings
    snippets: list[str] = []
    places: dict[int, tuple[int, int, int]] = {}
    size = 0
    for document, ids in _in_turn(tokenizer, texts):
        if missing.isdisjoint(ids):
            continue
        data, window = document.encode(), (0, 0)
        for token_id, start, end in _spans([(i, token_bytes(strings[i], tokenizer.kind)) for i in ids], data):
            if token_id not in missing:
                continue
            if end + AROUND // 3 > window[1] and (end > window[1] or window[1] < len(data)):
                window = _window(data, start, end)
                snippets.append(data[slice(*window)].decode(errors="replace"))
                size += window[1] - window[0]
            missing.discard(token_id)
            place = _length(data[window[0] : start])
            places[token_id] = (len(snippets) - 1, place, place + _length(data[start:end]))
        if size > MOST_BYTES or not missing:
            break
    return Examples(tuple(snippets), places)


def _in_turn(tokenizer: Tokenizer, texts: Iterable[Iterable[str]]) -> Iterator[tuple[str, list[int]]]:
    """The documents with their tokens, one of each text in turn: no text takes all the room."""
    segmenter = Segmenter(tokenizer)

    def encoded(documents: Iterable[str]) -> Iterator[tuple[str, list[int]]]:
        for batch in batches(document for document in documents if len(document) <= LONGEST):
            segments = segmenter.segment(batch)
            yield from ((document, segments.document(place).tolist()) for place, document in enumerate(batch))

    for row in zip_longest(*map(encoded, texts)):
        yield from (pair for pair in row if pair is not None)


def _spans(pieces: Sequence[tuple[int, bytes]], data: bytes) -> Iterator[tuple[int, int, int]]:
    """The tokens of a document with the bytes where they begin and end; none if they do not spell the document."""
    spelled = b"".join(piece for _, piece in pieces)
    if spelled not in (data, b" " + data):  # SentencePiece writes a space before the text
        return
    at = len(data) - len(spelled)
    for token_id, piece in pieces:
        yield token_id, max(at, 0), at + len(piece)
        at += len(piece)


def _window(data: bytes, start: int, end: int) -> tuple[int, int]:
    """The text around some bytes, without parts of characters at its ends."""
    left, right = max(start - AROUND, 0), min(end + AROUND, len(data))
    while left < start and data[left] & 0xC0 == 0x80:
        left += 1
    while right > end and right < len(data) and data[right] & 0xC0 == 0x80:
        right -= 1
    return left, right


def _length(data: bytes) -> int:
    return len(data.decode(errors="ignore").encode("utf-16-le")) // 2
