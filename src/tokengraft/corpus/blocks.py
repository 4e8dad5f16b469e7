"""Reads inputs in blocks of a megabyte, by format, for the core.

A block is larger only if a document cannot be cut or a line is long. Blocks depend only on the input, so that the
result does not depend on threads. Only the core decides what the documents of a block are (`_core.documents`,
`_core.Counter.count`).
"""

import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from tokengraft import _core
from tokengraft.corpus.options import Format, ReadOptions
from tokengraft.errors import CorpusError, TokengraftError

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")
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
    """The counter that ``last`` belongs to: with it, the core reads and cuts files itself."""


@dataclass(frozen=True)
class Block:
    """A few megabytes of a corpus, in a form that the core reads."""

    form: Literal["text", "lines", "documents", "jsonl"]
    data: bytes | _core.Part
    source: str
    offsets: bytes = b""
    """For documents: the start of each, and the end of the last."""
    nulls: bytes = b""
    """For documents: the indices of those without text."""
    field: str = ""
    """For JSON lines: the field that has the text."""
    at_start: bool = True
    """For text: whether it is the start of a document."""
    whole: bool = False
    """For text: whether it is known to be a complete document."""
    first: int = 1
    """For lines and documents: the number of the first."""
    replaced: int = 0
    """Unpaired surrogates that were replaced in Python."""
    progress: int = 0
    """Bytes on disk that were read for this block."""

    def documents(self, *, skip_bad: bool) -> tuple[list[str], int, int]:
        """The documents in the block, the number of replaced byte sequences, and the number of skipped documents.

        Raises:
            CorpusError: A document cannot be read.
        """
        try:
            texts, replaced, skipped = _core.documents(self, skip_bad)
        except CorpusError as error:
            raise self.placed(error) from error
        return texts, replaced + self.replaced, skipped

    def placed(self, error: _Error) -> _Error:
        """An error of the core with the line or row number of the file instead of the block."""

        def in_file(place: re.Match[str]) -> str:
            return f"{place[1]} {int(place[2]) + self.first - 1:,}"

        message = re.sub(r"^(line|row) (\d+)", in_file, error.message)
        return type(error)(f"`{self.source}`, {message}", hint=error.hint)


def whole_documents(blocks: Iterable[Block], max_bytes: int) -> Iterator[Block]:
    """The blocks of an input, with a text of at most ``max_bytes`` bytes in one block that is marked as whole.

    The blocks of a text up to that size are joined. The blocks of a larger text are returned unchanged.
    """
    parts: list[Block] = []
    try:
        for block in blocks:
            parts.append(block)
            if block.form != "text" or sum(len(part.data) for part in parts) > max_bytes or not parts[0].at_start:
                yield from parts
                parts = []
    except CorpusError:
        yield from parts  # the blocks before the error are still counted
        raise
    if parts:
        text = b"".join(bytes(part.data) for part in parts)
        yield replace(parts[0], data=text, whole=True, progress=sum(part.progress for part in parts))


def file_blocks(
    path: Path, form: Format, compression: str | None, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a file."""
    read_options = replace(read_options, format=form)
    with reporting(str(path)), path.open("rb") as raw:
        stream: Any = raw
        if compression:
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression)
        elif path.is_file() and form != "parquet" and cut.enough is None and (cut.counter or _by_lines(read_options)):
            yield from _core_blocks(path, read_options, cut)
            return
        tell = raw.tell if raw.seekable() else None  # a pipe has no position
        yield from _stream_blocks(stream, str(path), tell, read_options, cut)


def standard_input_blocks(read_options: ReadOptions, cut: Cut) -> Iterator[Block]:
    """The blocks of standard input."""
    if sys.stdin is None:
        raise CorpusError("there is no standard input", hint="name files instead of -")
    with reporting("standard input"):
        with suppress(OSError, AttributeError):  # it need not be a file
            os.set_blocking(sys.stdin.fileno(), True)  # otherwise a pause would look like the end of the input
        yield from _stream_blocks(sys.stdin.buffer, "standard input", None, read_options, cut)


def _kind(read_options: ReadOptions) -> Literal["text", "lines", "jsonl"]:
    """The form of the blocks of a text file."""
    return "jsonl" if read_options.format == "jsonl" else "lines" if read_options.documents == "lines" else "text"


def _by_lines(read_options: ReadOptions) -> bool:
    return _kind(read_options) != "text"


def _core_blocks(path: Path, read_options: ReadOptions, cut: Cut) -> Iterator[Block]:
    """The same blocks as those of `_stream_blocks`, read by the core."""
    reader, kind = _core.FileReader(path, BLOCK), _kind(read_options)
    field = read_options.text_field if kind == "jsonl" else ""
    line, at_start, done = 1, True, 0
    while part := reader.next(cut.counter if kind == "text" else None, cut.longest):
        progress = reader.position - done
        yield Block(kind, part, str(path), field=field, at_start=at_start, first=line, progress=progress)
        line += part.newlines() if kind != "text" else 0
        at_start, done = False, reader.position
    if cut.longest is not None and reader.pending:
        raise too_long(str(path), reader.pending, cut.longest)


def _stream_blocks(
    stream: Any, name: str, tell: Callable[[], int] | None, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a stream of bytes, cut where it can be cut."""
    if read_options.format == "parquet":
        import pyarrow as pa

        yield from _parquet_blocks(pa.BufferReader(stream.read()), name, None, read_options)
        return
    kind = _kind(read_options)
    # A part of a JSON line cannot be read, so lines of JSON are always read completely.
    by_lines = Cut(lambda data: data.rfind(b"\n") + 1 or None, cut.longest, None if kind == "jsonl" else cut.enough)
    line, at_start, done = 1, True, 0
    for data in _cut_stream(stream, name, cut if kind == "text" else by_lines):
        position = tell() if tell else 0
        field = read_options.text_field if kind == "jsonl" else ""
        yield Block(kind, data, name, field=field, at_start=at_start, first=line, progress=position - done)
        line += data.count(b"\n") if kind != "text" else 0
        at_start, done = False, position


def _cut_stream(stream: Any, name: str, cut: Cut) -> Iterator[bytes]:
    """Parts of a stream that end at cuts. Data without a cut is collected until the next one.

    Raises:
        CorpusError: A part that cannot be cut needs more memory than allowed.
    """
    pending: list[bytes] = []
    first = True
    while data := _read(stream, BLOCK):
        if first:
            data, first = data.removeprefix(b"\xef\xbb\xbf"), False
        at = cut.last(data)
        if at:
            yield b"".join([*pending, data[:at]])
            pending = [data[at:]]
        else:
            pending.append(data)
        gathered = sum(map(len, pending))
        if cut.enough is not None and gathered > cut.enough + _MARGIN:
            yield _whole_characters(b"".join(pending)[: cut.enough + _MARGIN])
            return
        if cut.longest is not None and gathered > cut.longest:
            raise too_long(name, gathered, cut.longest)
    if any(pending):
        yield b"".join(pending)


def _read(stream: Any, size: int) -> bytes:
    """``size`` bytes of a stream; fewer only at its end.

    Uses single system calls, between which Python handles signals. Otherwise a signal could wait until more data
    arrives.
    """
    read = getattr(stream, "read1", stream.read)
    parts: list[bytes] = []
    while size and (data := bytes(read(size))):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


_MARGIN = 8
"""Bytes read beyond a limit, so that the text read exceeds it by at least a character."""


def _whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at its end.

    >>> _whole_characters("aõ".encode()[:2]), _whole_characters(b"a\\xff")
    (b'a', b'a\\xff')
    """
    for length in range(1, min(4, len(data) + 1)):
        lead = data[-length]
        if lead & 0xC0 != 0x80:
            size = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-length] if lead < 0xF5 and length < size else data
    return data


def too_long(name: str, size: int, longest: int) -> CorpusError:
    """The error of a text that cannot be cut and needs more memory than allowed."""
    return CorpusError(
        f"`{name}`: {size:,} bytes or more in one document or line that cannot be cut into parts; --memory allows "
        f"{longest:,} with this tokenizer",
        hint="raise --memory, or give the text as smaller documents, such as lines: --documents lines",
    )


def parquet_group_blocks(path: Path, group: int, size: int, read_options: ReadOptions, _: Cut) -> Iterator[Block]:
    """The blocks of a row group of a Parquet file. ``size`` is its share of the file, in bytes."""
    with reporting(str(path)):
        yield from _parquet_blocks(str(path), str(path), [group], read_options, size)


def _parquet_blocks(
    source: Any, name: str, groups: list[int] | None, read_options: ReadOptions, size: int = 0
) -> Iterator[Block]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        _require_column(read_options.text_field, file.schema_arrow.names, f"`{name}`")
        chosen = range(file.metadata.num_row_groups) if groups is None else groups
        rows = sum(file.metadata.row_group(g).num_rows for g in chosen)
        weight = sum(file.metadata.row_group(g).total_byte_size for g in chosen)
        batch = max(1, min(rows, rows * BLOCK // max(weight, 1)))
        row = 1 + sum(file.metadata.row_group(g).num_rows for g in range(min(chosen, default=0)))
        for rows_read in file.iter_batches(batch, row_groups=list(chosen), columns=[read_options.text_field]):
            yield _arrow_block(rows_read.column(0), name, row, size * len(rows_read) // max(rows, 1))
            row += len(rows_read)


def dataset_blocks(dataset: Any, read_options: ReadOptions) -> Iterator[Block]:
    """The rows of a `datasets` dataset, in memory or streamed."""
    row = 1
    with reporting("the dataset"):
        for table in dataset.with_format("arrow").iter(batch_size=512):
            _require_column(read_options.text_field, table.column_names, "the dataset")
            yield _arrow_block(table.column(read_options.text_field).combine_chunks(), "the dataset", row, 0)
            row += len(table)


def _require_column(column: str, names: list[str], source: str) -> None:
    if column not in names:
        raise CorpusError(
            f"{source} has no column `{column}`; it has {', '.join(f'`{name}`' for name in names)}",
            hint="name the column of the text: --text-field, or ReadOptions(text_field=...)",
        )


def _arrow_block(column: Any, name: str, first: int, progress: int) -> Block:
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    is_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if not any(test(kind) for test in (*is_text, *is_bytes)):
        raise CorpusError(
            f"the text of `{name}` is of type {column.type}, not string", hint="name the column: --text-field"
        )
    texts = column.cast(kind).cast(pa.large_binary())
    nulls = _words(pc.indices_nonzero(texts.is_null()).to_pylist()) if texts.null_count else b""
    data, offsets = binary_buffers(texts)
    return Block("documents", data, name, offsets=offsets, nulls=nulls, first=first, progress=progress)


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


def iterable_blocks(texts: Iterable[Any], read_options: ReadOptions) -> Iterator[Block]:
    """The blocks of an iterable of strings."""
    gathered: list[bytes] = []
    nulls: list[int] = []
    size = replaced = 0
    for number, text in enumerate(texts, 1):
        if isinstance(text, str):
            encoded, halves = _encoded(text)
            replaced += halves
        elif read_options.skip_bad:
            nulls.append(len(gathered))
            encoded = b""
        else:
            raise CorpusError(
                f"document {number:,} of the iterable is a {type(text).__name__}, not a string",
                hint="give strings, such as `(row['text'] for row in rows)`, or pass ReadOptions(skip_bad=True)",
            )
        gathered.append(encoded)
        size += len(encoded)
        if size >= BLOCK:
            yield _document_block(gathered, nulls, replaced)
            gathered, nulls, size, replaced = [], [], 0, 0
    if gathered:
        yield _document_block(gathered, nulls, replaced)


def _encoded(text: str) -> tuple[bytes, int]:
    """A string as UTF-8, and the number of unpaired surrogates that were replaced."""
    try:
        return text.encode(), 0
    except UnicodeEncodeError:
        whole, halves = _SURROGATE.subn("\ufffd", text)
        return whole.encode(), halves


def _document_block(documents: list[bytes], nulls: list[int], replaced: int) -> Block:
    offsets = _words(accumulate(map(len, documents), initial=0))
    data = b"".join(documents)
    return Block("documents", data, "the iterable", offsets=offsets, nulls=_words(nulls), replaced=replaced)


def _words(numbers: Iterable[int]) -> bytes:
    """Numbers as the core reads them: little-endian, 64 bits each."""
    words = array("Q", numbers)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()


@contextmanager
def reporting(name: str) -> Iterator[None]:
    """Converts errors of reading a file into a `CorpusError` with its name."""
    try:
        yield
    except _read_errors() as error:
        raise unreadable(name, error) from error


def _read_errors() -> tuple[type[Exception], ...]:
    """The errors of reading. Those of Arrow exist only if something has imported it, which takes 0.2 s."""
    arrow = sys.modules.get("pyarrow")
    # Another thread may be importing it: then it has no exceptions yet, and none has been raised.
    exception = getattr(arrow, "ArrowException", None)
    return (OSError, EOFError, UnicodeError, *([exception] if exception else []))


def unreadable(name: str, error: BaseException) -> CorpusError:
    """The error of a file that cannot be read."""
    reason = re.sub(r"\s+", " ", getattr(error, "strerror", None) or re.sub(r" \(os error \d+\)$", "", str(error)))
    return CorpusError(f"cannot read `{name}`: {reason}", hint="check the file, or pass --skip-bad to skip such files")
