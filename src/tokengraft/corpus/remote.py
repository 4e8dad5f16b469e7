"""Files behind a URL (`s3://`, `gs://`, `hf://`, `https://` and all others that `fsspec` knows), read as streams.

Any exception of a remote system becomes a `CorpusError` with the URL. Credentials in a URL are not shown.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from glob import has_magic
from pathlib import PurePosixPath
from typing import Any, BinaryIO, cast

from tokengraft.errors import CorpusError, OptionError, TokengraftError, without_credentials

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
    def suffixes(self) -> list[str]:
        """The suffixes of the file name, in lower case."""
        return [suffix.lower() for suffix in PurePosixPath(self.name).suffixes]

    @property
    def is_regular(self) -> bool:
        """Whether any part of it can be read, which needs a known size."""
        return self.size > 0

    def open(self) -> BinaryIO:
        """The bytes, from start to end. An end before the known size is an error."""
        if self._protocols & _STREAMED:
            stream = self.filesystem.open(self.path, "rb", block_size=0, **self._patience())
        else:
            stream = self.filesystem.open(self.path, "rb", block_size=_BYTES_PER_REQUEST)
        return cast(BinaryIO, Complete(stream, self.size))

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

    @contextmanager
    def reporting(self) -> Iterator[None]:
        """Converts every error of reading the file into a `CorpusError` with its URL."""
        with reporting_url(self.name):
            yield

    @property
    def identity(self) -> tuple[str, int, str] | None:
        """Path, size and version; None if it is unknown whether the content has changed."""
        return (self.filesystem.unstrip_protocol(self.path), self.size, self.version) if self.version else None

    @property
    def _protocols(self) -> frozenset[str]:
        protocol = self.filesystem.protocol
        return frozenset((protocol,) if isinstance(protocol, str) else protocol)

    def _patience(self) -> dict[str, Any]:
        """For HTTP: no limit for the whole file, which would be 5 minutes, but one for each read."""
        if not self._protocols & {"http", "https"} or not self.size:
            return {}
        import aiohttp

        # With a size, fsspec does not ask for it. It would take the timeout for its own, which is a number.
        return {"size": self.size, "timeout": aiohttp.ClientTimeout(total=None, sock_connect=60, sock_read=300)}


class Complete:
    """A stream that must have a known number of bytes: a connection that drops is not taken for the end."""

    def __init__(self, stream: Any, size: int) -> None:
        self.stream, self.size, self.done = stream, size, 0
        self.closed = False

    def read(self, size: int = -1) -> bytes:
        """The next bytes, at most ``size``.

        Raises:
            EOFError: The stream ended early.
        """
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
    try:
        yield
    except TokengraftError:
        raise
    except ImportError as error:
        raise OptionError(
            f"cannot read `{input_without_credentials(url)}`: {error}", hint="install the package that it names"
        ) from None
    except Exception as error:
        raise CorpusError(
            f"cannot read `{input_without_credentials(url)}`: {_reason(error)}",
            hint="check the URL and your access to it, or pass --skip-bad to skip such files",
        ) from None


def _reason(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):  # fsspec raises it too if a server does not answer
        return "there is no such file" + (f" ({_reason(error.__cause__)})" if error.__cause__ else "")
    text = re.sub(r"\s+", " ", without_credentials(str(error))).strip()
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__


def remote_files(url: str, *, has_format: Callable[[list[str]], bool]) -> list[RemoteFile]:
    """The files at a URL: one file, the files of a folder that have a known format, or those that match a glob.

    Raises:
        CorpusError: The file does not exist, or the remote system gives an error.
        OptionError: A package is not installed.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise OptionError(
            f"`{input_without_credentials(url)}` needs fsspec, which is not installed",
            hint="pip install 'tokengraft[remote]'",
        ) from error
    with reporting_url(url):
        filesystem, path = url_to_fs(url)
        listed = _listed(filesystem, path)
        files = [_file(filesystem, name, info) for name, info in sorted(listed.items())]
    return files if path in listed or is_glob(path) else [file for file in files if has_format(file.suffixes)]


def is_glob(url: str) -> bool:
    """Whether a URL is a pattern. In one of the web, `?` begins the query."""
    return "*" in url if url.startswith(("http://", "https://")) else has_magic(url)


def _listed(filesystem: Any, path: str) -> dict[str, Mapping[str, Any]]:
    """The files at a path, with what is known about them."""
    try:
        info = filesystem.info(path)
    except FileNotFoundError:
        if not is_glob(path):
            raise
        found = filesystem.glob(path, detail=True)
        return {name: entry for name, entry in found.items() if entry["type"] != "directory"}
    if info["type"] == "directory" or (path.startswith("http") and path.endswith("/")):
        return cast(dict[str, Mapping[str, Any]], filesystem.find(path, detail=True))
    return {path: info}


def _file(filesystem: Any, path: str, info: Mapping[str, Any]) -> RemoteFile:
    if info.get("size") is None:  # a listing may lack sizes
        info = filesystem.info(path)
    version = next((str(info[name]) for name in (*_VERSIONS, *_TIMES) if info.get(name)), None)
    name = input_without_credentials(filesystem.unstrip_protocol(path))
    return RemoteFile(name, int(info.get("size") or 0), filesystem, path, version)
