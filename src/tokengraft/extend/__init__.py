"""New tokens for a tokenizer: `extend` learns them, `Extension` is what it learned."""

from tokengraft.extend.continued import extend, preserved_pairs
from tokengraft.extend.cost import PreserveCost, preserve_cost
from tokengraft.extend.extension import Extension, LearnedMerge, RefusedPair
from tokengraft.extend.limits import Limits
from tokengraft.extend.naive import NAIVE_METHODS, NaiveMethod, extend_naively
from tokengraft.extend.parity import Parity

__all__ = [
    "NAIVE_METHODS",
    "Extension",
    "LearnedMerge",
    "Limits",
    "NaiveMethod",
    "Parity",
    "PreserveCost",
    "RefusedPair",
    "extend",
    "extend_naively",
    "preserve_cost",
    "preserved_pairs",
]
