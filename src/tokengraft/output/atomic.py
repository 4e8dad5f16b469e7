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

import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path

from tokengraft.errors import OutputError, UnreadableFileError
from tokengraft.output.partial import PREFIX, SUFFIX, exchange, partial_path, paths_of, rename_new, require_kept

Replaceable = Callable[[Path], bool]
"""Whether `--force` may delete a file, given by its path relative to the output folder."""
Identity = tuple[int, int, int]
_URL = re.compile(r"[a-z][a-z0-9+.-]+:/", re.IGNORECASE)
"""A `Path` of a URL has only one of its slashes."""
_ELSEWHERE = "choose another name, or remove it yourself"
_SPECIAL = {stat.S_IFLNK: "link", stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket"}


def require_new(out: str | os.PathLike[str], *, force: bool, replaceable: Replaceable | None = None) -> None:
    """Refuses an output that cannot be written, before any work is done.

    With ``force`` it may be replaced; a folder only if ``replaceable`` is true for every file in it.
    """
    path = Path(out)
    identity = _identity(path)
    if identity is None:
        _require_writable_parent(path)
    elif identity[0] not in (stat.S_IFREG, stat.S_IFDIR):
        raise OutputError(
            f"`{path}` exists and is a {_SPECIAL.get(identity[0], 'device')}; the output must be a new file or folder",
            hint="choose another name",
        )
    elif not force:
        raise OutputError(f"`{path}` exists; the output must be new", hint="choose another name, or pass --force")
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
        for path in read:
            _require_apart(out, path, "the input")
    for out, other in combinations(written, 2):
        _require_apart(out, other, "the other output")


def _require_apart(out: Path, other: Path, what: str) -> None:
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
    before = _identity(out)
    with _writing(out) as partial:
        partial.mkdir()
        with _reading_inputs(partial):
            yield partial
        for leftover in [*partial.rglob(f"{PREFIX}*{SUFFIX}")]:  # of files written inside, if it could not be removed
            shutil.rmtree(leftover)
        for path in partial.rglob("*"):
            sync(path)
        sync(partial)
        require_kept(partial)
        if replaceable and _same(out, before):
            _require_replaceable(out, replaceable)
            _exchange(partial, out)
        else:
            _rename_new(partial, out)


@contextmanager
def new_file(out: Path, *, force: bool) -> Iterator[Path]:
    """A path to write a file to, which becomes ``out`` when the block ends without an error."""
    require_new(out, force=force)
    if out.is_dir():
        raise OutputError(f"`{out}` is a folder; the output is a file", hint="choose another name")
    before = _identity(out)
    with _writing(out) as partial:
        with _reading_inputs(partial):
            yield partial
        sync(partial)
        require_kept(partial)
        if force and _same(out, before):
            partial.replace(out)
        else:
            _rename_new(partial, out)


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


def _same(out: Path, before: Identity | None) -> bool:
    return before is not None and _identity(out) == before


def _require_writable_parent(out: Path) -> None:
    if _URL.match(str(out)) and not os.path.lexists(out.parts[0]):
        raise OutputError(
            f"the output `{out}` is a URL", hint="write to a path on this machine, and copy it from there"
        )
    parent = next(path for path in out.absolute().parents if os.path.lexists(path))
    if not parent.is_dir():
        raise OutputError(f"cannot write `{out}`: `{parent}` is not a folder", hint="choose another path")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise OutputError(f"cannot write `{out}`: no permission to write to `{parent}`", hint="choose another path")


def _require_replaceable(out: Path, replaceable: Replaceable) -> None:
    if not out.is_dir():
        raise OutputError(f"`{out}` exists and is not a folder", hint=_ELSEWHERE)
    for path in out.rglob("*"):
        if path.is_symlink() or not (path.is_dir() or (path.is_file() and replaceable(path.relative_to(out)))):
            raise OutputError(
                f"`{out}` holds `{path.relative_to(out)}`, which --force would delete; "
                "it replaces only folders that hold nothing but what this command writes",
                hint="choose another name, or remove the folder yourself",
            )


@contextmanager
def _writing(out: Path) -> Iterator[Path]:
    """A path beside ``out`` to write to. Errors of the system become an `OutputError`."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with partial_path(out.parent) as partial:
            yield partial
            sync(out.parent)
    except OSError as error:
        raise _cannot_write(out, error) from error


def _cannot_write(out: Path, error: OSError | ValueError) -> OutputError:
    reason = getattr(error, "strerror", None) or error
    return OutputError(f"cannot write `{out}`: {reason}", hint="check the path, its permissions and the disk")


@contextmanager
def _reading_inputs(partial: Path) -> Iterator[None]:
    """Converts errors about paths outside the output into an `UnreadableFileError`: an input cannot be read."""
    try:
        yield
    except OSError as error:
        names = paths_of(error)
        root = os.path.realpath(partial)
        if not names or any(Path(os.path.realpath(name)).is_relative_to(root) for name in names):
            raise
        raise UnreadableFileError(
            f"cannot read `{names[0]}`: {error.strerror or error}", hint="check the path and its permissions"
        ) from error


def _rename_new(partial: Path, out: Path) -> None:
    try:
        rename_new(partial, out)
    except FileExistsError as error:
        raise OutputError(
            f"`{out}` appeared or changed while it was being written; it is not changed, and the new output is "
            "discarded",
            hint="run again with another name; only one run at a time may write to one output",
        ) from error


def _exchange(partial: Path, out: Path) -> None:
    aside = out.with_name(f"tokengraft-{secrets.token_hex(4)}.old")
    try:
        exchange(partial, out, aside)
    except OSError as error:
        if not os.path.lexists(aside):
            raise
        reason = error.strerror or error
        raise OutputError(
            f"cannot rename `{aside}`: {reason}; it has the old content of `{out}`", hint="rename or delete it yourself"
        ) from error


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
