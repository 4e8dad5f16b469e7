"""`partial_path`: a folder for unfinished output. A later run can tell whether it is still in use.

The folder is called `.tokengraft-*.partial` and holds the unfinished output and a file `lock`. The process that writes
holds a lock on that file (`flock`), which the system releases when the process ends. The file contains an id of the
running kernel, because a lock is not visible to other machines on a network file system. A later run removes a folder
if its file has the same kernel id and the lock is free, or if the folder is empty: then its process was killed before
it had a lock, or while removing the folder. It does not touch other folders: those of other machines, of systems
without `flock`, and from before a reboot.
"""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

PREFIX, SUFFIX = ".tokengraft-", ".partial"
LOCK, RESULT = "lock", "result"


@contextmanager
def partial_path(parent: Path) -> Iterator[Path]:
    """A path to write to, inside a new folder in ``parent``. The folder is removed at the end with its content."""
    remove_abandoned(parent)
    folder, lock = _new_folder(parent)
    try:
        _claim(lock)
        yield folder / RESULT
    finally:
        _remove(folder / RESULT)
        os.close(lock)  # NFS does not remove a folder with an open file in it
        shutil.rmtree(folder, ignore_errors=True)


def _new_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and its open lock file."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, suffix=SUFFIX, dir=parent))
        try:
            return folder, os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:  # another run removed the empty folder as abandoned
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def remove_abandoned(parent: Path) -> None:
    """Removes the folders that killed processes of this machine left in ``parent``."""
    for folder in parent.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError):  # not ours to open, or another process is removing it
            if not _remove_empty(folder):
                _remove_unlocked(folder)


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _remove_unlocked(folder: Path) -> None:
    lock = os.open(folder / LOCK, os.O_RDWR)
    try:
        if _lock(lock) and os.read(lock, 1000) == _kernel():
            _remove(folder / RESULT)  # before the lock file, without which a later run would keep the folder
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _claim(lock: int) -> None:
    """Locks the file, then writes the kernel id. Without a lock no id is written, so that no run removes the folder."""
    if _lock(lock, wait=True):
        os.write(lock, _kernel())


def _lock(descriptor: int, *, wait: bool = False) -> bool:
    """Whether the lock was acquired; False if the system has no locks."""
    if sys.platform == "win32":
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@cache
def _kernel() -> bytes:
    """An id of the running kernel, different for every machine and after every reboot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        return platform.node().encode()


def _remove(path: Path) -> None:
    """Removes a file or folder, and ignores errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()
