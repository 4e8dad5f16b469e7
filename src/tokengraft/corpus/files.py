"""`LocalFile`: a file on this machine; and the errors of reading any file."""

import os
import re
import stat
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from tokengraft.errors import CorpusError


@dataclass(frozen=True)
class LocalFile:
    """A file on this machine, or a pipe with a name."""

    path: Path
    size: int = 0
    """Bytes, when the corpus was opened."""

    @property
    def name(self) -> str:
        """The path, as messages show it."""
        return str(self.path)

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of the file name, in lower case."""
        return [suffix.lower() for suffix in self.path.suffixes]

    @property
    def is_regular(self) -> bool:
        """Whether any part of it can be read, any number of times: it is not a pipe."""
        return self.path.is_file()

    def open(self) -> BinaryIO:
        """The bytes, from start to end."""
        return self.path.open("rb")

    def open_at(self, position: int) -> BinaryIO:
        """The bytes, from a position to the end."""
        file = self.path.open("rb")
        file.seek(position)
        return file

    def open_parts(self) -> Any:
        """The bytes, for reads of Arrow at any position."""
        import pyarrow as pa

        return pa.OSFile(os.fsencode(self.path), "rb")  # a name need not be UTF-8

    def size_now(self) -> int:
        """Bytes, now."""
        return self.path.stat().st_size

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes at a position; fewer only at the end."""
        with self.open_at(position) as file:
            return file.read(size)

    def reporting(self) -> AbstractContextManager[None]:
        """Converts errors of reading the file into a `CorpusError` with its name."""
        return reporting(self.name)

    @property
    def identity(self) -> tuple[str, int, int] | None:
        """Path, size and modification time; None if it is not a regular file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (str(self.path.absolute()), status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


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


def missing(name: str, error: BaseException) -> CorpusError:
    """The error of a path where there is no file."""
    failure = unreadable(name[:200], error)
    if re.search(r"(?:^|/)[a-z][a-z0-9+.-]+:/[^/]", name):
        return CorpusError(failure.message, hint="pass a URL as a string: a Path drops one of its slashes")
    return CorpusError(failure.message, hint=f"{failure.hint}; to pass texts in place of paths: iter(texts)")
