"""Measures of a segmentation, and `DocumentComparison`: documents with two tokenizers, batch after batch."""

from array import array
from collections.abc import Iterable
from math import fsum, log2
from typing import Any

import numpy as np

from tokengraft import _core
from tokengraft.measure.segments import Segments
from tokengraft.tokenizer.tokenizer import Tokenizer

RENYI_ORDER = 2.5
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


def edit_distances(
    ours: tuple[np.ndarray, np.ndarray], theirs: tuple[np.ndarray, np.ndarray], longest: int
) -> np.ndarray:
    """The token edits between the same documents of two segmentations, each as numbers and places.

    -1 if the two differ over more than ``longest`` tokens: the time is proportional to the product of the lengths. What
    both have at their beginning and end does not count.
    """

    def given(side: tuple[np.ndarray, np.ndarray]) -> tuple[bytes, bytes]:
        numbers, starts = side
        return numbers.astype(np.uint32).tobytes(), starts.astype(np.uint64).tobytes()

    return np.frombuffer(_core.edit_distances(given(ours), given(theirs), longest), np.int64)


class DocumentComparison:
    """The documents of a text with two tokenizers, compared: the sum of its batches."""

    def __init__(self, ours: Tokenizer, base: Tokenizer, *, edits: bool = True) -> None:
        self._longest = LONGEST_DIFFERENCE if edits else 0
        self.unmeasured = 0
        """Documents without an edit distance: they differ over more than `LONGEST_DIFFERENCE` tokens."""
        self._ours, self._base = _numbered(ours, base)
        self.added = self._ours.missing_in(self._base)
        """The ids of the tokens that the base lacks."""
        self._documents, self._wins, self._exact = 0, 0.0, 0
        self._distances = array("d")

    def add(self, segments: Segments, before: Segments, has_text: np.ndarray) -> None:
        """Adds the tokens of a batch of documents with both tokenizers.

        ``has_text`` is false for documents to leave out: a document without text is the same with every tokenizer.
        """
        self._documents += int(has_text.sum())
        shorter, same = segments.lengths < before.lengths, segments.lengths == before.lengths
        self._wins += float((shorter & has_text).sum() + (same & has_text).sum() / 2)
        if segments is before:
            edits = np.zeros(len(segments.lengths), np.int64)
        elif not self._longest:
            edits = np.where(self._are_same(segments, before, same), 0, -1)
        else:
            ours, base = self._ours.of(segments.ids), self._base.of(before.ids)
            edits = edit_distances((ours, segments.starts), (base, before.starts), self._longest)
        longer = np.maximum(np.maximum(segments.lengths, before.lengths), 1)
        measured = (edits >= 0) & has_text
        self._exact += int(((edits == 0) & has_text).sum())
        if self._longest:
            self.unmeasured += int((edits < 0).sum())
            self._distances.extend((edits / longer)[measured].tolist())

    def _are_same(self, segments: Segments, before: Segments, as_long: np.ndarray) -> np.ndarray:
        """Whether each document has the same tokens, given which have as many."""
        ours = self._ours.of(segments.ids[np.repeat(as_long, segments.lengths)])
        base = self._base.of(before.ids[np.repeat(as_long, before.lengths)])
        documents = np.repeat(as_long.nonzero()[0], segments.lengths[as_long])
        are_same = as_long.copy()
        are_same[documents[ours != base]] = False
        return are_same

    def measures(self) -> dict[str, Any]:
        """The measures of a `Score` that compare documents. Edit distances are None if no document was measured."""
        return {
            "win_rate": share(self._wins, self._documents),
            "exact_match": share(self._exact, self._documents),
            "edit_distance": share(sum(self._distances), len(self._distances)),
            "worst_edit_distance": max(self._distances, default=None),
        }


class _Numbers:
    """Numbers for the tokens of a tokenizer, by id."""

    def __init__(self, ids: bytes, numbers: bytes) -> None:
        self.ids, self.numbers = np.frombuffer(ids, np.uint32), np.frombuffer(numbers, np.uint32)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """The numbers of ids."""
        # Most vocabularies have no holes: then an id is its own place.
        has_holes = len(self.ids) and self.ids[-1] >= len(self.ids)
        return self.numbers[np.searchsorted(self.ids, ids) if has_holes else ids]

    def missing_in(self, other: "_Numbers") -> list[int]:
        """The ids of the tokens that another tokenizer lacks."""
        ids: list[int] = self.ids[~np.isin(self.numbers, other.numbers)].tolist()
        return ids


def _numbered(ours: Tokenizer, base: Tokenizer) -> tuple[_Numbers, _Numbers]:
    """Numbers for the tokens of two tokenizers, the same for the same token.

    Tokens are the same if their strings are, or their bytes if the two kinds differ.
    """
    if ours.kind == base.kind:
        columns = ours.core_vocabulary.numbered(ours.unlisted, base.core_vocabulary, base.unlisted)
        return _Numbers(*columns[0]), _Numbers(*columns[1])
    numbers: dict[bytes, int] = {}
    both = [
        _Numbers(
            array("I", [token.id for token in tokenizer.tokens]).tobytes(),
            array("I", [numbers.setdefault(token.bytes, len(numbers)) for token in tokenizer.tokens]).tobytes(),
        )
        for tokenizer in (base, ours)
    ]
    return both[1], both[0]


def new_tokens(ours: Tokenizer, base: Tokenizer) -> list[int]:
    """The ids of the tokens that another tokenizer lacks."""
    new, old = _numbered(ours, base)
    return new.missing_in(old)
