"""The complete pipeline in one call: `adapt`. `estimate` is its dry run."""

from tokengraft.adapt.adapt import adapt
from tokengraft.adapt.estimate import Estimate, estimate
from tokengraft.adapt.options import KEEP, AdaptOptions, Sizes, Target
from tokengraft.adapt.result import Adaptation, TargetResult

__all__ = ["KEEP", "AdaptOptions", "Adaptation", "Estimate", "Sizes", "Target", "TargetResult", "adapt", "estimate"]
