"""Measures of a segmentation. Each is a pure function of numbers or token sequences."""

from collections.abc import Callable, Collection, Iterable
from math import fsum, log2
from typing import TYPE_CHECKING

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

    Args:
        ours: The names of the tokens of a document, as numbers.
        theirs: The same of the other tokenizer.
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
