"""`NewTables`: builds new tables by a plan, one block of rows at a time, so that no table has to fit into memory.

Used for files and for tensors in memory. Both provide their rows as bytes.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from tokengraft import _core
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary
from tokengraft.checkpoint.padding import PadMultiple
from tokengraft.checkpoint.rows import (
    DEFAULT,
    INITIALISERS,
    HoleRows,
    Init,
    Initialiser,
    NewTokens,
    TableInfo,
    Unused,
    fvt,
    init_name,
    initialiser_of,
    require_hole_rows,
    require_initialisers,
    rows_by,
)
from tokengraft.checkpoint.tensors import Ids, Raw, TensorInfo, all_finite, narrow, widen
from tokengraft.errors import OptionError
from tokengraft.vocab_plan import VocabPlan

BLOCK_BYTES = 1 << 18
"""Bytes of rows that are computed at a time. As 64-bit floats they still fit into the cache of a core."""
LONG_RUN = 256
"""Runs of at least this many consecutive rows are copied by the kernel."""


class OldRows(Protocol):
    """Rows of an old table, as bytes."""

    def raw(self, rows: Ids) -> Raw:
        """The bytes of the given rows, in the given order."""
        ...


@dataclass(frozen=True)
class RowOptions:
    """How the rows of new tables are made: the options that `transplant` has for files, GGUF and models in memory."""

    init: Init = DEFAULT
    output_init: Init | None = None
    hole_rows: HoleRows | None = None
    pad_multiple: PadMultiple = "keep"
    seed: int = 0

    def require_known(self) -> None:
        """Refuses initialisers and hole rows that do not exist."""
        require_initialisers(self.init, self.output_init)
        if self.hole_rows is not None:
            require_hole_rows(self.hole_rows)

    @property
    def inits(self) -> tuple[Init, Init]:
        """The initialisers of input and output."""
        return self.init, self.output_init or self.init


@dataclass(frozen=True)
class NewTables:
    """What decides the new tables of a model, in files or in memory."""

    vocabulary: Vocabulary
    plan: VocabPlan
    rows: int
    """Rows of the new embedding, padding included."""
    options: RowOptions
    unused: Unused
    spread: float = 0.02
    """The standard deviation of the model's initial weights."""

    @cached_property
    def copies(self) -> Ids:
        """For every new row the old row that it copies, or -1."""
        return copied_rows(self.plan, self.vocabulary.rows, self.rows, self.unused.rows)

    @property
    def copies_by_table(self) -> dict[str, Ids]:
        """The same for each table, by its name."""
        infos = (tensor.info for tensor in self.vocabulary.tensors)
        return {info.name: self.copies[: self.rows_after(info)] for info in infos}

    @cached_property
    def _token_rows(self) -> Ids:
        """The old rows that belong to tokens."""
        ids = {*self.plan.moved, *self.plan.removed}
        return np.array(sorted(i for i in ids if i < self.vocabulary.rows), np.int64)

    def rows_after(self, table: TensorInfo) -> int:
        """Rows of the new table. A table for the first ids only keeps its rows; see `require_fixed_ids`."""
        return self.rows if table.shape[0] == self.vocabulary.rows else table.shape[0]

    def parts(self, tensor: VocabTensor, old: OldRows) -> Iterator[range | Raw]:
        """The rows of one new table, in order: ranges of old rows to copy, and blocks of new bytes."""
        info, as_input = tensor.info, tensor.role == "input" or self.vocabulary.tied
        old_table = TableInfo(
            ids=self._token_rows[self._token_rows < info.shape[0]],
            read=lambda rows: widen(old.raw(rows), info.dtype),
            width=info.width,
            spread=self.spread,
            seed=self.options.seed,
            table="input" if as_input else "output",
            plan=self.plan,
        )
        is_bias = tensor.role == "bias"  # of new tokens, it is always the mean of the pieces
        initialiser = fvt if is_bias else initialiser_of(self.options.inits[0 if as_input else 1])
        copies = self.copies[: self.rows_after(info)]
        return _NewTable(old, info, copies, self.plan, initialiser, old_table, self.unused, is_bias).parts()


@dataclass(frozen=True)
class _NewTable:
    """One new table, and the old one that it is made from."""

    old: OldRows
    info: TensorInfo
    copies: Ids
    plan: VocabPlan
    initialiser: Initialiser
    old_table: TableInfo
    unused: Unused
    is_bias: bool

    def parts(self) -> Iterator[range | Raw]:
        begin = 0
        for start, end in long_runs(self.copies):
            yield from self._blocks(range(begin, start))
            yield range(int(self.copies[start]), int(self.copies[end - 1]) + 1)
            begin = end
        yield from self._blocks(range(begin, len(self.copies)))

    def _blocks(self, ids: range) -> Iterator[Raw]:
        size = max(1, BLOCK_BYTES // max(self.info.row_bytes, 1))
        return (self._block(ids[at : at + size]) for at in range(0, len(ids), size))

    def _block(self, ids: range) -> Raw:
        sources = self.copies[ids.start : ids.stop]
        kept = sources >= 0
        if kept.all():
            return self.old.raw(sources)
        unused = ~kept & [i in self.unused.rows for i in ids]
        new = ~(kept | unused)
        if new.all():
            return self._token_rows([*ids])
        block = np.empty((len(ids), self.info.row_bytes), np.uint8)
        block[kept] = self.old.raw(sources[kept])
        if unused.any():
            block[unused] = narrow(self.unused.row(self.old_table, is_bias=self.is_bias)[None], self.info.dtype)
        if new.any():
            block[new] = self._token_rows([ids[place] for place in np.flatnonzero(new)])
        return block

    def _token_rows(self, ids: list[int]) -> Raw:
        """Rows for new tokens, from the old rows of their pieces. Every row is read once."""
        sources = [self.plan.sources[i] if i < self.plan.rows_after else None for i in ids]
        pieces = [source if isinstance(source, tuple) else () for source in sources]
        wanted, places = np.unique(np.array([row for rows in pieces for row in rows], np.int64), return_inverse=True)
        dtype, width, counts = self.info.dtype, self.info.width, [*map(len, pieces)]
        if self.initialiser is fvt and dtype == "BF16" and width > 1 and all(pieces):
            # The most frequent case, several times as fast in the core.
            means = _core.bf16_means(self.old.raw(wanted).tobytes(), width, counts, places.tolist())
            return np.frombuffer(means, np.uint8).reshape(len(pieces), self.info.row_bytes)
        values = widen(self.old.raw(wanted), dtype).reshape(len(wanted), width)
        tokens = NewTokens(ids, np.array(counts, np.int64), places, values, wanted)
        rows = narrow(rows_by(self.initialiser, tokens, self.old_table), dtype)
        # Rows of the package's own initialisers are not finite only if the model's are not, which is found later.
        if self.initialiser not in INITIALISERS.values() and not all_finite(rows, dtype):
            raise OptionError(
                f"the initialiser `{init_name(self.initialiser)}` gave rows with infinite numbers or NaN as {dtype}",
                hint="return finite numbers that the type of the table can hold",
            )
        return rows


def long_runs(copies: Ids) -> list[tuple[int, int]]:
    """Ranges of new rows that are copies of at least `LONG_RUN` consecutive old rows."""
    continues = (copies[1:] == copies[:-1] + 1) & (copies[:-1] >= 0)
    breaks = [int(at) + 1 for at in np.flatnonzero(~continues)]
    runs = zip([0, *breaks], [*breaks, len(copies)], strict=True)
    return [(start, end) for start, end in runs if end - start >= LONG_RUN and copies[start] >= 0]


def copied_rows(plan: VocabPlan, old_rows: int, rows: int, unused: Collection[int] = ()) -> Ids:
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
    copies: Ids = np.concatenate([np.array(tokens, np.int64), np.where(padding < old_rows, padding, -1)])
    copies[np.fromiter(unused, np.int64, len(unused))] = -1
    return copies
