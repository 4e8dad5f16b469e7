"""Reads a written checkpoint back and compares it, byte by byte, with what it was made of."""

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
    """What was compared, and was equal."""

    kept_rows: int
    """Rows of tables that were copied."""
    new_rows: int
    """Rows that were made, all of them finite numbers."""
    untouched_tensors: int
    untouched_bytes: int

    @classmethod
    def total(cls, proofs: Iterable["ByteComparison"]) -> "ByteComparison":
        """The sum of what was compared."""
        return cls(*map(sum, zip(*proofs, strict=True)))


def compare_file(old: TensorFile, vocabulary: Vocabulary, plan: VocabPlan, rows: int, folder: Path) -> ByteComparison:
    """Compares a weight file in a folder with the one it was made of.

    Raises:
        CheckpointError: They differ where they must not: a bug, or a disk that lost something.
    """
    tables = {tensor.info.name for tensor in vocabulary.tensors}
    kept = made = tensors = size = 0
    new = TensorFile.open(folder / old.path.name)
    if list(new.tensors) != list(old.tensors):
        raise _damage(f"`{old.path.name}` has other tensors than before")
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
        raise _damage(f"the tensor `{old.name}` has another shape or type than before")
    if shared:
        return
    for at in range(0, old.size, BLOCK):
        size = min(BLOCK, old.size - at)
        before.seek(old.start + at)
        after.seek(new.start + at)
        if before.read(size) != after.read(size):
            raise _damage(f"the tensor `{old.name}` is not what it was")


def _compare_table(
    before: BinaryIO, old: TensorInfo, after: BinaryIO, new: TensorInfo, plan: VocabPlan, rows: int
) -> tuple[int, int]:
    """Kept rows and made rows of a table."""
    if new.shape != (rows, *old.shape[1:]) or new.dtype != old.dtype:
        raise _damage(f"the tensor `{new.name}` has the shape {new.shape}")
    old_rows, new_rows = RowReader(before, old), RowReader(after, new)
    sources, kept = copied_rows(plan, old.shape[0], rows), 0
    for ids in _blocks(rows, max(1, BLOCK // max(new.row_bytes, 1))):
        copies = sources[ids]
        is_kept = copies >= 0
        raw = new_rows.raw(ids)
        if not np.array_equal(raw[is_kept], old_rows.raw(copies[is_kept])):
            raise _damage(f"a kept row of `{new.name}` is not what it was")
        if not np.isfinite(new_rows.values(ids[~is_kept])).all():
            raise CheckpointError(
                f"a new row of `{new.name}` has numbers that are not finite",
                hint="look for broken rows in the source, or take another --init",
            )
        kept += int(is_kept.sum())
    return kept, rows - kept


def _blocks(rows: int, size: int) -> Iterator["np.ndarray[tuple[int], np.dtype[np.int64]]"]:
    return (np.arange(at, min(at + size, rows)) for at in range(0, rows, size))


def _damage(what: str) -> CheckpointError:
    return CheckpointError(f"after writing, {what}", hint="check the disk and try again; please report this")
