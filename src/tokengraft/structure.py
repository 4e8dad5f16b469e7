"""The merge tree of a vocabulary as the encoder really uses it. Plain data, computed by the core."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class MergeStructure:
    """Where every token comes from.

    A token may be the product of several merges; ``splits`` has the one that fires when the token encodes itself.
    Added tokens are split out of the text before BPE sees it: they are in none of the three.
    """

    splits: Mapping[int, tuple[int, int]]
    """Every token that merges make, with the ids of its two parts."""
    atomic: frozenset[int]
    """Starting symbols: single characters, and ``<0xNN>`` where the model has byte fallback."""
    unreachable: tuple[int, ...]
    """Tokens whose own string does not encode to them by merges (the Self-Tokenization Test), ascending."""
