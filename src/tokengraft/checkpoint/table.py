"""`NewTables`: builds new tables by a plan, one block of rows at a time, so that no table has to fit into memory.

Used for files and for tensors in memory. Both provide their rows as bytes. `write_weights` writes weight files: new
tables in the places of the old ones, all other tensors unchanged.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from threading import Event
from types import NoneType
from typing import Any, BinaryIO, get_args

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.byte_ranges import copy_bytes, raise_if, share_or_copy
from tokengraft.checkpoint.compare_files import ByteComparison, comparisons
from tokengraft.checkpoint.layout import PER_LAYER, Checkpoint, VocabTensor, Vocabulary
from tokengraft.checkpoint.padding import PadMultiple, pad_multiple
from tokengraft.checkpoint.rows import (
    DEFAULT,
    INITIALISERS,
    HoleRows,
    Init,
    NewTokens,
    TableInfo,
    Unused,
    init_name,
    rows_by,
)
from tokengraft.checkpoint.tensors import (
    Ids,
    Raw,
    TensorFile,
    TensorInfo,
    all_finite,
    header_bytes,
    long_runs,
    narrow,
    read_rows,
    widen,
)
from tokengraft.errors import OptionError, Progress, option, require, require_type, seed
from tokengraft.output.atomic import sync
from tokengraft.representation import set_fields, shown
from tokengraft.vocab_plan import VocabPlan

BLOCK_BYTES = 1 << 18
"""Bytes of rows that are computed at a time. As 64-bit floats they still fit into the cache of a core."""


OldRows = Callable[[Ids], Raw]
"""Gives the bytes of some rows of an old table, in the given order."""


@shown
@dataclass(frozen=True)
class TransplantOptions:
    """How the rows of new tables are made, and how files are written."""

    init: Init | None = None
    """The initialiser for new embedding rows, also an argument of `transplant` and `transplant_model`."""
    output_init: Init | None = None
    """The initialiser for new rows of an untied output; by default that of ``init``. An error if the output is
    tied."""
    hole_rows: HoleRows | None = None
    """What rows get whose ids have no token: `lowest`, a row that is never the most likely, `zero`, or `keep`, the row
    that they had. By default `lowest`; for a GGUF file with tables in which rows cannot be written, `keep`. Except with
    `keep`, all ids without a token are listed as suppressed in the generation config, padding included."""
    pad_multiple: PadMultiple = "keep"
    """Make the number of rows a multiple of this. `keep` keeps the current padding."""
    seed: int = 0
    """Seed for random initialisers, and for functions."""
    hard_link: bool = False
    """Hard-link unchanged files to the source. Writing to them in place then changes both. Only for model folders."""
    verify: bool = False
    """Run both models and compare their logits before the result is renamed into place. Needs torch. Only for model
    folders."""
    progress: Progress | None = None
    """Called with the bytes written."""

    def __post_init__(self) -> None:
        for init in (self.init, self.output_init):
            known = init is None or callable(init) or init in [*INITIALISERS]
            hint = f"pass one of {', '.join(INITIALISERS)}, or a function"
            require(known, f"there is no initialiser {init!r}", hint=hint)
        if self.hole_rows not in (None, *get_args(HoleRows)):
            hint = f"pass one of {', '.join(get_args(HoleRows))}"
            raise OptionError(f"there are no hole rows {self.hole_rows!r}", hint=hint)
        set_fields(self, seed, "seed")
        set_fields(self, pad_multiple, "pad_multiple")

    @classmethod
    def of(cls, options: "TransplantOptions | None", init: Init | None) -> "TransplantOptions":
        """The options with the initialiser that was given beside them."""
        require_type("options", options, cls, NoneType)
        options = options or cls()
        if init is None:
            return options
        twice = f"two initialisers are given: `init` {init!r}, and `options` with {options.init!r}"
        require(options.init in (None, init), twice, hint="leave out one of the two")
        return replace(options, init=init)

    @property
    def inits(self) -> tuple[Init, Init]:
        """The initialisers of input and output."""
        init = self.init or DEFAULT
        return init, self.output_init or init


def require_absent(options: Mapping[str, Any], what: str) -> None:
    """Refuses options that have a value and do not apply."""
    for name, given in options.items():
        require(not given, f"{option(name)} does not apply to {what}", hint=f"leave out {option(name)}")


@dataclass(frozen=True)
class NewTables:
    """What decides the new tables of a model, in files or in memory."""

    vocabulary: Vocabulary
    plan: VocabPlan
    rows: int
    """Rows of the new embedding, padding included."""
    options: TransplantOptions
    unused: Unused
    spread: float = 0.02
    """The standard deviation of the model's initial weights."""
    has_output: bool = True
    """Whether the model computes logits of tokens; an encoder of texts does not."""
    of_changes: bool = False
    """Whether the tables are those of an adapter."""

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
    def token_rows(self) -> Ids:
        """The old rows that belong to tokens."""
        ids = {*self.plan.moved, *self.plan.removed}
        return np.array(sorted(i for i in ids if i < self.vocabulary.rows), np.int64)

    def rows_after(self, table: TensorInfo) -> int:
        """Rows of the new table. A table for the first ids only keeps its rows; see `require_fixed_ids`."""
        return self.rows if table.rows == self.vocabulary.rows else table.rows

    def parts(self, tensor: VocabTensor, old: OldRows) -> Iterator[range | Raw]:
        """The rows of one new table, in order: ranges of old rows to copy, and blocks of new bytes."""
        table, copies = _NewTable(self, tensor, old), self.copies[: self.rows_after(tensor.info)]
        size, begin = max(1, BLOCK_BYTES // max(tensor.info.row_bytes, 1)), 0
        for start, end in [*long_runs(copies), (len(copies), len(copies))]:
            for at in range(begin, start, size):
                ids = range(at, min(at + size, start))
                yield table.block(ids, copies[ids.start : ids.stop])
            if start < end:
                yield range(int(copies[start]), int(copies[end - 1]) + 1)
            begin = end

    def whole(self, tensor: VocabTensor, old: Raw) -> Raw:
        """All rows of one new table, from those of the old one."""
        parts = self.parts(tensor, lambda ids: old[ids])
        return np.concatenate([old[part.start : part.stop] if isinstance(part, range) else part for part in parts])


@dataclass(frozen=True)
class _NewTable:
    """One new table, and the old one that it is made from."""

    tables: NewTables
    tensor: VocabTensor
    old: OldRows

    @property
    def _as_input(self) -> bool:
        return self.tensor.role == "input" or self.tables.vocabulary.tied

    @cached_property
    def old_table(self) -> TableInfo:
        """What initialisers know of the old table."""
        tables, info, tied = self.tables, self.tensor.info, self.tables.vocabulary.tied
        # Logits are computed from an output, and from an input that is tied to it; a table for each layer is only read.
        of_output = self.tensor.role != "input" or (tied and PER_LAYER not in info.name)
        return TableInfo(
            ids=tables.token_rows[tables.token_rows < info.rows],
            read=lambda rows: widen(self.old(rows), info.dtype),
            width=info.width,
            spread=tables.spread,
            seed=tables.options.seed,
            table="input" if self._as_input else "output",
            plan=tables.plan,
            predicts=tables.has_output and of_output,
            of_changes=tables.of_changes,
        )

    def block(self, ids: range, sources: Ids) -> Raw:
        """New rows, of which those with a source are copied."""
        kept, holes = sources >= 0, self.tables.unused
        if kept.all():
            return self.old(sources)
        unused = ~kept & [i in holes.rows for i in ids]
        new = ~(kept | unused)
        if new.all():
            return self._token_rows([*ids])
        block = np.empty((len(ids), self.tensor.info.row_bytes), np.uint8)
        block[kept] = self.old(sources[kept])
        if unused.any():
            row = holes.row(self.old_table, is_bias=self.tensor.role == "bias")
            block[unused] = narrow(row[None], self.tensor.info.dtype)
        if new.any():
            block[new] = self._token_rows([ids[place] for place in np.flatnonzero(new)])
        return block

    def _token_rows(self, ids: list[int]) -> Raw:
        """Rows for new tokens, from the old rows of their pieces. Every row is read once."""
        plan, dtype, width = self.tables.plan, self.tensor.info.dtype, self.tensor.info.width
        init = self.tables.options.inits[0 if self._as_input else 1]
        if self.tensor.role == "bias" and init != DEFAULT:
            init = "fvt"
        initialiser = INITIALISERS[init] if isinstance(init, str) else init
        sources = [plan.sources[i] if i < plan.rows_after else None for i in ids]
        pieces = [source if isinstance(source, tuple) else () for source in sources]
        wanted, places = np.unique(np.array([row for rows in pieces for row in rows], np.int64), return_inverse=True)
        counts = [*map(len, pieces)]
        values = widen(self.old(wanted), dtype).reshape(len(wanted), width)
        tokens = NewTokens(ids, np.array(counts, np.int64), places, values, wanted)
        rows = narrow(rows_by(initialiser, tokens, self.old_table), dtype)
        # Rows of the package's own initialisers are not finite only if the model's are not, which is found later.
        if initialiser not in INITIALISERS.values() and not all_finite(rows, dtype):
            raise OptionError(
                f"the initialiser `{init_name(initialiser)}` gave rows with infinite numbers or NaN as {dtype}",
                hint="return finite numbers that the type of the table can hold",
            )
        return rows


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


AT_ONCE = 2
"""Weight files that are written and compared at the same time. More need memory and gain little: the disk is the
limit."""
PROGRESS_SECONDS = 0.25
"""Between two reports of the bytes that have been written."""


def write_weights(
    source: Checkpoint, tables: NewTables, folder: Path, hard_link: bool, progress: Progress | None
) -> ByteComparison:
    """Writes every weight file with new tables, and compares it with its source while it is written to the disk."""
    stop = Event()
    with _threads(stop) as (writing, comparing):

        def write_and_compare(file: TensorFile) -> ByteComparison:
            out = folder / file.path.name
            changed = {t.info.name: (tables, t) for t in tables.vocabulary.tensors if t.file == file}
            if changed:
                write_file(file, changed, out, stop)
            else:
                share_or_copy(file.path.resolve(), out, stop, hard_link=hard_link)
            parts = comparisons(file, TensorFile.open(out), tables.copies_by_table)
            compared = [comparing.submit(part) for part in parts]
            sync(out)
            return ByteComparison.total(part.result() for part in compared)

        largest_first = sorted(source.files, key=lambda file: -file.path.stat().st_size)
        jobs = {writing.submit(write_and_compare, file): file.path for file in largest_first}
        return ByteComparison.total(_finished(jobs, folder, progress))


def write_file(
    file: TensorFile,
    changed: Mapping[str, tuple[NewTables, VocabTensor]],
    out: Path,
    stop: Event,
    arrays: Mapping[str, npt.NDArray[Any]] | None = None,
) -> None:
    """Writes a weight file with new tables and arrays in their places, or at its end if it has none of their names."""
    arrays, infos = arrays or {}, {**file.tensors}
    infos |= {name: tensor.info.with_rows(tables.rows_after(tensor.info)) for name, (tables, tensor) in changed.items()}
    for name, array in arrays.items():
        infos[name] = TensorInfo(name, "BOOL" if array.dtype == bool else "I64", array.shape, 0, array.nbytes)
    # A damaged checkpoint may have rows that are not finite, and numpy would warn of each.
    with np.errstate(all="ignore"), file.path.open("rb", buffering=0) as old, out.open("wb") as new:
        new.write(header_bytes([*infos.values()], file.metadata))
        for name, info in infos.items():
            if name in changed:
                tables, tensor = changed[name]
                with tensor.file.path.open("rb", buffering=0) as table:
                    write_table(tables, tensor, table, new, stop)
            elif name in arrays:
                new.write(arrays[name].tobytes())
            else:
                copy_bytes(old, info.start, info.size, new, stop)


def write_table(tables: NewTables, tensor: VocabTensor, old: BinaryIO, new: BinaryIO, stop: Event) -> None:
    """Appends a new table to a file."""
    info = tensor.info
    for part in tables.parts(tensor, partial(read_rows, old, info)):
        raise_if(stop)
        if isinstance(part, range):
            copy_bytes(old, info.start + part.start * info.row_bytes, len(part) * info.row_bytes, new, stop)
        else:
            new.write(part.data)


@contextmanager
def _threads(stop: Event) -> Iterator[list[ThreadPoolExecutor]]:
    """Threads that write files, and threads that compare them. They are stopped at the end, done or not."""
    pools = [ThreadPoolExecutor(AT_ONCE, thread_name_prefix=name) for name in ("transplant", "compare")]
    try:
        yield pools
    finally:
        stop.set()
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in pools:
            pool.shutdown()


def _finished(
    jobs: Mapping["Future[ByteComparison]", Path], folder: Path, progress: Progress | None
) -> Iterator[ByteComparison]:
    """The results of jobs for files, as they are finished. The first error is raised at once."""
    names = [path.name for path in jobs.values()]
    total, reported, pending = sum(path.stat().st_size for path in jobs.values()), 0, {*jobs}
    while pending:
        finished, pending = wait(pending, PROGRESS_SECONDS if progress else None, FIRST_COMPLETED)
        yield from (job.result() for job in finished)
        if progress:
            sizes = (path.stat().st_size for name in names if (path := folder / name).exists())
            written = min(sum(sizes), total) if pending else total
            progress(names[0], written - reported, total)
            reported = written


def initializer_range(config: dict[str, Any]) -> float:
    """The standard deviation of a model's initial weights, from its config; 0.02 if the config has none."""
    spread = config.get("initializer_range")
    return float(spread) if isinstance(spread, int | float) and 0 < spread <= sys.float_info.max else 0.02
