"""`mix`: adds up the counts of several texts by share, not by size.

The counts of every text are multiplied by a whole factor that gives it its share, so that no count is rounded and equal
counts stay equal. The factors are the smallest that give the exact shares. If they are too large, they are scaled down
together and rounded to whole numbers of at least 1. This is the only rounding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from tokengraft.counts.pretoken_counts import PretokenCounts, as_weight
from tokengraft.errors import OptionError, Progress
from tokengraft.extend.continued import extend
from tokengraft.extend.extension import Extension
from tokengraft.extend.include import WordList
from tokengraft.extend.limits import Limits
from tokengraft.prune.order import PruneOrder
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 10**15 - 1
"""The maximum size of a mix. Sums stay far below 2^63, and a factor has at most 15 digits."""
SMALLEST_SHARE = Fraction(1, 1_000_000)
_MOST = 2**63 - 1


class Mix(NamedTuple):
    """Several texts as one table of counts."""

    counts: PretokenCounts
    unit: int = 1
    """The smallest factor: the count of one occurrence in the text with the smallest factor."""


def shares(weights: Mapping[str, int | Fraction | str]) -> dict[str, Fraction]:
    """Weights as shares of 1.

    >>> shares({"et": 2, "lv": "1"})
    {'et': Fraction(2, 3), 'lv': Fraction(1, 3)}

    Raises:
        OptionError: A weight is not a number above 0, or less than a millionth of all weights.
    """
    ratios = {name: as_weight(weight) for name, weight in weights.items()}
    total = sum(ratios.values(), Fraction(0))
    for name, ratio in ratios.items():
        if ratio < SMALLEST_SHARE * total:
            raise OptionError(
                f"the weight {weights[name]} of `{name}` is less than a millionth of all weights",
                hint=f"give `{name}` a larger weight, as NAME=FILES:WEIGHT, or leave it out",
            )
    return {name: ratio / total for name, ratio in ratios.items()}


def mix(parts: Sequence[tuple[PretokenCounts, Fraction]]) -> Mix:
    """Counts mixed by share. A single text is not changed.

    Args:
        parts: Counts, each with its share against the others. Only the ratios of shares matter.
    """
    sizes = [_size(counts) for counts, _ in parts]
    factors = whole_factors(sizes, [share for _, share in parts])
    scaled = [
        counts.scale(factor) if factor > 1 else counts for (counts, _), factor in zip(parts, factors, strict=True)
    ]
    mixed = scaled[0]
    for part in scaled[1:]:
        mixed += part
    return Mix(mixed, min(factors))


class Size(NamedTuple):
    """The size of the counted text."""

    pretokens: int
    bytes: int


def whole_factors(sizes: Sequence[Size], shares: Sequence[Fraction]) -> list[int]:
    """The factors that give every text its share of the pretokens.

    >>> whole_factors([Size(10, 50), Size(40, 200)], [Fraction(1, 2), Fraction(1, 2)])
    [4, 1]
    >>> whole_factors([Size(10, 50)], [Fraction(1, 7)])
    [1]
    """
    ratios = [share / max(size.pretokens, 1) for size, share in zip(sizes, shares, strict=True)]
    common = lcm(*(ratio.denominator for ratio in ratios))
    exact = [ratio.numerator * (common // ratio.denominator) for ratio in ratios]
    exact = [factor // gcd(*exact) for factor in exact]
    total = sum(factor * size.bytes for factor, size in zip(exact, sizes, strict=True))
    if total <= MAX_BYTES:
        return exact
    return [max(1, round(Fraction(factor * MAX_BYTES, total))) for factor in exact]


def _size(counts: PretokenCounts) -> Size:
    _, offsets, numbers = counts.table.columns()
    occurrences = np.frombuffer(numbers, "<u8")
    lengths = np.diff(np.frombuffer(offsets, "<u8"))
    return Size(int(occurrences.sum()), int((occurrences * lengths).sum()))


def extend_by_mix(
    tokenizer: Tokenizer,
    mixed: Mix,
    n: int,
    limits: Limits,
    *,
    preserve: PretokenCounts | None = None,
    include: WordList | None = None,
    progress: Progress | None = None,
) -> Extension:
    """The extension learned from a mix. Its minimum count and frequencies are divided by ``mixed.unit``."""
    scaled = replace(limits, min_count=min(limits.min_count * mixed.unit, _MOST))
    extension = extend(tokenizer, mixed.counts, n, limits=scaled, preserve=preserve, include=include, progress=progress)
    merges = tuple(merge._replace(frequency=merge.frequency // mixed.unit) for merge in extension.merges)
    refused = tuple(pair._replace(frequency=pair.frequency // mixed.unit) for pair in extension.refused)
    return replace(extension, merges=merges, refused=refused, min_count=limits.min_count)


def in_occurrences(order: PruneOrder, unit: int) -> PruneOrder:
    """The prune order with its counts divided by the unit of a mix."""
    removals = tuple(removal._replace(decided_by=removal.decided_by // unit) for removal in order.removals)
    return replace(order, removals=removals)
