"""Copies files, and copies and compares ranges of bytes of two files, without reading them into memory.

The kernel copies where it can (`copy_file_range`). On a file system that can share blocks, it does, and a range needs
no space of its own.
"""

import os
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path
from threading import Event
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from tokengraft.errors import OptionError, option

PIECE = 1 << 26
"""Bytes that are copied or compared at a time: an interrupted run stops after this many."""
BUFFER = 1 << 18
"""Bytes that are read at a time: both buffers of a comparison fit into the cache of a core."""


def copy_bytes(source: BinaryIO, start: int, size: int, target: BinaryIO, stop: Event) -> None:
    """Appends a range of one file to another, until ``stop`` is set."""
    target.flush()
    while size:
        raise_if(stop)
        done = _copy_some(source, start, min(size, PIECE), target)
        if not done:
            raise too_short(source)
        start, size = start + done, size - done
    target.seek(0, os.SEEK_END)


def raise_if(stop: Event) -> None:
    """Ends the work of a thread after another one failed."""
    if stop.is_set():
        raise CancelledError


def too_short(stream: BinaryIO) -> OSError:
    """The error for a file that ends before its header says."""
    return OSError(f"`{stream.name}` is shorter than its header says")


def _copy_some(source: BinaryIO, start: int, size: int, target: BinaryIO) -> int:
    """Copies some bytes in the first way that the system has, and returns how many. 0 is the end of the source."""
    for copy in _COPIERS:
        try:
            done = copy(source, start, size, target)
        except OSError:  # two file systems, or not supported: copy in the next way, whose errors are the real ones
            continue
        if done:
            return done
    source.seek(start)
    block = source.read(min(size, 1 << 20))
    target.write(block)
    target.flush()
    return len(block)


def _in_kernel(source: BinaryIO, start: int, size: int, target: BinaryIO) -> int:
    return os.copy_file_range(source.fileno(), target.fileno(), size, offset_src=start)


def _between_file_systems(source: BinaryIO, start: int, size: int, target: BinaryIO) -> int:
    return os.sendfile(target.fileno(), source.fileno(), start, size)


_Copier = Callable[[BinaryIO, int, int, BinaryIO], int]
_WAYS: dict[str, _Copier] = {"copy_file_range": _in_kernel, "sendfile": _between_file_systems}
_COPIERS = [copy for name, copy in _WAYS.items() if hasattr(os, name)]


def equal_bytes(first: BinaryIO, first_start: int, second: BinaryIO, second_start: int, size: int) -> bool:
    """Whether two ranges of files hold the same bytes. A file that ends before its range does is an error."""
    buffers = np.empty((2, min(size, BUFFER)), np.uint8)
    first.seek(first_start)
    second.seek(second_start)
    for at in range(0, size, BUFFER):
        ours, theirs = buffers[:, : min(size - at, BUFFER)]
        read_into(first, ours)
        read_into(second, theirs)
        if not np.array_equal(ours, theirs):
            return False
    return True


def read_into(stream: BinaryIO, buffer: npt.NDArray[np.uint8]) -> None:
    """Fills a buffer of one dimension from the current position of a file."""
    at = 0
    while at < len(buffer):
        done = stream.readinto(buffer[at:])  # type: ignore[attr-defined]
        if not done:
            raise too_short(stream)
        at += done


def share_or_copy(source: Path, out: Path, stop: Event, *, hard_link: bool) -> None:
    """Copies a file: as a hard link if asked for, else its bytes."""
    if not hard_link:
        with source.open("rb") as old, out.open("wb") as new:
            copy_bytes(old, 0, source.stat().st_size, new, stop)
        return
    try:
        os.link(source, out)
    except OSError as error:
        raise OptionError(
            f"cannot link `{source.name}` to `{out.parent.parent}`: {error.strerror}",
            hint=f"leave out {option('hard_link')}, or write to the file system of the source",
        ) from error
