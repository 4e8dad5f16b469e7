"""A new table of rows out of an old one, by a plan: a block at a time, so that no table need fit into memory.

The same for files and for tensors in memory: both give their rows as bytes and take bytes back.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.rows import Facts, Initialiser, NewToken
from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.tensors import Raw, Rows, narrow, widen
from tokengraft.plan import VocabPlan

BLOCK_BYTES = 1 << 23


class OldRows(Protocol):
    """Rows of an old table, as bytes."""

    def raw(self, rows: npt.NDArray[np.int64]) -> Raw:
        """The bytes of some rows, one after the other."""
        ...


@dataclass(frozen=True)
class TableShape:
    """The size of a table, and what its numbers are."""

    rows: int
    row_bytes: int
    dtype: str

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return self.row_bytes // (4 if self.dtype == "F32" else 2)


@dataclass(frozen=True)
class Recipe:
    """How new rows come about."""

    plan: VocabPlan
    rows: int
    """Rows of the new table, padding included."""
    initialiser: Initialiser
    facts: Facts

    def for_bias(self) -> "Recipe":
        """The same for the bias of an output, a number for each token: always the mean of its pieces."""
        return replace(self, initialiser=fvt)


def new_rows(old: OldRows, shape: TableShape, recipe: Recipe) -> Iterator[Raw]:
    """The rows of the new table, in blocks, as bytes. Kept rows are copied bit for bit."""
    size = max(1, BLOCK_BYTES // max(shape.row_bytes, 1))
    for begin in range(0, recipe.rows, size):
        yield _block(old, shape, recipe, range(begin, min(begin + size, recipe.rows)))


def _block(old: OldRows, shape: TableShape, recipe: Recipe, ids: range) -> Raw:
    block = np.empty((len(ids), shape.row_bytes), np.uint8)
    copies = np.array([copied_row(recipe.plan, shape.rows, i) for i in ids], np.int64)
    kept = copies >= 0
    block[kept] = old.raw(copies[kept])
    fresh = [ids[place] for place in np.flatnonzero(~kept)]
    if fresh:
        tokens = [NewToken(i, _pieces(old, shape, recipe.plan, i)) for i in fresh]
        block[~kept] = narrow(recipe.initialiser(tokens, recipe.facts), shape.dtype)
    return block


def copied_row(plan: VocabPlan, old_rows: int, new_id: int) -> int:
    """The old row that a new one is a copy of, or -1 where it must be made.

    A hole keeps the row it had. Padding stays padding: the first row beyond the old tokens comes first beyond the new.
    """
    if new_id >= plan.rows_after:
        padding = plan.rows_before + new_id - plan.rows_after
        return padding if padding < old_rows else -1
    source = plan.sources[new_id]
    if source is None:
        return new_id if new_id < old_rows else -1
    return source if isinstance(source, int) else -1


def _pieces(old: OldRows, shape: TableShape, plan: VocabPlan, new_id: int) -> Rows:
    source = plan.sources[new_id] if new_id < plan.rows_after else None
    pieces = source if isinstance(source, tuple) else ()
    if not pieces:
        return np.empty((0, shape.width), np.float32)
    return widen(old.raw(np.array(pieces, np.int64)), shape.dtype)


def token_rows(plan: VocabPlan, old_rows: int) -> npt.NDArray[np.int64]:
    """The old rows that belong to tokens."""
    return np.array(sorted(i for i in {*plan.moved, *plan.removed} if i < old_rows), np.int64)


def reader(old: OldRows, dtype: str) -> Callable[[npt.NDArray[np.int64]], Rows]:
    """Rows of a table as numbers."""
    return lambda rows: widen(old.raw(rows), dtype)
