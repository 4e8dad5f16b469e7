"""Extend and prune the BPE tokenizer of a pre-trained language model, and its checkpoint with it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft._core import __version__
    from tokengraft.checkpoint.in_memory import transplant_model
    from tokengraft.checkpoint.result import Transplant
    from tokengraft.checkpoint.transplant import transplant
    from tokengraft.corpus.options import ReadOptions
    from tokengraft.counts.count import count
    from tokengraft.counts.pretoken_counts import PretokenCounts
    from tokengraft.counts.threads import CountOptions
    from tokengraft.errors import TokengraftError
    from tokengraft.formats import load
    from tokengraft.formats.convert import convert
    from tokengraft.learn.continued import extend
    from tokengraft.learn.extension import Extension
    from tokengraft.learn.limits import Limits
    from tokengraft.measure.compare import compare
    from tokengraft.measure.evaluate import Evaluation, evaluate
    from tokengraft.page.report import report
    from tokengraft.pipeline.adapt import adapt
    from tokengraft.pipeline.options import AdaptOptions, Target
    from tokengraft.pipeline.result import Adaptation
    from tokengraft.pruning.order import PruneOrder, prune, prune_order
    from tokengraft.pruning.removable import Protection
    from tokengraft.tokenizer.inspect import inspect
    from tokengraft.tokenizer.tokenizer import Tokenizer
    from tokengraft.verify.check import check
    from tokengraft.verify.finding import Check
    from tokengraft.verify.save import save
    from tokengraft.verify.serving.check_serving import check_serving
    from tokengraft.vocab_plan import VocabPlan, plan

__all__ = [
    "AdaptOptions",
    "Adaptation",
    "Check",
    "CountOptions",
    "Evaluation",
    "Extension",
    "Limits",
    "PretokenCounts",
    "Protection",
    "PruneOrder",
    "ReadOptions",
    "Target",
    "TokengraftError",
    "Tokenizer",
    "Transplant",
    "VocabPlan",
    "__version__",
    "adapt",
    "check",
    "check_serving",
    "compare",
    "convert",
    "count",
    "counts",
    "distributed",
    "evaluate",
    "extend",
    "inspect",
    "learn",
    "load",
    "measure",
    "pipeline",
    "plan",
    "prune",
    "prune_order",
    "report",
    "save",
    "tokenizer",
    "train",
    "transplant",
    "transplant_model",
]

_MODULES = {
    "_core": ("__version__",),
    "checkpoint.in_memory": ("transplant_model",),
    "checkpoint.result": ("Transplant",),
    "checkpoint.transplant": ("transplant",),
    "corpus.options": ("ReadOptions",),
    "counts.count": ("count",),
    "counts.pretoken_counts": ("PretokenCounts",),
    "counts.threads": ("CountOptions",),
    "errors": ("TokengraftError",),
    "formats": ("load",),
    "formats.convert": ("convert",),
    "learn.continued": ("extend",),
    "learn.extension": ("Extension",),
    "learn.limits": ("Limits",),
    "measure.compare": ("compare",),
    "measure.evaluate": (
        "Evaluation",
        "evaluate",
    ),
    "page.report": ("report",),
    "pipeline.adapt": ("adapt",),
    "pipeline.options": (
        "AdaptOptions",
        "Target",
    ),
    "pipeline.result": ("Adaptation",),
    "pruning.order": (
        "PruneOrder",
        "prune",
        "prune_order",
    ),
    "pruning.removable": ("Protection",),
    "tokenizer.inspect": ("inspect",),
    "tokenizer.tokenizer": ("Tokenizer",),
    "verify.check": ("check",),
    "verify.finding": ("Check",),
    "verify.save": ("save",),
    "verify.serving.check_serving": ("check_serving",),
    "vocab_plan": (
        "VocabPlan",
        "plan",
    ),
}
"""The public names of each module, as imported above."""
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a module when one of its public names is first used: all of them take 0.3 seconds, numpy included."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _MODULE_OF:
        return import_module(f"{__name__}.{name}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
