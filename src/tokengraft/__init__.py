"""Teach the BPE tokenizer of a finished language model new words."""

from tokengraft._core import __version__
from tokengraft.checkpoint import Transplant, transplant, transplant_model
from tokengraft.corpus import Reading
from tokengraft.counting import Effort, count
from tokengraft.counts import PretokenCounts, Totals
from tokengraft.errors import TokengraftError
from tokengraft.extend import Extension, LearnedMerge, Limits, extend
from tokengraft.formats import load, save
from tokengraft.inspection import Inspection, inspect
from tokengraft.piecemodel import PieceRules
from tokengraft.plan import VocabPlan, plan
from tokengraft.prune import Protection, PruneOrder, Removal, prune_order
from tokengraft.structure import MergeStructure
from tokengraft.tokenizer import AddedToken, Token, Tokenizer

__all__ = [
    "AddedToken",
    "Effort",
    "Extension",
    "Inspection",
    "LearnedMerge",
    "Limits",
    "MergeStructure",
    "PieceRules",
    "PretokenCounts",
    "Protection",
    "PruneOrder",
    "Reading",
    "Removal",
    "Token",
    "TokengraftError",
    "Tokenizer",
    "Totals",
    "Transplant",
    "VocabPlan",
    "__version__",
    "count",
    "extend",
    "inspect",
    "load",
    "plan",
    "prune_order",
    "save",
    "transplant",
    "transplant_model",
]
