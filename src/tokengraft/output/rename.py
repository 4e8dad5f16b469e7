"""Renames that never replace, or swap, and steps that a signal must not stop halfway."""

import ctypes
import errno
import inspect
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

NO_REPLACE = 1
EXCHANGE = 2
_CURRENT_FOLDER = -100
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def rename_new(source: Path, target: Path) -> None:
    """Renames a file or folder to a name that does not exist. A file may keep its old name too.

    Raises:
        FileExistsError: The name exists. It is not changed.
    """
    if renameat2(source, target, NO_REPLACE):
        return
    if sys.platform == "win32":
        source.rename(target)  # never replaces there
        return
    if not source.is_dir():
        try:
            os.link(source, target)
            return
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
    _claim(source, target)


def _claim(source: Path, target: Path) -> None:
    """Reserves the name with an empty file or folder, which a rename replaces. One with files is never replaced."""
    is_folder = source.is_dir()
    try:
        if is_folder:
            target.mkdir()
        else:
            os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        source.replace(target)
    except FileExistsError:
        raise
    except BaseException:
        if os.path.lexists(source):
            with suppress(OSError):
                target.rmdir() if is_folder else target.unlink()
        raise


def exchange(new: Path, old: Path, aside: Path) -> None:
    """Swaps the names of the folders ``new`` and ``old``.

    Args:
        new: The folder that replaces the other.
        old: The folder to replace.
        aside: A free name beside ``old``. The old folder has it temporarily if the system cannot swap names, and keeps
            it only if both further renames fail.
    """
    if renameat2(new, old, EXCHANGE):
        return
    try:
        old.rename(aside)
        new.rename(old)
    finally:  # also after an interrupt: a complete folder ends up under the name of `old`
        try:
            _settle(aside, old, new)
        except BaseException:
            _settle(aside, old, new)  # the interrupt may have arrived during the first call
            raise


def _settle(aside: Path, old: Path, new: Path) -> None:
    """Renames the old folder to ``new`` if it has been replaced, else back."""
    if os.path.lexists(aside):
        aside.rename(new if os.path.lexists(old) else old)


def renameat2(source: Path, target: Path, flags: int) -> bool:
    """Calls `renameat2` of Linux; False if the system or the file system does not support it."""
    function = _renameat2()
    if function is None:
        return False
    names = os.fsencode(source), os.fsencode(target)
    if function(_CURRENT_FOLDER, names[0], _CURRENT_FOLDER, names[1], flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


@cache
def _renameat2() -> Any:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if function is not None:
        path = ctypes.c_char_p
        function.argtypes = (ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint)
    return function


_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Holds back signals that would raise an exception, such as Ctrl-C, until the block ends.

    For short blocks that must not stop halfway: an exception after a folder was made, and before it is known to the
    code that removes it, would leave the folder. Other threads than the main one do not handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in _SIGNALS if callable(handler := signal.getsignal(number))}
    received: list[int] = []
    is_held = True

    def hold(number: int, frame: FrameType | None) -> None:
        # A signal that comes between two calls of `signal.signal` may raise. This handler then stays, and passes on.
        if is_held:
            received.append(number)
        else:
            handlers[number](number, frame)

    try:
        for number in handlers:
            signal.signal(number, hold)
        yield
    finally:
        is_held = False
        # All steps are done, the last one first, also if one raises. The exception of the first signal wins.
        with ExitStack() as steps:
            for number in dict.fromkeys(received):
                # Not sent again: who listens to the file descriptor of `set_wakeup_fd` has got it.
                steps.callback(handlers[number], number, inspect.currentframe())
            for number, handler in handlers.items():
                steps.callback(signal.signal, number, handler)
