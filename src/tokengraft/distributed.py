"""Counting in a framework of your own: count batches anywhere, then add up the parts."""

from tokengraft.counts.batches import BatchCounter, sum_partials

__all__ = ["BatchCounter", "sum_partials"]
