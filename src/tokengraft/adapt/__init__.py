"""A model adapted to text in one call: `adapt`; what that would cost: `estimate`."""

from tokengraft.adapt.adapt import adapt
from tokengraft.adapt.estimate import Estimate, estimate
from tokengraft.adapt.options import KEEP, AdaptOptions, Sizes, Target
from tokengraft.adapt.result import Adaptation, TargetResult

__all__ = ["KEEP", "AdaptOptions", "Adaptation", "Estimate", "Sizes", "Target", "TargetResult", "adapt", "estimate"]
