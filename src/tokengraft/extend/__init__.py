"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.extend.continued import Limits, extend
from tokengraft.extend.extension import Extension, IncludedWord, LearnedMerge
from tokengraft.extend.include import WordList
from tokengraft.extend.naive import NAIVE_METHODS, NaiveMethod, extend_naively

__all__ = [
    "NAIVE_METHODS",
    "Extension",
    "IncludedWord",
    "LearnedMerge",
    "Limits",
    "NaiveMethod",
    "WordList",
    "extend",
    "extend_naively",
]
