"""Writes files and folders that are complete or absent.

Everything is written into a `.tokengraft-*.partial` folder beside the output (see `partial`) and renamed at the end, so
that an unfinished output never has the final name. These rules hold at all times, whatever fails or is interrupted:

- Without ``force``, nothing is replaced. A file or folder that gets the name while the output is written is kept, and
  the new output is discarded with an `OutputError`. Of two runs with the same output, exactly one succeeds.
- Only regular files and folders are ever replaced. A device, a pipe, a socket or a link (such as `/dev/null` and
  `/dev/stdout`) is refused, with ``force`` or without.
- With ``force``, only the output that existed when writing began is replaced, in one step if the system can swap two
  names. Otherwise the old folder is renamed to `tokengraft-*.old`, and deleted after the new one has its name. If that
  fails halfway, the error names the old folder.
- An input is never an output: `require_distinct`.
- The next run that writes to the same folder removes the unfinished output of a killed process.
"""

import errno
import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import combinations
from pathlib import Path

from tokengraft.errors import OutputError, UnreadableFileError, option
from tokengraft.output.partial import PREFIX, SUFFIX, partial_path, paths_of, require_kept

Replaceable = Callable[[Path], bool]
"""Whether `--force` may delete a file, given by its path relative to the output folder."""
Identity = tuple[int, int, int]
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""A `Path` of a URL has only one of its slashes."""
_SPECIAL = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


def require_new(out: str | os.PathLike[str], *, force: bool | None, replaceable: Replaceable | None = None) -> None:
    """Refuses an output that cannot be written, before any work is done.

    With ``force`` it may be replaced; a folder only if ``replaceable`` is true for every file in it. None: it cannot be
    asked for.
    """
    path = Path(out)
    identity = _identity(path)
    if identity is None:
        if _URL.match(str(path)) and not os.path.lexists(path.parts[0]):
            raise OutputError(
                f"the output `{path}` is a URL", hint="write to a path on this machine, and copy it from there"
            )
        parent = next(folder for folder in path.absolute().parents if os.path.lexists(folder))
        problem = "" if parent.is_dir() else f"`{parent}` is not a folder"
        if not problem and not os.access(parent, os.W_OK | os.X_OK):
            problem = f"no permission to write to `{parent}`"
        if problem:
            raise OutputError(f"cannot write `{path}`: {problem}", hint="choose another path")
    elif identity[0] not in (stat.S_IFREG, stat.S_IFDIR):
        raise OutputError(
            f"`{path}` exists and is a {_SPECIAL.get(identity[0], 'device')}; the output must be a new file or folder",
            hint="choose another name",
        )
    elif not force:
        hint = "choose another name" if force is None else f"choose another name, or pass {option('force')}"
        raise OutputError(f"`{path}` exists; the output must be new", hint=hint)
    elif replaceable:
        _require_replaceable(path, replaceable)


def require_distinct(inputs: Iterable[str | os.PathLike[str] | None], *outputs: str | os.PathLike[str] | None) -> None:
    """Refuses an output that is an input, is inside one or contains one. The same for two outputs.

    Inputs that are ``None`` or do not exist, such as hub names, are ignored.
    """
    written = [Path(path) for path in outputs if path is not None]
    read = [Path(path) for path in inputs if path is not None and os.path.lexists(path)]
    for out in written:
        _identity(out)  # refuses an invalid name
    pairs = [(out, path, "the input") for out in written for path in read]
    pairs += [(out, other, "the other output") for out, other in combinations(written, 2)]
    for out, other, what in pairs:
        a, b = Path(os.path.realpath(out)), Path(os.path.realpath(other))
        if a == b or (a.exists() and b.exists() and a.samefile(b)):  # also on file systems that ignore case
            raise OutputError(f"the output `{out}` is {what} `{other}`", hint="write to another path")
        if a in b.parents or b in a.parents:
            raise OutputError(
                f"of the output `{out}` and {what} `{other}`, one lies inside the other", hint="write to another path"
            )


def write_folder(
    files: Mapping[str, bytes],
    out: Path,
    *,
    replaceable: Replaceable | None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Writes a folder of files, given by relative path.

    ``check`` is called with the written folder before it is renamed to ``out``. If it raises, nothing is kept.
    """
    with new_folder(out, replaceable=replaceable) as partial:
        write_files(files, partial)
        if check:
            check(partial)


def write_files(files: Mapping[str, bytes], folder: Path) -> None:
    """Writes files, given by relative path, into a folder."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@contextmanager
def new_folder(out: Path, *, replaceable: Replaceable | None) -> Iterator[Path]:
    """A folder to write to, which becomes ``out`` when the block ends without an error."""
    require_new(out, force=replaceable is not None, replaceable=replaceable)
    with _writing(out, force=replaceable is not None, replaceable=replaceable) as partial:
        partial.mkdir()
        yield partial
        for leftover in [*partial.rglob(f"{PREFIX}*{SUFFIX}")]:  # of files written inside, if it could not be removed
            shutil.rmtree(leftover)
        for path in partial.rglob("*"):
            sync(path)


@contextmanager
def new_file(out: Path, *, force: bool) -> Iterator[Path]:
    """A path to write a file to, which becomes ``out`` when the block ends without an error."""
    require_new(out, force=force)
    if out.is_dir():
        raise OutputError(f"`{out}` is a folder; the output is a file", hint="choose another name")
    with _writing(out, force=force) as partial:
        yield partial


def _identity(path: Path) -> Identity | None:
    """The type, device and inode at a path; None if it does not exist. A link is not followed."""
    if path.name in ("", ".."):
        raise OutputError(f"`{path}` is not a valid output name", hint="name a new file or folder")
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise _cannot_write(path, error) from error
    return stat.S_IFMT(status.st_mode), status.st_dev, status.st_ino


def _require_replaceable(out: Path, replaceable: Replaceable) -> None:
    if not out.is_dir():
        raise OutputError(f"`{out}` exists and is not a folder", hint="choose another name, or remove it yourself")
    for path in out.rglob("*"):
        if path.is_symlink() or not (path.is_dir() or (path.is_file() and replaceable(path.relative_to(out)))):
            raise OutputError(
                f"`{out}` holds `{path.relative_to(out)}`, which {option('force')} would delete; "
                "it replaces only folders that hold nothing but what this command writes",
                hint="choose another name, or remove the folder yourself",
            )


@contextmanager
def _writing(out: Path, *, force: bool, replaceable: Replaceable | None = None) -> Iterator[Path]:
    """A path beside ``out`` to write to, which is renamed to ``out`` at the end.

    Errors of the system become an `OutputError`; those about other paths an `UnreadableFileError`: an input cannot be
    read.
    """
    before = _identity(out)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with partial_path(out.parent) as partial:
            try:
                yield partial
            except OSError as error:
                names, root = paths_of(error), os.path.realpath(partial)
                if not names or any(Path(os.path.realpath(name)).is_relative_to(root) for name in names):
                    raise
                raise UnreadableFileError(
                    f"cannot read `{names[0]}`: {error.strerror or error}", hint="check the path and its permissions"
                ) from error
            sync(partial)
            require_kept(partial)
            if not force or before is None or _identity(out) != before:
                _rename_new(partial, out)
            elif replaceable:
                _require_replaceable(out, replaceable)
                _exchange(partial, out)
            else:
                partial.replace(out)
            sync(out.parent)
    except OSError as error:
        raise _cannot_write(out, error) from error


def _cannot_write(out: Path, error: OSError | ValueError) -> OutputError:
    reason = getattr(error, "strerror", None) or error
    return OutputError(f"cannot write `{out}`: {reason}", hint="check the path, its permissions and the disk")


NO_REPLACE = 1
EXCHANGE = 2
_CURRENT_FOLDER = -100
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}


def _rename_new(partial: Path, out: Path) -> None:
    """Renames a file or folder to a name that must not exist. A file may keep its old name too."""
    try:
        if renameat2(partial, out, NO_REPLACE):
            return
        if sys.platform == "win32":
            partial.rename(out)  # never replaces there
            return
        if not partial.is_dir():
            try:
                os.link(partial, out)
                return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
        _claim(partial, out)
    except FileExistsError as error:
        raise OutputError(
            f"`{out}` appeared or changed while it was being written; it is not changed, and the new output is "
            "discarded",
            hint="run again with another name; only one run at a time may write to one output",
        ) from error


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


def _exchange(new: Path, old: Path) -> None:
    """Swaps the names of two folders.

    The old folder has another name temporarily if the system cannot swap names, and keeps it only if both further
    renames fail.
    """
    if renameat2(new, old, EXCHANGE):
        return
    aside = old.with_name(f"tokengraft-{os.urandom(4).hex()}.old")

    def settle() -> None:
        """Renames the old folder to ``new`` if it has been replaced, else back."""
        if os.path.lexists(aside):
            aside.rename(new if os.path.lexists(old) else old)

    try:
        try:
            old.rename(aside)
            new.rename(old)
        finally:  # also after an interrupt: a complete folder ends up under the name of `old`
            try:
                settle()
            except BaseException:
                settle()  # the interrupt may have arrived during the first call
                raise
    except OSError as error:
        if not os.path.lexists(aside):
            raise
        reason = error.strerror or error
        raise OutputError(
            f"cannot rename `{aside}`: {reason}; it has the old content of `{old}`", hint="rename or delete it yourself"
        ) from error


def renameat2(source: Path, target: Path, flags: int) -> bool:
    """Calls `renameat2` of Linux; False if the system or the file system does not support it."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
    function = getattr(library, "renameat2", None)
    if function is None:
        return False
    path = ctypes.c_char_p
    function.argtypes = (ctypes.c_int, path, ctypes.c_int, path, ctypes.c_uint)
    if function(_CURRENT_FOLDER, os.fsencode(source), _CURRENT_FOLDER, os.fsencode(target), flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


def sync(path: Path) -> None:
    """Waits until a file, or the list of files of a folder, is on the disk."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a system that does not open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
