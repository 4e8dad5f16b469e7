"""`Input`: a part of a corpus. `Block`: a part of an input, for the core. `Cut`: where text may be cut into blocks.

Arrow columns of text as blocks of documents: Parquet files, datasets, record batches.
"""

import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tokengraft import _core
from tokengraft.corpus.files import CorpusFile, refuse_binary, reporting
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import CorpusError, TokengraftError, option

if TYPE_CHECKING:
    import pyarrow as pa


_Error = TypeVar("_Error", bound=TokengraftError)


@dataclass(frozen=True)
class Cut:
    """Where a stream may be cut into blocks, and how many bytes may be read without a cut."""

    last: Callable[[bytes], int | None]
    """The last position in a byte string where a document may be cut, if there is one: `Counter.last_cut`."""
    longest: int | None = None
    """Bytes. More text without a cut needs more memory than allowed, and is refused."""
    enough: int | None = None
    """Bytes of text that are needed. No more are read of a document that cannot be cut."""
    counter: _core.Counter | None = None
    """The counter that ``last`` belongs to."""


@dataclass(frozen=True)
class Block:
    """A few megabytes of a corpus, in a form that the core reads."""

    form: Literal["text", "lines", "documents", "jsonl"]
    data: bytes
    name: str
    """That of the input."""
    offsets: bytes = b""
    """For documents: the start of each, and the end of the last. For text: those of the pieces that may be held out."""
    nulls: bytes = b""
    """For documents: the indices of those without text."""
    field: str = ""
    """For JSON lines: the field that has the text."""
    at_start: bool = True
    """For text: whether it is the start of a document."""
    first: int = 1
    """For lines and documents: the number of the first."""
    start: int = 0
    """For lines of a part of a file: the byte from which on they are numbered."""
    replaced: int = 0
    """Unpaired surrogates that were replaced in Python."""
    progress: int = 0
    """Bytes on disk that were read for this block."""

    def documents(self, *, skip_bad: bool) -> tuple[list[str], int, int]:
        """The documents in the block, the number of replaced byte sequences, and the number of skipped documents."""
        try:
            texts, replaced, skipped = _core.documents(self, skip_bad)
        except CorpusError as error:
            raise self.placed(error) from error
        return texts, replaced + self.replaced, skipped

    def placed(self, error: _Error) -> _Error:
        """An error of the core with the line or row number of the file instead of the block."""

        def in_file(place: re.Match[str]) -> str:
            number = f"{place[1]} {int(place[2]) + self.first - 1:,}"
            return f"{number} after byte {self.start:,}" if self.start else number

        message = re.sub(r"^(line|row) (\d+)", in_file, error.message)
        return type(error)(f"`{self.name}`, {message}", hint=error.hint)


@dataclass(frozen=True)
class FileRange:
    """A part of a file of lines. All positions are in bytes."""

    file: CorpusFile
    form: Literal["lines", "jsonl"]
    field: str
    start: int
    """A multiple of ``block``."""
    end: int
    """A multiple of ``block``, or the size of the file."""
    block: int
    as_given: bool
    """Whether the format was given, so that bytes are text whatever they are."""
    first_line: int | None = None
    """The number of its first line in the file, for errors: see `numbered`. If unknown, they have the byte instead."""


@dataclass(frozen=True)
class Input:
    """A file, a part of a file, standard input, or a Python object. Those of files can be pickled."""

    name: str
    size: int
    """Bytes on disk; 0 if unknown."""
    blocks: Callable[[Cut], Iterator[Block]]
    file: CorpusFile | None = None
    part: FileRange | None = None
    """If it is a part of a file."""


ROWS_PER_PART = 1 << 16


def parquet_blocks(
    file: Any,
    name: str,
    read_options: ReadOptions,
    block_bytes: int,
    *,
    groups: list[int] | None = None,
    size: int = 0,
) -> Iterator[Block]:
    """The blocks of a Parquet file, or of some of its row groups, which have ``size`` bytes on disk.

    Only the column of the text is read.
    """
    import pyarrow.parquet as pq

    column = read_options.text_field
    with pq.ParquetFile(file) as opened:
        metadata = opened.metadata
        require_column(column, opened.schema_arrow.names, f"`{name}`")
    numbers = [*range(metadata.num_row_groups)] if groups is None else groups
    chosen = [metadata.row_group(number) for number in numbers]
    # Rows that are places in a dictionary may need many times the memory of the file. Reading all columns so takes
    # half as long again.
    dictionary = [column] if any(_repeats(group, column) for group in chosen) else None
    with pq.ParquetFile(file, metadata=metadata, pre_buffer=True, read_dictionary=dictionary) as parquet:
        rows = sum(group.num_rows for group in chosen)
        weight = sum(group.total_byte_size for group in chosen)
        batch = max(1, min(rows, rows * block_bytes // max(weight, 1)))
        first = 1 + sum(metadata.row_group(number).num_rows for number in range(min(numbers, default=0)))
        batches = parquet.iter_batches(batch, row_groups=numbers, columns=[column])
        columns = (part for rows_read in batches for part in _expandable(rows_read.column(0), block_bytes))
        yield from arrow_blocks(columns, name, first=first, bytes_per_row=Fraction(size, max(rows, 1)))


def _repeats(group: Any, name: str) -> bool:
    """Whether the rows of a column are places in a dictionary: they have a few bytes each, beside the dictionary."""
    columns = (group.column(at) for at in range(group.num_columns))
    column = next((column for column in columns if column.path_in_schema == name), None)
    if column is None or not column.has_dictionary_page:
        return False
    dictionary = max(column.data_page_offset - column.dictionary_page_offset, 0)
    return bool(column.total_compressed_size - dictionary < 16 * max(group.num_rows, 1))


def _expandable(column: "pa.Array", block_bytes: int) -> "Iterator[pa.Array]":
    """The column; in parts of about ``block_bytes`` if its values are in a dictionary and have many times as many."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type) or not len(column):
        yield column
        return
    lengths = pc.fill_null(pc.binary_length(column.dictionary).take(column.indices), 0)
    ends = np.cumsum(lengths.to_numpy(zero_copy_only=False).astype(np.int64))
    if ends[-1] <= 8 * block_bytes:
        yield column
        return
    cuts = 1 + np.flatnonzero(np.diff(ends // block_bytes))
    for start, end in pairwise([0, *cuts.tolist(), len(column)]):
        yield column.slice(start, end - start)


def dataset_blocks(dataset: Any, read_options: ReadOptions) -> Iterator[Block]:
    """The rows of a `datasets` dataset, in memory or streamed."""

    def columns() -> "Iterator[pa.Array]":
        for table in dataset.with_format("arrow").iter(batch_size=512):
            require_column(read_options.text_field, table.column_names, "the dataset")
            yield table.column(read_options.text_field).combine_chunks()

    with reporting("the dataset"):
        yield from arrow_blocks(columns(), "the dataset")


def is_arrow(value: Any) -> bool:
    """Whether a value exports Arrow data: columns and tables of pyarrow, pandas, polars, DuckDB and others."""
    return hasattr(value, "__arrow_c_stream__") or hasattr(value, "__arrow_c_array__")


def column_blocks(value: Any, block_bytes: int) -> Iterator[Block]:
    """The rows of something that exports Arrow data, in blocks of about ``block_bytes`` bytes."""
    name = f"the {type(value).__name__}"
    with reporting(name):
        yield from arrow_blocks(in_parts(_chunks(value), block_bytes), name)


def _chunks(value: Any) -> "Iterable[pa.Array]":
    """The chunks of a column, or of the only column of a table, which may be a stream."""
    import pyarrow as pa

    try:
        if not hasattr(value, "__arrow_c_stream__"):
            return [pa.array(value)]
        try:
            reader = pa.RecordBatchReader.from_stream(value)
        except (pa.ArrowException, TypeError):  # a column, not a table
            return [*pa.chunked_array(value).chunks]
    except (pa.ArrowException, TypeError) as error:
        raise CorpusError(
            f"the {type(value).__name__} is not a column of text: {error}", hint="give a column of strings"
        ) from error
    if len(reader.schema.names) != 1:
        raise several_columns(type(value).__name__, reader.schema.names)
    return (batch.column(0) for batch in reader)


def in_parts(chunks: "Iterable[pa.Array]", block_bytes: int) -> "Iterator[pa.Array]":
    """Arrow arrays in slices of about so many bytes, and at most `ROWS_PER_PART` rows."""
    for chunk in chunks:
        step = max(1, min(ROWS_PER_PART, len(chunk) * block_bytes // max(chunk.nbytes, 1)))
        for start in range(0, len(chunk), step):
            yield chunk.slice(start, step)


def several_columns(kind: str, names: list[str]) -> CorpusError:
    """The error of a table that is given in place of its column of text."""
    shown = ", ".join(f"`{name}`" for name in names[:20]) + (", …" if len(names) > 20 else "")
    text = next((name for name in names if name in ("text", "content")), names[0] if names else "text")
    return CorpusError(
        f"a {kind} has {len(names):,} columns ({shown}), and only one of them can be the text",
        hint=f"pass the column itself, such as table[{text!r}]",
    )


def require_column(column: str, names: list[str], table: str) -> None:
    """Refuses a table without the column of the text, or with two of that name."""
    if names.count(column) > 1:
        raise CorpusError(f"{table} has {names.count(column)} columns `{column}`", hint="rename all but one of them")
    if column not in names:
        raise CorpusError(
            f"{table} has no column `{column}`; it has {', '.join(f'`{name}`' for name in names)}",
            hint=f"name the column of the text: {option('text_field')}",
        )


def arrow_blocks(
    columns: "Iterable[pa.Array]", name: str, *, first: int = 1, bytes_per_row: Fraction | None = None
) -> Iterator[Block]:
    """Arrow arrays of text, each as a block of documents. If they have bytes, the first of these must be text.

    ``first`` is the number of the first row, and ``bytes_per_row`` those on disk; by default those of the text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    row = first
    for column in columns:
        kind = require_text(column.type, name)
        if pa.types.is_dictionary(column.type):  # first its values: those of all rows may need 64-bit offsets
            values = column.dictionary.cast(kind).cast(pa.large_binary())
            texts = pa.DictionaryArray.from_arrays(column.indices, values).cast(pa.large_binary())
        else:
            texts = column.cast(kind).cast(pa.large_binary())
        nulls = words(pc.indices_nonzero(texts.is_null()).to_pylist()) if texts.null_count else b""
        data, offsets = binary_buffers(texts)
        if row == first and "binary" in str(kind):
            refuse_binary(name, data)
        progress = len(data) if bytes_per_row is None else int(bytes_per_row * len(texts))
        yield Block("documents", data, name, offsets=offsets, nulls=nulls, first=row, progress=progress)
        row += len(texts)


def require_text(kind: "pa.DataType", name: str) -> "pa.DataType":
    """The type of a column of text, or of its values if they are in a dictionary."""
    import pyarrow as pa

    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    is_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if not any(test(value) for test in (*is_text, *is_bytes)):
        raise CorpusError(
            f"the text of `{name}` is of type {kind}, not string", hint=f"name the column: {option('text_field')}"
        )
    return value


def binary_buffers(array: "pa.LargeBinaryArray") -> tuple[bytes, bytes]:
    """The bytes of an Arrow array of strings, which may be a slice, and the offsets into them, from 0 on."""
    import numpy as np

    _, offsets, data = array.buffers()
    if not len(array) or not offsets:
        return b"", bytes(8)
    places = np.frombuffer(offsets, np.int64, len(array) + 1, 8 * array.offset)
    first, last = int(places[0]), int(places[-1])
    text = data.slice(first, last - first).to_pybytes() if data else b""
    return text, (places - first).astype("<u8").tobytes()


def words(numbers: Iterable[int]) -> bytes:
    """Numbers as the core reads them: little-endian, 64 bits each."""
    words = array("Q", numbers)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
