"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.learn.extension import IncludedWord, LearnedMerge, RefusedPair
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Parity
from tokengraft.learn.naive import extend_naively
from tokengraft.learn.preserve import PreserveCost, preserve_cost

__all__ = [
    "IncludedWord",
    "LearnedMerge",
    "Parity",
    "PreserveCost",
    "RefusedPair",
    "WordList",
    "extend_naively",
    "preserve_cost",
]
