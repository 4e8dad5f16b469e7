"""`new_rows`: builds the rows of a new table by a plan, one block at a time, so that no table has to fit into memory.

Used for files and for tensors in memory. Both provide their rows as bytes.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tokengraft import _core
from tokengraft.checkpoint.rows import Initialiser, NewTokens, TableInfo
from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.tensors import Raw, Rows, narrow, row_width, widen
from tokengraft.checkpoint.unused import Unused
from tokengraft.plan import VocabPlan

BLOCK_BYTES = 1 << 18
"""Bytes of rows that are computed at a time. As 64-bit floats they still fit into the cache of a core."""
LONG_RUN = 256
"""Runs of at least this many consecutive rows are copied by the kernel."""


class OldRows(Protocol):
    """Rows of an old table, as bytes."""

    def raw(self, rows: npt.NDArray[np.int64]) -> Raw:
        """The bytes of the given rows, in the given order."""
        ...


@dataclass(frozen=True)
class TableShape:
    """The size and data type of a table."""

    rows: int
    row_bytes: int
    dtype: str

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return row_width(self.row_bytes, self.dtype)


@dataclass(frozen=True)
class TableSpec:
    """How to build a new table."""

    plan: VocabPlan
    copies: npt.NDArray[np.int64]
    """For every new row, padding included, the old row to copy, or -1: `copied_rows`."""
    initialiser: Initialiser
    info: TableInfo
    unused: Unused = field(default_factory=Unused)
    """The new rows without a token that get a row of their own."""

    def for_bias(self) -> "TableSpec":
        """The same for the bias of an output: of new tokens, it is always the mean of the pieces."""
        return replace(self, initialiser=fvt, unused=replace(self.unused, is_bias=True))


def new_rows(old: OldRows, shape: TableShape, spec: TableSpec) -> Iterator[range | Raw]:
    """The rows of the new table, in order: ranges of old rows to copy, and blocks of new bytes."""
    copies, begin = spec.copies, 0
    for start, end in long_runs(copies):
        yield from _blocks(old, shape, spec, range(begin, start))
        yield range(int(copies[start]), int(copies[end - 1]) + 1)
        begin = end
    yield from _blocks(old, shape, spec, range(begin, len(copies)))


def long_runs(copies: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Ranges of new rows that are copies of at least `LONG_RUN` consecutive old rows."""
    continues = (copies[1:] == copies[:-1] + 1) & (copies[:-1] >= 0)
    breaks = [int(at) + 1 for at in np.flatnonzero(~continues)]
    runs = zip([0, *breaks], [*breaks, len(copies)], strict=True)
    return [(start, end) for start, end in runs if end - start >= LONG_RUN and copies[start] >= 0]


def _blocks(old: OldRows, shape: TableShape, spec: TableSpec, ids: range) -> Iterator[Raw]:
    size = max(1, BLOCK_BYTES // max(shape.row_bytes, 1))
    return (_block(old, shape, spec, ids[at : at + size]) for at in range(0, len(ids), size))


def _block(old: OldRows, shape: TableShape, spec: TableSpec, ids: range) -> Raw:
    sources = spec.copies[ids.start : ids.stop]
    kept = sources >= 0
    if kept.all():
        return old.raw(sources)
    made = _made(old, shape, spec, [ids[place] for place in np.flatnonzero(~kept)])
    if not kept.any():
        return made
    block = np.empty((len(ids), shape.row_bytes), np.uint8)
    block[kept], block[~kept] = old.raw(sources[kept]), made
    return block


def _made(old: OldRows, shape: TableShape, spec: TableSpec, ids: list[int]) -> Raw:
    """Rows that are not copied: of new tokens, and without a token."""
    unused = np.array([i in spec.unused.rows for i in ids])
    if not unused.any():
        return _token_rows(old, shape, spec, ids)
    made = np.empty((len(ids), shape.row_bytes), np.uint8)
    made[unused] = narrow(spec.unused.row(spec.info)[None], shape.dtype)
    if not unused.all():
        made[~unused] = _token_rows(old, shape, spec, [i for i in ids if i not in spec.unused.rows])
    return made


def _token_rows(old: OldRows, shape: TableShape, spec: TableSpec, ids: list[int]) -> Raw:
    """Rows for new tokens."""
    pieces = _pieces(spec.plan, ids)
    if spec.initialiser is fvt and shape.dtype == "BF16" and shape.width > 1 and all(pieces):
        return _bf16_means(old, shape, pieces)
    return narrow(spec.initialiser(_with_pieces(old, shape, ids, pieces), spec.info), shape.dtype)


def _bf16_means(old: OldRows, shape: TableShape, pieces: list[tuple[int, ...]]) -> Raw:
    """What `fvt` computes, in the core: the most frequent case, several times as fast."""
    wanted, places = np.unique(np.array([row for rows in pieces for row in rows], np.int64), return_inverse=True)
    groups = [len(rows) for rows in pieces]
    means = _core.bf16_means(old.raw(wanted).tobytes(), shape.width, groups, places.tolist())
    return np.frombuffer(means, np.uint8).reshape(len(pieces), shape.row_bytes)


def copied_rows(plan: VocabPlan, old_rows: int, rows: int, unused: Collection[int] = ()) -> npt.NDArray[np.int64]:
    """For every new row the old row to copy, or -1 if it must be initialised.

    A hole keeps its old row unless it is among the ``unused``. Padding stays padding: the first row after the old
    tokens becomes the first row after the new tokens.

    >>> copied_rows(VocabPlan(3, (2, (0, 1), None), (0, 1)), 4, 5)
    array([ 2, -1,  2,  3, -1])
    >>> copied_rows(VocabPlan(3, (2, (0, 1), None), (0, 1)), 4, 5, unused=[2, 4])
    array([ 2, -1, -1,  3, -1])
    """
    tokens = [
        source if isinstance(source, int) else new_id if source is None and new_id < old_rows else -1
        for new_id, source in enumerate(plan.sources)
    ]
    padding = np.arange(plan.rows_before, plan.rows_before + rows - plan.rows_after)
    copies: npt.NDArray[np.int64] = np.concatenate(
        [np.array(tokens, np.int64), np.where(padding < old_rows, padding, -1)]
    )
    copies[np.fromiter(unused, np.int64, len(unused))] = -1
    return copies


def _pieces(plan: VocabPlan, ids: list[int]) -> list[tuple[int, ...]]:
    """The pieces of new tokens: old rows. A row without a token has none."""
    sources = [plan.sources[i] if i < plan.rows_after else None for i in ids]
    return [source if isinstance(source, tuple) else () for source in sources]


def _with_pieces(old: OldRows, shape: TableShape, ids: list[int], pieces: list[tuple[int, ...]]) -> NewTokens:
    """New tokens with the old rows of their pieces. Every row is read once."""
    wanted, places = np.unique(np.array([row for rows in pieces for row in rows], np.int64), return_inverse=True)
    values = widen(old.raw(wanted), shape.dtype).reshape(len(wanted), shape.width)
    return NewTokens(ids, np.array([len(rows) for rows in pieces], np.int64), places, values, wanted)


def token_rows(plan: VocabPlan, old_rows: int) -> npt.NDArray[np.int64]:
    """The old rows that belong to tokens."""
    return np.array(sorted(i for i in {*plan.moved, *plan.removed} if i < old_rows), np.int64)


def reader(old: OldRows, dtype: str) -> Callable[[npt.NDArray[np.int64]], Rows]:
    """A function that reads rows of a table as 32-bit floats."""
    return lambda rows: widen(old.raw(rows), dtype)
