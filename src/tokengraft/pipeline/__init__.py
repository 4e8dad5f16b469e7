"""The complete pipeline in one call: `adapt`. `estimate` is its dry run."""

from tokengraft.pipeline.adapt import Estimate, estimate
from tokengraft.pipeline.request import Sizes
from tokengraft.pipeline.result import TargetResult

__all__ = ["Estimate", "Sizes", "TargetResult", "estimate"]
