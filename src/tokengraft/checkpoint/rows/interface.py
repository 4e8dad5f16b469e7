"""The inputs of an initialiser: the old rows of a new token's pieces, and statistics of the whole table.

What initialisers use of the tokens themselves, such as their scripts, is in the `TokenFacts` of the plan.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokengraft.plan import VocabPlan
from tokengraft.token_facts import TokenFacts

Rows = npt.NDArray[np.float32]
Table = Literal["input", "output"]
BLOCK = 2048
MIN_TYPICAL = 32
"""A script with fewer kept tokens than this has no typical length of its own."""


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
    old_ids: npt.NDArray[np.int64] | None = None
    """The old id of each of these rows. None if ``rows`` is the complete old table."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewToken]:
        places = np.split(self.places, np.cumsum(self.n_pieces))
        return (NewToken(token_id, self.rows[part]) for token_id, part in zip(self.ids, places, strict=False))

    @property
    def pieces(self) -> npt.NDArray[np.int64]:
        """The old ids of the pieces, one token after the other."""
        return self.places if self.old_ids is None else self.old_ids[self.places]

    def one_piece(self, *, last: bool, otherwise: Rows) -> Rows:
        """The row of the first or the last piece of each token, and another row for tokens without pieces."""
        rows = np.tile(otherwise, (len(self), 1))
        some = self.n_pieces > 0
        ends = np.cumsum(self.n_pieces)
        rows[some] = self.rows[self.places[(ends - 1 if last else ends - self.n_pieces)[some]]]
        return rows


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
    plan: VocabPlan | None = None
    """The plan, for initialisers that use kept tokens or facts about tokens."""

    @cached_property
    def kept(self) -> npt.NDArray[np.int64]:
        """The rows of kept tokens."""
        return self.ids if self.plan is None else np.array([i for i in self.ids if i in self.plan.moved], np.int64)

    @property
    def facts(self) -> TokenFacts:
        """Lengths and scripts of the tokens. `require_facts` refuses plans without them."""
        if self.plan is None or self.plan.facts is None:
            raise ValueError("this initialiser needs a plan with facts about tokens")
        return self.plan.facts

    def generator(self, token_id: int) -> np.random.Generator:
        """A random generator that depends only on the seed, the table and the token, not on the order of work."""
        return np.random.default_rng([self.seed, ("input", "output").index(self.table), token_id])

    @cached_property
    def mean(self) -> Rows:
        """The mean row."""
        return self._mean(self.ids)

    @cached_property
    def kept_mean(self) -> Rows:
        """The mean row of the kept tokens; of all tokens if none is kept."""
        return self._mean(self.kept) if len(self.kept) else self.mean

    def _mean(self, ids: npt.NDArray[np.int64]) -> Rows:
        total = np.zeros(self.width)
        for block in self._read_blocks(ids):
            total += block.sum(axis=0, dtype=np.float64)
        return (total / max(len(ids), 1)).astype(np.float32)

    @cached_property
    def median_norm(self) -> float:
        """The median length of a row."""
        return _median(self._norms(self.ids))

    @cached_property
    def script_norms(self) -> dict[str | None, float]:
        """The median length of the rows of kept tokens by script; under None, that of all scripts.

        Only tokens with a script are counted: no added tokens and no single bytes. Scripts with fewer than
        `MIN_TYPICAL` kept tokens are left out.
        """
        facts, norms = self.facts, self._norms(self.kept)
        names = np.array([facts.scripts[row] or "" for row in self.kept], dtype=object)
        groups = {name: norms[names == name] for name in sorted(set(names)) if name}
        typical = {name: _median(group) for name, group in groups.items() if len(group) >= MIN_TYPICAL}
        written = norms[names != ""]
        return {None: _median(written if len(written) else norms)} | typical

    def _norms(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        blocks = [np.linalg.norm(block.astype(np.float64), axis=1) for block in self._read_blocks(ids)]
        return np.concatenate([np.zeros(0), *blocks])

    @cached_property
    def factor(self) -> npt.NDArray[np.float64]:
        """A square root of the covariance of the rows. It turns independent noise into noise with that covariance."""
        mean, total = self.mean.astype(np.float64), np.zeros((self.width, self.width))
        for block in self._read_blocks(self.ids):
            apart = block - mean
            total += apart.T @ apart
        values, vectors = np.linalg.eigh(total / max(len(self.ids) - 1, 1))
        root: npt.NDArray[np.float64] = vectors * np.sqrt(np.clip(values, 0, None))
        return root

    def _read_blocks(self, ids: npt.NDArray[np.int64]) -> Iterator[Rows]:
        return (self.read(ids[at : at + BLOCK]) for at in range(0, len(ids), BLOCK))


def _median(numbers: npt.NDArray[np.float64]) -> float:
    return float(np.median(numbers)) if len(numbers) else 0.0


Initialiser = Callable[[NewTokens, TableInfo], Rows]
"""Rows for new tokens, one for each, as 32-bit floats. A pure function: the rows do not depend on the batch."""
