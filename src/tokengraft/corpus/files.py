"""Local files and files behind a URL, opened for reading."""

import os
import re
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path, PurePath
from typing import Any, BinaryIO, cast

from tokengraft.errors import CorpusError, OptionError, TokengraftError, command_runs, option, without_credentials


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
        """Converts errors of reading the file."""
        return reporting(self.name)

    @property
    def identity(self) -> tuple[str, int, int] | None:
        """Path, size and modification time; None if it is not a regular file."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return (str(self.path.absolute()), status.st_size, status.st_mtime_ns) if stat.S_ISREG(status.st_mode) else None


_UNPACK = "unpack it"
_NOT_TEXT = {
    b"\x1f\x8b": ("compressed with gzip", f"{_UNPACK}, or give it a name that ends with .gz"),
    b"\x28\xb5\x2f\xfd": ("compressed with zstd", f"{_UNPACK}, or give it a name that ends with .zst"),
    b"\xfd7zXZ\0": ("compressed with xz", _UNPACK),
    **{f"BZh{level}1AY&SY".encode(): ("compressed with bzip2", _UNPACK) for level in range(1, 10)},
    b"PK\3\4": ("a zip archive", _UNPACK),
    # A page or the metadata follows, which begins with a number of 32 bits, for Thrift \x15.
    b"PAR1\x15": ("a Parquet file", "give it a name that ends with .parquet"),
    b"\xff\xfe\0\0": ("UTF-32", "convert it: iconv -f UTF-32 -t UTF-8"),
    b"\0\0\xfe\xff": ("UTF-32", "convert it: iconv -f UTF-32 -t UTF-8"),
    b"\xff\xfe": ("UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    b"\xfe\xff": ("UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
}
"""First bytes of what is not text in UTF-8, with its name and what to do. No UTF-8 text begins with any of them, except
for control characters that text does not have. UTF-32 is before UTF-16, which begins with the same bytes."""
HEAD = 1 << 20
"""How many bytes decide whether a file is text."""
_LEAST, _MOST_BAD = 64, 0.02
"""Of fewer bytes no share is known. Stray bytes of real text are far below the largest share of bad ones; images,
weights and text in most other encodings are far above it."""


def require_utf8(name: str, head: bytes, *, as_given: bool) -> None:
    """Refuses a file by its first bytes if it is compressed, Parquet, in another encoding, or binary.

    ``as_given``: the format was given, so everything is read that is not known to be of another format.
    """
    for magic, (kind, hint) in _NOT_TEXT.items():
        if head.startswith(magic):
            hint = f"pass {option('format', 'parquet')}, or {hint}" if kind == "a Parquet file" else hint
            raise CorpusError(f"`{name}` is {kind}, not text in UTF-8", hint=hint)
    if not as_given:
        refuse_binary(name, head)


def refuse_binary(name: str, head: bytes) -> None:
    """Refuses bytes of which more than a few are zeros or invalid UTF-8. A few are replaced, with a warning."""
    head = head[:HEAD]
    size, zeros = len(head), [head[first::2].count(0) for first in (0, 1)]
    invalid = head.decode(errors="replace").count("\ufffd") - head.count("\ufffd".encode())
    if size < _LEAST or sum(zeros) + invalid <= _MOST_BAD * size:
        return
    if 5 * max(zeros) > size > 50 * min(zeros):  # in UTF-16 of Latin text, one of every two bytes is mostly 0
        end = "LE" if zeros[1] > zeros[0] else "BE"
        raise CorpusError(
            f"`{name}` seems to be UTF-16, not text in UTF-8: every second byte is 0",
            hint=f"convert it: iconv -f UTF-16{end} -t UTF-8",
        )
    raise CorpusError(
        f"`{name}` is not text in UTF-8: of its first {size:,} bytes, {sum(zeros):,} are 0 and {invalid:,} are invalid",
        hint=f"name a file or a column ({option('text_field')}) of text; convert another encoding: iconv -f ENCODING "
        f"-t UTF-8; or pass {option('format', 'text')} to read a file as it is",
    )


def is_hidden(name: str, given: str, *, marks: str = ".") -> bool:
    """Whether a part of a path begins with a dot, or another mark, except those that the given folder or pattern has.

    >>> is_hidden("corpus/.git/a.txt", "corpus"), is_hidden(".cache/a.txt", ".cache"), is_hidden("c/.a.txt", "c/.*")
    (True, False, False)
    """
    named = [part for part in given.split("/") if part.startswith(tuple(marks))]
    hidden = (part for part in name.split("/") if part.startswith(tuple(marks)))
    return any(part not in named and not any(fnmatchcase(part, pattern) for pattern in named) for part in hidden)


@contextmanager
def reporting(name: str) -> Iterator[None]:
    """Converts errors of reading a file into a `CorpusError` with its name."""
    try:
        yield
    except Exception as error:
        # Arrow takes 0.2 s to import. If another thread is importing it, it has no exceptions yet, and raised none.
        of_arrow = getattr(sys.modules.get("pyarrow"), "ArrowException", ())
        if not isinstance(error, (OSError, EOFError, UnicodeError, of_arrow)):
            raise
        hint = f"check the file, or pass {option('skip_bad')} to skip such files"
        raise CorpusError(_unreadable(name, error), hint=hint) from error


def _unreadable(name: str, error: BaseException) -> str:
    reason = re.sub(r"\s+", " ", getattr(error, "strerror", None) or re.sub(r" \(os error \d+\)$", "", str(error)))
    return f"cannot read `{name}`: {reason}"


def missing(name: str, error: BaseException) -> CorpusError:
    """The error of a path where there is no file."""
    hint = "check the path" + ("" if command_runs() else "; to pass texts in place of paths: iter(texts)")
    if re.search(r"(?:^|/)[a-z][a-z0-9+.-]+:/[^/]", name):
        hint = "pass a URL as a string: a Path drops one of its slashes"
    return CorpusError(_unreadable(name[:200], error), hint=hint)


_URL = re.compile(r"(?:[a-z][a-z0-9+.-]*::)*[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_LOCAL = re.compile(r"^(?:[a-z][a-z0-9+.-]*::)*(?:file|local)://", re.IGNORECASE)
_BYTES_PER_REQUEST = 16 << 20
"""Of files that are read from start to end, where a request reads a range."""
_STREAMED = frozenset(("http", "https", "hf"))
"""Protocols that read a whole file with one request."""
_VERSIONS = ("ETag", "etag", "md5Hash", "md5", "checksum", "oid", "blob_id", "xet_hash", "Content-MD5", "generation")
_TIMES = ("LastModified", "Last-Modified", "last_modified", "mtime", "updated", "modified", "created")


def is_url(name: str) -> bool:
    """Whether a name is a URL and not a path.

    >>> is_url("s3://bucket/a.txt"), is_url("simplecache::s3://bucket/a.txt"), is_url("data/a.txt")
    (True, True, False)
    """
    return _URL.match(name) is not None


def local_name(name: str) -> str:
    """The path of a `file://` URL; other names are returned unchanged.

    >>> local_name("file:///data/a.txt"), local_name("a.txt"), local_name("s3://bucket/a.txt")
    ('/data/a.txt', 'a.txt', 's3://bucket/a.txt')
    """
    return _LOCAL.sub("", name, count=1)


def input_without_credentials(name: str) -> str:
    """The path or URL of one input without credentials. Unlike a URL in a message, it may have spaces.

    >>> input_without_credentials("et=https://me:secret@host/my file.txt?signature=secret")
    'et=https://host/my file.txt'
    """
    scheme, separator, rest = without_credentials(name).partition("://")
    path, mark, query = rest.partition("?")
    secret = mark and (scheme.endswith(("http", "https")) or "=" in query)
    return f"{scheme}{separator}{path if separator and secret else rest}"


@dataclass(frozen=True)
class RemoteFile:
    """A file that `fsspec` reads. It can be sent to another process."""

    name: str
    """The URL without credentials, as messages show it."""
    size: int
    """Bytes; 0 if unknown."""
    filesystem: Any = field(repr=False)
    path: str = field(repr=False)
    version: str | None = None
    """What changes with the content, such as the ETag; None if the remote system gives nothing of the kind."""

    @property
    def is_regular(self) -> bool:
        """Whether any part of it can be read, which needs a known size."""
        return self.size > 0

    def open(self) -> BinaryIO:
        """The bytes, from start to end. An end before the known size is an error."""
        protocol = self.filesystem.protocol
        protocols = {protocol} if isinstance(protocol, str) else {*protocol}
        options: dict[str, Any] = {"block_size": 0 if protocols & _STREAMED else _BYTES_PER_REQUEST}
        if protocols & {"http", "https"} and self.size:
            import aiohttp

            # No limit for the whole file, which would be 5 minutes, but one for each read. With a size, fsspec does not
            # ask for it: it would take the timeout for its own, which is a number.
            patience = aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=300)
            options |= {"size": self.size, "timeout": patience}
        return cast(BinaryIO, Complete(self.filesystem.open(self.path, "rb", **options), self.size))

    def open_at(self, position: int) -> BinaryIO:
        """The bytes, from a position to the end."""
        stream = self.filesystem.open(self.path, "rb", block_size=_BYTES_PER_REQUEST)
        stream.seek(position)
        return cast(BinaryIO, stream)

    def open_parts(self) -> Any:
        """The bytes, for reads of Arrow at any position, each of them one request."""
        return self.filesystem.open(self.path, "rb", cache_type="none")

    def size_now(self) -> int:
        """Bytes, as they were: objects of remote systems are replaced as a whole, and a missing end is an error."""
        return self.size

    def read_at(self, position: int, size: int) -> bytes:
        """Bytes at a position; fewer only at the end."""
        end = min(position + size, self.size)
        data: bytes = self.filesystem.cat_file(self.path, start=position, end=end) if position < end else b""
        if len(data) != max(end - position, 0):  # a server that ignores ranges sends the whole file
            raise EOFError(f"{len(data):,} bytes came when {end - position:,} were asked for")
        return data

    def reporting(self) -> AbstractContextManager[None]:
        """Converts errors of reading the file."""
        return reporting_url(self.name)

    @property
    def identity(self) -> tuple[str, int, str] | None:
        """Path, size and version; None if it is unknown whether the content has changed."""
        return (self.filesystem.unstrip_protocol(self.path), self.size, self.version) if self.version else None


CorpusFile = LocalFile | RemoteFile


def suffixes_of(file: CorpusFile | Path) -> list[str]:
    """The suffixes of a file name, in lower case."""
    return [suffix.lower() for suffix in PurePath(file.name).suffixes]


class Complete:
    """A stream that must have a known number of bytes: a connection that drops is not taken for the end."""

    closed = False

    def __init__(self, stream: Any, size: int) -> None:
        self.stream, self.size, self.done = stream, size, 0

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``."""
        data: bytes = self.stream.read(size)
        self.done += len(data)
        if not data and size and self.done < self.size:
            raise EOFError(f"it ended after {self.done:,} of {self.size:,} bytes")
        return data

    def tell(self) -> int:
        """The number of bytes read."""
        return self.done

    def seekable(self) -> bool:
        """Whether `tell` is the position: always."""
        return True

    def close(self) -> None:
        """Closes the stream."""
        self.closed = True
        self.stream.close()

    def __enter__(self) -> "Complete":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def reporting_url(url: str) -> Iterator[None]:
    """Converts every exception into a `CorpusError` with the URL.

    Exceptions of remote systems have no common type, and may quote signed URLs: none is shown as it is.
    """
    failed = f"cannot read `{input_without_credentials(url)}`"
    try:
        yield
    except TokengraftError:
        raise
    except ImportError as error:
        raise OptionError(f"{failed}: {error}", hint="install the package that it names") from None
    except Exception as error:
        hint = f"check the URL and your access to it, or pass {option('skip_bad')} to skip such files"
        raise CorpusError(f"{failed}: {_reason(error)}", hint=hint) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):  # fsspec raises it too if a server does not answer
        return "there is no such file" + (f" ({_reason(error.__cause__)})" if error.__cause__ else "")
    text = re.sub(r"\s+", " ", without_credentials(str(error))).strip()
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def remote_files(url: str, *, has_format: Callable[[RemoteFile], bool]) -> list[RemoteFile]:
    """The files at a URL: one file, the files of a folder that have a known format, or those that match a glob."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise OptionError(
            f"`{input_without_credentials(url)}` needs fsspec, which is not installed",
            hint="pip install 'tokengraft[remote]'",
        ) from error
    with reporting_url(url):
        filesystem, path = url_to_fs(url)
        try:
            info = filesystem.info(path)
            is_folder = info["type"] == "directory" or (path.startswith("http") and path.endswith("/"))
            found = filesystem.find(path, detail=True) if is_folder else {path: info}
        except FileNotFoundError:
            if not is_glob(path):
                raise
            matches = filesystem.glob(path, detail=True).items()
            found = {name: info for name, info in matches if info["type"] != "directory"}
        files = list[RemoteFile]()
        for name, listed in sorted(found.items()):
            if is_hidden(name, path):
                continue
            info = listed if listed.get("size") is not None else filesystem.info(name)  # a listing may lack sizes
            version = next((str(info[key]) for key in (*_VERSIONS, *_TIMES) if info.get(key)), None)
            shown = input_without_credentials(filesystem.unstrip_protocol(name))
            files.append(RemoteFile(shown, int(info.get("size") or 0), filesystem, name, version))
    return files if path in found or is_glob(path) else [file for file in files if has_format(file)]


def is_glob(url: str) -> bool:
    """Whether a URL is a pattern. In one of the web, `?` begins the query."""
    return "*" in url if url.startswith(("http://", "https://")) else has_magic(url)
