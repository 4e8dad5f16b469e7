"""`support`: how often each new token occurs in the text that it was learned from, by number of new tokens.

A token that occurs rarely is rarely trained: its embedding row stays close to what it was initialised with.
"""

from collections.abc import Callable, Sequence

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.metrics import share
from tokengraft.extend.extension import Extension
from tokengraft.tokenizer.tokenizer import Tokenizer

Support = Callable[[int], list[int]]
"""For a number of new tokens: how often each of them occurs, as the tokenizer of that size encodes the text."""


def support(tokenizer: Tokenizer, extension: Extension, counts: PretokenCounts) -> Support:
    """A function from a number of new tokens to the occurrences of each.

    An occurrence inside a longer token does not count, so this is not the frequency of the token's merge. If all new
    merges rank after those of the base, one encoding of the text serves all sizes. Otherwise each size needs its own.

    Raises:
        CountsError: The counts were made for another pipeline.
    """
    extended = extension.apply(tokenizer)
    counts.require(extended)
    if not _ranks_last(tokenizer, extended, extension):
        return lambda size: encoded_support(tokenizer, extension, counts, size)
    ids = [extended.ids[token] for token in extension.tokens]
    numbers = [number for number, merge in enumerate(extension.merges) if merge.new]
    changes = counts.table.growth(
        extended.bpe,
        byte_level=extended.kind == "byte-level",
        first_rank=tokenizer.core_vocabulary.n_merges,
        new_tokens=list(zip(ids, numbers, strict=True)),
    )
    places = {token_id: place for place, token_id in enumerate(ids)}

    def occurrences(size: int) -> list[int]:
        occurring, last = [0] * size, numbers[size - 1] if size else -1
        for number, token_id, change in changes:
            if number > last:
                break
            occurring[places[token_id]] += change
        return occurring

    return occurrences


def encoded_support(tokenizer: Tokenizer, extension: Extension, counts: PretokenCounts, size: int) -> list[int]:
    """How often each of the first tokens of an extension occurs, by encoding the text with them."""
    cut = extension[:size]
    extended = cut.apply(tokenizer)
    total = counts.tokens(extended)
    return [total.get(extended.ids[token], 0) for token in cut.tokens]


def _ranks_last(tokenizer: Tokenizer, extended: Tokenizer, extension: Extension) -> bool:
    """Whether the merges of an extension follow those of the base, in the order they were learned."""
    base, vocabulary = tokenizer.core_vocabulary, extended.core_vocabulary
    if extension.characters or vocabulary.common_merges(base) != base.n_merges:
        return False
    return extended.merge_strings()[base.n_merges :] == [(merge.left, merge.right) for merge in extension.merges]


def rare_share(occurring: Sequence[int], below: int) -> float | None:
    """The share of tokens with fewer than ``below`` occurrences; None if there are no tokens.

    >>> rare_share([3, 10, 250, 99], 100)
    0.75
    """
    return share(sum(times < below for times in occurring), len(occurring))
