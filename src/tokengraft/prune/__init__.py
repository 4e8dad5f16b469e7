"""Removing tokens: `prune_order` decides which are removed first, `PruneOrder` is what it decided."""
