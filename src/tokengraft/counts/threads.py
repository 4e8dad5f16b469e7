"""`CountOptions`, what every engine counts with (`CountJob`, counters), and counting in threads."""

import json
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, get_args

from tokengraft import _core
from tokengraft.corpus.block import Block, Cut, Input
from tokengraft.corpus.blocks import BLOCK, in_pieces
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.counts.fingerprint import Fingerprint, cutter
from tokengraft.counts.pretoken_counts import NO_ROWS, PretokenCounts
from tokengraft.errors import CorpusError, InvalidTokenizerError, OptionError, Progress, option, positive
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
                hint=f"pass {option('engine', 'ray')} too",
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


UNLIMITED = 2**64 - 1


@dataclass(frozen=True)
class CountJob:
    """Everything that counting depends on, except the text. It can be sent to other processes."""

    fingerprint: Fingerprint
    pipeline: str
    """Normalizer, pre-tokenizer and added tokens, as a `tokenizer.json`."""
    added: Mapping[int, str]
    """Added tokens by id."""
    tokenizer: Tokenizer | None
    """Whose tokens decide where text is cut; None, which is small, if it is not cut."""
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
        fingerprint, pipeline = Fingerprint.of(tokenizer, read_options.rules), tokenizer.skeleton
        if read_options.normalize:
            document = json.loads(pipeline)
            steps = [{"type": "NFKC"}, *([document["normalizer"]] if document.get("normalizer") else [])]
            document["normalizer"] = {"type": "Sequence", "normalizers": steps}
            pipeline = json.dumps(document, ensure_ascii=False)
        added = FrozenDict({token.id: token.content for token in tokenizer.added})
        cut = tokenizer if fingerprint.rules else None
        return cls(fingerprint, pipeline, added, cut, read_options, count_options, hold_out)

    def metadata(self, totals: Totals, added: Iterable[tuple[int, int]]) -> PretokenCounts:
        """The metadata of what was counted, with an empty table, from the totals and the added tokens by id."""
        return PretokenCounts(
            table=NO_ROWS,
            totals=totals,
            added=FrozenDict(dict(sorted((self.added[token_id], count) for token_id, count in added))),
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
    rules = job.fingerprint.rules
    return _core.Counter(
        job.pipeline,
        byte_level=job.fingerprint.kind == "byte-level",
        cutter=cutter(job.tokenizer, rules) if job.tokenizer and rules else None,
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
    while len(table := rows.take(most, min_count)):
        yield table


def _workers(count_options: CountOptions) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return count_options.workers or cores or 1


_Tally = tuple[Totals, tuple[int, int], bool]
"""The totals of a block; documents and bytes that were read, held-out ones included; and whether a limit cut it."""


def count_inputs(
    counter: _core.Counter, job: CountJob, inputs: list[Input], progress: Progress | None = None
) -> Totals:
    """Counts inputs, and returns the totals of what was counted."""
    options, skip_bad = job.count_options, job.read_options.skip_bad
    documents_left, bytes_left = options.max_documents or UNLIMITED, options.max_bytes or UNLIMITED
    # With a limit, the remainder is known only after all earlier blocks are counted: one block at a time.
    at_once = 2 * _workers(options) if documents_left == bytes_left == UNLIMITED else 0
    most_waiting = max(counter.longest_document, BLOCK * at_once)
    cut = Cut(counter.last_cut, counter.longest_document, options.max_bytes, counter)
    total, cut_short, size = Totals(), False, sum(source.size for source in inputs)
    pending = deque[tuple[Future[_Tally], int]]()  # blocks that are queued or being counted, each with its size

    def blocks() -> Iterator[tuple[Input, Block]]:
        """The blocks of all inputs; with `skip_bad`, up to the first error of each."""
        nonlocal total
        for source in inputs:
            try:
                whole = source.blocks(cut)
                yield from ((source, block) for block in (in_pieces(whole, counter) if job.hold_out else whole))
            except CorpusError:
                if not skip_bad:
                    raise
                total += Totals(skipped=1)

    def collect(leave: int) -> None:
        """Adds up finished blocks until at most ``leave`` blocks, and no more bytes than memory allows, are pending."""
        nonlocal total, documents_left, bytes_left, cut_short
        while len(pending) > leave or sum(size for _, size in pending) > most_waiting:
            try:
                totals, (documents, n_bytes), short = pending.popleft()[0].result()
            except CorpusError:  # the block may be from an earlier file than the one being read
                if not skip_bad:
                    raise
                total += Totals(skipped=1)
                continue
            total, cut_short = total + totals, cut_short or short
            if at_once == 0:
                documents_left, bytes_left = documents_left - documents, bytes_left - n_bytes

    pool = ThreadPoolExecutor(_workers(options), thread_name_prefix="count")
    try:
        for source, block in blocks():
            continues = block.form == "text" and not block.at_start
            if cut_short or bytes_left <= 0 or (documents_left <= 0 and not continues):
                return total
            limits = (max(documents_left, 1), bytes_left)
            pending.append((pool.submit(_count_block, counter, block, limits, skip_bad=skip_bad), len(block.data)))
            collect(leave=at_once)
            if progress:
                progress(source.name, block.progress, size)
        collect(leave=0)
        return total
    finally:
        pool.shutdown(cancel_futures=True)


def _count_block(counter: _core.Counter, block: Block, limits: tuple[int, int], *, skip_bad: bool) -> _Tally:
    try:
        numbers, read, cut_short = counter.count(block, limits, skip_bad)
    except (CorpusError, InvalidTokenizerError) as error:
        raise block.placed(error) from error
    return Totals(*numbers) + Totals(replaced=block.replaced), read, cut_short
