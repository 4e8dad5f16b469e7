"""`compare_file`: compares a written weight file with its source, byte by byte."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from tokengraft.checkpoint.layout import Vocabulary
from tokengraft.checkpoint.table import copied_rows
from tokengraft.checkpoint.tensors import BLOCK, RowReader, TensorFile, TensorInfo
from tokengraft.errors import CheckpointError
from tokengraft.plan import VocabPlan


class ByteComparison(NamedTuple):
    """How much was compared and equal."""

    kept_rows: int
    """Copied rows of tables."""
    new_rows: int
    """New rows, all with finite numbers."""
    untouched_tensors: int
    untouched_bytes: int

    @classmethod
    def total(cls, comparisons: Iterable["ByteComparison"]) -> "ByteComparison":
        """The sum of several comparisons."""
        return cls(*map(sum, zip(*comparisons, strict=True)))


def compare_file(old: TensorFile, vocabulary: Vocabulary, plan: VocabPlan, rows: int, folder: Path) -> ByteComparison:
    """The comparison of a weight file in a folder with its source.

    Raises:
        CheckpointError: They differ where they must be equal, because of a bug or a failing disk.
    """
    tables = {tensor.info.name for tensor in vocabulary.tensors}
    kept = made = tensors = size = 0
    new = TensorFile.open(folder / old.path.name)
    if list(new.tensors) != list(old.tensors):
        raise _damage(f"`{old.path.name}` has different tensors from the source")
    with old.path.open("rb") as before, new.path.open("rb") as after:
        shared = os.path.sameopenfile(before.fileno(), after.fileno())
        for name, tensor in old.tensors.items():
            if name in tables:
                counts = _compare_table(before, tensor, after, new.tensors[name], plan, rows)
                kept, made = kept + counts[0], made + counts[1]
            else:
                _compare(before, tensor, after, new.tensors[name], shared=shared)
                tensors, size = tensors + 1, size + tensor.size
    return ByteComparison(kept, made, tensors, size)


def _compare(before: BinaryIO, old: TensorInfo, after: BinaryIO, new: TensorInfo, *, shared: bool) -> None:
    if (old.dtype, old.shape, old.size) != (new.dtype, new.shape, new.size):
        raise _damage(f"the tensor `{old.name}` has a different shape or type from the source")
    if shared:
        return
    for at in range(0, old.size, BLOCK):
        size = min(BLOCK, old.size - at)
        before.seek(old.start + at)
        after.seek(new.start + at)
        if before.read(size) != after.read(size):
            raise _damage(f"the tensor `{old.name}` differs from the source")


def _compare_table(
    before: BinaryIO, old: TensorInfo, after: BinaryIO, new: TensorInfo, plan: VocabPlan, rows: int
) -> tuple[int, int]:
    """The numbers of kept and new rows of a table."""
    if new.shape != (rows, *old.shape[1:]) or new.dtype != old.dtype:
        raise _damage(
            f"the tensor `{new.name}` has the shape {new.shape}, not {(rows, *old.shape[1:])}, or a different type"
        )
    old_rows, new_rows = RowReader(before, old), RowReader(after, new)
    sources, kept = copied_rows(plan, old.shape[0], rows), 0
    for ids in _blocks(rows, max(1, BLOCK // max(new.row_bytes, 1))):
        copies = sources[ids]
        is_kept = copies >= 0
        raw = new_rows.raw(ids)
        if not np.array_equal(raw[is_kept], old_rows.raw(copies[is_kept])):
            raise _damage(f"a kept row of `{new.name}` differs from the source")
        if not np.isfinite(new_rows.values(ids[~is_kept])).all():
            raise CheckpointError(
                f"a new row of `{new.name}` has numbers that are not finite",
                hint="check the source for rows that are not finite, or pass another --init",
            )
        kept += int(is_kept.sum())
    return kept, rows - kept


def _blocks(rows: int, size: int) -> Iterator["np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    return (np.arange(at, min(at + size, rows)) for at in range(0, rows, size))


def _damage(what: str) -> CheckpointError:
    return CheckpointError(f"after writing, {what}", hint="check the disk and try again; please report this")
