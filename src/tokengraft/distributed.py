"""Counting inside other engines (Spark, Dask, Hugging Face datasets, DuckDB): batches of text to partial counts.

`BatchCounter` runs in the workers of an engine, which adds up what it returns. `sum_partials` makes counts of the sum.

Partial counts are a table with two columns, `pretoken` and `count`. Totals, occurrences of added tokens and a hash of
the pipeline are rows too, under keys that begin with the byte 0xFF. UTF-8 never has that byte, and pretokens are pieces
of UTF-8. So ``GROUP BY pretoken``, ``SUM(count)`` adds up everything.
"""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

from tokengraft import _core
from tokengraft.corpus.block import Input, arrow_blocks, binary_buffers, in_parts, require_column, require_text
from tokengraft.corpus.files import is_hidden, suffixes_of
from tokengraft.corpus.open import files_at
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.counts.pretoken_counts import EVERYTHING, ROWS, PretokenCounts, arrow_table, write_counts
from tokengraft.counts.threads import (
    DEFAULT_MEMORY,
    CountJob,
    CountOptions,
    adding_counter,
    count_inputs,
    counter_of,
    finished_tables,
    new_counter,
)
from tokengraft.errors import CorpusError, CountsError, OptionError, require_type
from tokengraft.progress import stage
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    _Batch = TypeVar("_Batch", pa.RecordBatch, pa.Table)
else:
    _Batch = TypeVar("_Batch")

__all__ = ["BatchCounter", "sum_partials"]
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
        if column is not None:
            read_options = replace(read_options, text_field=column)
        self._job = CountJob.of(tokenizer, read_options, CountOptions(workers=1, memory=memory))
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

        # subtle: a process that was forked has a copy of the counters, some perhaps locked by a thread that it lacks
        idle = self._idle.setdefault(os.getpid(), [])
        try:  # to build a counter takes some time; another thread may take the last one
            counter = idle.pop()
        except IndexError:
            counter = counter_of(self._job)
        table = pa.concat_tables(self._counted(counter, [batch]))
        # Only now: after an error, a counter would keep what it has counted.
        idle.append(counter)
        return table if isinstance(batch, pa.Table) else table.combine_chunks().to_batches()[0]

    def count_batches(self, batches: "Iterable[pa.RecordBatch | pa.Table]") -> "Iterator[pa.RecordBatch]":
        """The partial counts of all batches together, in bounded memory: what ``mapInArrow`` of Spark needs."""
        with new_counter(self._job) as counter:
            for table in self._counted(counter, batches):
                yield from table.combine_chunks().to_batches()

    def _counted(self, counter: _core.Counter, batches: "Iterable[pa.RecordBatch | pa.Table]") -> "Iterator[pa.Table]":
        """The partial counts: tables of at most `ROWS_PER_BATCH` rows, with 32-bit offsets, which all engines read."""
        import pyarrow as pa

        columns = _text_columns(batches, self._job.read_options.text_field)
        totals = count_inputs(counter, self._job, [Input(_NAME, 0, lambda _: arrow_blocks(columns, _NAME))])
        metadata = self._job.metadata(totals, counter.added())
        schema = pa.schema([pa.field("pretoken", pa.binary(), False), pa.field("count", pa.int64(), False)])
        for table in partial_tables(finished_tables(counter, 1), metadata):
            waiting = [table.slice(start, ROWS_PER_BATCH) for start in range(0, len(table), ROWS_PER_BATCH)][::-1]
            while waiting:
                part = waiting.pop()
                if part.nbytes < _MOST_BYTES or len(part) < 2:
                    yield part.cast(schema)
                else:
                    waiting += [part.slice(len(part) // 2), part.slice(0, len(part) // 2)]


def _text_columns(batches: "Iterable[pa.RecordBatch | pa.Table]", column: str) -> "Iterator[pa.Array]":
    """The column of the text of all batches, in parts of a few megabytes."""
    import pyarrow as pa

    for batch in batches:
        if not isinstance(batch, pa.RecordBatch | pa.Table):
            raise OptionError(
                f"a batch is a {type(batch).__name__}",
                hint="pass Arrow record batches or tables, such as `pa.table(...)`",
            )
        try:
            require_column(column, batch.schema.names, _NAME)
            require_text(batch.schema.field(column).type, _NAME)
        except CorpusError as error:  # which could be skipped
            hint = "name the column of the text: BatchCounter(tokenizer, column)"
            raise OptionError(error.message, hint=hint) from error
        values = batch.column(column)
        yield from in_parts(values.chunks if isinstance(values, pa.ChunkedArray) else [values], _BYTES_PER_BLOCK)


@stage("adding up partial counts")
def sum_partials(
    source: Any,
    tokenizer: Tokenizer,
    *,
    read_options: ReadOptions | None = None,
    min_count: int = 1,
    memory: int = DEFAULT_MEMORY,
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
        memory: Bytes. Beyond half of it, rows are added up on disk.

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
    job = CountJob.of(tokenizer, read_options or ReadOptions(), CountOptions(min_count=min_count, memory=memory))
    with _summed(source, job) as (metadata, counter):
        return replace(metadata, table=counter.finish().take(EVERYTHING, metadata.min_count))


def sum_partials_to_file(
    source: Any, tokenizer: Tokenizer, out: Path, *, count_options: CountOptions, force: bool = False
) -> PretokenCounts:
    """Adds up partial counts into a Parquet file of counts in bounded memory. Returns its metadata."""
    with _summed(source, CountJob.of(tokenizer, ReadOptions(), count_options)) as (metadata, counter):
        write_counts(finished_tables(counter, metadata.min_count), metadata, out, force=force)
        return metadata


def _tables(source: Any) -> "Iterator[pa.RecordBatch]":
    """The rows of anything that `sum_partials` takes."""
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
        file
        for file in files_at(name)
        if suffixes_of(file)[-1:] == [".parquet"] and not is_hidden(file.name, name, marks="_.")
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


RESERVED = b"\xff"
"""The first byte of every key that is not a pretoken."""
ADDED = RESERVED + b"+"
"""Before an added token: its occurrences."""
PIPELINE = RESERVED + b"pipeline "
"""Before a hash of the pipeline: the number of parts that were counted with it."""
CHECKSUM = RESERVED + b"checksum"
"""The sum of all totals and occurrences of added tokens, so that a missing row is noticed."""
_TOTALS = {RESERVED + field.name.encode(): field.name for field in fields(Totals)}


def partial_tables(tables: Iterable[_core.Counts], metadata: PretokenCounts) -> "Iterator[pa.Table]":
    """Counts as tables that any engine can add up: pretokens, and at the end pipeline, totals and added tokens.

    The columns are ``pretoken`` (bytes) and ``count`` (64 bits). Pretokens are those of ``tables``.
    """
    import pyarrow as pa

    schema = pa.schema([pa.field("pretoken", pa.large_binary(), False), pa.field("count", pa.int64(), False)])
    for table in tables:
        rows = arrow_table(table, schema)
        # A pipeline could make one: a normalizer that writes `ÿ` after a step that spells bytes. It would be the last.
        if len(rows) and (last := rows[0][-1].as_py()).startswith(RESERVED):
            raise CountsError(
                f"the pipeline makes a pretoken that is not UTF-8: {last[:20]!r}",
                hint="count on one machine: `tokengraft count`",
            )
        yield rows
    totals = asdict(metadata.totals)
    others = {
        **{key: totals[name] for key, name in _TOTALS.items() if totals[name]},
        **{ADDED + token.encode(): count for token, count in metadata.added.items() if count},
    }
    keys = {_pipeline(metadata): 1, CHECKSUM: sum(others.values()), **others}
    yield pa.table([pa.array(list(keys), pa.large_binary()), pa.array(list(keys.values()), pa.int64())], schema)


def _pipeline(counts: PretokenCounts) -> bytes:
    """The key of the pipeline."""
    decisive = json.dumps([counts.fingerprint.as_dict(), counts.normalize], sort_keys=True)
    return PIPELINE + sha256(decisive.encode()).hexdigest()[:32].encode()


@contextmanager
def _summed(source: Any, job: CountJob) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of all parts, with an empty table, and the counter with their sum, to be finished in the block."""
    import pyarrow as pa
    import pyarrow.compute as pc

    others, n_pretokens = dict[bytes, int](), 0
    with adding_counter(job.count_options.memory // 2) as counter:
        for rows in _tables(source):
            for keys, counts in _columns(rows):
                reserved = pc.starts_with(keys, RESERVED)
                for key, count in zip(keys.filter(reserved), counts.filter(reserved), strict=True):
                    others[key.as_py()] = others.get(key.as_py(), 0) + count.as_py()
                pretokens = pc.invert(reserved)
                data, offsets = binary_buffers(keys.filter(pretokens))
                numbers = counts.filter(pretokens).cast(pa.uint64()).to_numpy()
                # Arrow's own sum wraps at 64 bits.
                n_pretokens += (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())
                if n_pretokens >= 2**63:
                    raise CountsError("the counts add up to more than 64 bits hold", hint="check what made the table")
                counter.add(_core.Counts(data, offsets, numbers.astype("<u8").tobytes()))
        yield _metadata(job, others, n_pretokens), counter


_COMPLETE = "pass all rows of all parts, or their sums by pretoken, and no others"


def _columns(rows: "pa.RecordBatch") -> "Iterator[tuple[pa.LargeBinaryArray, pa.Int64Array]]":
    """Keys and counts of partial counts, in parts of at most `ROWS` rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in pa.Table.from_batches([rows]).to_batches(ROWS):
        names = batch.schema.names
        if len(names) != 2 or "pretoken" not in names:
            raise CountsError(f"the table has the columns {names}", hint="pass `pretoken` and one column of counts")
        at = names.index("pretoken")
        keys, counts = batch.column(at), batch.column(1 - at)
        is_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
        # DuckDB adds up to decimals without places.
        is_whole = pa.types.is_integer(counts.type) or (pa.types.is_decimal(counts.type) and counts.type.scale == 0)
        if not any(test(keys.type) for test in is_bytes) or not is_whole:
            raise CountsError(
                f"the columns are of the types {keys.type} and {counts.type}", hint="pass bytes and whole numbers"
            )
        if keys.null_count or counts.null_count:
            raise CountsError("the table has rows without a pretoken or count", hint=_COMPLETE)
        try:
            whole = counts.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise CountsError(f"a count is out of range: {error}", hint="check what made the table") from error
        if len(whole) and pc.min(whole).as_py() < 0:
            raise CountsError(f"a count is negative: {pc.min(whole)}", hint="check what made the table")
        yield keys.cast(pa.large_binary()), whole


def _metadata(job: CountJob, others: dict[bytes, int], n_pretokens: int) -> PretokenCounts:
    """The metadata of all parts, from the sums of the rows that are not pretokens. Refuses rows that do not add up."""
    ids = {ADDED + content.encode(): token_id for token_id, content in job.added.items()}
    totals = {name: others[key] for key, name in _TOTALS.items() if key in others}
    added = {ids[key]: count for key, count in others.items() if key in ids}
    metadata = job.metadata(Totals(**totals), added.items())
    pipeline, wrong = _pipeline(metadata), ""
    known = {*_TOTALS, *ids, pipeline, CHECKSUM}
    unknown = next((key for key in others if key not in known), b"")
    if unknown.startswith(PIPELINE):
        raise CountsError(
            "the partial counts were made for another pipeline",
            hint="pass the tokenizer that they were counted with; for partial counts with other read options than the "
            "default, call `tg.distributed.sum_partials(..., read_options=...)`",
        )
    if unknown:
        raise CountsError(
            f"the table has a key that partial counts do not have: {unknown[:40]!r}",
            hint="make the table with BatchCounter",
        )
    if (others or n_pretokens) and not others.get(pipeline):
        wrong = "the table has no row for its pipeline: rows are missing"
    elif sum(totals.values()) + sum(added.values()) != others.get(CHECKSUM, 0):
        wrong = "the totals and added tokens are not complete: rows are missing or doubled"
    elif metadata.totals.pretokens != n_pretokens:
        wrong = f"the counts add up to {n_pretokens:,} pretokens, and the text had {metadata.totals.pretokens:,}: "
        wrong += "rows are missing or doubled"
    if wrong:
        raise CountsError(wrong, hint=_COMPLETE)
    return metadata
