"""Measures of a segmentation, and `DocumentComparison`: documents with two tokenizers, batch after batch."""

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from math import fsum, log2
from typing import TYPE_CHECKING

from tokengraft.measure.segments import Segments
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np


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


def edit_distance(ours: "np.ndarray", theirs: "np.ndarray") -> float | None:
    """The number of token edits divided by the length of the longer segmentation.

    None without rapidfuzz, or if the two differ over more than `LONGEST_DIFFERENCE` tokens: the time is proportional
    to the product of the lengths. What both have at their beginning and end needs no edit and does not count.
    """
    different = _trimmed(ours, theirs)
    if not any(map(len, different)):
        return 0.0
    distance = levenshtein()
    if distance is None or max(map(len, different)) > LONGEST_DIFFERENCE:
        return None
    return distance(*(part.tolist() for part in different)) / max(len(ours), len(theirs))


def levenshtein() -> Callable[[list[int], list[int]], int] | None:
    """The edit distance of two lists; None without rapidfuzz."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return None
    distance: Callable[[list[int], list[int]], int] = Levenshtein.distance
    return distance


def _trimmed(ours: "np.ndarray", theirs: "np.ndarray") -> tuple["np.ndarray", "np.ndarray"]:
    """Two sequences without what they have in common at the beginning, then at the end.

    >>> import numpy as np
    >>> [part.tolist() for part in _trimmed(np.array([1, 2, 3, 3]), np.array([1, 4, 5, 3]))]
    [[2, 3], [4, 5]]
    """
    start = _common(ours, theirs)
    ours, theirs = ours[start:], theirs[start:]
    end = _common(ours[::-1], theirs[::-1])
    return ours[: len(ours) - end], theirs[: len(theirs) - end]


def _common(ours: "np.ndarray", theirs: "np.ndarray") -> int:
    """The length of the common beginning of two sequences."""
    length = min(len(ours), len(theirs))
    differs = ours[:length] != theirs[:length]
    return int(differs.argmax()) if differs.any() else length


def used_share(used: Collection[int], tokens: Collection[int]) -> float | None:
    """The share of ``tokens`` that are in ``used``."""
    return share(len(set(tokens) & set(used)), len(set(tokens)))


class DocumentComparison:
    """The documents of a text with two tokenizers, compared: the sum of its batches."""

    def __init__(self, ours: Tokenizer, base: Tokenizer) -> None:
        names, base_names = _token_names(ours, base)
        self.added = new_tokens(ours, base)
        self.unmeasured = 0
        """Documents without an edit distance: they differ over too many tokens, or rapidfuzz is not installed."""
        numbers: dict[Hashable, int] = {}
        self._ours, self._base = _Names(names, numbers), _Names(base_names, numbers)
        self._documents, self._wins, self._exact = 0, 0.0, 0
        self._distances = array("d")

    def add(self, segments: Segments, before: Segments) -> None:
        """Adds the tokens of a batch of documents with both tokenizers."""
        self._documents += len(segments.lengths)
        shorter, same = segments.lengths < before.lengths, segments.lengths == before.lengths
        self._wins += float(shorter.sum() + same.sum() / 2)
        ours, theirs = self._ours.of(segments.ids), self._base.of(before.ids)
        for place in range(len(segments.lengths)):
            mine = ours[segments.starts[place] : segments.starts[place + 1]]
            base = theirs[before.starts[place] : before.starts[place + 1]]
            is_same = len(mine) == len(base) and bool((mine == base).all())
            self._exact += is_same
            distance = 0.0 if is_same else edit_distance(mine, base)
            if distance is None:
                self.unmeasured += 1
            else:
                self._distances.append(distance)

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
    """Ids of a tokenizer as numbers that are the same for the same token of another one."""

    def __init__(self, names: Mapping[int, Hashable], numbers: dict[Hashable, int]) -> None:
        import numpy as np

        ids = sorted(names)  # a table by id could need gigabytes
        self._ids = np.array(ids, np.uint32)
        self._numbers = np.array([numbers.setdefault(names[token_id], len(numbers)) for token_id in ids], np.int64)

    def of(self, ids: "np.ndarray") -> "np.ndarray":
        """The numbers of ids."""
        import numpy as np

        return self._numbers[np.searchsorted(self._ids, ids)]


def new_tokens(ours: Tokenizer, base: Tokenizer) -> list[int]:
    """The ids of the tokens that another tokenizer lacks."""
    names, base_names = _token_names(ours, base)
    known = set(base_names.values())
    return [token_id for token_id, name in names.items() if name not in known]


def _token_names(ours: Tokenizer, theirs: Tokenizer) -> tuple[Mapping[int, Hashable], Mapping[int, Hashable]]:
    """Names of tokens for comparing two tokenizers: strings, or bytes if their kinds differ."""
    if ours.kind == theirs.kind:
        return ours.strings, theirs.strings
    return {token.id: token.bytes for token in ours.tokens}, {token.id: token.bytes for token in theirs.tokens}
