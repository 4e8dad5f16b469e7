"""Parts of a large file of lines, each an input of its own, so that several processes can read one file.

A part has the same blocks as the whole file has there: it begins and ends at the last line end before a multiple of the
size of a block. So all parts together are read exactly as the file is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from tokengraft.corpus.block import Block, Cut, Input
from tokengraft.corpus.blocks import BLOCK, file_blocks, read_fully, too_long
from tokengraft.corpus.files import HEAD, CorpusFile, require_utf8
from tokengraft.errors import CorpusError


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
