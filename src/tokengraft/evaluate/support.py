"""`occurrences`: how often each new token occurs in the text that it was learned from.

A token that occurs rarely is rarely trained: its embedding row stays close to what it was initialised with.
"""

from collections.abc import Sequence

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.metrics import share
from tokengraft.tokenizer.tokenizer import Tokenizer


def occurrences(extended: Tokenizer, tokens: Sequence[str], counts: PretokenCounts) -> list[int]:
    """How often each of some tokens occurs in counted text, as a tokenizer encodes it.

    This is not the frequency of the token's merge: most occurrences of a token may be parts of longer tokens that were
    learned later.

    Raises:
        CountsError: The counts were made for another pipeline.
    """
    total = counts.tokens(extended)
    ids = (extended.core_vocabulary.id_of(token) for token in tokens)
    return [0 if token_id is None else total.get(token_id, 0) for token_id in ids]


def rare_share(occurring: Sequence[int], below: int) -> float | None:
    """The share of tokens with fewer than ``below`` occurrences; None if there are no tokens.

    >>> rare_share([3, 10, 250, 99], 100)
    0.75
    """
    return share(sum(times < below for times in occurring), len(occurring))
