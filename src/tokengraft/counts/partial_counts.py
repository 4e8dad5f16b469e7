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
from typing import TYPE_CHECKING

from tokengraft import _core
from tokengraft.corpus.block import binary_buffers
from tokengraft.corpus.options import Totals
from tokengraft.counts.pretoken_counts import ROWS, PretokenCounts
from tokengraft.counts.threads import CountJob, adding_counter
from tokengraft.errors import CountsError

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
_TOTALS = {RESERVED + field.name.encode(): field.name for field in fields(Totals)}


def partial_tables(tables: Iterable[_core.Counts], metadata: PretokenCounts) -> "Iterator[pa.Table]":
    """Counts as tables that any engine can add up: pretokens, and at the end pipeline, totals and added tokens.

    The columns are ``pretoken`` (bytes) and ``count`` (64 bits). Pretokens are those of ``tables``.
    """
    import pyarrow as pa

    schema = pa.schema([pa.field("pretoken", pa.large_binary(), False), pa.field("count", pa.int64(), False)])
    for table in tables:
        data, offsets, numbers = (pa.py_buffer(column) for column in table.columns())
        pretokens = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(table), [None, offsets, data])
        # A pipeline could make one: a normalizer that writes `ÿ` after a step that spells bytes. It would be the last.
        if len(pretokens) and (last := pretokens[-1].as_py()).startswith(RESERVED):
            raise CountsError(
                f"the pipeline makes a pretoken that is not UTF-8: {last[:20]!r}",
                hint="count on one machine: `tokengraft count`",
            )
        counts = pa.Int64Array.from_buffers(pa.int64(), len(table), [None, numbers])
        yield pa.Table.from_arrays([pretokens, counts], schema=schema)
    totals = asdict(metadata.totals)
    others = {
        **{key: totals[name] for key, name in _TOTALS.items() if totals[name]},
        **{ADDED + token.encode(): count for token, count in metadata.added.items() if count},
    }
    rows = {_pipeline(metadata): 1, CHECKSUM: sum(others.values()), **others}
    yield pa.table([pa.array(list(rows), pa.large_binary()), pa.array(list(rows.values()), pa.int64())], schema)


def _pipeline(counts: PretokenCounts) -> bytes:
    """The key of the pipeline."""
    decisive = json.dumps([counts.fingerprint.as_dict(), counts.normalize], sort_keys=True)
    return PIPELINE + sha256(decisive.encode()).hexdigest()[:32].encode()


@contextmanager
def summed_partials(
    tables: "Iterable[pa.Table | pa.RecordBatch]", job: CountJob
) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of all parts, with an empty table, and the counter with their sum, to be finished in the block."""
    import pyarrow as pa
    import pyarrow.compute as pc

    others, n_pretokens = dict[bytes, int](), 0
    with adding_counter(job.count_options.memory // 2) as counter:
        for table in tables:
            for keys, counts in _columns(table):
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


def _columns(table: "pa.Table | pa.RecordBatch") -> "Iterator[tuple[pa.LargeBinaryArray, pa.Int64Array]]":
    """Keys and counts of a table, in parts of at most `ROWS` rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise CountsError(
            f"partial counts are Arrow tables or record batches; one is a {type(table).__name__}",
            hint="convert it, such as `pa.Table.from_pandas(frame, preserve_index=False)`",
        )
    for batch in (table if isinstance(table, pa.Table) else pa.Table.from_batches([table])).to_batches(ROWS):
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
    ids = {ADDED + token.content.encode(): token.id for token in job.tokenizer.added}
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
