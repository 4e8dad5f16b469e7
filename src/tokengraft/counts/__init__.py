"""Pretoken counts: `count` reads a corpus once, `PretokenCounts` is the result, in memory and as a Parquet file."""

from tokengraft.counts.threads import HoldOut

__all__ = ["HoldOut"]
