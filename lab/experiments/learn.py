"""Extended tokenizers of several sizes, each learned once for all sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tokengraft as tg

NAIVE = "naive-regen"
"""The paper's baseline."""
LARGEST = 4
"""A fresh tokenizer has at most this many times the number of tokens asked for."""


@dataclass(frozen=True)
class Fresh:
    """A tokenizer trained from scratch on a text with the pipeline of a base, and everything before its last merge."""

    bare: tg.Tokenizer
    """The base with nothing but its alphabet and its added tokens."""
    extension: tg.Extension

    def of_size(self, size: int) -> tg.Tokenizer:
        """The fresh tokenizer with this number of learned tokens."""
        return self.extension[:size].apply(self.bare)

    @cached_property
    def donor(self) -> tg.Tokenizer:
        """The complete fresh tokenizer. The base takes tokens from it in the order in which they were learned."""
        return self.extension.apply(self.bare)

    def new_to(self, base: tg.Tokenizer) -> int:
        """How many of its tokens a base lacks."""
        return sum(token not in base.ids for token in self.extension.tokens)


def train_fresh(base: tg.Tokenizer, counts: tg.PretokenCounts, n: int) -> Fresh:
    """A fresh tokenizer with at least n tokens that the base lacks, if the text gives as many."""
    bare = tg.prune_order(base, method="last-id", protection=tg.Protection(defaults=False)).apply(base)
    size = n
    while True:
        size *= 2
        fresh = Fresh(bare, tg.extend(bare, counts, size))
        if fresh.new_to(base) >= n or len(fresh.extension) < size or size >= LARGEST * 2 * n:
            return fresh


def reached(sizes: Sequence[int], available: int) -> list[int]:
    """The sizes that a text is large enough for."""
    return [size for size in sizes if size <= available]


def extended(base: tg.Tokenizer, extension: tg.Extension, sizes: Sequence[int]) -> dict[int, tg.Tokenizer]:
    """The tokenizer with the first tokens of an extension, by size."""
    return {size: extension[:size].apply(base) for size in reached(sizes, len(extension))}


def naive(base: tg.Tokenizer, fresh: Fresh, sizes: Sequence[int], method: str = NAIVE) -> dict[int, tg.Tokenizer]:
    """The tokenizer with the first tokens of a fresh one that it lacks, by size."""
    fitting = reached(sizes, fresh.new_to(base))
    return {size: tg.learn.extend_naively(base, None, size, method, donor=fresh.donor) for size in fitting}


def both_ways(
    base: tg.Tokenizer, counts: tg.PretokenCounts, sizes: Sequence[int]
) -> dict[str, dict[int, tg.Tokenizer]]:
    """The tokenizers of continued training and of naive extension from the same text, by size."""
    learned = extended(base, tg.extend(base, counts, max(sizes)), sizes)
    return {"continued": learned, "naive": naive(base, train_fresh(base, counts, max(sizes)), sizes)}


def added_ids(base: tg.Tokenizer, tokenizer: tg.Tokenizer) -> set[int]:
    """The ids of tokens that the base lacks."""
    return {token_id for string, token_id in tokenizer.ids.items() if string not in base.ids}


def bytes_per_token(tokenizer: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    """Of a text."""
    rate = tg.evaluate({"": tokenizer}, {"": text})["", ""].bytes_per_token
    return rate or 0.0


def tokens_by_line(tokenizer: tg.Tokenizer, lines: Sequence[str]) -> list[int]:
    """The number of tokens of each line."""
    return [len(ids) for ids in tokenizer.encode_batch(lines)]
