"""The complete pipeline in one call: `adapt`. `estimate` is its dry run."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft.pipeline.adapt import Estimate, estimate
    from tokengraft.pipeline.draft import DraftVocabulary
    from tokengraft.pipeline.options import Sizes
    from tokengraft.pipeline.result import TargetResult

__all__ = ["DraftVocabulary", "Estimate", "Sizes", "TargetResult", "estimate"]


def __getattr__(name: str) -> Any:
    """Imports a public name at its first use: `extend` and `prune` need only a part of the pipeline."""
    modules = {
        "DraftVocabulary": "draft",
        "Estimate": "adapt",
        "estimate": "adapt",
        "Sizes": "options",
        "TargetResult": "result",
    }
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{modules[name]}"), name)
