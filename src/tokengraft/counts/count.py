"""`count`: counts the pretokens of a corpus. The only step that reads the corpus.

The core counts blocks in threads. The result does not depend on the number of threads or the order of blocks.
"""

import json
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from tokengraft import _core
from tokengraft.corpus import Block, Corpus, Cut, Input, ReadOptions, Totals, open_corpus, whole_documents
from tokengraft.corpus.blocks import BLOCK
from tokengraft.counts.fingerprint import Fingerprint, cutter
from tokengraft.counts.pretoken_counts import (
    EVERYTHING,
    ROWS,
    PretokenCounts,
    as_weight,
    open_counts,
    write_counts,
)
from tokengraft.errors import CorpusError, InvalidTokenizerError, OptionError, Progress, require_positive
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.tokenizer import Tokenizer

UNLIMITED = (2**64 - 1, 2**64 - 1)
DEFAULT_MEMORY = 4 << 30


@dataclass(frozen=True)
class CountOptions:
    """Threads, memory and limits for counting. Only the limits change the result."""

    workers: int | None = None
    """Threads; by default one for each core."""
    memory: int = DEFAULT_MEMORY
    """Bytes: half for tables of pretokens, which are written to disk beyond it, and half for the documents in process.
    A document that cannot be cut and needs more than that half is refused, unless it is shorter than two megabytes. It
    needs up to 10 times its size, 30 times if spaces become ``▁``, and 80 times if its pipeline runs through the
    `tokenizers` crate, which `inspect` tells. Such a pipeline never cuts a document."""
    max_documents: int | None = None
    max_bytes: int | None = None
    """Bytes of text. With a limit, blocks are counted one after the other."""
    min_count: int = 1
    """Leave out pretokens that occur less often in the complete corpus."""
    through_upstream: bool = False
    """Use the `tokenizers` crate instead of a faster engine, to compare the two."""

    def __post_init__(self) -> None:
        for name in ("workers", "memory", "max_documents", "max_bytes", "min_count"):
            require_positive(name, getattr(self, name))


@dataclass(frozen=True)
class HoldOut:
    """Which documents are held out of counting.

    A whole document is eligible if it is not blank, has at most ``max_bytes // 8`` bytes, and its hash is a multiple of
    ``one_in``. The distinct eligible documents with the smallest hashes are held out, as many as fit into
    ``max_bytes``. The choice depends only on the documents, not on threads, blocks or the order of files.
    """

    one_in: int = 50
    max_bytes: int = 2_000_000

    def __post_init__(self) -> None:
        for name in ("one_in", "max_bytes"):
            value = getattr(self, name)
            if not 1 <= value < 2**63:
                raise OptionError(f"{name} is {value}; it must be at least 1", hint=f"pass HoldOut({name}=1) or more")


class HeldOutCounts(NamedTuple):
    """Counts, and the documents that were held out of them."""

    counts: PretokenCounts
    held_out: tuple[str, ...]
    """In the order of their hashes."""


def reading_warnings(totals: Totals) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, one sentence each; empty if there is none.

    >>> reading_warnings(Totals(skipped=2))
    ('2 documents or files could not be read, or not to their end, and were left out',)
    """
    warnings = []
    if totals.replaced:
        warnings.append(
            f"{totals.replaced:,} places in the text were not UTF-8 and were replaced by U+FFFD; "
            "if the text is in another encoding, convert it first: iconv -f LATIN1 -t UTF-8"
        )
    if totals.skipped:
        warnings.append(
            f"{totals.skipped:,} documents or files could not be read, or not to their end, and were left out"
        )
    return tuple(warnings)


def count(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    weights: Iterable[int | Fraction | str] | None = None,
    read_options: ReadOptions | None = None,
    count_options: CountOptions | None = None,
    progress: Progress | None = None,
) -> PretokenCounts:
    """How often each distinct pretoken of a corpus occurs.

    Pretokens are exactly those of the tokenizer's own normalizer and pre-tokenizer. The result does not depend on the
    number of workers, the size of blocks or the order of files.

    Args:
        tokenizer: The tokenizer, or any other one with the same pipeline.
        corpus: A file, folder, glob, ``-``, a list of these, a `datasets` dataset, or an iterable of strings.
        weights: One weight for each item of a list of paths. Its counts are multiplied by it.
        read_options: How to read the corpus.
        count_options: Workers, memory and limits.
        progress: Called as text is read.

    Raises:
        CorpusError: An input cannot be read.

    Examples:
        >>> tok = tg.load("model")
        >>> tg.count(tok, "en.txt").top(2)
        [(b' cat', 1000), (b' the', 1000)]
        >>> tg.count(tok, ["et.txt", "en.txt"], weights=[1, 3]).top(2)
        [(b' cat', 3000), (b' the', 3000)]
    """
    read_options, count_options = read_options or ReadOptions(), count_options or CountOptions()
    if weights is None:
        with counted(tokenizer, corpus, read_options, count_options, progress) as (summary, counter):
            return replace(summary, table=counter.finish().take(EVERYTHING, count_options.min_count))
    items = [corpus] if isinstance(corpus, str | os.PathLike) else list(corpus)
    ratios = [*map(as_weight, weights)]
    if len(items) != len(ratios) or not items:
        raise OptionError(
            f"{len(ratios)} weights were given for {len(items)} corpora", hint="give one weight for each corpus"
        )
    total: PretokenCounts | None = None
    for item, ratio in zip(items, ratios, strict=True):
        left = _left_of(count_options, total.totals if total else Totals())
        if left is None:
            break
        part = count(tokenizer, item, read_options=read_options, count_options=left, progress=progress).scale(ratio)
        total = total + part if total else part
    if total is None:
        raise OptionError("no corpus was given", hint="pass at least one file, folder or glob")
    return replace(total, table=total.table.frequent(count_options.min_count), min_count=count_options.min_count)


def count_with_hold_out(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    read_options: ReadOptions,
    count_options: CountOptions,
    hold_out: HoldOut,
    progress: Progress | None = None,
) -> HeldOutCounts:
    """The counts of a corpus without held-out documents, and those documents.

    Copies of a held-out document are not counted. The limits of ``count_options`` include held-out documents. The
    totals are those of the counted text, except for what was replaced or skipped, which includes held-out documents.

    Raises:
        CorpusError: An input cannot be read.

    Examples:
        >>> tok = tg.load("model")
        >>> lines, limits, hold_out = ReadOptions(documents="lines"), CountOptions(), HoldOut(one_in=50)
        >>> result = count_with_hold_out(tok, "et.txt", read_options=lines, count_options=limits, hold_out=hold_out)
        >>> len(result.held_out), result.counts.totals.documents
        (12, 388)
    """
    with counted(tokenizer, corpus, read_options, count_options, progress, hold_out) as (summary, counter):
        held_out = tuple(counter.held_out())
        return HeldOutCounts(
            replace(summary, table=counter.finish().take(EVERYTHING, count_options.min_count)), held_out
        )


def _left_of(count_options: CountOptions, done: Totals) -> CountOptions | None:
    """The options with the remaining limits and no minimum count; None if a limit is reached."""
    documents = None if count_options.max_documents is None else count_options.max_documents - done.documents
    text = None if count_options.max_bytes is None else count_options.max_bytes - done.bytes
    if (documents is not None and documents < 1) or (text is not None and text < 1):
        return None
    return replace(count_options, max_documents=documents, max_bytes=text, min_count=1)


def count_to_file(
    tokenizer: Tokenizer,
    corpus: Corpus,
    out: Path,
    *,
    read_options: ReadOptions,
    count_options: CountOptions,
    force: bool = False,
    progress: Progress | None = None,
) -> PretokenCounts:
    """Counts a corpus into a Parquet file in bounded memory. Returns its metadata, with an empty table."""
    with counted(tokenizer, corpus, read_options, count_options, progress) as (summary, counter):
        write_counts(_tables(counter.finish(), count_options.min_count), summary, out, force=force)
        return summary


def merge_counts(paths: list[Path], out: Path, *, count_options: CountOptions, force: bool = False) -> PretokenCounts:
    """Adds up files of counts into one in bounded memory. Returns its metadata, with an empty table.

    Raises:
        CountsError: The counts were made for different pipelines.
    """
    with _spill_folder(count_options) as (folder, bytes_per_table):
        counter = _core.Counter(
            _EMPTY_PIPELINE,
            byte_level=True,
            cutter=None,
            through_upstream=False,
            spill_folder=folder,
            bytes_per_table=bytes_per_table,
            document_memory=0,
            hold_out=None,
        )
        summary: PretokenCounts | None = None
        for path in paths:
            part, tables = open_counts(path)
            for table in tables:
                counter.add(table)
            summary = part if summary is None else summary + part
        if summary is None:
            raise OptionError("no file of counts was given", hint="name the files to add up")
        summary = replace(summary, min_count=max(summary.min_count, count_options.min_count))
        write_counts(_tables(counter.finish(), count_options.min_count), summary, out, force=force)
        return summary


_EMPTY_PIPELINE = json.dumps(
    {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
)


def _tables(rows: _core.Rows, min_count: int) -> Iterator[_core.Counts]:
    most = ROWS if rows.on_disk else EVERYTHING
    while len(table := rows.take(most, min_count)):
        yield table


@contextmanager
def counted(
    tokenizer: Tokenizer,
    corpus: Corpus,
    read_options: ReadOptions,
    count_options: CountOptions,
    progress: Progress | None,
    hold_out: HoldOut | None = None,
) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of a counted corpus, with an empty table, and the counter, to be finished inside the block."""
    fingerprint = Fingerprint.of(tokenizer, read_options.rules)
    inputs = open_corpus(corpus, read_options)
    with _spill_folder(count_options) as (folder, bytes_per_table):
        counter = _core.Counter(
            _normalizing(tokenizer.skeleton) if read_options.normalize else tokenizer.skeleton,
            byte_level=tokenizer.kind == "byte-level",
            cutter=cutter(tokenizer, fingerprint.rules) if fingerprint.rules else None,
            through_upstream=count_options.through_upstream,
            spill_folder=folder,
            bytes_per_table=bytes_per_table,
            document_memory=count_options.memory // 2,
            hold_out=(hold_out.one_in, hold_out.max_bytes) if hold_out else None,
        )
        running = _Counted(counter, read_options, count_options, hold_out)
        totals = _count_inputs(running, inputs, _workers(count_options), progress)
        contents = {token.id: token.content for token in tokenizer.added}
        summary = PretokenCounts(
            table=_core.Counts(b"", bytes(8), b""),
            totals=totals,
            added=FrozenDict(dict(sorted((contents[i], n) for i, n in counter.added()))),
            fingerprint=fingerprint,
            min_count=count_options.min_count,
            normalize=read_options.normalize,
        )
        yield summary, counter


def _normalizing(skeleton: str) -> str:
    """The pipeline with NFKC before its own normalizer."""
    document = json.loads(skeleton)
    steps = [{"type": "NFKC"}, *([document["normalizer"]] if document.get("normalizer") else [])]
    return json.dumps(document | {"normalizer": {"type": "Sequence", "normalizers": steps}}, ensure_ascii=False)


@contextmanager
def _spill_folder(count_options: CountOptions) -> Iterator[tuple[str, int]]:
    # A table doubles before it is written to disk, and meanwhile the old one still exists.
    share = count_options.memory // 2 // (3 * _workers(count_options))
    with tempfile.TemporaryDirectory(prefix="tokengraft-") as folder:
        yield folder, share


def _workers(count_options: CountOptions) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return count_options.workers or cores or 1


def _count_inputs(counted: "_Counted", inputs: list[Input], workers: int, progress: Progress | None) -> Totals:
    size = sum(source.size for source in inputs)
    pool = ThreadPoolExecutor(workers, thread_name_prefix="count")
    try:
        for source in inputs:
            for block in counted.blocks(source):
                if not counted.submit(pool, block):
                    return counted.totals
                if progress:
                    progress(source.name, block.progress, size)
        counted.collect(leave=0)
        return counted.totals
    finally:
        pool.shutdown(cancel_futures=True)


class _Tally(NamedTuple):
    """The totals of a block, and how much was read, held-out documents included."""

    totals: Totals
    read_documents: int
    read_bytes: int
    cut_short: bool


class _Counted:
    """The running totals of blocks that are being counted."""

    def __init__(
        self, counter: _core.Counter, read_options: ReadOptions, count_options: CountOptions, hold_out: HoldOut | None
    ) -> None:
        self.counter, self.read_options, self.hold_out = counter, read_options, hold_out
        self.documents_left = count_options.max_documents or UNLIMITED[0]
        self.bytes_left = count_options.max_bytes or UNLIMITED[1]
        # With a limit, the remainder is known only after all earlier blocks are counted: one block at a time.
        self.at_once = 2 * _workers(count_options) if (self.documents_left, self.bytes_left) == UNLIMITED else 0
        self.totals = Totals()
        self.cut_short = False
        self.pending: deque[tuple[Future[_Tally], int]] = deque()
        """Blocks that are queued or being counted, each with its size."""
        self.most_waiting = max(counter.longest_document, BLOCK * self.at_once)
        self.cut = Cut(counter.last_cut, counter.longest_document, count_options.max_bytes, counter)

    def blocks(self, source: Input) -> Iterator[Block]:
        """The blocks of an input; with `skip_bad`, up to the first error."""
        try:
            blocks = source.blocks(self.cut)
            yield from whole_documents(blocks, self.hold_out.max_bytes // 8) if self.hold_out else blocks
        except CorpusError as error:
            self._skip(error)

    def submit(self, pool: ThreadPoolExecutor, block: Block) -> bool:
        """Queues a block for counting; False if a limit is reached and nothing more is counted."""
        continues = block.form == "text" and not block.at_start
        if self.cut_short or self.bytes_left <= 0 or (self.documents_left <= 0 and not continues):
            return False
        limits = (max(self.documents_left, 1), self.bytes_left)
        job = pool.submit(_count_block, self.counter, block, limits, skip_bad=self.read_options.skip_bad)
        self.pending.append((job, len(block.data)))
        self.collect(leave=self.at_once)
        return True

    def collect(self, *, leave: int) -> None:
        """Adds up finished blocks until at most ``leave`` blocks, and no more bytes than memory allows, are pending."""
        while len(self.pending) > leave or sum(size for _, size in self.pending) > self.most_waiting:
            try:
                tally = self.pending.popleft()[0].result()
            except CorpusError as error:  # the block may be from an earlier file than the one being read
                self._skip(error)
                continue
            self.totals += tally.totals
            if self.at_once == 0:
                self.documents_left -= tally.read_documents
                self.bytes_left -= tally.read_bytes
            self.cut_short |= tally.cut_short

    def _skip(self, error: CorpusError) -> None:
        """Counts an unreadable input as skipped with `skip_bad`, else raises the error."""
        if not self.read_options.skip_bad:
            raise error
        self.totals += Totals(skipped=1)


def _count_block(counter: _core.Counter, block: Block, limits: tuple[int, int], *, skip_bad: bool) -> _Tally:
    try:
        numbers, read, cut_short = counter.count(block, limits, skip_bad)
    except (CorpusError, InvalidTokenizerError) as error:
        raise block.placed(error) from error
    return _Tally(Totals(*numbers) + Totals(replaced=block.replaced), *read, cut_short)
