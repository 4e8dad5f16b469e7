"""Measures of a segmentation. Each is a pure function of numbers or token sequences."""

from collections.abc import Collection, Hashable, Iterable, Sequence
from math import fsum, log2

RENYI_ORDER = 2.5


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


def win_rate(ours: Sequence[int], theirs: Sequence[int]) -> float | None:
    """The share of documents with fewer tokens. Documents with as many count half.

    >>> win_rate([3, 5, 7], [4, 5, 6])
    0.5
    """
    wins = sum((a < b) + (a == b) / 2 for a, b in zip(ours, theirs, strict=True))
    return share(wins, len(ours))


def exact_match(ours: Sequence[Sequence[Hashable]], theirs: Sequence[Sequence[Hashable]]) -> float | None:
    """The share of documents with unchanged segmentation."""
    return share(sum(list(a) == list(b) for a, b in zip(ours, theirs, strict=True)), len(ours))


def edit_distances(ours: Sequence[Sequence[Hashable]], theirs: Sequence[Sequence[Hashable]]) -> list[float] | None:
    """For each document the number of token edits divided by the longer segmentation. None without rapidfuzz."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return None
    return [Levenshtein.normalized_distance(a, b) for a, b in zip(ours, theirs, strict=True)]


def used_share(used: Collection[int], tokens: Collection[int]) -> float | None:
    """The share of ``tokens`` that are in ``used``."""
    return share(len(set(tokens) & set(used)), len(set(tokens)))
