"""`partial_path` and `temporary_folder`: unfinished output. A later run can tell whether it is still in use.

`uninterrupted`: steps that a signal must not stop halfway.

The folder is called `.tokengraft-KERNEL-*.partial` and holds the unfinished output and a file `lock`. The process that
writes holds a lock on that file (`flock`), which the system releases when the process ends. KERNEL is an id of the
running kernel, because a lock is not visible to other machines on a network file system. A later run removes a folder
if it has the same kernel id and the lock is free, or if the folder is empty: then its process was killed before it had
a lock file, or while removing the folder. It does not touch other folders: those of other users and machines, of
systems without `flock`, and from before a reboot.
"""

import errno
import inspect
import os
import platform
import shutil
import signal
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import FrameType

from tokengraft.errors import OutputError

PREFIX, SUFFIX = ".tokengraft-", ".partial"
LOCK, RESULT = "lock", "result"
_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


@contextmanager
def partial_path(parent: Path) -> Iterator[Path]:
    """A path to write to, inside a new folder in ``parent``. The folder is removed at the end with its content."""
    made: list[tuple[Path, int]] = []
    process = os.getpid()
    try:
        with uninterrupted():
            remove_abandoned(parent)
            made.append(_new_folder(parent))
        yield made[0][0] / RESULT
    finally:
        with uninterrupted():
            for folder, lock in made if os.getpid() == process else []:  # a forked process leaves the block too
                _remove(folder / RESULT)
                os.close(lock)  # NFS does not remove a folder with an open file in it
                shutil.rmtree(folder, ignore_errors=True)


def require_kept(path: Path) -> None:
    """Refuses a path of `partial_path` whose folder was removed meanwhile.

    Code that makes missing folders may have made it again, without the files that were written before.
    """
    if not (path.parent / LOCK).exists():
        raise OSError(errno.ENOENT, "the folder of the unfinished output was removed meanwhile")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder for temporary files, in the system's folder for them. It is removed at the end with its content."""
    folder = None
    try:
        with partial_path(Path(tempfile.gettempdir())) as folder:
            folder.mkdir()
            yield folder
    except OSError as error:
        names = paths_of(error)
        is_ours = any(Path(name).is_relative_to(folder) for name in names) if folder else True
        if not is_ours and (names or error.errno not in _OF_WRITING):
            raise
        raise OutputError(
            f"cannot write temporary files to `{tempfile.tempdir or 'TMPDIR'}`: {error.strerror or error}",
            hint="free space there, or set TMPDIR to another folder",
        ) from error


def paths_of(error: OSError) -> list[str]:
    """The paths that an error is about. Errors of writing name none."""
    return [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]


def _new_folder(parent: Path) -> tuple[Path, int]:
    """A new folder, and its open and locked lock file. If the system has no locks, the folder has no kernel id."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{_kernel()}-", suffix=SUFFIX, dir=parent))
        try:
            lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            if not _lock(lock, wait=True):
                os.close(lock)  # Windows does not rename a folder with an open file in it
                folder = folder.rename(folder.with_name(folder.name.replace(f"{_kernel()}-", "")))
                return folder, os.open(folder / LOCK, os.O_RDWR)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(lock), (folder / LOCK).stat()):
                    return folder, lock
            os.close(lock)  # another run had the lock first, and removed the folder as abandoned
        except FileNotFoundError:  # another run removed the empty folder
            continue
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def remove_abandoned(parent: Path) -> None:
    """Removes the folders that killed processes of this machine left in ``parent``."""
    for folder in parent.glob(f"{PREFIX}*{SUFFIX}"):
        with suppress(OSError):  # not ours to open, or another process is removing it
            status = folder.lstat()
            is_own = sys.platform == "win32" or status.st_uid == os.geteuid()
            if not is_own or not stat.S_ISDIR(status.st_mode):  # in /tmp others could swap theirs for a link meanwhile
                continue
            with suppress(OSError):  # it has files
                folder.rmdir()
                continue
            if not folder.name.startswith(f"{PREFIX}{_kernel()}-"):
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if _lock(lock):
                    _remove(folder / RESULT)  # before the lock file, without which a later run would keep the folder
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


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
def _kernel() -> str:
    """An id of the running kernel, different for every machine and after every reboot."""
    try:
        name = Path("/proc/sys/kernel/random/boot_id").read_bytes().strip()
    except OSError:
        name = platform.node().encode()
    return sha256(name).hexdigest()[:12]


def _remove(path: Path) -> None:
    """Removes a file or folder, and ignores errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


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
