"""Reads inputs in blocks of a megabyte, by format, for the core.

A block is larger only if a document cannot be cut or a line is long. Blocks depend only on the input, so that the
result does not depend on threads. Only the core decides what the documents of a block are (`_core.documents`,
`_core.Counter.count`).

A large file of lines has parts, each an input of its own, so that several processes can read one file. A part has the
same blocks as the whole file has there: it begins and ends at the last line end before a multiple of the size of a
block. So all parts together are read exactly as the file is.
"""

import codecs
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any, Literal

from tokengraft import _core
from tokengraft.corpus.block import Block, Cut, FileRange, Input, parquet_blocks, words
from tokengraft.corpus.files import HEAD, CorpusFile, reporting, require_utf8
from tokengraft.corpus.options import Format, ReadOptions
from tokengraft.errors import CorpusError, option

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
    file: CorpusFile, file_format: Format, compression: str | None, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a file. Its format is text or JSON lines, or it is a compressed or piped Parquet file."""
    with file.reporting(), file.open() as raw:
        stream: Any = raw
        if compression:
            import pyarrow as pa

            stream = pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression)
        tell = raw.tell if raw.seekable() else lambda: 0  # a pipe has no position
        yield from _stream_blocks(stream, file.name, tell, file_format, read_options, cut)


def standard_input_blocks(read_options: ReadOptions, cut: Cut) -> Iterator[Block]:
    """The blocks of standard input."""
    if sys.stdin is None:
        raise CorpusError("there is no standard input", hint="name files instead of -")
    with reporting("standard input"):
        with suppress(OSError, AttributeError):  # it need not be a file
            os.set_blocking(sys.stdin.fileno(), True)  # otherwise a pause would look like the end of the input
        file_format = read_options.format or "text"
        yield from _stream_blocks(sys.stdin.buffer, "standard input", lambda: 0, file_format, read_options, cut)


def _form(file_format: Format, read_options: ReadOptions) -> Literal["text", "lines", "jsonl"]:
    """The form of the blocks of a text file."""
    return "jsonl" if file_format == "jsonl" else "lines" if read_options.documents == "lines" else "text"


def _stream_blocks(
    stream: Any, name: str, tell: Callable[[], int], file_format: Format, read_options: ReadOptions, cut: Cut
) -> Iterator[Block]:
    """The blocks of a stream of bytes."""
    if file_format == "parquet":
        import pyarrow as pa

        yield from parquet_blocks(pa.BufferReader(stream.read()), name, read_options, BLOCK)
        return
    form = _form(file_format, read_options)
    if form != "text":
        # A part of a JSON line cannot be read, so lines of JSON are always read completely.
        cut = replace(cut, last=_last_line_end, enough=None if form == "jsonl" else cut.enough)

    def read() -> Iterator[bytes]:
        if data := read_fully(stream, BLOCK):
            require_utf8(name, data, as_given=read_options.format is not None)
            yield data.removeprefix(_MARK)
        while data := read_fully(stream, BLOCK):
            yield data

    yield from _cut_blocks(read(), Block(form, b"", name, field=read_options.text_field), cut, tell)


_MARK = b"\xef\xbb\xbf"
"""The byte order mark of UTF-8."""
_MARGIN = 8
"""Bytes read beyond a limit, so that the text read exceeds it by at least a character."""


def _last_line_end(data: bytes) -> int | None:
    return data.rfind(b"\n") + 1 or None


def _cut_blocks(
    data_read: Iterable[bytes], block: Block, cut: Cut, tell: Callable[[], int], *, to_end: bool = True
) -> Iterator[Block]:
    """Data of a file as blocks like ``block``, cut where it can be. Data without a cut is collected until the next one.

    The data after the last cut is a block too if the file is read ``to_end``.
    """
    pending: list[bytes] = []
    done = tell()

    def made(data: bytes) -> Block:
        nonlocal block, done
        result = replace(block, data=data, progress=tell() - done)
        lines = data.count(b"\n") if block.form != "text" else 0
        block, done = replace(block, at_start=False, first=block.first + lines), tell()
        return result

    for data in data_read:
        at = cut.last(data)
        if at:
            yield made(b"".join([*pending, data[:at]]))
            pending = []
        pending.append(data[at or 0 :])
        gathered = sum(map(len, pending))
        if cut.enough is not None and gathered > cut.enough + _MARGIN:
            yield made(_whole_characters(b"".join(pending)[: cut.enough + _MARGIN]))
            return
        if cut.longest is not None and gathered > cut.longest:
            raise too_long(block.name, gathered, cut)
    if to_end and any(pending):
        yield made(b"".join(pending))


def read_fully(stream: Any, size: int) -> bytes:
    """``size`` bytes of a stream; fewer only at its end."""
    # Single system calls, between which Python handles signals. Otherwise a signal could wait for more data.
    read = getattr(stream, "read1", stream.read)
    parts: list[bytes] = []
    while size and (data := bytes(read(size))):
        parts.append(data)
        size -= len(data)
    return b"".join(parts)


def _whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at its end.

    >>> _whole_characters("aõ".encode()[:2]), _whole_characters(b"a\\xff")
    (b'a', b'a\\xff')
    """
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    incomplete, _ = decoder.getstate()
    return data[: len(data) - len(incomplete)]


def too_long(name: str, size: int, cut: Cut) -> CorpusError:
    """The error of a text that cannot be cut and needs more memory than allowed."""
    found = f"`{name}`: {size:,} bytes or more in one document or line that cannot be cut into parts"
    if cut.counter:
        return CorpusError(
            f"{found}; {option('memory')} allows {cut.longest:,} with this tokenizer",
            hint=f"raise {option('memory')}, or give the text as smaller documents, such as lines: "
            f"{option('documents', 'lines')}",
        )
    return CorpusError(
        f"{found}; documents that are compared have at most {cut.longest:,}",
        hint=f"give the text as smaller documents, such as lines: {option('documents', 'lines')}; or count it "
        "(`tokengraft count`) and pass the counts",
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
            try:
                encoded = text.encode()
            except UnicodeEncodeError:
                whole, halves = _SURROGATE.subn("\ufffd", text)
                encoded, replaced = whole.encode(), replaced + halves
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


def range_input(part: FileRange) -> Input:
    """The input of a part of a file."""
    return Input(part.file.name, part.end - part.start, partial(range_blocks, part), part.file, part)


def numbered(part: FileRange) -> Input:
    """The input of a part with the right line numbers in errors. Reads the file up to the part."""
    with part.file.reporting(), part.file.open() as stream:
        begin = _line_start(part.file, part.start, part.block, None) or 0
        line, position = 1, 0
        while position < begin and (data := read_fully(stream, min(part.block, begin - position))):
            line, position = line + data.count(b"\n"), position + len(data)
    return range_input(replace(part, first_line=line))


def split_input(source: Input, size: int, *, block: int = BLOCK) -> list[Input]:
    """The parts of a file of lines, of about ``size`` bytes each. Inputs that cannot be cut are returned unchanged.

    Compressed files can only be read from the start, and text files that are one document have no lines.
    """
    if source.size <= max(size, block) or not isinstance(source.blocks, partial) or source.blocks.func != file_blocks:
        return [source]
    file, file_format, compression, read_options = source.blocks.args
    form = _form(file_format, read_options)
    if compression or file_format == "parquet" or form == "text" or not file.is_regular:
        return [source]
    step = -(-size // block) * block
    name, as_given = read_options.text_field, read_options.format is not None
    parts = (
        FileRange(file, form, name, start, min(start + step, source.size), block, as_given)
        for start in range(0, source.size, step)
    )
    return [*map(range_input, parts)]


def range_blocks(part: FileRange, cut: Cut) -> Iterator[Block]:
    """The blocks of a part of a file."""
    name = part.file.name
    with part.file.reporting():
        if (size := part.file.size_now()) != part.file.size:
            raise CorpusError(
                f"`{name}` changed while it was read: it had {part.file.size:,} bytes and now has {size:,}",
                hint="count again when the file is complete",
            )
        require_utf8(name, part.file.read_at(0, HEAD), as_given=part.as_given)
        begin = _line_start(part.file, part.start, part.block, cut.longest)
    if begin is None:
        return  # the line began in an earlier part, which reports that it is too long
    with part.file.reporting(), part.file.open_at(begin) as stream:
        position = begin

        def read() -> Iterator[bytes]:
            nonlocal position
            while position < part.end:
                # Every read ends where a block of the whole file ends, the first one in the part.
                block_end = max(position, part.start) // part.block * part.block + part.block
                data = read_fully(stream, min(block_end, part.end) - position)
                if not data:
                    raise EOFError(f"it ended after {position:,} of {part.file.size:,} bytes")
                position += len(data)
                yield data.removeprefix(_MARK) if position == len(data) else data

        number, start = (part.first_line, 0) if part.first_line else (1, begin)
        block = Block(part.form, b"", name, field=part.field, first=number, start=start)
        by_lines = replace(cut, last=_last_line_end, enough=None)
        to_end = part.end == part.file.size  # otherwise the last line is in the next part
        yield from _cut_blocks(read(), block, by_lines, lambda: max(position, part.start), to_end=to_end)


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
