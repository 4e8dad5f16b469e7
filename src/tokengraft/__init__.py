"""Extend and prune the tokenizer of a pre-trained language model, and its checkpoint with it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft._core import __version__
    from tokengraft.checkpoint.blend import blend
    from tokengraft.checkpoint.in_memory import transplant_model
    from tokengraft.checkpoint.result import Transplant
    from tokengraft.checkpoint.table import TransplantOptions
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
    from tokengraft.learn.special import add_special
    from tokengraft.learn.words import include
    from tokengraft.measure.compare import compare
    from tokengraft.measure.evaluate import evaluate
    from tokengraft.measure.scores import Evaluation
    from tokengraft.page.report import report
    from tokengraft.pipeline.adapt import adapt
    from tokengraft.pipeline.draft import draft
    from tokengraft.pipeline.options import AdaptOptions, Target
    from tokengraft.pipeline.result import Adaptation
    from tokengraft.pruning.order import PruneOrder, prune, prune_order
    from tokengraft.pruning.removable import Protection
    from tokengraft.tokenizer.inspect import inspect
    from tokengraft.tokenizer.tokenizer import Tokenizer
    from tokengraft.training.train import train
    from tokengraft.verify.check import check, save
    from tokengraft.verify.check_serving import check_serving
    from tokengraft.verify.finding import Check
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
    "TransplantOptions",
    "VocabPlan",
    "__version__",
    "adapt",
    "add_special",
    "blend",
    "check",
    "check_serving",
    "compare",
    "convert",
    "count",
    "counts",
    "distributed",
    "draft",
    "evaluate",
    "extend",
    "include",
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
    "training",
    "transplant",
    "transplant_model",
]

_MODULE_OF = {
    "__version__": "_core",
    "blend": "checkpoint.blend",
    "transplant_model": "checkpoint.in_memory",
    "Transplant": "checkpoint.result",
    "TransplantOptions": "checkpoint.table",
    "transplant": "checkpoint.transplant",
    "ReadOptions": "corpus.options",
    "count": "counts.count",
    "PretokenCounts": "counts.pretoken_counts",
    "CountOptions": "counts.threads",
    "TokengraftError": "errors",
    "load": "formats",
    "convert": "formats.convert",
    "extend": "learn.continued",
    "Extension": "learn.extension",
    "Limits": "learn.limits",
    "add_special": "learn.special",
    "include": "learn.words",
    "compare": "measure.compare",
    "Evaluation": "measure.scores",
    "evaluate": "measure.evaluate",
    "report": "page.report",
    "adapt": "pipeline.adapt",
    "draft": "pipeline.draft",
    "AdaptOptions": "pipeline.options",
    "Target": "pipeline.options",
    "Adaptation": "pipeline.result",
    "PruneOrder": "pruning.order",
    "prune": "pruning.order",
    "prune_order": "pruning.order",
    "Protection": "pruning.removable",
    "inspect": "tokenizer.inspect",
    "Tokenizer": "tokenizer.tokenizer",
    "train": "training.train",
    "check": "verify.check",
    "Check": "verify.finding",
    "save": "verify.check",
    "check_serving": "verify.check_serving",
    "VocabPlan": "vocab_plan",
    "plan": "vocab_plan",
}
"""The modules of the public names, as imported above."""


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
