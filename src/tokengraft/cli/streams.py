"""Wrappers of stdout and stderr: a failed write to stdout is an error, a failed write to stderr is ignored."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from tokengraft.errors import OutputError


@contextmanager
def checked_streams() -> Iterator[bool]:
    """Replaces stdout and stderr: a failed write to stdout raises an `OutputError`, a failed write to stderr does not.

    Yields whether stdout is open. A shell can close it (`>&-`).
    """
    before = sys.stdout, sys.stderr
    _open_closed()
    opened = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", _Checked(opened[0], required=True))
    sys.stderr = cast("TextIO", _Checked(opened[1], required=False))
    try:
        yield before[0] is not None
    finally:
        sys.stdout, sys.stderr = opened


def _open_closed() -> None:
    """Opens the null device for closed standard streams, so that no other file gets the descriptors 0 to 2."""
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    descriptor = 0
    while closed and descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    for name in closed:
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 (for as long as the process runs)


class _Checked:
    """A stream whose first failed write is reported if `required`. Later output is discarded."""

    def __init__(self, stream: TextIO, *, required: bool) -> None:
        self._stream, self._required = stream, required
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # not every terminal can show `▁`

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        # Python flushes again at exit, and would print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if self._required and isinstance(error, BrokenPipeError):
            raise error
        if self._required:
            raise OutputError(
                f"cannot write to stdout: {error.strerror}", hint="check the disk that it is redirected to"
            ) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
