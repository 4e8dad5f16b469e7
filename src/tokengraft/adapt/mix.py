"""Counts of several texts mixed by share, not by size.

Every text is brought to its share of one common total by a whole factor, so that nothing is rounded away and equal
counts stay equal. The factors are the smallest that give the exact shares. Where these are too large to count with,
they are scaled down together and rounded to whole numbers, at least 1: the one rounding there is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from tokengraft.counts.pretoken_counts import PretokenCounts, as_weight
from tokengraft.errors import OptionError
from tokengraft.extend import Extension, Limits, extend
from tokengraft.prune import PruneOrder
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 10**15 - 1
"""Of a mix. Sums over it stay far below 2^63, and a factor has at most 15 digits."""
SMALLEST_SHARE = Fraction(1, 1_000_000)
_MOST = 2**63 - 1


class Mix(NamedTuple):
    """Several texts as one table of counts."""

    counts: PretokenCounts
    unit: int = 1
    """The smallest factor: one occurrence in the text that was multiplied least counts as much."""


def shares(weights: Mapping[str, int | Fraction | str]) -> dict[str, Fraction]:
    """Weights as shares of 1.

    >>> shares({"et": 2, "lv": "1"})
    {'et': Fraction(2, 3), 'lv': Fraction(1, 3)}

    Raises:
        OptionError: A weight is no number above 0, or so small beside the others that it would be lost.
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
    """Counts mixed by share. One text alone is taken as it is.

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
    """How much text a table of counts stands for."""

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


def extend_by_mix(tokenizer: Tokenizer, mixed: Mix, n: int, limits: Limits) -> Extension:
    """The extension by a mix; its minimum count and its frequencies are in occurrences, not in multiples of them."""
    scaled = replace(limits, min_count=min(limits.min_count * mixed.unit, _MOST))
    extension = extend(tokenizer, mixed.counts, n, limits=scaled)
    merges = tuple(merge._replace(frequency=merge.frequency // mixed.unit) for merge in extension.merges)
    return replace(extension, merges=merges, min_count=limits.min_count)


def in_occurrences(order: PruneOrder, unit: int) -> PruneOrder:
    """The prune order by a mix, with the counts that decided it in occurrences."""
    removals = tuple(removal._replace(decided_by=removal.decided_by // unit) for removal in order.removals)
    return replace(order, removals=removals)
