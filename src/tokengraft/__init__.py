"""Extend and prune the BPE tokenizer of a pre-trained language model, and its checkpoint with it."""

from tokengraft._core import __version__
from tokengraft.adapt import Adaptation, AdaptOptions, Estimate, Sizes, Target, TargetResult, adapt, estimate
from tokengraft.check.check import check
from tokengraft.check.finding import Check, Finding
from tokengraft.check.save import save
from tokengraft.checkpoint import Transplant, transplant, transplant_model
from tokengraft.corpus import ReadOptions, Totals
from tokengraft.counts.count import CountOptions, count
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import TokengraftError
from tokengraft.evaluate import Evaluation, Score, evaluate
from tokengraft.evaluate.compare import Comparison, compare
from tokengraft.evaluate.curve import Curve, curve
from tokengraft.extend import Extension, LearnedMerge, Limits, extend, extend_naively
from tokengraft.formats import load
from tokengraft.plan import VocabPlan, plan
from tokengraft.prune import Protection, PruneOrder, Removal, prune_order
from tokengraft.tokenizer.inspect import Inspection, inspect
from tokengraft.tokenizer.merge_tree import MergeStructure
from tokengraft.tokenizer.sentencepiece import PieceRules
from tokengraft.tokenizer.tokenizer import AddedToken, Token, Tokenizer

__all__ = [
    "AdaptOptions",
    "Adaptation",
    "AddedToken",
    "Check",
    "Comparison",
    "CountOptions",
    "Curve",
    "Estimate",
    "Evaluation",
    "Extension",
    "Finding",
    "Inspection",
    "LearnedMerge",
    "Limits",
    "MergeStructure",
    "PieceRules",
    "PretokenCounts",
    "Protection",
    "PruneOrder",
    "ReadOptions",
    "Removal",
    "Score",
    "Sizes",
    "Target",
    "TargetResult",
    "Token",
    "TokengraftError",
    "Tokenizer",
    "Totals",
    "Transplant",
    "VocabPlan",
    "__version__",
    "adapt",
    "check",
    "compare",
    "count",
    "curve",
    "estimate",
    "evaluate",
    "extend",
    "extend_naively",
    "inspect",
    "load",
    "plan",
    "prune_order",
    "save",
    "transplant",
    "transplant_model",
]
