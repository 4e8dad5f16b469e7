"""`CountOptions`, what every engine counts with (`CountJob`, counters), and counting in threads."""

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from tokengraft import _core
from tokengraft.corpus.block import Block, Cut, Input
from tokengraft.corpus.blocks import BLOCK, in_pieces
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.counts.fingerprint import Fingerprint, cutter
from tokengraft.counts.pretoken_counts import EVERYTHING, NO_ROWS, ROWS, PretokenCounts
from tokengraft.errors import CorpusError, InvalidTokenizerError, OptionError, Progress, positive
from tokengraft.output.partial import temporary_folder
from tokengraft.representation import FrozenDict, set_fields, shown
from tokengraft.tokenizer.tokenizer import Tokenizer

DEFAULT_MEMORY = 4 << 30
Engine = Literal["local", "ray"]


@shown
@dataclass(frozen=True)
class CountOptions:
    """Threads, memory and limits for counting. Only the limits change the result."""

    workers: int | None = None
    """Threads; by default one for each core. On Ray: tasks at once; by default as many as fit."""
    memory: int = DEFAULT_MEMORY
    """Bytes, on Ray for each task: half for tables of pretokens, which are written to disk beyond it, and half for the
    documents in process. A document that cannot be cut and needs more than that half is refused, unless it is shorter
    than two megabytes. It needs up to 10 times its size, 30 times if spaces become ``▁``, and 80 times if its pipeline
    runs through the `tokenizers` crate, which `inspect` tells. Such a pipeline never cuts a document."""
    max_documents: int | None = None
    max_bytes: int | None = None
    """Bytes of text. With a limit, blocks are counted one after the other."""
    min_count: int = 1
    """Leave out pretokens that occur less often in the complete corpus."""
    engine: Engine = "local"
    """Where to count: in threads of this process, or on Ray. The result is the same."""
    address: str | None = None
    """The Ray cluster: ``auto``, or the address of its head node. By default the one that the program is connected to,
    or one that is started on this machine and stopped at the end."""

    def __post_init__(self) -> None:
        set_fields(self, positive, "workers", "memory", "max_documents", "max_bytes", "min_count")
        if self.engine not in get_args(Engine):
            raise OptionError(f"there is no engine {self.engine!r}", hint="pass local or ray")
        if self.address is not None and self.engine != "ray":
            raise OptionError(
                f"the address {self.address!r} is for Ray, and the engine is {self.engine}",
                hint="pass --engine ray too",
            )


@shown
@dataclass(frozen=True)
class HoldOut:
    """Which text is held out of counting: about one byte in ``one_in``, and at most ``max_bytes``.

    A document of more than 8 kB is cut into pieces of at most 8 kB, where a cut changes no pretoken. Each piece is held
    out or counted on its own. If a piece cannot be cut, it is counted if it has more than ``max_bytes // 8`` bytes.

    Shorter documents and pieces are eligible if they are not blank and their hash is a multiple of ``one_in``. The
    distinct eligible ones with the smallest hashes are held out, as many as fit into ``max_bytes``. If none is
    eligible, the one with the smallest hash of all is held out. The choice depends only on the documents and on where
    the tokenizer allows cuts, not on threads, blocks or the order of files.
    """

    one_in: int = 50
    max_bytes: int = 2_000_000

    def __post_init__(self) -> None:
        set_fields(self, positive, "one_in", "max_bytes")


UNLIMITED = (2**64 - 1, 2**64 - 1)


@dataclass(frozen=True)
class CountJob:
    """Everything that counting depends on, except the text. It can be sent to other processes."""

    tokenizer: Tokenizer
    fingerprint: Fingerprint
    read_options: ReadOptions
    count_options: CountOptions
    hold_out: HoldOut | None = None

    @classmethod
    def of(
        cls,
        tokenizer: Tokenizer,
        read_options: ReadOptions,
        count_options: CountOptions,
        hold_out: HoldOut | None = None,
    ) -> "CountJob":
        """The job of a tokenizer, with the fingerprint of its pipeline."""
        fingerprint = Fingerprint.of(tokenizer, read_options.rules)
        return cls(tokenizer, fingerprint, read_options, count_options, hold_out)

    def metadata(self, totals: Totals, added: Iterable[tuple[int, int]]) -> PretokenCounts:
        """The metadata of what was counted, with an empty table, from the totals and the added tokens by id."""
        contents = {token.id: token.content for token in self.tokenizer.added}
        return PretokenCounts(
            table=NO_ROWS,
            totals=totals,
            added=FrozenDict(dict(sorted((contents[token_id], count) for token_id, count in added))),
            fingerprint=self.fingerprint,
            min_count=self.count_options.min_count,
            normalize=self.read_options.normalize,
        )


@contextmanager
def new_counter(job: CountJob) -> Iterator[_core.Counter]:
    """A counter for a job. What it writes to disk is removed when the block ends."""
    with temporary_folder() as folder:
        yield counter_of(job, str(folder))


def counter_of(job: CountJob, folder: str | None = None) -> _core.Counter:
    """A counter for a job that keeps everything in memory, or writes large tables to a folder."""
    pipeline, rules = job.tokenizer.skeleton, job.fingerprint.rules
    if job.read_options.normalize:
        document = json.loads(pipeline)
        steps = [{"type": "NFKC"}, *([document["normalizer"]] if document.get("normalizer") else [])]
        document["normalizer"] = {"type": "Sequence", "normalizers": steps}
        pipeline = json.dumps(document, ensure_ascii=False)
    return _core.Counter(
        pipeline,
        byte_level=job.tokenizer.kind == "byte-level",
        cutter=cutter(job.tokenizer, rules) if rules else None,
        spill_folder=folder,
        # A table doubles before it is written to disk, and meanwhile the old one still exists.
        bytes_per_table=job.count_options.memory // 2 // (3 * _workers(job.count_options)),
        document_memory=job.count_options.memory // 2,
        hold_out=(job.hold_out.one_in, job.hold_out.max_bytes) if job.hold_out else None,
    )


@contextmanager
def adding_counter(memory: int) -> Iterator[_core.Counter]:
    """A counter that only adds up counts, on disk beyond so many bytes of memory."""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    with temporary_folder() as folder:
        yield _core.Counter(
            json.dumps({"version": "1.0", "added_tokens": [], "model": model}),
            byte_level=True,
            cutter=None,
            spill_folder=str(folder),
            bytes_per_table=memory // 3,  # as above
            document_memory=0,
            hold_out=None,
        )


def finished_tables(counter: _core.Counter, min_count: int, most: int | None = None) -> Iterator[_core.Counts]:
    """The counts of a counter in order, in tables of ``most`` rows. It is empty afterwards.

    By default it is one table, or several if they were written to disk.
    """
    rows = counter.finish()
    most = most or (ROWS if rows.on_disk else EVERYTHING)
    while len(table := rows.take(most, min_count)):
        yield table


def _workers(count_options: CountOptions) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return count_options.workers or cores or 1


def count_inputs(
    counter: _core.Counter, job: CountJob, inputs: list[Input], progress: Progress | None = None
) -> Totals:
    """Counts inputs, and returns the totals of what was counted."""
    counted = _Counted(counter, job)
    size = sum(source.size for source in inputs)
    pool = ThreadPoolExecutor(_workers(job.count_options), thread_name_prefix="count")
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


_Tally = tuple[Totals, tuple[int, int], bool]
"""The totals of a block; documents and bytes that were read, held-out ones included; and whether a limit cut it."""


class _Counted:
    """The running totals of blocks that are being counted."""

    def __init__(self, counter: _core.Counter, job: CountJob) -> None:
        count_options = job.count_options
        self.counter, self.read_options, self.hold_out = counter, job.read_options, job.hold_out
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
            yield from in_pieces(blocks, self.counter) if self.hold_out else blocks
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
                totals, (documents, n_bytes), cut_short = self.pending.popleft()[0].result()
            except CorpusError as error:  # the block may be from an earlier file than the one being read
                self._skip(error)
                continue
            self.totals += totals
            if self.at_once == 0:
                self.documents_left -= documents
                self.bytes_left -= n_bytes
            self.cut_short |= cut_short

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
    return Totals(*numbers) + Totals(replaced=block.replaced), read, cut_short
