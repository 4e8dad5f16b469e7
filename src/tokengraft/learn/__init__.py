"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.learn.extension import IncludedWord, LearnedMerge, RefusedPair
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Parity
from tokengraft.learn.naive import extend_naively
from tokengraft.learn.preserve import PreserveCost, preserve_cost
from tokengraft.learn.special import SpecialToken
from tokengraft.learn.words import include_words

__all__ = [
    "IncludedWord",
    "LearnedMerge",
    "Parity",
    "PreserveCost",
    "RefusedPair",
    "SpecialToken",
    "WordList",
    "extend_naively",
    "include_words",
    "preserve_cost",
]
