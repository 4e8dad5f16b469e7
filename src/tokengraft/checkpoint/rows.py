"""Initialisers for new embedding rows: functions that make the rows of new tokens from the old rows of their pieces.

`INITIALISERS` has those of the package by name. `init=` also takes any other function with the same signature.

`Unused`: rows that no token has, and what they get so that a model does not choose them. A model computes a logit for
every row of its output, and an id without a token decodes to nothing. `docs/initialisers.md` has the proofs.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.ids import NEVER_CHOSEN, Renumbering, generated_ids
from tokengraft.checkpoint.tensors import Ids, Rows
from tokengraft.errors import OptionError
from tokengraft.vocab_plan import VocabPlan

Table = Literal["input", "output"]
BLOCK = 2048
"""Rows that are added at a time. Another number would round differently."""
SMALL_BLOCK = 32
"""Rows that are measured one by one are read in blocks that fit into the cache of a core."""
SAMPLE = 1 << 14
"""About so many rows are read for what distinguishes rare tokens: for SmolLM2, half as many give nearly the same."""
RARER = 2.0
"""How far the output of new tokens is moved: so many differences between the later and the earlier half of all ids."""


MUCH_LONGER = 100
"""Rows that are longer than the median by this factor are not used."""


class NewToken(NamedTuple):
    """A token that needs a row."""

    id: int
    pieces: Rows
    """The old rows of its pieces, in order; there may be none."""


@dataclass(frozen=True)
class NewTokens:
    """Tokens that need rows. Iterate over them, or use the arrays."""

    ids: Sequence[int]
    n_pieces: Ids
    """Of each token; it may be 0."""
    places: Ids
    """Where the rows of the pieces are in ``rows``, one token after the other."""
    rows: Rows
    """The old rows of all pieces, each once."""
    old_ids: Ids | None = None
    """The old id of each of these rows. None if ``rows`` is the complete old table."""

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[NewToken]:
        places = np.split(self.places, np.cumsum(self.n_pieces))
        return (NewToken(token_id, self.rows[part]) for token_id, part in zip(self.ids, places, strict=False))

    @property
    def piece_ids(self) -> Ids:
        """The old ids of the pieces, one token after the other."""
        return self.places if self.old_ids is None else self.old_ids[self.places]


@dataclass(frozen=True)
class TableInfo:
    """The old table that new rows belong to. Statistics are computed on first use, one block at a time."""

    ids: Ids
    """The rows of tokens, without padding."""
    read: Callable[[Ids], Rows]
    """Gives the old rows with some ids."""
    width: int
    spread: float = 0.02
    """The standard deviation of the model's initial weights (`initializer_range`)."""
    seed: int = 0
    table: Table = "input"
    plan: VocabPlan | None = None
    predicts: bool = False
    """Whether logits are computed from the rows: those of an output, or of an input that is tied to it."""
    of_changes: bool = False
    """Whether the rows are those of an adapter, which are added to the rows of a model."""

    @cached_property
    def kept(self) -> Ids:
        """The rows of kept tokens."""
        return self.ids if self.plan is None else np.array([i for i in self.ids if i in self.plan.moved], np.int64)

    def generator(self, token_id: int) -> "np.random.Generator":
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

    @cached_property
    def rarer(self) -> Rows:
        """The mean row of the later half of all ids, less that of the earlier half.

        Ids follow the order in which tokens were learned, so later ones are rarer. By Zipf's law, their logits are
        lower by 2 log 2 = 1.4 on average; in SmolLM2 they are, with little difference between contexts. Rows that no
        text has trained say nothing, and are left out: zeros, several equal ones, and those that are not finite or far
        too long.
        """
        ids = self.ids[:: max(1, len(self.ids) // SAMPLE)]
        ids = ids if self.of_changes else self._trained(ids)
        earlier, later = ids[: len(ids) // 2], ids[len(ids) // 2 :]
        return self._mean(later) - self._mean(earlier) if len(earlier) else np.zeros(self.width, np.float32)

    def _trained(self, ids: Ids) -> Ids:
        """The ids whose rows look trained."""
        blocks = self.blocks(ids, SMALL_BLOCK)
        lengths = [np.linalg.norm(block.astype(np.float64), axis=1) for block in blocks]
        length = np.concatenate(lengths) if lengths else np.zeros(0)
        usual = np.isfinite(length) & (length > 0)
        if usual.any():
            usual &= length <= MUCH_LONGER * np.median(length[usual])
        if self.width > 1:  # equal rows have equal lengths, and other rows hardly ever
            _, group, size = np.unique(length, return_inverse=True, return_counts=True)
            usual &= size[group] < 3
        return ids[usual]

    def _mean(self, ids: Ids) -> Rows:
        total = np.zeros(self.width)
        for block in self.blocks(ids):
            total += block.sum(axis=0, dtype=np.float64)
        return (total / max(len(ids), 1)).astype(np.float32)

    def blocks(self, ids: Ids, size: int = BLOCK) -> Iterator[Rows]:
        """The old rows with some ids, a block at a time, so that no table has to fit into memory."""
        return (self.read(ids[at : at + size]) for at in range(0, len(ids), size))


Initialiser = Callable[[NewTokens, TableInfo], Rows]
"""Rows for new tokens, one for each, as 32-bit floats. A pure function: the rows do not depend on the batch."""


def fvt(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces (Fast Vocabulary Transfer, Gee et al., 2022); without any, that of the table.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> fvt(NewTokens([7], np.array([2]), np.array([0, 1]), rows), TableInfo(np.arange(0), lambda ids: rows[ids], 2))
    array([[2., 3.]], dtype=float32)
    """
    means = np.empty((len(tokens), info.width), np.float32)
    starts = np.cumsum(tokens.n_pieces) - tokens.n_pieces
    for count in np.unique(tokens.n_pieces):
        alike = tokens.n_pieces == count
        pieces = tokens.places[starts[alike, None] + np.arange(count)]
        means[alike] = _means(tokens.rows, pieces) if count else info.mean
    return means


def fvt_rare(tokens: NewTokens, info: TableInfo) -> Rows:
    """As `fvt`; if logits are computed from the rows, moved so that the model predicts the tokens rarely.

    The mean of the pieces predicts a new token as often as its pieces, and 8,000 of them take probability from all
    other tokens. A token that is learned last is rarer than its pieces.
    """
    means = fvt(tokens, info)
    return means + np.float32(RARER) * info.rarer if info.predicts else means


def _means(rows: Rows, pieces: Ids) -> npt.NDArray[np.float64]:
    """For each group of rows the mean that `rows[group].mean(axis=0, dtype=np.float64)` computes."""
    if rows.shape[1] == 1:  # a bias: numpy adds in another order, which rounds differently
        means: npt.NDArray[np.float64] = rows[pieces].mean(axis=1, dtype=np.float64)
        return means
    total = rows[pieces[:, 0]].astype(np.float64)
    for place in range(1, pieces.shape[1]):
        total += rows[pieces[:, place]]
    total /= pieces.shape[1]
    return total


def length_weighted(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, weighted by their length in characters; without any, that of the table."""
    if info.plan is None or not info.plan.lengths:
        raise OptionError(
            "the initialiser length-weighted needs the lengths of tokens, and the plan has none",
            hint="make the plan from the tokenizers: tg.plan(old, new)",
        )
    lengths = np.array(info.plan.lengths, np.float64)[tokens.piece_ids]
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token, end in zip(rows, tokens, np.cumsum(tokens.n_pieces), strict=True):
        weights = lengths[end - len(token.pieces) : end]
        row[:] = (weights / weights.sum()) @ token.pieces if weights.any() else info.mean
    return rows


def mean(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean row of the table, for each token."""
    return np.tile(info.mean, (len(tokens), 1))


def random(tokens: NewTokens, info: TableInfo) -> Rows:
    """For each token a sample from the normal distribution around 0 with the model's `initializer_range`."""
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = info.spread * info.generator(token.id).standard_normal(info.width)
    return rows


INITIALISERS: Mapping[str, Initialiser] = MappingProxyType(
    {"fvt-rare": fvt_rare, "fvt": fvt, "length-weighted": length_weighted, "mean": mean, "random": random}
)
DEFAULT = "fvt-rare"
Init = str | Initialiser
"""The name of an initialiser, or a function."""
FUNCTION = "function "


def init_name(init: Init) -> str:
    """The name of an initialiser, for results and records.

    >>> init_name("fvt"), init_name(fvt)
    ('fvt', 'function fvt')
    """
    return init if isinstance(init, str) else FUNCTION + getattr(init, "__name__", type(init).__name__)


def rows_by(initialiser: Initialiser, tokens: NewTokens, info: TableInfo) -> Rows:
    """The rows that an initialiser gives, after refusing an array that is not a row for each token."""
    given = initialiser(tokens, info)
    try:
        rows = np.asarray(given).astype(np.float32, copy=False)
        found = f"an array of the shape {rows.shape}"
    except (TypeError, ValueError) as error:
        rows, found = np.empty(0, np.float32), f"a {type(given).__name__} that numpy cannot read ({error})"
    wanted = len(tokens), info.width
    if rows.shape != wanted:
        raise OptionError(
            f"the initialiser `{init_name(initialiser)}` gave {found} for {len(tokens):,} new tokens; it must give an "
            f"array of numbers of the shape {wanted}",
            hint="return one row for each new token, as in docs/initialisers.md",
        )
    return rows


HoleRows = Literal["keep", "zero", "lowest"]
"""What rows without a token get: the row that they had, zeros, or a row that is never the most likely."""
BIAS_DROP = 10_000.0
"""How far the bias of a row without a token is below the mean. A finite number in 16 bits; e^-10000 is 0 in 64."""


@dataclass(frozen=True)
class Unused:
    """New rows that have no token, what they get, and whether their ids may be generated."""

    rows: frozenset[int] = field(default_factory=frozenset)
    """Those that do not keep the row that they had."""
    how: HoleRows = "keep"
    suppressed: frozenset[int] = field(default_factory=frozenset)
    """Those that `generate` must not choose."""

    def row(self, info: TableInfo, *, is_bias: bool = False) -> Rows:
        """The row that all of them get in one table.

        `lowest` is the mean of the rows of all kept tokens. Its logit is the mean of theirs, which is never above the
        largest. With a bias, it is far below.
        """
        if self.how == "zero":
            return np.zeros(info.width, np.float32)
        return info.kept_mean - np.float32(BIAS_DROP) if is_bias else info.kept_mean


def unused_rows(renumbering: Renumbering, how: HoleRows | None, fields: Collection[tuple[str, int]] = ()) -> Unused:
    """The new rows without a token. With `keep`, there are none. By default, they get the `lowest` row.

    Holes in the new ids get another row, and so does padding for which there is no old row. Padding that the model has
    keeps its rows, and so do the ids that configs use, such as that of an image (``fields``). All of them are
    suppressed, unless the model may have to generate one of them.
    """
    if how == "keep":
        return Unused()
    plan, rows = renumbering.plan, renumbering.rows
    named = {token_id for name, token_id in fields if name not in NEVER_CHOSEN}
    holes = {i for i, source in enumerate(plan.sources) if source is None}
    padding = {*range(plan.rows_after, rows[1])}
    kept = {*range(plan.rows_after + rows[0] - plan.rows_before)} & padding
    suppressed = (holes | padding) - generated_ids(fields)
    return Unused(frozenset((holes - named) | (padding - kept)), how or "lowest", suppressed=frozenset(suppressed))
