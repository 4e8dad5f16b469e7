"""Two renames that the standard library lacks: one that never replaces anything, and one that swaps two names.

Linux has both as one system call, `renameat2`. If the system or the file system lacks it, the same is done
in several steps, in an order that loses nothing if the process stops between two of them.
"""

import ctypes
import errno
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
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
    elif source.is_dir():
        _rename_folder(source, target)
    else:
        _link_file(source, target)


def exchange(new: Path, old: Path, aside: Path) -> None:
    """Swaps the names of the folders ``new`` and ``old``.

    Args:
        new: The folder that replaces the other.
        old: The folder to replace.
        aside: A free name beside ``old``. The old folder has it temporarily if the system cannot swap names. It
            keeps this name only if both further renames fail.
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


def _rename_folder(source: Path, target: Path) -> None:
    """Reserves the name with an empty folder, which a rename replaces. A folder with files is never replaced."""
    try:
        target.mkdir()
        source.rename(target)
    except FileExistsError:
        raise
    except BaseException:
        if os.path.lexists(source):
            with suppress(OSError):
                target.rmdir()
        raise


def _link_file(source: Path, target: Path) -> None:
    """Links the file to its new name; without hard links, reserves the name with an empty file first."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        _claim_file(source, target)


def _claim_file(source: Path, target: Path) -> None:
    try:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        source.replace(target)
    except FileExistsError:
        raise
    except BaseException:
        if os.path.lexists(source):
            with suppress(OSError):
                target.unlink()
        raise
