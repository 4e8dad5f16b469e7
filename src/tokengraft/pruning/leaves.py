"""Orders that remove a token before the tokens it is built from, and encoding without removed tokens."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from tokengraft import _core
from tokengraft.tokenizer.kind import byte_token
from tokengraft.tokenizer.tokenizer import Tokenizer

Splits = Mapping[int, tuple[int, int]]
Respell = Callable[[int, Collection[int], int], Iterable[int]]
"""The tokens that the text of a token without a split is encoded as, once it and others are removed. It is called for
every such token, with how often the token occurs."""
Key = tuple[int, float]
"""What decides when a token is removed: the number that a removal records, and what decides between equal ones."""
MoreUses = Callable[[int, Collection[int]], Mapping[int, int]]
"""Uses of tokens that begin when a token is removed."""


def by_frequency(
    splits: Splits,
    candidates: Collection[int],
    counts: Mapping[int, int],
    respell: Respell = lambda *_: (),
    expected: Mapping[int, float] | None = None,
) -> Iterator[tuple[int, int]]:
    """Leaves by count, rarest first, equal ones by id, highest first. The paper's Algorithm 1.

    When a token is removed, its count is added to the tokens that its text is then encoded as: to its two parts, or,
    for a token that merges cannot make, to what ``respell`` gives. Tokens with a count of 0 go by how often they are
    ``expected``, if that is given.

    >>> list(by_frequency({3: (1, 2), 4: (3, 1)}, {3, 4}, {3: 5, 4: 2}))
    [(4, 2), (3, 7)]
    """
    flowing, removed = Counter(counts), set[int]()

    def flow(token: int) -> None:
        removed.add(token)
        for part in splits.get(token) or respell(token, removed, flowing[token]):
            flowing[part] += flowing[token]

    def key(token: int) -> tuple[int, float]:
        return flowing[token], expected.get(token, 0.0) if expected and not flowing[token] else 0.0

    return _leaves(splits, candidates, key, flow)


def by_uses(
    lengths: Mapping[int, int], candidates: Collection[int], uses: Mapping[int, int], more: MoreUses = lambda *_: {}
) -> Iterator[tuple[int, int]]:
    """Tokens by uses, rarest first, equal ones by length, longest first, then by id. The paper's Algorithm 2.

    A token is used where it is in the result and where it is merged into another, so its parts have at least as many
    uses as it has, and it is removed before them. ``more`` gives what must be counted once a token is removed.

    >>> list(by_uses({1: 1, 2: 1, 3: 2, 4: 3}, {3, 4}, {1: 9, 2: 7, 3: 7, 4: 2}))
    [(4, 2), (3, 7)]
    """
    total, removed = Counter(uses), set[int]()

    def remove(token: int) -> Iterable[int]:
        removed.add(token)
        total.update(more(token, removed))
        return ()

    order = _rarest_first(candidates, lambda token: (total[token], -lengths[token]), remove)
    return ((token, count) for token, (count, _) in order)


def by_id(splits: Splits, candidates: Collection[int]) -> Iterator[tuple[int, int]]:
    """Leaves by id, highest first; a token that becomes a leaf is taken in its turn.

    >>> list(by_id({3: (1, 2), 4: (3, 1), 9: (3, 2)}, {3, 4, 9}))
    [(9, 9), (4, 4), (3, 3)]
    """
    return ((token, token) for token, _ in _leaves(splits, candidates, lambda _: (0, 0.0), lambda _: None))


def _leaves(
    splits: Splits, candidates: Collection[int], key: Callable[[int], Key], removed: Callable[[int], None]
) -> Iterator[tuple[int, int]]:
    """Candidates as they become leaves, by key, then by highest id; ``removed`` is called for each."""
    users = Counter(part for parts in splits.values() for part in parts)

    def remove(token: int) -> Iterator[int]:
        removed(token)
        for part in splits.get(token, ()):
            users[part] -= 1
            if not users[part] and part in candidates:
                yield part

    order = _rarest_first((token for token in candidates if not users[token]), key, remove)
    return ((token, decided_by) for token, (decided_by, _) in order)


def _rarest_first(
    tokens: Iterable[int], key: Callable[[int], Key], remove: Callable[[int], Iterable[int]]
) -> Iterator[tuple[int, Key]]:
    """Tokens by key, smallest first, equal ones by highest id, each with its key.

    ``remove`` gives the tokens that become available by removing one. It may raise the keys of others, and must lower
    none: a token whose key has risen since it was queued is queued again.
    """
    queue = [(key(token), -token) for token in tokens]
    heapify(queue)
    while queue:
        queued, negative = heappop(queue)
        current = key(-negative)
        if current != queued:
            heappush(queue, (current, negative))
            continue
        yield -negative, current
        for token in remove(-negative):
            heappush(queue, (key(token), -token))


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
        symbols, used = list[int](), list[tuple[int, int]]()
        for symbol in self._without_merges.encode(self.tokenizer.strings[token_id]):
            # A removed character is spelled in bytes: others are never removed.
            data = self.tokenizer.strings[symbol].encode() if symbol in removed else b""
            symbols += [self.tokenizer.vocab[byte_token(byte)] for byte in data] or [symbol]
        while True:
            listed = [(self._ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in self._ranks]
            possible = [(rank, at, product) for (rank, product), at in listed if product not in removed]
            if not possible:
                return Encoding(symbols, used)
            _, at, product = min(possible)
            used.append((symbols[at], symbols[at + 1]))
            symbols[at : at + 2] = [product]

    @cached_property
    def _ranks(self) -> dict[tuple[int, int], tuple[int, int]]:
        """The rank and the product of every pair."""
        vocab, tokenizer = dict(self.tokenizer.vocab), self.tokenizer
        pairs = zip(tokenizer.merges, tokenizer.merge_strings(), strict=True)
        return {pair: (rank, vocab[left + right]) for rank, (pair, (left, right)) in enumerate(pairs)}

    @cached_property
    def _without_merges(self) -> _core.Model:
        model = self.tokenizer.model
        return _core.Model.bpe(
            _core.Vocabulary(dict(self.tokenizer.vocab), []),
            byte_level=self.tokenizer.kind == "byte-level",
            ignore_merges=False,
            byte_fallback=self.tokenizer.byte_fallback,
            unk_token=model.get("unk_token"),
            fuse_unk=bool(model.get("fuse_unk")),
        )
