"""Counting inside other engines (Spark, Dask, Hugging Face datasets, DuckDB): batches of text to partial counts.

`BatchCounter` runs in the workers of an engine, which adds up what it returns. `sum_partials` makes counts of the sum.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from tokengraft import _core
from tokengraft.corpus.block import Block, Input, arrow_block, in_parts, require_column, require_text
from tokengraft.corpus.files import suffixes_of
from tokengraft.corpus.open import files_at
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.counts.partial import MEMORY, finished_tables, other_rows, pretoken_rows, summed_partials
from tokengraft.counts.pretoken_counts import EVERYTHING, NO_ROWS, PretokenCounts, write_counts
from tokengraft.counts.threads import CountJob, CountOptions, count_inputs, counter_of, new_counter
from tokengraft.errors import CorpusError, CountsError, OptionError, require_type
from tokengraft.progress import stage
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    _Batch = TypeVar("_Batch", pa.RecordBatch, pa.Table)
else:
    _Batch = TypeVar("_Batch")

ROWS_PER_BATCH = 1 << 16
_MOST_BYTES = 1 << 30
_BYTES_PER_BLOCK = 8 << 20
_NAME = "the batch"


class BatchCounter:
    """A function from Arrow batches of text to Arrow batches of (pretoken, count), for the workers of any engine.

    It can be pickled, and is small unless the tokenizer is of a SentencePiece type. What it returns can be added up by
    ``GROUP BY pretoken``, ``SUM(count)``, and has rows for totals and added tokens too: keep all rows.

    Args:
        tokenizer: The tokenizer.
        column: The column of the text. By default that of ``read_options``: ``text``.
        read_options: How to read the text: ``skip_bad``, ``normalize`` and ``rules``. A null is an error unless
            ``skip_bad``.
        memory: Bytes for each process; more is written to disk by `count_batches`.

    Raises:
        OptionError: A read option has no effect on batches.

    Examples:
        >>> import pyarrow as pa
        >>> tok = tg.load("model")
        >>> counter = tg.distributed.BatchCounter(tok)
        >>> tables = [counter(pa.table({"text": texts})) for texts in (["the cat", "a cat"], ["the"])]
        >>> tg.distributed.sum_partials(tables, tok).top(2)
        [(b' cat', 2), (b'the', 2)]
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        column: str | None = None,
        *,
        read_options: ReadOptions | None = None,
        memory: int = 1 << 30,
    ) -> None:
        require_type("tokenizer", tokenizer, Tokenizer)
        require_type("read_options", read_options, ReadOptions, NoneType)
        read_options = read_options or ReadOptions()
        for name, default in (("documents", "files"), ("format", None), ("shard", None)):
            if getattr(read_options, name) != default:
                raise OptionError(
                    f"{name} is for reading files, and has no effect on batches",
                    hint=f"leave out {name} in ReadOptions",
                )
        self._fingerprint = Fingerprint.of(tokenizer, read_options.rules)
        self._job = CountJob(
            tokenizer if self._fingerprint.rules else _without_vocabulary(tokenizer),
            self._fingerprint.rules,
            replace(read_options, text_field=read_options.text_field if column is None else column),
            CountOptions(workers=1, memory=memory),
        )
        self._contents = {token.id: token.content for token in tokenizer.added}
        self._idle: dict[int, list[_core.Counter]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_idle": {}}

    def __repr__(self) -> str:
        return f"BatchCounter(column={self._job.read_options.text_field!r})"

    def __call__(self, batch: "_Batch") -> "_Batch":
        """The partial counts of one batch or table, of the same type.

        For engines that call a function for each batch and add up the results themselves.
        """
        import pyarrow as pa

        counter = self._counter()
        summary = self._count(counter, [batch])
        table = pa.concat_tables(_small(self._rows(counter, summary)))
        # Only now: after an error, a counter would keep what it has counted.
        self._idle[os.getpid()].append(counter)
        return table if isinstance(batch, pa.Table) else table.combine_chunks().to_batches()[0]

    def count_batches(self, batches: "Iterable[pa.RecordBatch | pa.Table]") -> "Iterator[pa.RecordBatch]":
        """The partial counts of all batches together, in bounded memory: what ``mapInArrow`` of Spark needs."""
        with new_counter(self._job) as counter:
            summary = self._count(counter, batches)
            for table in _small(self._rows(counter, summary)):
                yield from table.combine_chunks().to_batches()

    def _counter(self) -> _core.Counter:
        """A counter that is not in use in this process. To build one takes some time."""
        # subtle: a process that was forked has a copy of the counters, some perhaps locked by a thread that it lacks
        idle = self._idle.setdefault(os.getpid(), [])
        try:  # another thread may take the last one
            return idle.pop()
        except IndexError:
            return counter_of(self._job)

    def _count(self, counter: _core.Counter, batches: "Iterable[pa.RecordBatch | pa.Table]") -> PretokenCounts:
        """Counts batches. Returns the metadata, with an empty table."""
        options = self._job.read_options
        source = Input(_NAME, 0, lambda _: _blocks(batches, options.text_field))
        totals = count_inputs(counter, self._job, [source])
        added = FrozenDict({self._contents[token_id]: count for token_id, count in counter.added()})
        return PretokenCounts(NO_ROWS, totals, added, self._fingerprint, normalize=options.normalize)

    def _rows(self, counter: _core.Counter, summary: PretokenCounts) -> "Iterator[pa.Table]":
        yield from map(pretoken_rows, finished_tables(counter, 1))
        yield other_rows(summary)


def _without_vocabulary(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer with the added tokens as its only vocabulary: it has the same pretokens."""
    document = json.loads(tokenizer.skeleton)
    vocab, document["model"]["vocab"] = document["model"]["vocab"], {}
    return Tokenizer(_core.Vocabulary(vocab, ()), json.dumps(document, ensure_ascii=False))


def _blocks(batches: "Iterable[pa.RecordBatch | pa.Table]", column: str) -> Iterator[Block]:
    row = 1
    for batch in batches:
        for rows in _column_parts(batch, column):
            yield arrow_block(rows, _NAME, row, 0, is_first=row == 1)
            row += len(rows)


def _column_parts(batch: Any, column: str) -> "Iterator[pa.Array]":
    """The column of the text in parts of a few megabytes."""
    import pyarrow as pa

    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise OptionError(
            f"a batch is a {type(batch).__name__}", hint="pass Arrow record batches or tables, such as `pa.table(...)`"
        )
    try:
        require_column(column, batch.schema.names, _NAME)
        require_text(batch.schema.field(column).type, _NAME)
    except CorpusError as error:  # which could be skipped
        raise OptionError(error.message, hint="name the column of the text: BatchCounter(tokenizer, column)") from error
    values = batch.column(column)
    yield from in_parts(values.chunks if isinstance(values, pa.ChunkedArray) else [values], _BYTES_PER_BLOCK)


def _small(tables: "Iterable[pa.Table]") -> "Iterator[pa.Table]":
    """Tables of at most `ROWS_PER_BATCH` rows, with 32-bit offsets, which all engines read."""
    import pyarrow as pa

    schema = pa.schema([pa.field("pretoken", pa.binary(), False), pa.field("count", pa.int64(), False)])
    for table in tables:
        waiting = [table.slice(start, ROWS_PER_BATCH) for start in range(0, len(table), ROWS_PER_BATCH)][::-1]
        while waiting:
            part = waiting.pop()
            if part.nbytes < _MOST_BYTES or len(part) < 2:
                yield part.cast(schema)
            else:
                waiting += [part.slice(len(part) // 2), part.slice(0, len(part) // 2)]


@stage("adding up partial counts")
def sum_partials(
    source: Any,
    tokenizer: Tokenizer,
    *,
    read_options: ReadOptions | None = None,
    min_count: int = 1,
    memory: int = MEMORY,
) -> PretokenCounts:
    """The counts of a corpus from partial counts that `BatchCounter` made, added up by an engine or not.

    They equal those that `count` gives for the same documents. The corpus is not read.

    Args:
        source: A Parquet file, or a folder or glob of them, also behind a URL; an Arrow table, record batch or reader;
            a data frame that exports Arrow (pandas, Polars, DuckDB); or an iterable of Arrow tables. In any order:
            ``pretoken``, and a column of whole numbers with any name.
        tokenizer: The tokenizer that they were made with.
        read_options: The read options that they were made with.
        min_count: Leave out pretokens that occur less often in the complete corpus.
        memory: Bytes. Beyond it, rows are added up on disk.

    Raises:
        CountsError: Rows are missing or doubled, or were made for another pipeline.

    Examples:
        >>> import pyarrow.parquet as pq, pyarrow as pa
        >>> tok = tg.load("model")
        >>> pq.write_table(tg.distributed.BatchCounter(tok)(pa.table({"text": ["the cat"]})), "partial.parquet")
        >>> tg.distributed.sum_partials("partial.parquet", tok) == tg.count(tok, iter(["the cat"]))
        True
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("read_options", read_options, ReadOptions, NoneType)
    limits = CountOptions(min_count=min_count, memory=memory)
    min_count, read_options = limits.min_count, read_options or ReadOptions()
    with summed_partials(_tables(source), tokenizer, read_options, limits.memory) as (summary, counter):
        return replace(summary, table=counter.finish().take(EVERYTHING, min_count), min_count=min_count)


def sum_partials_to_file(
    source: Any, tokenizer: Tokenizer, out: Path, *, count_options: CountOptions, force: bool = False
) -> PretokenCounts:
    """Adds up partial counts into a Parquet file of counts in bounded memory. Returns its metadata."""
    memory, min_count = count_options.memory // 2, count_options.min_count
    with summed_partials(_tables(source), tokenizer, ReadOptions(), memory) as (summary, counter):
        summary = replace(summary, min_count=min_count)
        write_counts(finished_tables(counter, min_count), summary, out, force=force)
        return summary


def _tables(source: Any) -> "Iterator[pa.Table | pa.RecordBatch]":
    import pyarrow as pa

    if isinstance(source, str | os.PathLike):
        yield from _parquet_batches(os.fspath(source))
    elif hasattr(source, "__arrow_c_stream__"):
        yield from pa.RecordBatchReader.from_stream(source)
    elif isinstance(source, pa.RecordBatch):
        yield source
    elif isinstance(source, Iterable) and not isinstance(source, Mapping | bytes):
        for item in source:
            yield from _tables(item)
    else:
        raise CountsError(
            f"partial counts are Arrow tables or Parquet files; this is a {type(source).__name__}",
            hint="pass a path, or a table such as `pa.Table.from_pandas(frame, preserve_index=False)`",
        )


def _parquet_batches(name: str) -> "Iterator[pa.RecordBatch]":
    """The rows of Parquet files, without those that engines hide (`_temporary`, `.part.crc`)."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [
        file for file in files_at(name) if suffixes_of(file)[-1:] == [".parquet"] and not _is_hidden(file.name, name)
    ]
    if not files:
        raise CountsError(f"`{name}` has no Parquet file", hint="pass a file or folder that an engine has written")
    for file in files:
        with file.reporting(), file.open_parts() as raw:
            try:
                with pq.ParquetFile(raw) as parquet:
                    yield from parquet.iter_batches(ROWS_PER_BATCH)
            except pa.ArrowException as error:
                raise CountsError(f"`{file.name}` is not a Parquet file: {error}", hint="write it again") from error


def _is_hidden(path: str, given: str) -> bool:
    """Whether a path has a hidden folder or file that was not given by name."""
    named = set(PurePath(given).parts)
    return any(part.startswith(("_", ".")) and part not in named for part in PurePath(path).parts)
