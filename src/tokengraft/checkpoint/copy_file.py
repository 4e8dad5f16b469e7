"""Copies a file: as a hard link, by sharing its blocks, or by its bytes."""

import os
import sys
from pathlib import Path
from threading import Event
from typing import BinaryIO

from tokengraft.checkpoint.byte_ranges import copy_bytes
from tokengraft.errors import OptionError

_FICLONE = 0x40049409


def share_or_copy(source: Path, out: Path, stop: Event, *, hard_link: bool) -> None:
    """Copies a file: as a hard link if asked for, else by sharing blocks if the file system can, else by its bytes.

    Raises:
        CancelledError: ``stop`` was set.
        OptionError: The system refuses the hard link.
    """
    if hard_link:
        _link(source, out)
        return
    with source.open("rb") as old, out.open("wb") as new:
        if not _share_blocks(old, new):
            copy_bytes(old, 0, source.stat().st_size, new, stop)


def _link(source: Path, out: Path) -> None:
    try:
        os.link(source, out)
    except OSError as error:
        raise OptionError(
            f"cannot link `{source.name}` to `{out.parent.parent}`: {error.strerror}",
            hint="leave out --hard-link, or write to the file system of the source",
        ) from error


def _share_blocks(old: BinaryIO, new: BinaryIO) -> bool:
    if sys.platform != "linux":
        return False
    from fcntl import ioctl

    try:
        ioctl(new.fileno(), _FICLONE, old.fileno())
    except OSError:  # the file system does not support it, or there are two file systems
        return False
    return True


def sync(path: Path) -> None:
    """Waits until a written file is on the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
