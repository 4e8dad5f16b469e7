"""Parts of a large file of lines, each an input of its own, so that several processes can read one file.

A part has the same blocks as the whole file has there: it begins and ends at the last line end before a multiple of the
size of a block. So all parts together are read exactly as the file is.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import BinaryIO, Literal

from tokengraft.corpus.blocks import BLOCK, Block, Cut, file_blocks, reporting, too_long
from tokengraft.corpus.open import Input
from tokengraft.errors import CorpusError


@dataclass(frozen=True)
class FileRange:
    """A part of a file of lines. All positions are in bytes."""

    path: Path
    form: Literal["lines", "jsonl"]
    field: str
    start: int
    """A multiple of ``block``."""
    end: int
    """A multiple of ``block``, or the size of the file."""
    file_size: int
    block: int
    first_line: int = 1
    """The number of its first line. It is needed only for errors: see `numbered`."""


@dataclass(frozen=True)
class RangeInput(Input):
    """An input that is a part of a file."""

    part: FileRange

    @classmethod
    def of(cls, part: FileRange) -> "RangeInput":
        """The input of a part."""
        return cls(str(part.path), part.end - part.start, partial(range_blocks, part), part)

    def numbered(self) -> "RangeInput":
        """The same with the right line numbers in errors. Reads the file up to the part."""
        return self.of(replace(self.part, first_line=_first_line(self.part)))


def split_input(source: Input, size: int, *, block: int = BLOCK) -> list[Input]:
    """The parts of a file of lines, of about ``size`` bytes each. Inputs that cannot be cut are returned unchanged.

    Compressed files can only be read from the start, and text files that are one document have no lines.
    """
    if source.size <= max(size, block) or not isinstance(source.blocks, partial) or source.blocks.func != file_blocks:
        return [source]
    path, form, compression, read_options = source.blocks.args
    if compression or form == "parquet" or not path.is_file() or (form == "text" and read_options.documents != "lines"):
        return [source]
    step = -(-size // block) * block
    kind: Literal["lines", "jsonl"] = "jsonl" if form == "jsonl" else "lines"
    field = read_options.text_field if form == "jsonl" else ""
    starts = range(0, source.size, step)
    return [
        RangeInput.of(FileRange(path, kind, field, start, min(start + step, source.size), source.size, block))
        for start in starts
    ]


def range_blocks(part: FileRange, cut: Cut) -> Iterator[Block]:
    """The blocks of a part of a file.

    Raises:
        CorpusError: The file cannot be read, has changed, or has a line that is too long.
    """
    name = str(part.path)
    with reporting(name), part.path.open("rb") as stream:
        _require_size(stream, part)
        begin = _line_start(stream, part.start, part.block, cut.longest)
        if begin is None:
            return  # the line began in an earlier part, which reports that it is too long
        stream.seek(begin)
        line, pending, position = part.first_line, list[bytes](), begin
        # The first read ends where a block of the whole file ends.
        while position < part.end and (data := stream.read(_next_size(part, position))):
            position += len(data)
            progress = min(len(data), position - part.start)
            data = data.removeprefix(b"\xef\xbb\xbf") if position == len(data) else data
            if at := data.rfind(b"\n") + 1:
                text = b"".join([*pending, data[:at]])
                yield Block(part.form, text, name, field=part.field, first=line, progress=progress)
                line, pending = line + data.count(b"\n"), []
            pending.append(data[at:])
            if cut.longest is not None and (size := sum(map(len, pending))) > cut.longest:
                raise too_long(name, size, cut.longest)
        if any(pending) and part.end == part.file_size:  # otherwise the line is in the next part
            yield Block(part.form, b"".join(pending), name, field=part.field, first=line)


def _next_size(part: FileRange, position: int) -> int:
    """The bytes from a position up to the next end of a block, at least the first one in the part."""
    end = max(position, part.start) // part.block * part.block + part.block
    return min(end, part.end) - position


def _require_size(stream: BinaryIO, part: FileRange) -> None:
    size = stream.seek(0, 2)
    if size != part.file_size:
        raise CorpusError(
            f"`{part.path}` changed while it was read: it had {part.file_size:,} bytes and now has {size:,}",
            hint="count again when the file is complete",
        )


def _line_start(stream: BinaryIO, before: int, block: int, longest: int | None) -> int | None:
    """Where the line begins that a position is in; None if that is further away than the longest line."""
    at = before
    while at > 0:
        if longest is not None and before - at > longest:
            return None
        size = min(block, at)
        stream.seek(at - size)
        found = stream.read(size).rfind(b"\n")
        if found >= 0:
            return at - size + found + 1
        at -= size
    return 0


def _first_line(part: FileRange) -> int:
    with reporting(str(part.path)), part.path.open("rb") as stream:
        begin = _line_start(stream, part.start, part.block, None) or 0
        stream.seek(0)
        line, position = 1, 0
        while position < begin and (data := stream.read(min(part.block, begin - position))):
            line, position = line + data.count(b"\n"), position + len(data)
    return line
