"""Finds merges that turn each word of a list into one token, with few tokens in between.

The words are the pretokens, or parts of pretokens, that should become tokens. Each begins as its pieces under the base.
A merge is appended, and applied to all words as the encoder would apply it, until every word is one token. So the
merges fire by construction: what is left of a word is always what the encoder gives with the merges so far.

**Later merges never break earlier words.** A merge that is appended ranks below all others. Whatever the encoder did to
a word before, it does first, and then the word is one token, which nothing can change. Two kinds of merges may rank
higher, but both need a token that only a later merge makes: listed merges of an existing token that becomes reachable,
and with a SentencePiece model, the merges by which a new piece completes an old one.

**Few tokens in between.** Pairs that several words share are merged first, those that save most tokens before others.
What remains has nothing in common with other words, and is searched exhaustively if it has few pieces. The first step
is greedy: the smallest set of tokens for a list is a hard problem (the smallest grammar).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple

from tokengraft.tokenizer.alphabet import SPACE

Pair = tuple[str, str]
Pieces = tuple[str, ...]
Rank = tuple[int, int, int]
MAX_PIECES = 9
"""Words of more pieces are first shortened by greedy steps: the search looks at 2^(pieces - 1) states."""


class NewMerge(NamedTuple):
    """A merge that was generated, and whether it makes a new token."""

    left: str
    right: str
    new: bool


@dataclass(frozen=True)
class MergeBase:
    """What the generated merges are appended to."""

    known: frozenset[str]
    """All tokens."""
    listed: Callable[[], Mapping[Pair, int]]
    """The listed merges with their ranks, without those of white space that merge last. Rarely needed."""
    n_merges: int
    """How many listed merges there are."""
    unreachable: Mapping[str, tuple[int, int]]
    """With a SentencePiece model: tokens that new ones may complete, with their ranks (see `unreachable_ranks`)."""


@dataclass(frozen=True)
class MergeLimits:
    """Which merges may be generated."""

    forbidden: frozenset[str] = frozenset()
    """Strings that are neither made nor merged: added tokens, bytes."""
    allow_token: Callable[[str], bool] = lambda _: True
    allow_pair: Callable[[str, str], bool] = lambda _, __: True
    """For text that must not change: its pairs are not merged."""


class WordMerges:
    """Generates merges, one after the other. ``pieces`` has what is left of every word that is not one token yet."""

    def __init__(self, base: MergeBase, words: Mapping[str, Pieces], limits: MergeLimits) -> None:
        self._base, self._limits = base, limits
        self._targets = frozenset(words)
        self._new = set[str]()
        self._ranks = dict[Pair, Rank]()
        self._allowed = dict[Pair, bool]()
        self._words_with = dict[Pair, set[str]]()
        self._occurrences = Counter[Pair]()
        self._heap: list[tuple[int, Pair]] | None = None
        self.merges: list[NewMerge] = []
        self.pieces = dict(sorted(words.items()))
        for word, pieces in self.pieces.items():
            self._register(word, pieces)

    def make(self, first: Sequence[str]) -> list[str]:
        """Generates all merges, those of some words before all others. Returns the words that cannot be made."""
        for word in first:
            self._make_word(word)
        self._share()
        for word in sorted(self.pieces, key=lambda word: (len(self.pieces[word]), word)):
            self._make_word(word)
        return [word for word, pieces in self.pieces.items() if len(pieces) > 1]

    def _make_word(self, word: str) -> None:
        while len(self.pieces[word]) > 1:
            pair = self._best_pair(self.pieces[word])
            if pair is None:
                return
            self._append(pair)

    def _share(self) -> None:
        """Merges every pair that occurs in several words, the one that saves most first, then by its strings."""
        self._heap = [(-self._saved(pair), pair) for pair in self._words_with]
        heapify(self._heap)
        while self._heap:
            negative, pair = heappop(self._heap)
            if len(self._words_with.get(pair, ())) < 2 or not self._may_merge(pair):
                continue
            if self._saved(pair) != -negative:
                heappush(self._heap, (-self._saved(pair), pair))
            else:
                self._append(pair)
        self._heap = None

    def _saved(self, pair: Pair) -> int:
        """How many merges the words need less, minus the token that the pair costs."""
        return self._occurrences[pair] - self._cost(pair)

    def _cost(self, pair: Pair) -> int:
        product = pair[0] + pair[1]
        return int(not self._is_known(product) and product not in self._targets)

    def _is_known(self, string: str) -> bool:
        return string in self._base.known or string in self._new

    def _may_merge(self, pair: Pair) -> bool:
        if pair not in self._allowed:
            product, limits = pair[0] + pair[1], self._limits
            self._allowed[pair] = (
                not {*pair, product} & limits.forbidden
                # Runs of white space merge last, after every merge that is generated here.
                and bool(product.strip(SPACE))
                and limits.allow_token(product)
                and limits.allow_pair(*pair)
            )
        return self._allowed[pair]

    def _append(self, pair: Pair) -> None:
        """Appends a merge and applies it to all words."""
        product = pair[0] + pair[1]
        completed = self._completed(product)
        for (left, right), rank in completed.items():
            self.merges.append(NewMerge(left, right, new=False))
            self._ranks[left, right] = rank
        self._ranks[pair] = (self._base.n_merges, 2, len(self.merges))
        self.merges.append(NewMerge(*pair, new=not self._is_known(product)))
        follow = bool(completed) or self._is_known(product)
        self._new.add(product)
        for word in list(self._words_with[pair]):
            pieces = self.pieces[word]
            self._unregister(word, pieces)
            pieces = self._encoded(pieces, {}) if follow else replaced(pieces, pair)
            self.pieces[word] = pieces
            self._register(word, pieces)

    def _register(self, word: str, pieces: Pieces) -> None:
        for pair, times in Counter(occurrences(pieces)).items():
            self._words_with.setdefault(pair, set()).add(word)
            self._occurrences[pair] += times
            if self._heap is not None:
                heappush(self._heap, (-self._saved(pair), pair))

    def _unregister(self, word: str, pieces: Pieces) -> None:
        for pair, times in Counter(occurrences(pieces)).items():
            self._words_with[pair].remove(word)
            self._occurrences[pair] -= times

    def _completed(self, string: str) -> dict[Pair, Rank]:
        if self._is_known(string):
            return {}
        pairs = completions(string, self._base.unreachable, self._is_usable)
        return {pair: (place, 0, order) for pair, (place, order) in pairs.items()}

    def _is_usable(self, string: str) -> bool:
        return self._is_known(string) and string not in self._limits.forbidden

    def _rank(self, pair: Pair) -> Rank | None:
        if pair in self._ranks:
            return self._ranks[pair]
        listed = self._base.listed().get(pair)
        return None if listed is None else (listed, 1, 0)

    def _encoded(self, pieces: Pieces, more: Mapping[Pair, Rank]) -> Pieces:
        """The pieces after all merges that apply, ``more`` included, in the order of the encoder."""
        left = list(pieces)
        while True:
            ranked = [
                (rank, at) for at, pair in enumerate(pairwise(left)) if (rank := more.get(pair, self._rank(pair)))
            ]
            if not ranked:
                return tuple(left)
            at = min(ranked)[1]
            left[at : at + 2] = [left[at] + left[at + 1]]

    def _after(self, pieces: Pieces, pair: Pair) -> Pieces:
        """The pieces of a word if a pair were the next merge."""
        product = pair[0] + pair[1]
        completed = self._completed(product)
        if completed or self._is_known(product):
            return self._encoded(pieces, {**completed, pair: (self._base.n_merges, 2, len(self.merges))})
        return replaced(pieces, pair)

    def _best_pair(self, pieces: Pieces) -> Pair | None:
        """The next merge of a word on the way that needs the fewest new tokens; None if there is no way."""
        if len(pieces) > MAX_PIECES:
            saved = {pair: n - self._cost(pair) for pair, n in Counter(occurrences(pieces)).items()}
            return max((pair for pair in saved if self._may_merge(pair)), key=saved.__getitem__, default=None)
        return (pieces[0], pieces[1]) if self._is_plain(pieces) else self._search(pieces, {})[1]

    def _search(self, pieces: Pieces, found: dict[Pieces, tuple[float, Pair | None]]) -> tuple[float, Pair | None]:
        """The fewest new tokens that make one token of these pieces, and the first merge of such a way."""
        if len(pieces) == 1:
            return 0, None
        if pieces not in found:
            best: tuple[float, Pair | None] = (float("inf"), None)
            for pair in dict.fromkeys(pairwise(pieces)):
                if self._may_merge(pair):
                    cost = self._cost(pair) + self._search(self._after(pieces, pair), found)[0]
                    best = min(best, (cost, pair), key=lambda way: way[0])
            found[pieces] = best
        return found[pieces]

    def _is_plain(self, pieces: Pieces) -> bool:
        """Whether every way to merge the pieces needs as many new tokens: none is known, and none occurs twice."""
        if len(set(pairwise(pieces))) < len(pieces) - 1:
            return False
        inner = [span for span in spans(pieces) if span != (0, len(pieces))]
        products = ("".join(pieces[start:end]) for start, end in inner)
        return all(
            not self._is_known(product) and product not in self._targets and self._limits.allow_token(product)
            for product in products
        ) and all(self._may_merge(pair) for pair in self._prefix_pairs(pieces))

    @staticmethod
    def _prefix_pairs(pieces: Pieces) -> Iterator[Pair]:
        """The pairs of merging from left to right."""
        for at in range(1, len(pieces)):
            yield "".join(pieces[:at]), pieces[at]


def completions(
    string: str, unreachable: Mapping[str, tuple[int, int]], is_usable: Callable[[str], bool]
) -> dict[Pair, tuple[int, int]]:
    """The merges by which a new token completes tokens that could not be reached, with the ranks of those.

    Args:
        string: The new token.
        unreachable: What `unreachable_ranks` gives for the tokenizer.
        is_usable: Whether a string is a token that may be merged.

    >>> completions("ab", {"abc": (4, 0), "xab": (7, 0)}, lambda part: part in "abc")
    {('ab', 'c'): (4, 0)}
    """
    merges = dict[Pair, tuple[int, int]]()
    for product, rank in unreachable.items():
        pairs = [(string, product[len(string) :])] if product.startswith(string) else []
        pairs += [(product[: -len(string)], string)] if product.endswith(string) else []
        merges |= {pair: rank for pair in pairs if all(part == string or is_usable(part) for part in pair)}
    return merges


def spans(pieces: Pieces) -> Iterator[tuple[int, int]]:
    """All spans of two pieces or more, as their ends."""
    for start in range(len(pieces)):
        for end in range(start + 2, len(pieces) + 1):
            yield start, end


def replaced(pieces: Pieces, pair: Pair) -> Pieces:
    """The pieces with a pair merged wherever it occurs, from left to right.

    >>> replaced(("a", "a", "a", "b"), ("a", "a"))
    ('aa', 'a', 'b')
    """
    merged, at = list[str](), 0
    while at < len(pieces):
        is_pair = pieces[at : at + 2] == pair
        merged.append(pair[0] + pair[1] if is_pair else pieces[at])
        at += 2 if is_pair else 1
    return tuple(merged)


def occurrences(pieces: Pieces) -> list[Pair]:
    """The pairs of the pieces. Where a pair of equal pieces overlaps itself, it counts as often as it can be merged.

    >>> occurrences(("a", "a", "a", "b"))
    [('a', 'a'), ('a', 'b')]
    """
    pairs, last = list[Pair](), (-2, ("", ""))
    for at, pair in enumerate(pairwise(pieces)):
        if last != (at - 1, pair):
            pairs.append(pair)
            last = (at, pair)
    return pairs
