"""Removing tokens: `prune_order` decides which are removed first, `PruneOrder` is what it decided."""

from tokengraft.pruning.order import Removal

__all__ = ["Removal"]
