"""Removing tokens: `prune_order` decides which are removed first, `PruneOrder` is what it decided."""

from tokengraft.prune.methods import METHODS, Method, prune_order
from tokengraft.prune.order import PruneOrder, Removal
from tokengraft.prune.removable import Protection

__all__ = ["METHODS", "Method", "Protection", "PruneOrder", "Removal", "prune_order"]
