"""`count`: a corpus to `PretokenCounts`. The only step that reads the corpus.

Blocks are counted by the core in threads; the sum does not depend on how many there are or who counted what.
"""

import json
import os
import re
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

from tokengraft import _core
from tokengraft.corpus import BLOCK, Block, Corpus, Cut, Input, Reading, open_corpus
from tokengraft.counts import EVERYTHING, ROWS, PretokenCounts, Totals, as_weight, open_counts, write_counts
from tokengraft.errors import CorpusError, OptionError, require_positive
from tokengraft.fingerprint import Fingerprint, cutter
from tokengraft.tokenizer import Tokenizer

Progress = Callable[[str, int, int], None]
"""Told of (input, bytes on disk read since the last call, bytes on disk in all)."""
UNLIMITED = (2**64 - 1, 2**64 - 1)
DEFAULT_MEMORY = 4 << 30


@dataclass(frozen=True)
class Effort:
    """What counting may use and how far it goes. None of it but the limits changes the result."""

    workers: int | None = None
    """Threads; by default one for each core."""
    memory: int = DEFAULT_MEMORY
    """Bytes: half for tables of pretokens, of which more are kept on disk, half for the documents that are processed.
    A document that cannot be cut and needs more than that half is refused, unless it is shorter than a megabyte. It
    needs about 10 times its size, and 80 times where the pipeline has no fast scanner."""
    max_documents: int | None = None
    max_bytes: int | None = None
    """Bytes of text. With a limit, blocks are counted one after the other."""
    min_count: int = 1
    """Leave out pretokens that occur less often, at the very end."""
    through_upstream: bool = False
    """Use no fast scanner, to compare with."""

    def __post_init__(self) -> None:
        for name in ("workers", "memory", "max_documents", "max_bytes", "min_count"):
            require_positive(name, getattr(self, name))


def count(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    weights: Iterable[int | Fraction | str] | None = None,
    reading: Reading | None = None,
    effort: Effort | None = None,
    progress: Progress | None = None,
) -> PretokenCounts:
    """How often each distinct pretoken of a corpus occurs.

    Pretokens are exactly those that the tokenizer's own normalizer and pre-tokenizer give. The result is the same
    whatever the number of workers, the size of blocks and the order of files.

    Args:
        tokenizer: The tokenizer, or any other of the same pipeline.
        corpus: A file, folder, glob, ``-``, a list of these, a `datasets` dataset, or an iterable of strings.
        weights: One for each item of a list of paths: its counts are multiplied by it.
        reading: How to read the corpus.
        effort: Workers, memory, limits.
        progress: Told how far it is.

    Raises:
        CorpusError: Something cannot be read.

    Example:
        >>> counts = count(tok, ["et.txt", "en.txt"], weights=[2, 1])  # doctest: +SKIP
    """
    reading, effort = reading or Reading(), effort or Effort()
    if weights is None:
        with counted(tokenizer, corpus, reading, effort, progress) as (described, rows):
            return replace(described, table=rows.take(EVERYTHING, effort.min_count))
    items = [corpus] if isinstance(corpus, str | os.PathLike) else list(corpus)
    ratios = [*map(as_weight, weights)]
    if len(items) != len(ratios) or not items:
        raise OptionError(
            f"{len(ratios)} weights were given for {len(items)} corpora", hint="give one weight for each corpus"
        )
    total: PretokenCounts | None = None
    for item, ratio in zip(items, ratios, strict=True):
        left = _left_of(effort, total.totals if total else Totals())
        if left is None:
            break
        part = count(tokenizer, item, reading=reading, effort=left, progress=progress).scale(ratio)
        total = total + part if total else part
    if total is None:
        raise OptionError("there is nothing to count", hint="give a corpus")
    return replace(total, table=total.table.frequent(effort.min_count), min_count=effort.min_count)


def _left_of(effort: Effort, done: Totals) -> Effort | None:
    """What is left of an effort after so much, with nothing left out for being rare; None where a limit is reached."""
    documents = None if effort.max_documents is None else effort.max_documents - done.documents
    text = None if effort.max_bytes is None else effort.max_bytes - done.bytes
    if (documents is not None and documents < 1) or (text is not None and text < 1):
        return None
    return replace(effort, max_documents=documents, max_bytes=text, min_count=1)


def count_to_file(
    tokenizer: Tokenizer,
    corpus: Corpus,
    out: Path,
    *,
    reading: Reading,
    effort: Effort,
    force: bool = False,
    progress: Progress | None = None,
) -> PretokenCounts:
    """Counts a corpus straight into a Parquet file, in bounded memory; returns the description, with an empty table."""
    with counted(tokenizer, corpus, reading, effort, progress) as (described, rows):
        write_counts(_tables(rows, effort.min_count), described, out, force=force)
        return described


def merge_counts(paths: list[Path], out: Path, *, effort: Effort, force: bool = False) -> PretokenCounts:
    """Adds up files of counts into one, in bounded memory; returns the description, with an empty table.

    Raises:
        CountsError: They were made for different pipelines.
    """
    with _spill_folder(effort) as (folder, bytes_per_table):
        counter = _core.Counter(
            _EMPTY_PIPELINE,
            byte_level=True,
            cutter=None,
            through_upstream=False,
            spill_folder=folder,
            bytes_per_table=bytes_per_table,
            document_memory=0,
        )
        described: PretokenCounts | None = None
        for path in paths:
            part, tables = open_counts(path)
            for table in tables:
                counter.add(table)
            described = part if described is None else described + part
        if described is None:
            raise OptionError("no file of counts was given", hint="name the files to add up")
        described = replace(described, min_count=max(described.min_count, effort.min_count))
        write_counts(_tables(counter.finish(), effort.min_count), described, out, force=force)
        return described


_EMPTY_PIPELINE = json.dumps(
    {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
)


def _tables(rows: _core.Rows, min_count: int) -> Iterator[_core.Counts]:
    while len(table := rows.take(ROWS, min_count)):
        yield table


@contextmanager
def counted(
    tokenizer: Tokenizer, corpus: Corpus, reading: Reading, effort: Effort, progress: Progress | None
) -> Iterator[tuple[PretokenCounts, _core.Rows]]:
    """The description of what a corpus came to, with an empty table, and the rows to be read within the block."""
    fingerprint = Fingerprint.of(tokenizer, reading.rules)
    inputs = open_corpus(corpus, reading)
    with _spill_folder(effort) as (folder, bytes_per_table):
        counter = _core.Counter(
            _normalizing(tokenizer.skeleton) if reading.normalize else tokenizer.skeleton,
            byte_level=tokenizer.kind == "byte-level",
            cutter=cutter(tokenizer, fingerprint.rules) if fingerprint.rules else None,
            through_upstream=effort.through_upstream,
            spill_folder=folder,
            bytes_per_table=bytes_per_table,
            document_memory=effort.memory // 2,
        )
        totals = _count_inputs(counter, inputs, reading, effort, progress)
        contents = {token.id: token.content for token in tokenizer.added}
        described = PretokenCounts(
            table=_core.Counts(b"", bytes(8), b""),
            totals=totals,
            added=MappingProxyType(dict(sorted((contents[i], n) for i, n in counter.added()))),
            fingerprint=fingerprint,
            min_count=effort.min_count,
            normalize=reading.normalize,
        )
        yield described, counter.finish()


def _normalizing(skeleton: str) -> str:
    """The pipeline with NFKC before its own normalizer."""
    document = json.loads(skeleton)
    steps = [{"type": "NFKC"}, *([document["normalizer"]] if document.get("normalizer") else [])]
    return json.dumps(document | {"normalizer": {"type": "Sequence", "normalizers": steps}}, ensure_ascii=False)


@contextmanager
def _spill_folder(effort: Effort) -> Iterator[tuple[str, int]]:
    # A table that outgrows its share doubles first, and while it does the old one is still there.
    share = effort.memory // 2 // (3 * _workers(effort))
    with tempfile.TemporaryDirectory(prefix="tokengraft-") as folder:
        yield folder, share


def _workers(effort: Effort) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return effort.workers or cores or 1


def _count_inputs(
    counter: _core.Counter, inputs: list[Input], reading: Reading, effort: Effort, progress: Progress | None
) -> Totals:
    size = sum(found.size for found in inputs)
    counted = _Counted(counter, reading, effort)
    cut = Cut(counter.last_cut, counter.longest_document, effort.max_bytes)
    pool = ThreadPoolExecutor(_workers(effort), thread_name_prefix="count")
    try:
        for found in inputs:
            with counted.skipping_bad_files():
                for block in found.blocks(cut):
                    if not counted.submit(pool, block):
                        return counted.totals
                    if progress:
                        progress(found.name, block.progress, size)
        counted.collect(leave=0)
        return counted.totals
    finally:
        pool.shutdown(cancel_futures=True)


class _Counted:
    """The running totals of blocks that are being counted."""

    def __init__(self, counter: _core.Counter, reading: Reading, effort: Effort) -> None:
        self.counter, self.reading = counter, reading
        self.limits = (effort.max_documents or UNLIMITED[0], effort.max_bytes or UNLIMITED[1])
        # What is left of a limit is known only when all before it is counted: then one block at a time.
        self.at_once = 2 * _workers(effort) if self.limits == UNLIMITED else 0
        self.totals = Totals()
        self.cut_short = False
        self.pending: deque[tuple[Future[tuple[Totals, bool]], int]] = deque()
        """Blocks that wait or are being counted, each with its size."""
        self.most_waiting = max(counter.longest_document, BLOCK * self.at_once)

    def submit(self, pool: ThreadPoolExecutor, block: Block) -> bool:
        """Has a block counted; False where a limit is reached and nothing more is to be counted."""
        documents, text = self.limits[0] - self.totals.documents, self.limits[1] - self.totals.bytes
        goes_on = block.form == "text" and not block.at_start
        if self.cut_short or text <= 0 or (documents <= 0 and not goes_on):
            return False
        self.pending.append((pool.submit(self._count, block, (max(documents, 1), text)), len(block.data)))
        self.collect(leave=self.at_once)
        return True

    def collect(self, *, leave: int) -> None:
        """Adds up what is done, waiting until at most so many blocks are left, and no more bytes than memory allows."""
        while len(self.pending) > leave or sum(size for _, size in self.pending) > self.most_waiting:
            totals, cut_short = self.pending.popleft()[0].result()
            self.totals += totals
            self.cut_short |= cut_short

    @contextmanager
    def skipping_bad_files(self) -> Iterator[None]:
        try:
            yield
        except CorpusError:
            if not self.reading.skip_bad:
                raise
            self.totals += Totals(skipped=1)

    def _count(self, block: Block, limits: tuple[int, int]) -> tuple[Totals, bool]:
        return _count_block(self.counter, block, self.reading, limits)


def _count_block(
    counter: _core.Counter, block: Block, reading: Reading, limits: tuple[int, int]
) -> tuple[Totals, bool]:
    try:
        if block.form == "text":
            numbers, cut_short = counter.count_text(block.data, block.at_start, limits)
        elif block.form == "lines":
            numbers, cut_short = counter.count_lines(block.data, limits)
        elif block.form == "documents":
            numbers, cut_short = counter.count_documents(block.data, block.offsets, limits)
        else:
            numbers, cut_short = counter.count_json_lines(block.data, reading.text_field, reading.skip_bad, limits)
    except CorpusError as error:
        raise _placed(error, block) from error
    return Totals(*numbers) + Totals(replaced=block.replaced), cut_short


def _placed(error: CorpusError, block: Block) -> CorpusError:
    """The error of the core, which knows lines of the block, in terms of the file."""

    def in_file(line: re.Match[str]) -> str:
        return f"line {int(line[1]) + block.first_line - 1:,}"

    message = re.sub(r"^line (\d+)", in_file, error.message)
    return CorpusError(f"`{block.source}`, {message}", hint=error.hint)
