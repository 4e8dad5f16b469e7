"""Writes weight files: new tables in the places of the old ones, all other tensors unchanged."""

import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO

import numpy as np

from tokengraft.checkpoint.byte_ranges import copy_bytes, raise_if, share_or_copy, sync
from tokengraft.checkpoint.compare_files import ByteComparison, comparisons
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor
from tokengraft.checkpoint.table import NewTables
from tokengraft.checkpoint.tensors import RowReader, TensorFile, header_bytes
from tokengraft.errors import Progress

AT_ONCE = 2
"""Weight files that are written and compared at the same time. More need memory and gain little: the disk is the
limit."""
PROGRESS_SECONDS = 0.25
"""Between two reports of the bytes that have been written."""


@dataclass(frozen=True)
class CheckpointWriter:
    """Writes the weight files of a checkpoint with new tables, and compares each with its source."""

    source: Checkpoint
    tables: NewTables

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
        out = folder / file.path.name
        parts = comparisons(file, TensorFile.open(out), self.tables.copies_by_table)
        compared = [threads.comparisons.submit(part) for part in parts]
        sync(out)
        return ByteComparison.total(part.result() for part in compared)

    def write(self, file: TensorFile, folder: Path, hard_link: bool, stop: Event) -> None:
        """Writes one weight file: with new tables if it has any, else as a copy."""
        changed = {t.info.name: t for t in self.tables.vocabulary.tensors if t.file == file}
        out, tensors = folder / file.path.name, file.tensors.values()
        if not changed:
            share_or_copy(file.path.resolve(), out, stop, hard_link=hard_link)
            return
        after = [t.with_rows(self.tables.rows_after(t)) if t.name in changed else t for t in tensors]
        # A damaged checkpoint may have rows that are not finite, and numpy would warn of each.
        with np.errstate(all="ignore"), file.path.open("rb", buffering=0) as old, out.open("wb") as new:
            new.write(header_bytes(after, file.metadata))
            for tensor in tensors:
                if tensor.name in changed:
                    write_table(self.tables, changed[tensor.name], old, new, stop)
                else:
                    copy_bytes(old, tensor.start, tensor.size, new, stop)


def write_table(tables: NewTables, tensor: VocabTensor, old: BinaryIO, new: BinaryIO, stop: Event) -> None:
    """Appends a new table to a file."""
    info = tensor.info
    for part in tables.parts(tensor, RowReader(old, info)):
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
