"""Measures of a segmentation, and `DocumentComparison`: documents with two tokenizers, batch after batch."""

from array import array
from collections.abc import Collection, Hashable, Iterable, Mapping
from math import fsum, log2
from typing import TYPE_CHECKING

from tokengraft import _core
from tokengraft.measure.segments import Segments
from tokengraft.tokenizer.tokenizer import Tokenizer

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
