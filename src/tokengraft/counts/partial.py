"""Partial counts: the counts of a part of a corpus as a table that any engine can add up.

The table has two columns, `pretoken` and `count`. Totals, occurrences of added tokens and a hash of the pipeline are
rows too, under keys that begin with the byte 0xFF. UTF-8 never has that byte, and pretokens are pieces of UTF-8. So
``GROUP BY pretoken``, ``SUM(count)`` adds up everything, and `sum_partials` makes counts of the result.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from tokengraft import _core
from tokengraft.corpus.block import binary_buffers
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.counts.pretoken_counts import NO_ROWS, ROWS, PretokenCounts
from tokengraft.errors import CountsError
from tokengraft.output.partial import temporary_folder
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

RESERVED = b"\xff"
"""The first byte of every key that is not a pretoken."""
ADDED = RESERVED + b"+"
"""Before an added token: its occurrences."""
PIPELINE = RESERVED + b"pipeline "
"""Before a hash of the pipeline: the number of parts that were counted with it."""
CHECKSUM = RESERVED + b"checksum"
"""The sum of all totals and occurrences of added tokens, so that a missing row is noticed."""
MEMORY = 2 << 30
_TOTALS = {RESERVED + field.name.encode(): field.name for field in fields(Totals)}
_EMPTY_PIPELINE = json.dumps(
    {"version": "1.0", "added_tokens": [], "model": {"type": "BPE", "vocab": {}, "merges": []}}
)


def partial_schema() -> "pa.Schema":
    """The columns of partial counts: ``pretoken`` (bytes) and ``count`` (64 bits)."""
    import pyarrow as pa

    return pa.schema([pa.field("pretoken", pa.large_binary(), False), pa.field("count", pa.int64(), False)])


def partial_table(counts: PretokenCounts) -> "pa.Table":
    """Counts as a table that any engine can add up, totals and added tokens included.

    Examples:
        >>> from tokengraft.counts.partial import partial_table
        >>> tok = tg.load("model")
        >>> tables = [partial_table(tg.count(tok, name)) for name in ("et.txt", "en.txt")]
        >>> tg.distributed.sum_partials(tables, tok) == tg.count(tok, ["et.txt", "en.txt"])
        True
    """
    import pyarrow as pa

    counts.require_unchanged()
    return pa.concat_tables([pretoken_rows(counts.table), other_rows(counts)])


def pretoken_rows(table: _core.Counts) -> "pa.Table":
    """Pretokens and their counts as partial counts. The others are in `other_rows`."""
    import pyarrow as pa

    data, offsets, numbers = (pa.py_buffer(column) for column in table.columns())
    pretokens = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(table), [None, offsets, data])
    # A pipeline could make one: a normalizer that writes `ÿ` after a step that spells bytes. It would be the last.
    if len(pretokens) and (last := pretokens[-1].as_py()).startswith(RESERVED):
        raise CountsError(
            f"the pipeline makes a pretoken that is not UTF-8: {last[:20]!r}",
            hint="count on one machine: `tokengraft count`",
        )
    counts = pa.Int64Array.from_buffers(pa.int64(), len(table), [None, numbers])
    return pa.Table.from_arrays([pretokens, counts], schema=partial_schema())


def other_rows(counts: PretokenCounts) -> "pa.Table":
    """Pipeline, totals and added tokens of counts as partial counts."""
    import pyarrow as pa

    totals = asdict(counts.totals)
    numbers = {
        **{key: totals[name] for key, name in _TOTALS.items() if totals[name]},
        **{ADDED + token.encode(): count for token, count in counts.added.items() if count},
    }
    rows = {
        PIPELINE + _pipeline_hash(counts.fingerprint, counts.normalize): 1,
        CHECKSUM: sum(numbers.values()),
        **numbers,
    }
    return pa.table(
        [pa.array(list(rows), pa.large_binary()), pa.array(list(rows.values()), pa.int64())], partial_schema()
    )


def _pipeline_hash(fingerprint: Fingerprint, normalize: str | None) -> bytes:
    decisive = json.dumps([fingerprint.as_dict(), normalize], sort_keys=True)
    return sha256(decisive.encode()).hexdigest()[:32].encode()


@contextmanager
def summed_partials(
    tables: "Iterable[pa.Table | pa.RecordBatch]", tokenizer: Tokenizer, read_options: ReadOptions, memory: int = MEMORY
) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of all parts, with an empty table, and the counter with their sum, to be finished in the block."""
    fingerprint = Fingerprint.of(tokenizer, read_options.rules)
    with adding_counter(memory) as counter:
        sums = _Sums()
        for table in tables:
            for batch in _small_batches(table):
                counter.add(sums.pretokens(batch))
        names = {ADDED + token.content.encode(): token.content for token in tokenizer.added}
        totals, added = sums.finished(PIPELINE + _pipeline_hash(fingerprint, read_options.normalize), names)
        yield PretokenCounts(NO_ROWS, totals, added, fingerprint, normalize=read_options.normalize), counter


def finished_tables(counter: _core.Counter, min_count: int, most: int | None = None) -> Iterator[_core.Counts]:
    """The counts of a counter in order, in tables of ``most`` rows. It is empty afterwards.

    By default it is one table, or several if they were written to disk.
    """
    rows = counter.finish()
    while len(table := rows.take(most, min_count)):
        yield table


@contextmanager
def adding_counter(memory: int) -> Iterator[_core.Counter]:
    """A counter that only adds up counts, on disk beyond so many bytes of memory."""
    with temporary_folder() as folder:
        yield _core.Counter(
            _EMPTY_PIPELINE,
            byte_level=True,
            cutter=None,
            spill_folder=str(folder),
            # A table doubles before it is written to disk, and meanwhile the old one still exists.
            bytes_per_table=memory // 3,
            document_memory=0,
            hold_out=None,
        )


class _Sums:
    """The sums of all rows that are not pretokens, and the number of pretokens."""

    def __init__(self) -> None:
        self.others: dict[bytes, int] = {}
        self.n_pretokens = 0

    def pretokens(self, batch: "pa.RecordBatch") -> _core.Counts:
        """The rows of a batch that are pretokens. The others are added to the sums."""
        import pyarrow as pa
        import pyarrow.compute as pc

        keys, counts = _columns(batch)
        reserved = pc.starts_with(keys, RESERVED)
        if reserved.true_count:
            for key, count in zip(keys.filter(reserved), counts.filter(reserved), strict=True):
                self.others[key.as_py()] = self.others.get(key.as_py(), 0) + count.as_py()
            kept = pc.invert(reserved)
            keys, counts = keys.filter(kept), counts.filter(kept)
        self.n_pretokens += _exact_sum(counts)
        if self.n_pretokens >= 2**63:
            raise CountsError("the counts add up to more than 64 bits hold", hint="check what made the table")
        data, offsets = binary_buffers(keys)
        return _core.Counts(data, offsets, counts.cast(pa.uint64()).to_numpy().astype("<u8").tobytes())

    def finished(self, pipeline: bytes, names: dict[bytes, str]) -> tuple[Totals, FrozenDict[str, int]]:
        """The totals and added tokens of all parts, from the keys of the pipeline and of its added tokens."""
        totals, added = {}, {}
        for key, count in self.others.items():
            if key in _TOTALS:
                totals[_TOTALS[key]] = count
            elif key in names:
                added[names[key]] = count
            elif key not in (pipeline, CHECKSUM):
                raise _unknown(key)
        n_pretokens, wrong = totals.get("pretokens", 0), ""
        if (self.others or self.n_pretokens) and not self.others.get(pipeline):
            wrong = "the table has no row for its pipeline: rows are missing"
        elif sum(totals.values()) + sum(added.values()) != self.others.get(CHECKSUM, 0):
            wrong = "the totals and added tokens are not complete: rows are missing or doubled"
        elif n_pretokens != self.n_pretokens:
            wrong = f"the counts add up to {self.n_pretokens:,} pretokens, and the text had {n_pretokens:,}: rows are "
            wrong += "missing or doubled"
        if wrong:
            raise CountsError(wrong, hint=_COMPLETE)
        return Totals(**totals), FrozenDict(dict(sorted(added.items())))


_COMPLETE = "pass all rows of all parts, or their sums by pretoken, and no others"


def _small_batches(table: "pa.Table | pa.RecordBatch") -> "Iterator[pa.RecordBatch]":
    import pyarrow as pa

    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise CountsError(
            f"partial counts are Arrow tables or record batches; one is a {type(table).__name__}",
            hint="convert it, such as `pa.Table.from_pandas(frame, preserve_index=False)`",
        )
    yield from (table if isinstance(table, pa.Table) else pa.Table.from_batches([table])).to_batches(ROWS)


def _unknown(key: bytes) -> CountsError:
    if key.startswith(PIPELINE):
        return CountsError(
            "the partial counts were made for another pipeline",
            hint="pass the tokenizer that they were counted with; for partial counts with other read options than the "
            "default, call `tg.distributed.sum_partials(..., read_options=...)`",
        )
    return CountsError(
        f"the table has a key that partial counts do not have: {key[:40]!r}", hint="make the table with BatchCounter"
    )


def _columns(batch: "pa.RecordBatch") -> "tuple[pa.LargeBinaryArray, pa.Int64Array]":
    """Keys and counts of a batch."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    return keys.cast(pa.large_binary()), whole


def _exact_sum(counts: "pa.Int64Array") -> int:
    """The sum, whatever its size: Arrow's own wraps at 64 bits."""
    numbers: Any = counts.to_numpy()
    return (int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())
