"""`comparisons`: compares a written weight file with its source, byte by byte, in parts that can run in threads."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from tokengraft.checkpoint.byte_ranges import PIECE, equal_bytes
from tokengraft.checkpoint.table import long_runs
from tokengraft.checkpoint.tensors import Ids, RowReader, TensorFile, TensorInfo, all_finite
from tokengraft.errors import CheckpointError

ROWS_BYTES = 1 << 20
"""Bytes of rows that are compared at a time, where they are not consecutive in the source."""
_KEPT = "a kept row of `{}` differs from the source"


class ByteComparison(NamedTuple):
    """How much was compared and equal."""

    kept_rows: int = 0
    """Copied rows of tables."""
    new_rows: int = 0
    """New rows, all with finite numbers."""
    untouched_tensors: int = 0
    untouched_bytes: int = 0

    @classmethod
    def total(cls, comparisons: Iterable["ByteComparison"]) -> "ByteComparison":
        """The sum of several comparisons."""
        return cls(*map(sum, zip(cls(), *comparisons, strict=True)))


class _Range(NamedTuple):
    """Bytes that must be equal in both files."""

    what: str
    old_start: int
    new_start: int
    size: int
    counted: ByteComparison


def comparisons(old: TensorFile, new: TensorFile, tables: Mapping[str, Ids]) -> Iterator[Callable[[], ByteComparison]]:
    """Comparisons that together cover a written file. Each opens the files itself.

    A difference where they must be equal is a `CheckpointError`: there is a bug, or the disk fails.

    Args:
        old: The source.
        new: The written file, with the header that was read back from it.
        tables: Tensors with a vocabulary axis: for every new row the old row that it copies, or -1 if it is new.
    """
    if list(new.tensors) != list(old.tensors):
        raise _damage(f"`{old.path.name}` has different tensors from the source")
    ranges: list[_Range] = []
    for name, tensor in old.tensors.items():
        written, copies = new.tensors[name], tables.get(name)
        wanted = tensor if copies is None else tensor.with_rows(len(copies))
        if (written.dtype, written.shape, written.size) != (wanted.dtype, wanted.shape, wanted.size):
            raise _damage(f"the tensor `{name}` has the shape {written.shape}, not {wanted.shape}, or a different type")
        if copies is None:
            ranges += _tensor_ranges(tensor, written)
        else:
            ranges += _row_ranges(tensor, written, copies)
            yield from (partial(_compare_rows, old, new, name, rows) for rows in _other_rows(tensor, copies))
    if old.path.samefile(new.path):  # a hard link
        yield partial(ByteComparison.total, [part.counted for part in ranges])
    else:
        yield from (partial(_compare_ranges, old, new, batch) for batch in _batches(ranges))


def _tensor_ranges(old: TensorInfo, new: TensorInfo) -> Iterator[_Range]:
    for at in range(0, max(old.size, 1), PIECE):
        size = min(PIECE, old.size - at)
        counted = ByteComparison(untouched_tensors=int(at == 0), untouched_bytes=size)
        yield _Range(f"the tensor `{old.name}` differs from the source", old.start + at, new.start + at, size, counted)


def _row_ranges(old: TensorInfo, new: TensorInfo, copies: Ids) -> Iterator[_Range]:
    """Long runs of consecutive kept rows."""
    step, row = max(1, PIECE // old.row_bytes), old.row_bytes
    for begin, end in long_runs(copies):
        for at in range(begin, end, step):
            rows = min(step, end - at)
            starts = (old.start + int(copies[at]) * row, new.start + at * row)
            yield _Range(_KEPT.format(new.name), *starts, rows * row, ByteComparison(kept_rows=rows))


def _other_rows(old: TensorInfo, copies: Ids) -> Iterator[tuple[Ids, Ids]]:
    """Blocks of the rows outside of long runs: the rows and their sources."""
    outside = np.ones(len(copies), bool)
    for begin, end in long_runs(copies):
        outside[begin:end] = False
    rows = np.flatnonzero(outside)
    step = max(1, ROWS_BYTES // old.row_bytes)
    return ((rows[at : at + step], copies[rows[at : at + step]]) for at in range(0, len(rows), step))


def _batches(ranges: list[_Range]) -> Iterator[list[_Range]]:
    """The ranges in groups of about `PIECE` bytes: a model can have a hundred thousand small tensors."""
    batch: list[_Range] = []
    size = 0
    for part in ranges:
        batch.append(part)
        size += part.size
        if size >= PIECE:
            yield batch
            batch, size = [], 0
    yield batch


def _compare_ranges(old: TensorFile, new: TensorFile, ranges: list[_Range]) -> ByteComparison:
    with old.path.open("rb", buffering=0) as before, new.path.open("rb", buffering=0) as after:
        for part in ranges:
            if not equal_bytes(before, part.old_start, after, part.new_start, part.size):
                raise _damage(part.what)
    return ByteComparison.total(part.counted for part in ranges)


def _compare_rows(old: TensorFile, new: TensorFile, name: str, block: tuple[Ids, Ids]) -> ByteComparison:
    """Compares kept rows with their sources, and requires finite numbers in new rows."""
    rows, sources = block
    kept = sources >= 0
    with old.path.open("rb", buffering=0) as before, new.path.open("rb", buffering=0) as after:
        written = RowReader(after, new.tensors[name]).raw(rows)
        source = RowReader(before, old.tensors[name]).raw(sources[kept])
    if not np.array_equal(written[kept], source):
        raise _damage(_KEPT.format(name))
    if not all_finite(written[~kept], new.tensors[name].dtype):
        raise CheckpointError(
            f"a new row of `{name}` has numbers that are not finite",
            hint="check the source for rows that are not finite, or pass another --init, or --hole-rows keep",
        )
    return ByteComparison(kept_rows=int(kept.sum()), new_rows=int((~kept).sum()))


def _damage(what: str) -> CheckpointError:
    return CheckpointError(f"after writing, {what}", hint="check the disk and try again; please report this")
