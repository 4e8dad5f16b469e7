"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.extend.continued import extend
from tokengraft.extend.cost import PreserveCost, preserve_cost
from tokengraft.extend.extension import Extension, IncludedWord, LearnedMerge, RefusedPair
from tokengraft.extend.include import WordList
from tokengraft.extend.limits import Limits
from tokengraft.extend.naive import NAIVE_METHODS, NaiveMethod, extend_naively
from tokengraft.extend.parity import Parity

__all__ = [
    "NAIVE_METHODS",
    "Extension",
    "IncludedWord",
    "LearnedMerge",
    "Limits",
    "NaiveMethod",
    "Parity",
    "PreserveCost",
    "RefusedPair",
    "WordList",
    "extend",
    "extend_naively",
    "preserve_cost",
]
