"""What a transplant writes: weight files, which are compared with the source, and the record.

`Transplant` is the result as plain data, and `describe` gives it before anything is written. `write_weights` puts new
tables in the places of the old ones, and leaves all other tensors as they are. `comparisons` reads what was written
again, byte by byte, in parts that can run in threads. What writing has read back already is not read once more.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from itertools import accumulate, groupby
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tokengraft import _core
from tokengraft.checkpoint.folder import Checkpoint
from tokengraft.checkpoint.in_memory import Behaviour
from tokengraft.checkpoint.model_files import REPORT
from tokengraft.checkpoint.rows import HoleRows, init_name
from tokengraft.checkpoint.table import NewTables
from tokengraft.checkpoint.tensors import (
    ITEM_BYTES,
    NOTHING,
    PIECE,
    Extent,
    Ids,
    Part,
    ReadBack,
    Tensor,
    TensorFile,
    all_finite,
    clone,
    damage,
    equal_bytes,
    write_parts,
    write_tensors,
)
from tokengraft.errors import CheckpointError, OptionError, Progress, option
from tokengraft.output.atomic import sync
from tokengraft.representation import Table, sentences, shown
from tokengraft.vocab_plan import VocabPlan


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


@shown
@dataclass(frozen=True)
class Transplant:
    """The result of a transplant, or what a dry run would do."""

    plan: VocabPlan
    rows_before: int
    rows_after: int
    """Rows of the embedding, padding included."""
    tensors: tuple[tuple[str, str, str, int, int], ...]
    """Tensors with a vocabulary axis: name, role, type, bytes before and after."""
    tied: bool
    found_by: str
    """How those tensors were found: by the names of an architecture, or by their shapes."""
    init: tuple[str, str]
    """The initialisers of input and output."""
    hole_rows: HoleRows
    """What rows without a token get."""
    unused: int
    """Rows without a token that do not keep the row that they had."""
    suppressed: int
    """Ids without a token that are listed as suppressed: these, and padding that keeps its rows."""
    copied: tuple[str, ...] = ()
    """Weight files that are copied unchanged."""
    carried: tuple[str, ...] = ()
    """Tokenizer files of the source that the new tokenizer does not have. They are kept, with the new ids."""
    left_out: tuple[str, ...] = ()
    """Files of the source that are not written because they belong to the old vocabulary, such as weights in other
    formats."""
    compared: ByteComparison | None = None
    """The comparison of the written files with the source; None in a dry run."""
    behaviour: Behaviour | None = None
    """The comparison of the two running models; None without ``verify``."""
    untrained: tuple[int, ...] = ()
    """Kept rows that an earlier adaptation added, and that nobody trained since by the record of the source."""
    adapter_rows: tuple[int, ...] = ()
    """With ``as_adapter``: the rows that the adapter replaces; empty for a whole model."""
    warnings: tuple[str, ...] = ()
    """What could not be checked, one sentence each."""

    @property
    def growth(self) -> tuple[int, int]:
        """Parameters and bytes that the model has more than before; negative if it is smaller.

        If input and output are tied, they count once, also in a checkpoint that has both.
        """
        once = self.tied and any(role == "input" for _, role, *_ in self.tensors)
        tables = [table[2:] for table in self.tensors if not (once and table[1] == "output")]
        parameters = sum((after - before) // ITEM_BYTES[kind] for kind, before, after in tables if kind in ITEM_BYTES)
        return parameters, sum(after - before for _, before, after in tables)

    def _facts(self) -> dict[str, Any]:
        return {name: fact for name, fact in self.as_dict().items() if name not in ("tensors", "warnings")}

    def _tables(self) -> Iterator[Table]:
        yield Table("tensors", ("name", "role", "type", "bytes before", "bytes after"), self.tensors, len(self.tensors))
        yield from sentences("warnings", self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        return {
            **self.plan.summary._asdict(),
            "embedding_rows_before": self.rows_before,
            "embedding_rows_after": self.rows_after,
            "tensors": [list(tensor) for tensor in self.tensors],
            "tied": self.tied,
            "found_by": self.found_by,
            "init": {"input": self.init[0], "output": self.init[1]},
            "hole_rows": self.hole_rows,
            "suppressed": self.suppressed,
            "copied": list(self.copied),
            "carried": list(self.carried),
            "left_out": list(self.left_out),
            "compared": self.compared._asdict() if self.compared else None,
            "behaviour": self.behaviour._asdict() if self.behaviour else None,
            "warnings": list(self.warnings),
        } | ({"adapter_rows": len(self.adapter_rows)} if self.adapter_rows else {})


def describe(tables: NewTables) -> Transplant:
    """The result of a transplant before anything is written, without names of files."""
    vocabulary, unused = tables.vocabulary, tables.unused
    return Transplant(
        plan=tables.plan,
        rows_before=vocabulary.rows,
        rows_after=tables.rows,
        tensors=tuple((t.name, t.role, t.dtype, t.size, tables.resized(t).size) for t in vocabulary.tensors),
        tied=vocabulary.tied,
        found_by=vocabulary.found_by,
        init=(init_name(tables.options.inits[0]), init_name(tables.options.inits[1])),
        hole_rows=unused.how,
        unused=len(unused.rows),
        suppressed=len(unused.suppressed),
    )


def write_report(
    done: Transplant, config: Path, facts: Mapping[str, Any], folder: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Writes `tokengraft.json`, with the names of all files in the folder. ``config`` is that of the source.

    ``facts`` are written before what was done, ``more`` after it.
    """
    source = {"source": config.parent.name, "source_config_sha256": sha256(config.read_bytes()).hexdigest()}
    write_record(folder, {**source, **facts}, {"transplant": done.as_dict(), **(more or {})})


def request_of(step: str, options: Mapping[str, Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """What a record says was asked for."""
    versions = {"tokengraft": _core.__version__}
    return {"step": step, "versions": versions, "options": dict(options), "inputs": [*inputs]}


def write_record(folder: Path, facts: Mapping[str, Any], result: Mapping[str, Any]) -> None:
    """Writes `tokengraft.json`: facts, the names of all files in the folder, and what was done."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    report = {"tokengraft": _core.__version__, **facts, "files": files, **result}
    text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
    # A name that is not UTF-8 has surrogates, and this is how JSON escapes them.
    (folder / REPORT).write_text(text, encoding="utf-8", errors="backslashreplace")


ROWS_BYTES = 1 << 20
"""Bytes of rows that are compared at a time."""


def comparisons(
    old: TensorFile, new: TensorFile, tables: Mapping[str, Ids], read_back: ReadBack = NOTHING
) -> Iterator[Callable[[], ByteComparison]]:
    """Comparisons that together cover a written file, but for what was ``read_back``. Each opens the files itself.

    A difference where they must be equal is a `CheckpointError`: there is a bug, or the disk fails. ``tables`` are the
    tensors with a vocabulary axis: for every new row the old row that it copies, or -1 if it is new.
    """
    if list(new.tensors) != list(old.tensors):
        raise damage(f"`{old.path.name}` has different tensors from the source")
    pieces = list[tuple[str, Extent, Extent]]()
    for name, tensor in old.tensors.items():
        written, copies = new.tensors[name], tables.get(name)
        wanted = tensor if copies is None else tensor.with_rows(len(copies))
        if (written.dtype, written.shape, written.size) != (wanted.dtype, wanted.shape, wanted.size):
            raise damage(f"the tensor `{name}` has the shape {written.shape}, not {wanted.shape}, or a different type")
        if copies is None:
            if not read_back.has(tensor.extent, written.extent):
                pieces += ((name, *both) for both in zip(tensor.extent.pieces(), written.extent.pieces(), strict=True))
            continue
        step = max(1, ROWS_BYTES // tensor.row_bytes)
        blocks = (np.arange(at, min(at + step, len(copies))) for at in range(0, len(copies), step))
        yield from (partial(_compared_rows, tensor, written, rows, copies[rows], read_back) for rows in blocks)
    untouched = [tensor.size for name, tensor in old.tensors.items() if name not in tables]
    yield partial(ByteComparison, untouched_tensors=len(untouched), untouched_bytes=sum(untouched))
    if not old.path.samefile(new.path):  # a hard link
        # In groups of about `PIECE` bytes: a model can have a hundred thousand small tensors.
        ends = accumulate(extent.size for _, extent, _ in pieces)
        for _, batch in groupby(zip(pieces, ends, strict=True), lambda pair: pair[1] // PIECE):
            yield partial(_compared_pieces, [piece for piece, _ in batch])


def _compared_pieces(pieces: list[tuple[str, Extent, Extent]]) -> ByteComparison:
    for name, old, new in pieces:
        if not equal_bytes(old, new):
            raise damage(f"the tensor `{name}` differs from the source")
    return ByteComparison()


def _compared_rows(old: Tensor, new: Tensor, rows: Ids, sources: Ids, read_back: ReadBack) -> ByteComparison:
    """Compares kept rows with their sources, and requires finite numbers in new rows."""
    if sources[0] >= 0 and (np.diff(sources) == 1).all():
        both = (tensor.place(int(at[0]), int(at[-1]) + 1) for tensor, at in ((old, sources), (new, rows)))
        if read_back.has(*both):
            return ByteComparison(kept_rows=len(rows))
    written, kept = new.read(rows), sources >= 0
    if not np.array_equal(written if kept.all() else written[kept], old.read(sources[kept])):
        raise damage(f"a kept row of `{new.name}` differs from the source")
    if not all_finite(written[~kept], new.dtype):
        raise not_finite(new.name)
    return ByteComparison(kept_rows=int(kept.sum()), new_rows=int((~kept).sum()))


def not_finite(name: str) -> CheckpointError:
    """The error for new rows of a table that are no numbers."""
    return CheckpointError(
        f"a new row of `{name}` has numbers that are not finite",
        hint=f"check the source for rows that are not finite, or pass another {option('init')}, or "
        f"{option('hole_rows', 'keep')}",
    )


AT_ONCE = 2
"""Weight files that are written and compared at the same time. More need memory and gain little: the disk is the
limit."""
PROGRESS_SECONDS = 0.25
"""Between two reports of the bytes that have been written."""


Arrays = Mapping[str, npt.NDArray[Any]]
"""Further tensors by name: whole numbers, or truth values."""


def write_weights(
    source: Checkpoint, tables: Sequence[NewTables], folder: Path, arrays: Arrays = MappingProxyType({})
) -> ByteComparison:
    """Writes every weight file with new tables, and compares it with its source while it is written to the disk.

    Arrays replace tensors of their names. New tensors are put at the end of the last file.
    """
    stop, options = Event(), tables[0].options
    held = {tensor.name for tensor in source.tensors}
    copies = {name: copied for each in tables for name, copied in each.copies_by_table.items()}
    changed: dict[str, tuple[Tensor, Iterable[Part]]] = {}
    for each in tables:
        changed |= {tensor.name: (each.resized(tensor), each.parts(tensor)) for tensor in each.vocabulary.tensors}
    for name, array in arrays.items():
        kind = "BOOL" if array.dtype == bool else "I64"
        changed[name] = Tensor(name, kind, array.shape, 0, array.nbytes), [array.tobytes()]
    new = changed.keys() - held
    with _threads(stop) as (writing, comparing):

        def write_and_compare(file: TensorFile) -> ByteComparison:
            out, here = folder / file.path.name, {*file.tensors, *(new if file is source.files[-1] else ())}
            if here.isdisjoint(changed):
                read_back = share_or_copy(file.path, out, stop, hard_link=options.hard_link)
            else:
                read_back = write_file(file, {name: changed[name] for name in changed if name in here}, out, stop)
            before, after = (
                replace(one, tensors={name: t for name, t in one.tensors.items() if name not in {*arrays, *new}})
                for one in (file, TensorFile.open(out))
            )
            compared = [comparing.submit(part) for part in comparisons(before, after, copies, read_back)]
            sync(out)
            return ByteComparison.total(part.result() for part in compared)

        largest_first = sorted(source.files, key=lambda file: -file.path.stat().st_size)
        jobs = {writing.submit(write_and_compare, file): file.path for file in largest_first}
        return ByteComparison.total(_finished(jobs, folder, options.progress))


def write_file(
    file: TensorFile, changed: Mapping[str, tuple[Tensor, Iterable[Part]]], out: Path, stop: Event
) -> ReadBack:
    """Writes a weight file with changed tensors in their places, or at its end if it has none of their names."""
    kept = {name: (tensor, [tensor.extent]) for name, tensor in file.tensors.items() if name not in changed}
    names = dict.fromkeys((*file.tensors, *changed))
    return write_tensors(out, [changed.get(name) or kept[name] for name in names], file.metadata, stop)


def share_or_copy(source: Path, out: Path, stop: Event, *, hard_link: bool) -> ReadBack:
    """Copies a file: as a hard link if asked for, else its bytes."""
    if not hard_link:
        whole = Extent(source, 0, source.stat().st_size)
        return NOTHING if clone(source, out) else write_parts(out, [whole], stop)
    try:
        os.link(source.resolve(), out)
    except OSError as error:
        raise OptionError(
            f"cannot link `{source.name}` to `{out.parent.parent}`: {error.strerror}",
            hint=f"leave out {option('hard_link')}, or write to the file system of the source",
        ) from error
    return NOTHING


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
