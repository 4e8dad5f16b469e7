"""The gains of continued training over naive extension, which tables, plots and claims of `extension` share."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import median

from lab.experiments.experiment import Row, Rows
from lab.experiments.intervals import gain_of
from lab.experiments.languages import language_of
from lab.experiments.tables import distinct, mean, percent, select


def pairs(rows: Rows, model: str, size: int, *, averaged: bool = True) -> list[tuple[Row, Row]]:
    """The rows of continued training and naive extension of every language that has both."""
    found: dict[str, dict[str, Row]] = {}
    for row in select(rows, size=size, model=model):
        if not averaged or language_of(row["language"]).averaged:
            found.setdefault(row["language"], {})[row["method"]] = row
    both = ("continued", "naive")
    return [tuple(by_method[name] for name in both) for by_method in found.values() if {*both} <= by_method.keys()]


def gain(ours: Row, theirs: Row, column: str = "bytes_per_token") -> float:
    """The relative difference."""
    return ours[column] / theirs[column] - 1


def models_of(rows: Rows) -> list[str]:
    return distinct(rows, "model")


def sizes_of(rows: Rows) -> list[int]:
    return sorted(size for size in distinct(rows, "size") if select(rows, size=size, method="continued"))


def cells_of(rows: Rows) -> Rows:
    """The rows of the languages of the paper that have a gain over naive extension."""
    return [row for row in rows if row.get("gain") is not None and language_of(row["language"]).averaged]


def median_gain(cells: Rows) -> float | None:
    return median(row["gain"] for row in cells) if cells else None


def better_and_worse(cells: Rows) -> tuple[int, int]:
    """How many intervals are above zero, and how many below."""
    intervals = [gain_of(row) for row in cells]
    return sum(one.above_zero for one in intervals), sum(one.below_zero for one in intervals)


def drop(row: Row) -> float:
    return row["by_merges"] / row["bytes_per_token"] - 1


def range_text(values: Sequence[float]) -> str:
    return f"{percent(min(values)).removesuffix(' %')} to {percent(max(values))}"


def paper_range(figures: Mapping[str, Mapping[int, float]]) -> str:
    values = [value for by_size in figures.values() for value in by_size.values()]
    return f"paper: {min(values)} to {max(values)} %"


def renyi_curve(rows: Rows, model: str, method: str) -> list[tuple[float, float]]:
    """Bytes per token and Rényi efficiency by size, means of the languages that have all sizes."""
    sizes = sizes_of(rows)
    place = ("continued", "naive").index(method)
    found = {size: {pair[place]["language"]: pair[place] for pair in pairs(rows, model, size)} for size in sizes}
    common = set.intersection(*map(set, found.values())) if found else set()
    columns = ("bytes_per_token", "renyi")
    return [tuple(mean(found[s][x][c] for x in sorted(common)) for c in columns) for s in sizes] if common else []


def at_rate(curve: list[tuple[float, float]], rate: float) -> float | None:
    """The value of a curve at a rate, between its points; None outside of it.

    >>> at_rate([(2.0, 0.6), (3.0, 0.5)], 2.5), at_rate([(2.0, 0.6), (3.0, 0.5)], 3.5)
    (0.55, None)
    """
    points = sorted(curve)
    for (left, low), (right, high) in pairwise(points):
        if left <= rate <= right and right > left:
            return low + (high - low) * (rate - left) / (right - left)
    return None
