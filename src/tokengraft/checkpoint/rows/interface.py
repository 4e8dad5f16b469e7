"""The inputs of an initialiser: the old rows of a new token's pieces, and statistics of the whole table."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.float32]
Table = Literal["input", "output"]
BLOCK = 2048


class NewToken(NamedTuple):
    """A token that needs a row."""

    id: int
    pieces: Rows
    """The old rows of its pieces, in order; there may be none."""


@dataclass(frozen=True)
class NewTokens:
    """Tokens that need rows."""

    ids: Sequence[int]
    n_pieces: npt.NDArray[np.int64]
    """Of each token; it may be 0."""
    places: npt.NDArray[np.int64]
    """Where the rows of the pieces are in ``rows``, one token after the other."""
    rows: Rows
    """The old rows of all pieces, each once."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewToken]:
        places = np.split(self.places, np.cumsum(self.n_pieces))
        return (NewToken(token_id, self.rows[part]) for token_id, part in zip(self.ids, places, strict=False))


@dataclass(frozen=True)
class TableInfo:
    """Statistics of the rows of an old table. Computed on first use, one block at a time."""

    ids: npt.NDArray[np.int64]
    """The rows of tokens, without padding."""
    read: Callable[[npt.NDArray[np.int64]], Rows]
    width: int
    spread: float = 0.02
    """The standard deviation of the model's initial weights (`initializer_range`)."""
    seed: int = 0
    table: Table = "input"

    def generator(self, token_id: int) -> np.random.Generator:
        """A random generator that depends only on the seed, the table and the token, not on the order of work."""
        return np.random.default_rng([self.seed, ("input", "output").index(self.table), token_id])

    @cached_property
    def mean(self) -> Rows:
        """The mean row."""
        total = np.zeros(self.width)
        for block in self._read_blocks():
            total += block.sum(axis=0, dtype=np.float64)
        return (total / max(len(self.ids), 1)).astype(np.float32)

    @cached_property
    def median_norm(self) -> float:
        """The median length of a row."""
        norms = [np.linalg.norm(block.astype(np.float64), axis=1) for block in self._read_blocks()]
        return float(np.median(np.concatenate(norms))) if norms else 0.0

    @cached_property
    def factor(self) -> npt.NDArray[np.float64]:
        """A square root of the covariance of the rows. It turns independent noise into noise with that covariance."""
        mean, total = self.mean.astype(np.float64), np.zeros((self.width, self.width))
        for block in self._read_blocks():
            apart = block - mean
            total += apart.T @ apart
        values, vectors = np.linalg.eigh(total / max(len(self.ids) - 1, 1))
        root: npt.NDArray[np.float64] = vectors * np.sqrt(np.clip(values, 0, None))
        return root

    def _read_blocks(self) -> Iterator[Rows]:
        return (self.read(self.ids[at : at + BLOCK]) for at in range(0, len(self.ids), BLOCK))


Initialiser = Callable[[NewTokens, TableInfo], Rows]
"""Rows for new tokens, one for each, as 32-bit floats. A pure function: the rows do not depend on the batch."""
