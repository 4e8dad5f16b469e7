"""Paired bootstrap intervals of the ratio of two sums, such as the bits of two models for the same lines."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lab.experiments.tables import percent

SAMPLES = 10_000


@dataclass(frozen=True)
class Interval:
    """A relative change with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0

    @property
    def below_zero(self) -> bool:
        """Whether the whole interval is below zero."""
        return self.high < 0

    def __str__(self) -> str:
        low, high = (percent(x, signed=True).removesuffix(" %") for x in (self.low, self.high))
        return f"{percent(self.value, signed=True)} [{low}, {high}]"


def paired_change(ours: Sequence[float], theirs: Sequence[float], seed: int = 0) -> Interval:
    """sum(ours) / sum(theirs) - 1, with its 95 % interval. The values are of the same lines, in the same order.

    Lines are drawn with replacement. The same values give the same interval.

    >>> paired_change([2.0, 4.0], [1.0, 2.0])
    Interval(value=1.0, low=1.0, high=1.0)
    """
    if len(ours) != len(theirs) or not len(ours):
        raise ValueError(f"{len(ours)} and {len(theirs)} values cannot be paired")
    pairs = np.column_stack([ours, theirs]).astype(float)
    above, below = (_times_drawn(len(pairs), seed) @ pairs).T
    low, high = np.quantile(above / below - 1, (0.025, 0.975))
    total = pairs.sum(axis=0)
    return Interval(float(total[0] / total[1] - 1), float(low), float(high))


@lru_cache(maxsize=2)
def _times_drawn(lines: int, seed: int) -> np.ndarray:
    """How often each sample draws each line."""
    generator, counts = np.random.default_rng(seed), np.empty((SAMPLES, lines))
    for sample in counts:
        sample[:] = np.bincount(generator.integers(lines, size=lines), minlength=lines)
    return counts
