"""Writing that is finished or not there: everything goes to a temporary sibling, which is renamed at the end.

A killed run leaves at most a `.tokengraft-*.partial` folder beside the target, never something that looks finished.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tokengraft.errors import OutputError


def require_new(out: Path, *, force: bool) -> None:
    """Refuses an output that exists, before hours are spent on what cannot be written.

    Raises:
        OutputError: It exists and ``force`` is not given.
    """
    if not force and os.path.lexists(out):
        raise OutputError(
            f"`{out}` exists; the output must be new", hint="choose another name, or pass --force (force=True)"
        )


def write_folder(
    files: Mapping[str, bytes],
    out: Path,
    *,
    replaceable: Callable[[Path], bool] | None,
    check: Callable[[Path], object] | None = None,
) -> None:
    """Writes a folder of files, given by relative path.

    Args:
        files: What the folder shall hold.
        out: The folder. Its parents are made.
        replaceable: Where given, an existing folder is replaced, if this is true of every file in it.
        check: Called with the written folder before it gets its name; what it raises leaves nothing behind.

    Raises:
        OutputError: The folder exists and may not be replaced, or cannot be written.
    """
    with new_folder(out, replaceable=replaceable) as partial:
        for name, data in files.items():
            path = partial / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if check:
            check(partial)


@contextmanager
def new_folder(out: Path, *, replaceable: Callable[[Path], bool] | None) -> Iterator[Path]:
    """A folder to write to, which becomes ``out`` when the block ends without an error.

    Raises:
        OutputError: The folder exists and may not be replaced, or cannot be written.
    """
    with _writing(out):
        if os.path.lexists(out):
            _require_replaceable(out, replaceable)
        out.parent.mkdir(parents=True, exist_ok=True)
        partial = _temporary_sibling(out)
        try:
            partial.chmod(0o777 & ~_umask())
            yield partial
            for path in partial.rglob("*"):
                _sync(path)
            _sync(partial)
            _move(partial, out)
            _sync(out.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(out: Path, *, force: bool) -> Iterator[Path]:
    """A path to write a file to, which becomes ``out`` when the block ends without an error.

    Raises:
        OutputError: The file exists and ``force`` is not given, or it cannot be written.
    """
    with _writing(out):
        require_new(out, force=force and not out.is_dir())
        out.parent.mkdir(parents=True, exist_ok=True)
        folder = _temporary_sibling(out)
        try:
            partial = folder / "partial"
            yield partial
            with partial.open("rb") as stream:
                os.fsync(stream.fileno())
            partial.replace(out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _require_replaceable(out: Path, replaceable: Callable[[Path], bool] | None) -> None:
    if replaceable is None:
        require_new(out, force=False)
        return
    if out.is_symlink() or not out.is_dir():
        raise OutputError(f"`{out}` exists and is not a folder", hint="choose another name, or remove it yourself")
    entries = [path for path in out.rglob("*") if path.is_symlink() or not path.is_dir()]
    strangers = [path for path in entries if path.is_symlink() or not replaceable(path.relative_to(out))]
    if strangers:
        raise OutputError(
            f"`{out}` holds `{strangers[0].relative_to(out)}`, which --force would delete; "
            "it replaces folders that hold nothing but what this command writes",
            hint="choose another name, or remove the folder yourself",
        )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        reason = getattr(error, "strerror", None) or error
        raise OutputError(
            f"cannot write `{out}`: {reason}", hint="check the path, its permissions and the disk"
        ) from error


def _sync(path: Path) -> None:
    """Has what was written to a file, or a folder's list of files, on the disk before anything goes on."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # a system that does not open folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _move(partial: Path, out: Path) -> None:
    """Renames ``partial`` to ``out``; an old ``out`` is set aside first, and put back if that fails."""
    if not out.exists():
        partial.rename(out)
        return
    aside = _temporary_sibling(out)
    old = out.rename(aside / out.name)
    try:
        partial.rename(out)
    except OSError:
        old.rename(out)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _temporary_sibling(out: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix=".tokengraft-", suffix=".partial", dir=out.parent))


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
