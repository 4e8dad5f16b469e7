"""Pretoken counts: `count` reads a corpus once, `PretokenCounts` is the result, in memory and as a Parquet file."""

from tokengraft.counts.count import HeldOutCounts, count, count_with_hold_out, reading_warnings
from tokengraft.counts.options import CountOptions, HoldOut
from tokengraft.counts.pretoken_counts import PretokenCounts

__all__ = [
    "CountOptions",
    "HeldOutCounts",
    "HoldOut",
    "PretokenCounts",
    "count",
    "count_with_hold_out",
    "reading_warnings",
]
