"""Teach the BPE tokenizer of a finished language model new words."""

from tokengraft._core import __version__
from tokengraft.corpus import Reading
from tokengraft.counting import Effort, count
from tokengraft.counts import PretokenCounts, Totals
from tokengraft.errors import TokengraftError
from tokengraft.extend import Extension, LearnedMerge, Limits, extend
from tokengraft.formats import load, save
from tokengraft.inspection import Inspection, inspect
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
    "PretokenCounts",
    "Reading",
    "Token",
    "TokengraftError",
    "Tokenizer",
    "Totals",
    "__version__",
    "count",
    "extend",
    "inspect",
    "load",
    "save",
]
