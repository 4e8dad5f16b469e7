"""`similar_tokens`, for the initialiser `context`: kept tokens with the same neighbours in text as new tokens.

Neighbours are the tokens before and after a token inside its pretoken: counts know no more. Tokens that are complete
pretokens, such as most frequent words, have no neighbours, and so no similar token.

All arithmetic is exact (whole numbers that floats represent), so the result is the same on every machine.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

import tokengraft as tg

PRETOKENS = 200_000
"""The most frequent pretokens are read. They limit the time: about a second for each hundred thousand."""
MIN_SUPPORT = 100
"""Tokens with fewer neighbours in the counts have no similar token and are none."""
DIMENSIONS = 256
"""Neighbours are hashed into vectors of this many numbers."""
SCALE = 127
"""The largest number of a vector. DIMENSIONS * SCALE**2 is below 2**24, so that products in 32-bit floats are exact."""
BLOCK = 512
Ints = npt.NDArray[np.int64]


def similar_tokens(
    tokenizer: tg.Tokenizer, new_ids: Iterable[int], kept: Mapping[int, int], counts: tg.PretokenCounts
) -> dict[int, int]:
    """By id of a new token: the value in ``kept`` of the kept token with the most similar neighbours, by cosine.

    Args:
        tokenizer: The new tokenizer, which splits the pretokens.
        new_ids: The ids of the new tokens.
        kept: The ids of kept tokens that may be chosen. Of equally similar ones, the lowest is.
        counts: The counted text.

    Raises:
        CountsError: The counts were made for another pipeline.
    """
    counts.require(tokenizer)
    beside = _neighbours(tokenizer, counts)
    frequent = np.flatnonzero(beside.support >= MIN_SUPPORT)
    ids, candidates = (np.intersect1d(frequent, np.fromiter(wanted, np.int64)) for wanted in (new_ids, sorted(kept)))
    if not len(ids) or not len(candidates):
        return {}
    vectors = _vectors(beside)
    best = _most_similar(vectors[ids], vectors[candidates])
    return {int(i): kept[int(candidates[place])] for i, place in zip(ids, best, strict=True) if place >= 0}


@dataclass(frozen=True)
class _Neighbours:
    """Which tokens occur beside which, and how often."""

    tokens: Ints
    neighbours: Ints
    """Twice the id of the neighbour, plus 1 if it comes after the token."""
    counts: Ints
    rows: int

    @property
    def support(self) -> Ints:
        """The number of neighbours of each token."""
        return _sums(self.tokens, self.counts, self.rows)


def _neighbours(tokenizer: tg.Tokenizer, counts: tg.PretokenCounts) -> _Neighbours:
    rows = tokenizer.n_rows
    pairs = np.array([*_pairs(tokenizer, counts)], np.int64).reshape(-1, 3)
    distinct, places = np.unique(pairs[:, 0] * rows + pairs[:, 1], return_inverse=True)
    left, right = distinct // rows, distinct % rows
    summed = _sums(places, pairs[:, 2], len(distinct))
    return _Neighbours(
        np.concatenate([left, right]),
        np.concatenate([2 * right + 1, 2 * left]),
        np.concatenate([summed, summed]),
        rows,
    )


def _pairs(tokenizer: tg.Tokenizer, counts: tg.PretokenCounts) -> Iterator[tuple[int, int, int]]:
    """Neighbouring tokens inside pretokens, with the count of the pretoken."""
    byte_level = tokenizer.kind == "byte-level"
    character = {token.bytes[0]: token.string for token in tokenizer.tokens if len(token.bytes) == 1}
    for pretoken, count in counts.top(PRETOKENS):
        spelled = "".join([character[byte] for byte in pretoken]) if byte_level else pretoken.decode()
        ids = tokenizer.encode_pretoken(spelled)
        yield from ((left, right, count) for left, right in pairwise(ids))


def _sums(places: Ints, numbers: Ints, size: int) -> Ints:
    total = np.zeros(size, np.int64)
    np.add.at(total, places, numbers)
    return total


def _vectors(beside: _Neighbours) -> npt.NDArray[np.float32]:
    """A vector of whole numbers for each token: the sum of random signs of its neighbours, rarer ones weighted more."""
    total = _sums(beside.neighbours, beside.counts, 2 * beside.rows)
    weights = np.floor(4096 * np.sqrt(beside.counts / total[beside.neighbours]))
    vectors = np.empty((beside.rows, DIMENSIONS), np.float64)
    for dimension in range(DIMENSIONS):
        signs = _signs(beside.neighbours, dimension)
        vectors[:, dimension] = np.bincount(beside.tokens, weights * signs, beside.rows)
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    rounded: npt.NDArray[np.float32] = np.rint(vectors * SCALE / np.maximum(largest, 1)).astype(np.float32)
    return rounded


def _signs(numbers: Ints, dimension: int) -> Ints:
    """1 or -1 for each number: a bit of its hash (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed = numbers.astype(np.uint64) * np.uint64(DIMENSIONS) + np.uint64(dimension + 1)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return 1 - 2 * (mixed >> np.uint64(63)).astype(np.int64)


def _most_similar(vectors: npt.NDArray[np.float32], candidates: npt.NDArray[np.float32]) -> Ints:
    """For each vector the place of the candidate with the largest cosine; -1 if no cosine is above 0."""
    lengths = np.sqrt((candidates.astype(np.float64) ** 2).sum(axis=1))
    best = np.empty(len(vectors), np.int64)
    for at in range(0, len(vectors), BLOCK):
        cosines = (vectors[at : at + BLOCK] @ candidates.T) / np.maximum(lengths, 1)
        chosen = cosines.argmax(axis=1)
        best[at : at + BLOCK] = np.where(cosines[np.arange(len(chosen)), chosen] > 0, chosen, -1)
    return best
