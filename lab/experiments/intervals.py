"""Paired bootstrap intervals of two sums, such as the bits of two models for the same lines."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from lab.experiments.tables import percent

SAMPLES = 10_000
T = (
    *((0, 12.71), (2, 4.303), (3, 3.182), (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262)),
    *((10, 2.228), (12, 2.179), (15, 2.131), (20, 2.086), (30, 2.042), (60, 2.000), (120, 1.980)),
)
"""Degrees of freedom, and how many standard errors a 95 % interval reaches."""


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
    return _drawn(tuple(ours), tuple(theirs), seed)


@lru_cache(maxsize=10_000)  # tables, plots and claims ask for the same
def _drawn(ours: tuple[float, ...], theirs: tuple[float, ...], seed: int) -> Interval:
    low, high = np.quantile(_resampled(ours, seed) / _resampled(theirs, seed) - 1, (0.025, 0.975))
    return Interval(float(np.sum(ours) / np.sum(theirs) - 1), float(low), float(high))


@lru_cache(maxsize=200)  # a side is compared with many others
def _resampled(values: tuple[float, ...], seed: int) -> np.ndarray:
    """The sum of the values of each sample."""
    return _times_drawn(len(values), seed) @ np.array(values, float)


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
    """The same of runs with other seeds: the change of their mean, uncertain by the lines and by the seeds.

    A bootstrap of two or three runs is too narrow. So lines are drawn as above, the spread of the runs gives the rest,
    and both variances together a t interval (Welch). Of one value for each run, the seeds alone give it.

    >>> change_of_runs([[2.0, 4.0], [2.0, 4.0]], [[1.0, 2.0], [1.0, 2.0]])
    Interval(value=1.0, low=1.0, high=1.0)
    """
    return _of_runs(ours, theirs, lambda above, below: above / below - 1)


def points_of_runs(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Interval:
    """The same for the difference of two means, such as shares of solved items."""
    n = np.shape(ours)[1]
    return _of_runs(ours, theirs, lambda above, below: (above - below) / n)


def _of_runs(
    ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]], compared: Callable[..., np.ndarray]
) -> Interval:
    sides = [np.asarray(side, float) for side in (ours, theirs)]
    n = sides[0].shape[1]
    if n != sides[1].shape[1]:
        raise ValueError(f"{n} and {sides[1].shape[1]} values cannot be paired")
    means = [side.mean(axis=0) for side in sides]
    drawn = compared(*(_resampled(tuple(mean), 0) for mean in means))
    totals = [mean.sum() for mean in means]
    # The variance that one side's seeds give the result, to the first order, with its degrees of freedom.
    parts = [(float(drawn.var()), n - 1)] if n > 1 else []
    for place, side in enumerate(sides):
        runs = side.sum(axis=1)
        if len(runs) > 1:
            changed = [compared(*(run if at == place else total for at, total in enumerate(totals))) for run in runs]
            parts.append((float(np.var(changed, ddof=1)) / len(runs), len(runs) - 1))
    value, variance = float(compared(*totals)), sum(part for part, _ in parts)
    freedom = variance**2 / sum(part**2 / n for part, n in parts) if variance else np.inf
    reach = _t(freedom) * variance**0.5
    return Interval(value, value - reach, value + reach)


def _t(freedom: float) -> float:
    """The 97.5th percentile of Student's distribution, from a table: rounded down to fewer degrees of freedom."""
    return next(value for least, value in reversed(T) if least <= freedom)


@lru_cache(maxsize=4)
def _times_drawn(lines: int, seed: int) -> np.ndarray:
    """How often each sample draws each line."""
    generator, counts = np.random.default_rng(seed), np.empty((SAMPLES, lines))
    for sample in counts:
        sample[:] = np.bincount(generator.integers(lines, size=lines), minlength=lines)
    return counts
