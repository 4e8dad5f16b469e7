"""Writes weight files: new tables in the places of the old ones, all other tensors unchanged."""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.byte_ranges import copy_bytes, raise_if
from tokengraft.checkpoint.compare_files import ByteComparison, comparisons
from tokengraft.checkpoint.copy_file import share_or_copy, sync
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor, Vocabulary
from tokengraft.checkpoint.model_files import ModelFiles
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import INITIALISERS, TableInfo, rescaling_warnings
from tokengraft.checkpoint.table import TableShape, TableSpec, copied_rows, new_rows, reader, token_rows
from tokengraft.checkpoint.tensors import RowReader, TensorFile, TensorInfo, header_bytes
from tokengraft.checkpoint.unused import Unused
from tokengraft.errors import Progress
from tokengraft.plan import VocabPlan

AT_ONCE = 2
PROGRESS_SECONDS = 0.25
"""Between two reports of the bytes that have been written."""
"""Weight files that are written and compared at the same time. More need memory and gain little: the disk is the
limit."""


@dataclass(frozen=True)
class CheckpointWriter:
    """Writes the weight files of a checkpoint with new tables, and compares each with its source."""

    source: Checkpoint
    vocabulary: Vocabulary
    plan: VocabPlan
    rows: int
    init: tuple[str, str]
    seed: int
    unused: Unused

    def describe(self, files: ModelFiles) -> Transplant:
        """The result before anything is written."""
        names = {tensor.file.path.name for tensor in self.vocabulary.tensors}
        tensors = (
            (t.info.name, t.role, t.info.dtype, t.info.size, t.info.row_bytes * self.rows_after(t.info))
            for t in self.vocabulary.tensors
        )
        return Transplant(
            plan=self.plan,
            rows_before=self.vocabulary.rows,
            rows_after=self.rows,
            tensors=tuple(tensors),
            tied=self.vocabulary.tied,
            found_by=self.vocabulary.found_by,
            init=self.init,
            hole_rows=self.unused.how,
            unused=len(self.unused.rows),
            copied=tuple(file.path.name for file in self.source.files if file.path.name not in names),
            carried=files.carried,
            left_out=files.left_out,
            warnings=rescaling_warnings(self.init, tied=self.vocabulary.tied) if self.plan.summary.added else (),
        )

    def rows_after(self, table: TensorInfo) -> int:
        """Rows of the new table. A table for the first ids only keeps its rows; see `require_fixed_ids`."""
        return self.rows if table.shape[0] == self.vocabulary.rows else table.shape[0]

    @cached_property
    def copies(self) -> npt.NDArray[np.int64]:
        """For every new row the old row that it copies, or -1."""
        return copied_rows(self.plan, self.vocabulary.rows, self.rows, self.unused.rows)

    @cached_property
    def token_rows(self) -> npt.NDArray[np.int64]:
        """The old rows that belong to tokens."""
        return token_rows(self.plan, self.vocabulary.rows)

    def write_weights(self, folder: Path, hard_link: bool, progress: Progress | None) -> ByteComparison:
        """Writes every weight file, compares it with its source, and waits until it is on the disk."""
        with _Threads() as threads:
            largest_first = sorted(self.source.files, key=lambda file: -file.path.stat().st_size)
            jobs = {
                threads.files.submit(self.write_and_compare, file, folder, hard_link, threads): file.path
                for file in largest_first
            }
            return ByteComparison.total(_finished(jobs, folder, progress))

    def write_and_compare(self, file: TensorFile, folder: Path, hard_link: bool, threads: "_Threads") -> ByteComparison:
        """Writes one weight file and compares it with its source while it is written to the disk."""
        self.write(file, folder, hard_link, threads.stop)
        out, tables = folder / file.path.name, {tensor.info.name for tensor in self.vocabulary.tensors}
        shorter = {tensor.info.name for tensor in self.vocabulary.shorter}
        parts = comparisons(file, TensorFile.open(out), tables, self.copies, shorter)
        compared = [threads.comparisons.submit(part) for part in parts]
        sync(out)
        return ByteComparison.total(part.result() for part in compared)

    def write(self, file: TensorFile, folder: Path, hard_link: bool, stop: Event) -> None:
        """Writes one weight file: with new tables if it has any, else as a copy."""
        tensors = {t.info.name: t for t in self.vocabulary.tensors if t.file == file}
        out = folder / file.path.name
        if tensors:
            self._rewrite(file, tensors, out, stop)
        else:
            share_or_copy(file.path.resolve(), out, stop, hard_link=hard_link)

    def _rewrite(self, file: TensorFile, changed: dict[str, VocabTensor], out: Path, stop: Event) -> None:
        """Writes a weight file in which new tables replace the old ones."""
        after = [self._resized(tensor) if tensor.name in changed else tensor for tensor in file.tensors.values()]
        header, _ = header_bytes(after, file.metadata)
        # A damaged checkpoint may have rows that are not finite, and numpy would warn of each.
        with np.errstate(all="ignore"), file.path.open("rb", buffering=0) as old, out.open("wb") as new:
            new.write(header)
            for tensor in file.tensors.values():
                if tensor.name in changed:
                    self._write_table(changed[tensor.name], old, new, stop)
                else:
                    copy_bytes(old, tensor.start, tensor.size, new, stop)

    def _resized(self, tensor: TensorInfo) -> TensorInfo:
        rows = self.rows_after(tensor)
        return replace(tensor, shape=(rows, *tensor.shape[1:]), size=tensor.row_bytes * rows)

    def _write_table(self, tensor: VocabTensor, old: BinaryIO, new: BinaryIO, stop: Event) -> None:
        info = tensor.info
        shape = TableShape(info.shape[0], info.row_bytes, info.dtype)
        rows = RowReader(old, info)
        as_input = tensor.role == "input" or self.vocabulary.tied
        table_info = TableInfo(
            ids=self.token_rows[self.token_rows < shape.rows],
            read=reader(rows, info.dtype),
            width=shape.width,
            spread=initializer_range(self.source.text_config),
            seed=self.seed,
            table="input" if as_input else "output",
            plan=self.plan,
        )
        copies = self.copies[: self.rows_after(info)]
        initialiser = INITIALISERS[self.init[0] if as_input else self.init[1]]
        spec = TableSpec(self.plan, copies, initialiser, table_info, self.unused)
        for part in new_rows(rows, shape, spec.for_bias() if tensor.role == "bias" else spec):
            raise_if(stop)
            if isinstance(part, range):
                copy_bytes(old, info.start + part.start * info.row_bytes, len(part) * info.row_bytes, new, stop)
            else:
                new.write(part.data)


class _Threads:
    """Threads that write files, and threads that compare them. Leaving the context stops them, done or not."""

    def __init__(self) -> None:
        self.stop = Event()
        self.files = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="transplant")
        self.comparisons = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="compare")

    def __enter__(self) -> "_Threads":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for pool in (self.files, self.comparisons):
            pool.shutdown(wait=False, cancel_futures=True)
        for pool in (self.files, self.comparisons):
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
            written = min(sum(map(_size, (folder / name for name in names))), total) if pending else total
            progress(names[0], written - reported, total)
            reported = written


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def initializer_range(config: dict[str, Any]) -> float:
    """The standard deviation of a model's initial weights, from its config; 0.02 if the config has none."""
    spread = config.get("initializer_range")
    return float(spread) if isinstance(spread, int | float) and 0 < spread <= sys.float_info.max else 0.02
