"""A corpus as units of work, the counts of one unit, and their sum. Does not know what runs them.

The counts of a unit are split into buckets by a hash of the pretokens, so that buckets can be added up independently.
Everything that is sent between processes can be pickled; text is opened by the process that counts it.
"""

import glob
import os
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, groupby

from tokengraft import _core
from tokengraft.corpus.block import Block, Cut, Input
from tokengraft.corpus.blocks import numbered, split_input
from tokengraft.corpus.files import LocalFile, is_url
from tokengraft.corpus.open import STDIN, Corpus, open_corpus, paths_of
from tokengraft.corpus.options import ReadOptions, Totals, only_paths
from tokengraft.counts.pretoken_counts import ROWS
from tokengraft.counts.threads import CountJob, adding_counter, count_inputs, finished_tables, new_counter
from tokengraft.errors import CorpusError, OptionError, option

SMALLEST_UNIT, LARGEST_UNIT = 8 << 20, 256 << 20
"""Bytes on disk, unless there would be too many units, or a file cannot be cut. Larger units have fewer pretokens in
common, so that less is sent; smaller ones are lost with less work when a machine fails."""
MOST_UNITS, MOST_BUCKETS = 2048, 128
"""Ray needs about 3,000 bytes of memory in the driver for each pair of a unit and a bucket."""
_BYTES_PER_BUCKET = 4 << 20
"""Of text in a unit. Its counts are about 200 KB then. Ray sends objects of less than 100 KB through the driver."""
_ROWS_OF_SUM = 1 << 16
"""Pretokens in a table of a sum. The driver needs memory for a few such tables at once."""

Unit = tuple[Input, ...]


@dataclass(frozen=True)
class Summary:
    """What was read of a part of a corpus, except the pretokens."""

    totals: Totals = field(default_factory=Totals)
    added: tuple[tuple[int, int], ...] = ()
    """Occurrences of added tokens by id."""
    share: tuple[tuple[str, int, int], ...] = ()
    """Texts for the hold-out of the whole corpus, as `_core.Counter.hold_out_share` gives them."""
    cut_off: frozenset[str] = frozenset()
    """Files of which a part could not be read to its end."""


def corpus_inputs(corpus: Corpus, read_options: ReadOptions, engine: str) -> list[Input]:
    """The inputs of a corpus with absolute paths: other processes have other working folders."""
    items = [os.fspath(item) for item in paths_of(corpus) or ()]
    for at, name in enumerate(items):
        if name == "-" or is_url(name):
            continue
        # The working folder is no pattern, whatever its name.
        exists, here = os.path.exists(name), glob.escape(os.getcwd())  # noqa: PTH109, PTH110
        items[at] = os.path.abspath(name) if exists else os.path.join(here, name)  # noqa: PTH100, PTH118
    with only_paths():
        inputs = open_corpus(items, read_options)
    for source in inputs:
        is_pipe = isinstance(source.file, LocalFile) and not source.file.is_regular
        if source.name == STDIN or source.name.startswith("memory://") or is_pipe:
            raise OptionError(
                f"`{source.name}` cannot be read by other processes, as {option('engine', engine)} needs",
                hint="write the text to a file; or count it with the local engine",
            )
    return inputs


def unit_size(inputs: Sequence[Input], processors: int) -> int:
    """The size of a unit in bytes: a few units for every processor."""
    total = sum(source.size for source in inputs)
    return max(min(max(total // (3 * processors), SMALLEST_UNIT), LARGEST_UNIT), total // MOST_UNITS)


def units(inputs: Iterable[Input], size: int, whole: frozenset[str] = frozenset()) -> list[Unit]:
    """Inputs in units of about ``size`` bytes. Large files of lines are cut, except those named by ``whole``."""
    parts = [part for source in inputs for part in ([source] if source.name in whole else split_input(source, size))]
    starts = accumulate((part.size for part in parts), initial=0)
    placed = zip((start // max(size, 1) for start in starts), parts, strict=False)
    return [tuple(part for _, part in group) for _, group in groupby(placed, key=lambda pair: pair[0])]


def n_buckets(inputs: Sequence[Input], size: int) -> int:
    """The number of buckets for units of ``size`` bytes."""
    total = sum(source.size for source in inputs)
    return min(max(min(size, total) // _BYTES_PER_BUCKET, 2), MOST_BUCKETS)


def count_unit(job: CountJob, unit: Unit, buckets: int) -> tuple[list[list[bytes]], Summary]:
    """The counts of a unit by bucket, each as packed tables, and the summary."""
    cut_off: set[str] = set()
    with new_counter(job) as counter:
        ranges = [source for source in unit if source.part]
        totals = count_inputs(counter, job, [source for source in unit if not source.part])
        totals = sum((_count_range(counter, job, source, cut_off) for source in ranges), totals)
        packed: list[list[bytes]] = [[] for _ in range(buckets)]
        summary = Summary(totals, tuple(counter.added()), tuple(counter.hold_out_share()), frozenset(cut_off))
        for table in finished_tables(counter, 1, ROWS):
            for bucket, part in zip(packed, table.split(buckets), strict=True):
                bucket.extend([pack(part)] if len(part) else [])
    return packed, summary


def _count_range(counter: _core.Counter, job: CountJob, source: Input, cut_off: set[str]) -> Totals:
    def blocks(cut: Cut) -> Iterator[Block]:
        try:
            yield from source.blocks(cut)
        except CorpusError:
            cut_off.add(source.name)
            raise

    try:
        return count_inputs(counter, job, [replace(source, blocks=blocks)])
    except CorpusError:
        if source.part and source.part.start:
            count_inputs(counter, job, [numbered(source.part)])  # fails again, with the line number in the file
        raise


def merge_bucket(job: CountJob, tables: Iterable[bytes], summaries: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The sum of packed tables, as packed tables, and the sum of summaries, which comes with the first of them."""
    adding = new_counter(job) if job.hold_out else adding_counter(job.count_options.memory // 2)
    with adding as counter:
        for packed in tables:
            counter.add(unpack(packed))
        summary = merged(counter, (pickle.loads(each) for each in summaries))
        summary = replace(summary, share=tuple(counter.hold_out_share()))
        description = pickle.dumps(summary)
        # Documents that are not held out are counted later, so only without a hold-out are these counts complete.
        min_count = 1 if job.hold_out else job.count_options.min_count
        for table in finished_tables(counter, min_count, _ROWS_OF_SUM):
            yield pack(table), description
            description = b""
        if description:
            yield b"", description


def merged(counter: _core.Counter, summaries: Iterable[Summary]) -> Summary:
    """The sum of summaries. The counter takes what they hold out, and counts what is not held out of all together."""
    totals, added, cut_off = Totals(), Counter[int](), frozenset[str]()
    for summary in summaries:
        totals += summary.totals + Totals(*counter.merge_hold_out(list(summary.share)))
        cut_off |= summary.cut_off
        added.update(dict(summary.added))
    added.update(dict(counter.added()))
    return Summary(totals, tuple(sorted(added.items())), (), cut_off)


def pack(table: _core.Counts) -> bytes:
    """A table in about 7 bytes for each pretoken, a quarter of its size in memory."""
    import pyarrow as pa

    raw = pickle.dumps(table, protocol=5)
    packed: bytes = len(raw).to_bytes(8, "little") + pa.compress(raw, "zstd", asbytes=True)
    return packed


def unpack(packed: bytes) -> _core.Counts:
    """The table that `pack` packed."""
    import pyarrow as pa

    size = int.from_bytes(packed[:8], "little")
    table: _core.Counts = pickle.loads(pa.decompress(packed[8:], size, "zstd", asbytes=True))
    return table
