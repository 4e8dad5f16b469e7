"""The same commands on texts from ten megabytes to a gigabyte, and the exponents of their growth."""

import math
from pathlib import Path
from typing import Any

from lab.benchmarks.measure import in_python, in_turn, script, tokengraft
from lab.benchmarks.rows import LEARN, Setup

SIZES = (10_000_000, 30_000_000, 100_000_000, 300_000_000, 1_000_000_000, 3_000_000_000)
DISTINCT = """
import tokengraft as tg
print(json.dumps(len(tg.PretokenCounts.load(arguments[0]))))
"""
SERIES = ("wc", "count", "learn", "extend", "adapt")
ADAPTED = 300_000_000
"""Bytes from which on a text is also adapted to."""


def scaling(setup: Setup, sizes: tuple[int, ...], keep: Path | None, rounds: int = 2) -> dict[str, Any]:
    """One row for each size, and the exponent of each column: the slope of its logarithm over that of the size."""
    rows = [_row(setup, size, keep if size >= ADAPTED else None, rounds) for size in sizes]
    walls = {name: [(row["bytes"], row[name]["wall"]) for row in rows if name in row] for name in SERIES}
    exponents = {name: exponent(points) for name, points in walls.items()}
    exponents["distinct"] = exponent([(row["bytes"], row["distinct"]) for row in rows])
    return {"rows": rows, "exponents": exponents, "rounds": rounds}


def _row(setup: Setup, size: int, keep: Path | None, rounds: int) -> dict[str, Any]:
    text, counts = setup.scratch / "scaled.txt", setup.scratch / "scaled.parquet"
    script("texts", setup.text, size, text)
    runs = in_turn(setup.actions(setup.llama3, text, counts), rounds)
    runs["learn"] = in_python(LEARN, setup.llama3, counts, setup.tokens, rounds)
    if keep:
        out = setup.scratch / "swapped"
        arguments = ("--target", text, "--keep", keep, "--swap", "auto", "--out", out, "--force", "--quiet")
        runs |= in_turn({"adapt": lambda _: tokengraft("adapt", setup.llama3, *arguments)}, 1)
    row = {"bytes": text.stat().st_size, "distinct": in_python(DISTINCT, counts), **runs}
    text.unlink()
    counts.unlink()
    return row


def exponent(points: list[tuple[float, float]]) -> float | None:
    """The power of x by which y grows, fitted to the logarithms by least squares. None for fewer than two points.

    >>> round(exponent([(1, 5), (10, 50), (100, 500)]), 6)
    1.0
    """
    if len(points) < 2:
        return None
    xs, ys = ([math.log(value) for value in values] for values in zip(*points, strict=True))
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / spread
