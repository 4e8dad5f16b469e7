"""Paired bootstrap intervals of two sums, such as the bits of two models for the same lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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

    def within(self, limit: float) -> bool:
        """Whether the whole interval is nearer to zero than a limit."""
        return -limit < self.low and self.high < limit

    def __str__(self) -> str:
        return self.text()

    def text(self, digits: int = 1) -> str:
        """In percent."""
        return self.points(digits).replace(" [", " % [")

    def points(self, digits: int = 1) -> str:
        """In percentage points, without a unit."""
        limits = (self.value, self.low, self.high)
        value, low, high = (percent(x, digits, signed=True).removesuffix(" %") for x in limits)
        return f"{value} [{low}, {high}]"


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


def gain_columns(ours: Sequence[float], theirs: Sequence[float], name: str = "gain") -> dict[str, float]:
    """The gain in bytes per token, by the tokens of each line. Columns of a row; `gain_of` reads them."""
    found = paired_change(theirs, ours)
    return {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}


def gain_of(row: Mapping[str, Any], name: str = "gain") -> Interval:
    """The interval that a row has in three columns."""
    return Interval(row[name], row[f"{name}_low"], row[f"{name}_high"])


def gains_of(rows: Iterable[Mapping[str, Any]], *names: str) -> list[Interval]:
    """The intervals of all rows that have them."""
    return [gain_of(row, name) for row in rows for name in names if row.get(name) is not None]


def extremes(intervals: Sequence[Interval], digits: int = 1) -> str:
    """The intervals with the smallest and the largest value."""
    ordered = sorted(intervals, key=lambda interval: interval.value)
    return " to ".join(interval.text(digits) for interval in (ordered[0], ordered[-1]))


def change_of_runs(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """The same of several runs with other seeds. Runs are drawn with replacement too, apart for both sides.

    >>> change_of_runs([[2.0, 4.0]], [[1.0, 2.0]])
    Interval(value=1.0, low=1.0, high=1.0)
    """
    return _of_runs(ours, theirs, lambda above, below: above / below - 1)


def points_of_runs(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """The difference of two means of several runs, such as shares of solved items."""
    n = np.shape(ours)[1]
    return _of_runs(ours, theirs, lambda above, below: (above - below) / n)


def _of_runs(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], compared: Callable[..., np.ndarray]
) -> Interval:
    sides = [np.asarray(side, float) for side in (ours, theirs)]
    n = sides[0].shape[1]
    if n != sides[1].shape[1]:
        raise ValueError(f"{n} and {sides[1].shape[1]} values cannot be paired")
    generator = np.random.default_rng(1)
    sums = []
    for side in sides:
        runs = generator.multinomial(len(side), np.full(len(side), 1 / len(side)), size=SAMPLES) / len(side)
        sums.append((_times_drawn(n, 0) @ side.T * runs).sum(axis=1))
    low, high = np.quantile(compared(*sums), (0.025, 0.975))
    value = compared(*(side.sum(axis=1).mean() for side in sides))
    return Interval(float(value), float(low), float(high))


@lru_cache(maxsize=4)
def _times_drawn(lines: int, seed: int) -> np.ndarray:
    """How often each sample draws each line."""
    generator, counts = np.random.default_rng(seed), np.empty((SAMPLES, lines))
    for sample in counts:
        sample[:] = np.bincount(generator.integers(lines, size=lines), minlength=lines)
    return counts
