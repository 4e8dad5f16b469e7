"""Extend and prune the BPE tokenizer of a pre-trained language model, and its checkpoint with it."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokengraft._core import __version__
    from tokengraft.adapt.adapt import adapt
    from tokengraft.adapt.estimate import Estimate, estimate
    from tokengraft.adapt.options import AdaptOptions, Sizes, Target
    from tokengraft.adapt.result import Adaptation, TargetResult
    from tokengraft.check.check import check
    from tokengraft.check.finding import Check, Finding
    from tokengraft.check.save import save
    from tokengraft.check.serving.check_serving import check_serving
    from tokengraft.checkpoint.in_memory import transplant_model
    from tokengraft.checkpoint.result import Transplant
    from tokengraft.checkpoint.transplant import transplant
    from tokengraft.corpus.options import ReadOptions
    from tokengraft.corpus.totals import Totals
    from tokengraft.counts.batches import BatchCounter, sum_partials
    from tokengraft.counts.count import count
    from tokengraft.counts.options import CountOptions, HoldOut
    from tokengraft.counts.pretoken_counts import PretokenCounts
    from tokengraft.errors import TokengraftError
    from tokengraft.evaluate.compare import Comparison, compare
    from tokengraft.evaluate.curve import Curve, curve
    from tokengraft.evaluate.curves import Curves, curves
    from tokengraft.evaluate.evaluation import Evaluation, Score
    from tokengraft.evaluate.measure import evaluate
    from tokengraft.evaluate.size import SizeChoice, SizeOptions, choose_size
    from tokengraft.extend.continued import extend
    from tokengraft.extend.cost import PreserveCost, preserve_cost
    from tokengraft.extend.extension import Extension, IncludedWord, LearnedMerge, RefusedPair
    from tokengraft.extend.include import WordList
    from tokengraft.extend.limits import Limits
    from tokengraft.extend.naive import extend_naively
    from tokengraft.extend.parity import Parity
    from tokengraft.formats import load
    from tokengraft.formats.convert import convert
    from tokengraft.plan import VocabPlan, plan
    from tokengraft.prune.methods import prune_order
    from tokengraft.prune.order import PruneOrder, Removal
    from tokengraft.prune.removable import Protection
    from tokengraft.report.report import report
    from tokengraft.tokenizer.added import AddedToken
    from tokengraft.tokenizer.inspect import Inspection, inspect
    from tokengraft.tokenizer.merge_tree import MergeStructure
    from tokengraft.tokenizer.sentencepiece import PieceRules
    from tokengraft.tokenizer.tokenizer import Token, Tokenizer
    from tokengraft.train.distill import DistillOptions, distill
    from tokengraft.train.distill_result import Distillation
    from tokengraft.train.probe import ProbeOptions, probe
    from tokengraft.train.probe_result import Probe, ProbeScore

__all__ = [
    "AdaptOptions",
    "Adaptation",
    "AddedToken",
    "BatchCounter",
    "Check",
    "Comparison",
    "CountOptions",
    "Curve",
    "Curves",
    "DistillOptions",
    "Distillation",
    "Estimate",
    "Evaluation",
    "Extension",
    "Finding",
    "HoldOut",
    "IncludedWord",
    "Inspection",
    "LearnedMerge",
    "Limits",
    "MergeStructure",
    "Parity",
    "PieceRules",
    "PreserveCost",
    "PretokenCounts",
    "Probe",
    "ProbeOptions",
    "ProbeScore",
    "Protection",
    "PruneOrder",
    "ReadOptions",
    "RefusedPair",
    "Removal",
    "Score",
    "SizeChoice",
    "SizeOptions",
    "Sizes",
    "Target",
    "TargetResult",
    "Token",
    "TokengraftError",
    "Tokenizer",
    "Totals",
    "Transplant",
    "VocabPlan",
    "WordList",
    "__version__",
    "adapt",
    "check",
    "check_serving",
    "choose_size",
    "compare",
    "convert",
    "count",
    "curve",
    "curves",
    "distill",
    "estimate",
    "evaluate",
    "extend",
    "extend_naively",
    "inspect",
    "load",
    "plan",
    "preserve_cost",
    "probe",
    "prune_order",
    "report",
    "save",
    "sum_partials",
    "transplant",
    "transplant_model",
]

_EXPORTS = {
    "_core": ("__version__",),
    "adapt.adapt": ("adapt",),
    "adapt.estimate": ("Estimate", "estimate"),
    "adapt.options": ("AdaptOptions", "Sizes", "Target"),
    "adapt.result": ("Adaptation", "TargetResult"),
    "check.check": ("check",),
    "check.finding": ("Check", "Finding"),
    "check.save": ("save",),
    "check.serving.check_serving": ("check_serving",),
    "checkpoint.in_memory": ("transplant_model",),
    "checkpoint.result": ("Transplant",),
    "checkpoint.transplant": ("transplant",),
    "corpus.options": ("ReadOptions",),
    "corpus.totals": ("Totals",),
    "counts.batches": ("BatchCounter", "sum_partials"),
    "counts.count": ("count",),
    "counts.options": ("CountOptions", "HoldOut"),
    "counts.pretoken_counts": ("PretokenCounts",),
    "errors": ("TokengraftError",),
    "evaluate.compare": ("Comparison", "compare"),
    "evaluate.curve": ("Curve", "curve"),
    "evaluate.curves": ("Curves", "curves"),
    "evaluate.evaluation": ("Evaluation", "Score"),
    "evaluate.measure": ("evaluate",),
    "evaluate.size": ("SizeChoice", "SizeOptions", "choose_size"),
    "extend.continued": ("extend",),
    "extend.cost": ("PreserveCost", "preserve_cost"),
    "extend.extension": ("Extension", "IncludedWord", "LearnedMerge", "RefusedPair"),
    "extend.include": ("WordList",),
    "extend.limits": ("Limits",),
    "extend.naive": ("extend_naively",),
    "extend.parity": ("Parity",),
    "formats": ("load",),
    "formats.convert": ("convert",),
    "plan": ("VocabPlan", "plan"),
    "prune.methods": ("prune_order",),
    "prune.order": ("PruneOrder", "Removal"),
    "prune.removable": ("Protection",),
    "report.report": ("report",),
    "tokenizer.added": ("AddedToken",),
    "tokenizer.inspect": ("Inspection", "inspect"),
    "tokenizer.merge_tree": ("MergeStructure",),
    "tokenizer.sentencepiece": ("PieceRules",),
    "tokenizer.tokenizer": ("Token", "Tokenizer"),
    "train.distill": ("DistillOptions", "distill"),
    "train.distill_result": ("Distillation",),
    "train.probe": ("ProbeOptions", "probe"),
    "train.probe_result": ("Probe", "ProbeScore"),
}
"""The public names of each module, for the imports above."""
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}


class _LazyPackage(ModuleType):
    """Imports a module of the package when one of its public names is first used.

    Importing all of them takes 0.3 seconds, numpy included, and most commands need few.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in _MODULE_OF:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{self.__name__}.{_MODULE_OF[name]}"), name)
        vars(self)[name] = value
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        # subtle: importing `tokengraft.check.save` sets the attribute `check` to that package; it is a function here
        if name not in _MODULE_OF or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*vars(self), *__all__})


sys.modules[__name__].__class__ = _LazyPackage
