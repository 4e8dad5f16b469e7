"""Encodes the strings of tokens by merges alone, without the tokens that are already removed."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from tokengraft import _core
from tokengraft.tokenizer.alphabet import byte_token
from tokengraft.tokenizer.tokenizer import Tokenizer


class Encoding(NamedTuple):
    """The tokens of a string, and the merges that made them."""

    tokens: list[int]
    merges: list[tuple[int, int]]

    @property
    def uses(self) -> list[int]:
        """Every token, once for each time it is in the result or is merged into another."""
        return [*self.tokens, *(part for pair in self.merges for part in pair)]


@dataclass(frozen=True)
class RemainingMerges:
    """The merges of a tokenizer without those that make or use a removed token.

    For a few thousand short strings: building the tokenizer anew for each removal would take hours.
    """

    tokenizer: Tokenizer

    def encode(self, token_id: int, removed: Collection[int]) -> Encoding:
        """How merges encode the string of a token without the removed tokens.

        With tokens `a b c ab bc` and merges `b c`, `a b`: the string of a token `abc` gives `a bc`, and `ab c` once
        `bc` is removed.
        """
        symbols, used = self._start(token_id, removed), list[tuple[int, int]]()
        while True:
            listed = [(self._ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in self._ranks]
            possible = [(rank, at, product) for (rank, product), at in listed if product not in removed]
            if not possible:
                return Encoding(symbols, used)
            _, at, product = min(possible)
            used.append((symbols[at], symbols[at + 1]))
            symbols[at : at + 2] = [product]

    def _start(self, token_id: int, removed: Collection[int]) -> list[int]:
        """The symbols before any merge. A removed character is spelled in bytes: others are never removed."""
        symbols: list[int] = []
        for symbol in self._without_merges.encode(self.tokenizer.strings[token_id]):
            symbols += self._in_bytes(symbol) if symbol in removed else [symbol]
        return symbols

    def _in_bytes(self, token_id: int) -> list[int]:
        return [self.tokenizer.vocab[byte_token(byte)] for byte in self.tokenizer.strings[token_id].encode()]

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The rank and the product of every pair."""
        vocab, tokenizer = dict(self.tokenizer.vocab), self.tokenizer
        pairs = zip(tokenizer.merges, tokenizer.merge_strings(), strict=True)
        return {pair: (rank, vocab[left + right]) for rank, (pair, (left, right)) in enumerate(pairs)}

    @cached_property
    def _without_merges(self) -> _core.Bpe:
        model = self.tokenizer.model
        return _core.Bpe(
            _core.Vocabulary(dict(self.tokenizer.vocab), []),
            ignore_merges=False,
            byte_fallback=self.tokenizer.byte_fallback,
            unk_token=model.get("unk_token"),
            fuse_unk=bool(model.get("fuse_unk")),
        )
