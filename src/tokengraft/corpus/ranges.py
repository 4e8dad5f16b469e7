"""Ranges of bytes of a file that has one document per line, so that several processes can share it.

A line belongs to the range that its first byte is in. So every line is read once, wherever ranges end.
"""

from dataclasses import dataclass
from typing import Any, Protocol

_STEP = 1 << 16


class Readable(Protocol):
    """A file whose bytes can be read at any position."""

    @property
    def size(self) -> int:
        """Bytes."""

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes at a position; fewer only at the end."""


@dataclass(frozen=True)
class ByteRange:
    """The lines that begin at ``start`` or later, and before ``end``."""

    start: int
    end: int


def byte_ranges(size: int, part_bytes: int) -> list[ByteRange]:
    """A file of ``size`` bytes in ranges of about ``part_bytes`` bytes each.

    >>> byte_ranges(10, 4)
    [ByteRange(start=0, end=3), ByteRange(start=3, end=6), ByteRange(start=6, end=10)]
    """
    parts = max(1, -(-size // part_bytes))
    return [ByteRange(size * part // parts, size * (part + 1) // parts) for part in range(parts)]


def whole_lines(file: Readable, span: ByteRange) -> ByteRange:
    """The bytes of all lines that begin in a range: they end where the last line ends."""
    return ByteRange(_line_start(file, span.start), _line_start(file, span.end))


def _line_start(file: Readable, position: int) -> int:
    """Where the first line begins that does not begin before a position; the end of the file if there is none."""
    if position == 0 or position >= file.size:
        return min(position, file.size)
    place = position - 1
    while data := file.read_at(place, _STEP):
        at = data.find(b"\n")
        if at >= 0:
            return place + at + 1
        place += len(data)
    return place


class Limited:
    """A range of bytes of a stream, which is at the start of the range."""

    def __init__(self, stream: Any, size: int) -> None:
        self.stream, self.size, self.left = stream, size, size

    def read(self, size: int) -> bytes:
        """The next bytes, at most ``size``.

        Raises:
            EOFError: The stream ended before the range.
        """
        data: bytes = self.stream.read(min(size, self.left))
        self.left -= len(data)
        if not data and size and self.left:
            raise EOFError(f"it ended {self.left:,} bytes before the end of a line")
        return data

    def tell(self) -> int:
        """The number of bytes read."""
        return self.size - self.left
