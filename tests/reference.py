"""The slow, obvious versions that the core must equal."""

from collections.abc import Mapping, Sequence
from itertools import pairwise


def merge_all(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> tuple[list[str], list[tuple[str, str]]]:
    """The symbols after every merge, and the merges in the order they were applied.

    ["a", "b", "c"], {("a", "b"): 0} -> (["ab", "c"], [("a", "b")])
    """
    used = []
    while True:
        places = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not places:
            return symbols, used
        _, at = min(places)
        used.append((symbols[at], symbols[at + 1]))
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


def unreachable(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> list[str]:
    """The tokens of more than one character that do not encode to themselves."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [token for token in tokens if len(token) > 1 and merge_all(list(token), ranks)[0] != [token]]
