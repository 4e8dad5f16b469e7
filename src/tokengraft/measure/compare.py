"""How two tokenizers differ: `compare` on a text, with examples; `DocumentComparison` batch after batch; sample texts.

The built-in sample texts are source code, Markdown, JSON, a chat and the like, which corpora of cleaned text lack. They
are measured when the vocabulary changes, so that damage to such text is seen. Nothing else uses them: they decide
neither what is removed nor what is protected.
"""

import re
from array import array
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from math import fsum, log2
from typing import TYPE_CHECKING, Any, NamedTuple

from tokengraft import _core
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import require_type
from tokengraft.measure.segments import (
    Segmenter,
    Segments,
    Text,
    TokenTotals,
    lost_bytes,
    read_text,
    text_warnings,
    token_totals,
)
from tokengraft.progress import stage
from tokengraft.representation import Table, sentences, shown
from tokengraft.tokenizer.kind import readable
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import plan

if TYPE_CHECKING:
    import numpy as np

RENYI_ORDER = 2.5
_NO_NUMBER = 0xFFFFFFFF
LONGEST_DIFFERENCE = 1 << 16
"""Tokens. Documents whose segmentations differ over more of them have no edit distance."""


def renyi_efficiency(frequencies: Iterable[int], order: float = RENYI_ORDER) -> float | None:
    """The Rényi entropy of token frequencies, divided by its maximum for as many types (Zouhar et al., 2023).

    >>> renyi_efficiency([5, 5, 5, 5]), round(renyi_efficiency([97, 1, 1, 1]), 3)
    (1.0, 0.037)

    None if fewer than two types occur, for which it is not defined.
    """
    counts = [count for count in frequencies if count > 0]
    total = sum(counts)
    if len(counts) < 2:
        return None
    power = fsum((count / total) ** order for count in counts)  # the same in any order
    return log2(power) / (1 - order) / log2(len(counts))


def share(part: float, whole: float) -> float | None:
    """``part / whole``; None if ``whole`` is 0."""
    return part / whole if whole else None


def edit_distances(ours: tuple["np.ndarray", "np.ndarray"], theirs: tuple["np.ndarray", "np.ndarray"]) -> "np.ndarray":
    """The token edits between the same documents of two segmentations, each as numbers and places.

    -1 if the two differ over more than `LONGEST_DIFFERENCE` tokens: the time is proportional to the product of the
    lengths. What both have at their beginning and end does not count.
    """
    import numpy as np

    def given(side: tuple["np.ndarray", "np.ndarray"]) -> tuple[bytes, bytes]:
        numbers, starts = side
        return numbers.astype(np.uint32).tobytes(), starts.astype(np.uint64).tobytes()

    return np.frombuffer(_core.edit_distances(given(ours), given(theirs), LONGEST_DIFFERENCE), np.int64)


def used_share(used: Collection[int], tokens: Collection[int]) -> float | None:
    """The share of ``tokens`` that are in ``used``."""
    return share(len(set(tokens) & set(used)), len(set(tokens)))


class DocumentComparison:
    """The documents of a text with two tokenizers, compared: the sum of its batches."""

    def __init__(self, ours: Tokenizer, base: Tokenizer) -> None:
        names, base_names = _token_names(ours, base)
        self.added = new_tokens(ours, base)
        self.unmeasured = 0
        """Documents without an edit distance: they differ over more than `LONGEST_DIFFERENCE` tokens."""
        numbers: dict[Hashable, int] = {}
        self._ours, self._base = _Names(names, numbers), _Names(base_names, numbers)
        self._documents, self._wins, self._exact = 0, 0.0, 0
        self._distances = array("d")

    def add(self, segments: Segments, before: Segments) -> None:
        """Adds the tokens of a batch of documents with both tokenizers."""
        import numpy as np

        self._documents += len(segments.lengths)
        shorter, same = segments.lengths < before.lengths, segments.lengths == before.lengths
        self._wins += float(shorter.sum() + same.sum() / 2)
        if segments is before:
            edits = np.zeros(len(segments.lengths), np.int64)
        else:
            ours, base = self._ours.of(segments.ids), self._base.of(before.ids)
            edits = edit_distances((ours, segments.starts), (base, before.starts))
        longer = np.maximum(np.maximum(segments.lengths, before.lengths), 1)
        measured = edits >= 0
        self._exact += int((edits == 0).sum())
        self.unmeasured += int((~measured).sum())
        self._distances.extend((edits / longer)[measured].tolist())

    @property
    def win_rate(self) -> float | None:
        """The share of documents with fewer tokens. Documents with as many count half."""
        return share(self._wins, self._documents)

    @property
    def exact_match(self) -> float | None:
        """The share of documents with unchanged segmentation."""
        return share(self._exact, self._documents)

    @property
    def edit_distance(self) -> float | None:
        """The mean over the documents that were measured; None if there is none."""
        return share(sum(self._distances), len(self._distances))

    @property
    def worst_edit_distance(self) -> float | None:
        """The largest of the documents that were measured; None if there is none."""
        return max(self._distances, default=None)


class _Names:
    """Ids of a tokenizer as numbers that are the same for the same token of another one. Given when they are needed."""

    def __init__(self, names: Mapping[int, Hashable], numbers: dict[Hashable, int]) -> None:
        import numpy as np

        self._names, self._numbers = names, numbers
        self._ids = np.sort(np.fromiter(names, np.uint32, len(names)))
        self._known = np.full(len(names), _NO_NUMBER, np.uint32)

    def of(self, ids: "np.ndarray") -> "np.ndarray":
        """The numbers of ids."""
        import numpy as np

        # Most vocabularies have no holes: then an id is its own place.
        places = ids if len(self._ids) and self._ids[-1] < len(self._ids) else np.searchsorted(self._ids, ids)
        for place in np.unique(places[self._known[places] == _NO_NUMBER]).tolist():
            name = self._names[int(self._ids[place])]
            self._known[place] = self._numbers.setdefault(name, len(self._numbers))
        return self._known[places]


def new_tokens(ours: Tokenizer, base: Tokenizer) -> list[int]:
    """The ids of the tokens that another tokenizer lacks."""
    if ours is base:
        return []
    names, base_names = _token_names(ours, base)
    new = {*names.values()}.difference(base_names.values())
    return [token_id for token_id, name in names.items() if name in new] if new else []


def _token_names(ours: Tokenizer, theirs: Tokenizer) -> tuple[Mapping[int, Hashable], Mapping[int, Hashable]]:
    """Names of tokens for comparing two tokenizers: strings, or bytes if their kinds differ."""
    if ours.kind == theirs.kind:
        return ours.strings, theirs.strings
    return {token.id: token.bytes for token in ours.tokens}, {token.id: token.bytes for token in theirs.tokens}


SHOWN = 5


@shown
class Document(NamedTuple):
    """A document and its tokens with two tokenizers."""

    text: str
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    """The bytes of each token."""


@shown
class TokenSaving(NamedTuple):
    """A new token, and how many tokens it saves."""

    token: str
    occurrences: int
    saved: int
    """The number of tokens that the first tokenizer needs for the same bytes, minus one, over all occurrences."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"token": readable(self.token)}


@shown
@dataclass(frozen=True)
class Comparison:
    """The differences between two tokenizers on one text."""

    documents: int
    tokens_before: int
    tokens_after: int
    shorter: int
    """Documents with fewer tokens."""
    longer: int
    gained: tuple[Document, ...]
    """Documents with the largest relative decrease in tokens."""
    lost: tuple[Document, ...]
    """Documents with the largest relative increase in tokens."""
    added: int
    """New tokens: those that the first tokenizer lacks."""
    savings: tuple[TokenSaving, ...]
    """The new tokens that save most."""
    unused: tuple[str, ...]
    """The new tokens that do not occur, by id."""
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the text was read, and what a tokenizer drops."""

    def _shown(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)} | {
            "unused": tuple(map(readable, self.unused))
        }

    def _facts(self) -> dict[str, int]:
        names = ("documents", "tokens_before", "tokens_after", "shorter", "longer", "added")
        return {name: getattr(self, name) for name in names} | {"unused": len(self.unused)}

    def _tables(self) -> Iterator[Table]:
        rows = (tuple(saving._shown().values()) for saving in self.savings)
        yield Table("new tokens that save most", ("token", "occurrences", "saved"), rows)
        for caption, documents in (("largest decreases", self.gained), ("largest increases", self.lost)):
            rows = ((document.text, len(document.before), len(document.after)) for document in documents)
            yield Table(caption, ("document", "tokens before", "tokens after"), rows)
        yield from sentences("warnings", self.warnings)


@stage("comparing tokenizers")
def compare(
    before: Tokenizer, after: Tokenizer, text: Text | Corpus, *, read_options: ReadOptions | None = None
) -> Comparison:
    """The differences between two tokenizers on a text.

    Args:
        before: The first tokenizer.
        after: The second tokenizer.
        text: Whatever `count` reads, or a `Text`.
        read_options: How to read the text; by default text files have one document per line.

    Raises:
        CorpusError: The text cannot be read, is empty, or is a file of counts.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> changed = tg.compare(tok, new, "et.txt")
        >>> changed.tokens_before, changed.tokens_after
        (18127, 9327)
    """
    require_type("before", before, Tokenizer)
    require_type("after", after, Tokenizer)
    text = text if isinstance(text, Text) else read_text("text", text, read_options)
    old, new = token_totals(before, text.documents), token_totals(after, text.documents)
    lengths = zip(old.lengths.tolist(), new.lengths.tolist(), strict=True)
    ratios = [b / a if a else 1.0 for a, b in lengths]
    by_ratio = sorted(range(len(ratios)), key=lambda at: (ratios[at], at))
    added, counted = new_tokens(after, before), new.counted
    spelled = [(Segmenter(tok), {token.id: token.bytes for token in tok.tokens}) for tok in (before, after)]

    def document(at: int) -> Document:
        ids = [(segmenter.segment([text.documents[at]]).ids.tolist(), table) for segmenter, table in spelled]
        sides = [tuple(table[token_id] for token_id in found) for found, table in ids]
        return Document(text.documents[at], sides[0], sides[1])

    return Comparison(
        documents=len(text.documents),
        tokens_before=int(old.lengths.sum()),
        tokens_after=int(new.lengths.sum()),
        shorter=sum(ratio < 1 for ratio in ratios),
        longer=sum(ratio > 1 for ratio in ratios),
        gained=tuple(document(at) for at in by_ratio[:SHOWN] if ratios[at] < 1),
        lost=tuple(document(at) for at in by_ratio[::-1][:SHOWN] if ratios[at] > 1),
        added=len(added),
        savings=tuple(_savings(before, after, added, counted)[:20]),
        unused=tuple(after.strings[i] for i in sorted(added) if not counted[i]),
        warnings=(*text_warnings(text.name, text), *_dropped("first", old), *_dropped("second", new)),
    )


def _dropped(which: str, segments: TokenTotals) -> Iterator[str]:
    if segments.lost:
        yield (
            f"the {which} tokenizer drops {lost_bytes(segments.lost):,} bytes of the text or replaces them by its "
            "unknown token: fewer tokens are no gain there"
        )


def _savings(before: Tokenizer, after: Tokenizer, added: list[int], counted: Counter[int]) -> list[TokenSaving]:
    sources = plan(before, after).sources
    pieces = {token_id: sources[token_id] for token_id in added if counted[token_id]}
    savings = [
        TokenSaving(after.strings[token_id], counted[token_id], counted[token_id] * (len(parts) - 1))
        for token_id, parts in pieces.items()
        if isinstance(parts, tuple)
    ]
    return sorted(savings, key=lambda saving: (-saving.saved, saving.token))


MOST = 0.01
"""A sample that needs a larger share of tokens more than before gets a warning."""

NAMED = 5
"""How many samples a message names."""
REMOVED = "add some to {}, protect its tokens with --protect FILE, or remove fewer tokens"
"""What helps if tokens were removed, with a place for the option that takes text whose tokens are kept."""
ADDED = "preserve some with --preserve FILES, or add fewer tokens"
"""What helps if tokens were only added."""


class SampleChange(NamedTuple):
    """The tokens of a sample text, before and after."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> float:
        """The change of the number of tokens, relative to that before."""
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def is_worse(self) -> bool:
        """Whether it needs clearly more tokens, by the figure that is shown: in tenths of a percent."""
        return round(self.change, 3) > MOST


@cache
def built_in_texts() -> dict[str, str]:
    """The sample texts by name."""
    content = resources.files("tokengraft.measure").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^=== (.+) ===\n", content, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def sample_changes(base: Tokenizer, new: Tokenizer) -> tuple[SampleChange, ...]:
    """The tokens that two tokenizers need for each sample text, the largest increase first."""
    texts = built_in_texts()
    before, after = (tokenizer.encode_batch([*texts.values()]) for tokenizer in (base, new))
    lengths = zip(texts, map(len, before), map(len, after), strict=True)
    return tuple(sorted((SampleChange(*each) for each in lengths), key=lambda each: -each.change))


def sample_warnings(changes: Sequence[SampleChange], remedy: str) -> tuple[str, ...]:
    """A warning that names the samples that need clearly more tokens than before, if there are any, and what helps."""
    worse = [f"{each.name} {each.change:+.1%}" for each in changes if each.is_worse]
    if not worse:
        return ()
    more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
    return (
        f"built-in sample texts need more tokens than before: {', '.join(worse[:NAMED])}{more}; if the model must "
        f"handle such text, {remedy}",
    )
