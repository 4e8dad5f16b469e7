"""The merge tree of a vocabulary, as the encoder uses it. Plain data, computed by the core."""

from collections.abc import Mapping
from dataclasses import dataclass

from tokengraft.arguments import checked
from tokengraft.representation import shown


@shown
@checked
@dataclass(frozen=True)
class MergeStructure:
    """Which merge makes each token.

    A token may be the product of several merges; ``splits`` has the one that fires when the token encodes itself.
    Added tokens are split out of the text before BPE, so the Self-Tokenization Test does not include them. If merges
    make one as well, as with Gemma's runs of spaces, its split is included.
    """

    splits: Mapping[int, tuple[int, int]]
    """Every token that merges make, with the ids of its two parts."""
    atomic: frozenset[int]
    """Starting symbols: single characters, and ``<0xNN>`` where the model has byte fallback."""
    unreachable: tuple[int, ...]
    """Learned tokens whose own string does not encode to them by merges (the Self-Tokenization Test), ascending."""
