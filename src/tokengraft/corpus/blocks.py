"""Reads inputs in blocks of a megabyte, by format, for the core.

A block is larger only if a document cannot be cut or a line is long. Blocks depend only on the input, so that the
result does not depend on threads. Only the core decides what the documents of a block are (`_core.documents`,
`_core.Counter.count`).

A large file of lines has parts, each an input of its own, so that several processes can read one file. A part has the
same blocks as the whole file has there: it begins and ends at the last line end before a multiple of the size of a
block. So all parts together are read exactly as the file is.
"""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any, Literal

from tokengraft import _core
from tokengraft.corpus.block import Block, Cut, Input, parquet_blocks, words
from tokengraft.corpus.files import HEAD, CorpusFile, reporting, require_utf8
from tokengraft.corpus.options import Format, ReadOptions
from tokengraft.errors import CorpusError

BLOCK = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")


def in_pieces(blocks: Iterable[Block], counter: _core.Counter) -> Iterator[Block]:
    """The blocks of an input, with those of a text cut where its pieces end that may be held out.

    The pieces are those of the whole text, however it is read. What was read of a piece before an error is counted.
    """
    rest, last = b"", None  # what is read of a piece, and the block of it, without its text
    try:
        for block in blocks:
            if block.form != "text":
                yield block
                continue
            rest += block.data
            last = replace(last, progress=last.progress + block.progress) if last else replace(block, data=b"")
            if ends := counter.piece_ends(rest):
                yield replace(last, data=rest[: ends[-1]], offsets=words([0, *ends]))
                rest, last = rest[ends[-1] :], replace(last, at_start=False, progress=0)
    except CorpusError:
        if last and rest:
            yield replace(last, data=rest)
        raise
    if last and rest:
        yield replace(last, data=rest, offsets=words([0, len(rest)]))


def file_blocks(
    file: CorpusFile, form: Format, compression: str | None, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a file. Its format is text or JSON lines, or it is a compressed or piped Parquet file."""
    read_options = replace(read_options, format=form)
    with file.reporting(), file.open() as raw:
        stream: Any = raw
        if compression:
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression)
        tell = raw.tell if raw.seekable() else None  # a pipe has no position
        yield from _stream_blocks(stream, file.name, tell, read_options, cut)


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


def _stream_blocks(
    stream: Any, name: str, tell: Callable[[], int] | None, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a stream of bytes, cut where it can be cut."""
    if read_options.format == "parquet":
        import pyarrow as pa

        yield from parquet_blocks(pa.BufferReader(stream.read()), name, read_options, BLOCK)
        return
    kind = _kind(read_options)
    field = read_options.text_field if kind == "jsonl" else ""
    # A part of a JSON line cannot be read, so lines of JSON are always read completely.
    enough = None if kind == "jsonl" else cut.enough
    by_lines = Cut(lambda data: data.rfind(b"\n") + 1 or None, cut.longest, enough, cut.counter)
    line, at_start, done = 1, True, 0
    for data in _cut_stream(stream, name, cut if kind == "text" else by_lines):
        position = tell() if tell else 0
        yield Block(kind, data, name, field=field, at_start=at_start, first=line, progress=position - done)
        line += data.count(b"\n") if kind != "text" else 0
        at_start, done = False, position


def _cut_stream(stream: Any, name: str, cut: Cut) -> Iterator[bytes]:
    """Parts of a stream that end at cuts. Data without a cut is collected until the next one."""
    pending: list[bytes] = []
    first = True
    while data := read_fully(stream, BLOCK):
        if first:
            require_utf8(name, data)
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
            raise too_long(name, gathered, cut)
    if any(pending):
        yield b"".join(pending)


def read_fully(stream: Any, size: int) -> bytes:
    """``size`` bytes of a stream; fewer only at its end."""
    # Single system calls, between which Python handles signals. Otherwise a signal could wait for more data.
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


def too_long(name: str, size: int, cut: Cut) -> CorpusError:
    """The error of a text that cannot be cut and needs more memory than allowed."""
    found = f"`{name}`: {size:,} bytes or more in one document or line that cannot be cut into parts"
    if cut.counter:
        return CorpusError(
            f"{found}; --memory allows {cut.longest:,} with this tokenizer",
            hint="raise --memory, or give the text as smaller documents, such as lines: --documents lines",
        )
    return CorpusError(
        f"{found}; documents that are compared have at most {cut.longest:,}",
        hint="give the text as smaller documents, such as lines: --documents lines; or count it (`tokengraft count`) "
        "and pass the counts",
    )


def parquet_group_blocks(
    file: CorpusFile, groups: range, size: int, read_options: ReadOptions, _: Cut
) -> Iterator[Block]:
    """The blocks of some row groups of a Parquet file. ``size`` is their share of the file, in bytes."""
    with file.reporting(), file.open_parts() as raw:
        yield from parquet_blocks(raw, file.name, read_options, BLOCK, groups=[*groups], size=size)


def iterable_blocks(texts: Iterable[Any], read_options: ReadOptions) -> Iterator[Block]:
    """The blocks of an iterable of strings."""
    gathered: list[bytes] = []
    nulls: list[int] = []
    size = replaced = number = 0

    def block() -> Block:
        offsets, data = words(accumulate(map(len, gathered), initial=0)), b"".join(gathered)
        return Block("documents", data, "the iterable", offsets, words(nulls), replaced=replaced, progress=size)

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
            yield block()
            gathered, nulls, size, replaced = [], [], 0, 0
    if gathered:
        yield block()
    elif not number and isinstance(texts, Iterator):
        raise CorpusError(
            f"the {type(texts).__name__} gave no document: it is empty, or was used up before",
            hint="make a new one for every use, or pass a list",
        )


def _encoded(text: str) -> tuple[bytes, int]:
    """A string as UTF-8, and the number of unpaired surrogates that were replaced."""
    try:
        return text.encode(), 0
    except UnicodeEncodeError:
        whole, halves = _SURROGATE.subn("\ufffd", text)
        return whole.encode(), halves


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
    first_line: int | None = None
    """The number of its first line in the file, for errors: see `numbered`. If unknown, they have the byte instead."""


@dataclass(frozen=True)
class RangeInput(Input):
    """An input that is a part of a file."""

    part: FileRange = field(kw_only=True)

    @classmethod
    def of(cls, part: FileRange) -> "RangeInput":
        """The input of a part."""
        return cls(part.file.name, part.end - part.start, partial(range_blocks, part), part.file, part=part)

    def numbered(self) -> "RangeInput":
        """The same with the right line numbers in errors. Reads the file up to the part."""
        return self.of(replace(self.part, first_line=_first_line(self.part)))


def split_input(source: Input, size: int, *, block: int = BLOCK) -> list[Input]:
    """The parts of a file of lines, of about ``size`` bytes each. Inputs that cannot be cut are returned unchanged.

    Compressed files can only be read from the start, and text files that are one document have no lines.
    """
    if source.size <= max(size, block) or not isinstance(source.blocks, partial) or source.blocks.func != file_blocks:
        return [source]
    file, form, compression, read_options = source.blocks.args
    one_document = form == "text" and read_options.documents != "lines"
    if compression or form == "parquet" or one_document or not file.is_regular:
        return [source]
    step = -(-size // block) * block
    kind: Literal["lines", "jsonl"] = "jsonl" if form == "jsonl" else "lines"
    name = read_options.text_field if form == "jsonl" else ""
    starts = range(0, source.size, step)
    return [
        RangeInput.of(FileRange(file, kind, name, start, min(start + step, source.size), block)) for start in starts
    ]


def range_blocks(part: FileRange, cut: Cut) -> Iterator[Block]:
    """The blocks of a part of a file."""
    name = part.file.name
    with part.file.reporting():
        if (size := part.file.size_now()) != part.file.size:
            raise CorpusError(
                f"`{name}` changed while it was read: it had {part.file.size:,} bytes and now has {size:,}",
                hint="count again when the file is complete",
            )
        require_utf8(name, part.file.read_at(0, HEAD))
        begin = _line_start(part.file, part.start, part.block, cut.longest)
    if begin is None:
        return  # the line began in an earlier part, which reports that it is too long
    with part.file.reporting(), part.file.open_at(begin) as stream:
        line, pending, position = part.first_line or 1, list[bytes](), begin
        start = 0 if part.first_line else begin
        while position < part.end:
            # Every read ends where a block of the whole file ends, the first one in the part.
            block_end = max(position, part.start) // part.block * part.block + part.block
            data = read_fully(stream, min(block_end, part.end) - position)
            if not data:
                raise EOFError(f"it ended after {position:,} of {part.file.size:,} bytes")
            position += len(data)
            progress = min(len(data), position - part.start)
            data = data.removeprefix(b"\xef\xbb\xbf") if position == len(data) else data
            if at := data.rfind(b"\n") + 1:
                text = b"".join([*pending, data[:at]])
                yield Block(part.form, text, name, field=part.field, first=line, start=start, progress=progress)
                line, pending = line + data.count(b"\n"), []
            pending.append(data[at:])
            if cut.longest is not None and (size := sum(map(len, pending))) > cut.longest:
                raise too_long(name, size, cut)
        if any(pending) and part.end == part.file.size:  # otherwise the line is in the next part
            yield Block(part.form, b"".join(pending), name, field=part.field, first=line, start=start)


def _line_start(file: CorpusFile, before: int, block: int, longest: int | None) -> int | None:
    """Where the line begins that a position is in; None if that is further away than the longest line."""
    at = before
    while at > 0:
        if longest is not None and before - at > longest:
            return None
        size = min(block, at)
        found = file.read_at(at - size, size).rfind(b"\n")
        if found >= 0:
            return at - size + found + 1
        at -= size
    return 0


def _first_line(part: FileRange) -> int:
    with part.file.reporting():
        begin = _line_start(part.file, part.start, part.block, None) or 0
        with part.file.open() as stream:
            line, position = 1, 0
            while position < begin and (data := read_fully(stream, min(part.block, begin - position))):
                line, position = line + data.count(b"\n"), position + len(data)
    return line
