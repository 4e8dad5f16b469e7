"""Writes outputs with faults, for the tests of writing."""

import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from tokengraft.output import atomic

OLD, NEW = {"a": b"old", "b/c": b"old too"}, {"a": b"new", "d": b"new too"}
"""Two results, by file."""
CALLS = ("rename", "replace", "link", "mkdir", "fsync", "unlink", "rmdir", "open")


def content(path):
    """What is at a path: the bytes of a file, the files of a folder, or None."""
    if path.is_dir():
        return {p.relative_to(path).as_posix(): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return path.read_bytes() if path.exists() else None


def write(out, what, *, force=False, meanwhile=lambda: None):
    """Writes a folder where ``what`` is a mapping, and a file where it is bytes."""
    if isinstance(what, dict):
        replaceable = (lambda path: path.name != "weights") if force else None
        atomic.write_folder(what, out, replaceable=replaceable, check=lambda _: meanwhile())
        return
    with atomic.new_file(out, force=force) as path:
        path.write_bytes(what)
        meanwhile()


class Faults:
    """Makes the n-th call of the system fail, in one of several ways."""

    def __init__(self, monkeypatch, kind, at, *, with_renameat2, with_links):
        self.kind, self.at, self.calls, self.on = kind, at, 0, True
        for name in CALLS:
            monkeypatch.setattr(os, name, self.wrapped(getattr(os, name)))
        system_call = atomic.renameat2 if with_renameat2 else lambda *_: False
        monkeypatch.setattr(atomic, "renameat2", self.wrapped(system_call))
        if not with_links:
            monkeypatch.setattr(os, "link", self.refuse)

    @staticmethod
    def refuse(*_, **__):
        raise OSError(errno.EPERM, "no links here")

    def wrapped(self, function):
        def call(*arguments, **options):
            if not self.on:
                return function(*arguments, **options)
            self.calls += 1
            fails = self.calls == self.at or (self.kind == "errors-from-here-on" and self.calls > self.at)
            if fails and self.kind.startswith("error"):
                raise OSError(errno.EIO, "Input/output error")
            if fails and self.kind == "interrupt":
                raise KeyboardInterrupt
            answer = function(*arguments, **options)
            if fails:
                raise KeyboardInterrupt
            return answer

        return call


class _FailingFile(io.FileIO):
    """A file that changes one of the bytes that are written."""

    changed = -1

    def write(self, data):
        data, at = bytearray(data), self.changed - self.tell()
        if 0 <= at < len(data):
            data[at] ^= 1
        return super().write(data)


@contextmanager
def failing_disk(name, at):
    """Changes the byte at a place of every file of this name that is written."""
    open_ = Path.open

    def opened(path, mode="r", *arguments, **options):
        if path.name != name or mode != "wb":
            return open_(path, mode, *arguments, **options)
        file = _FailingFile(path, mode)
        file.changed = at
        return io.BufferedWriter(file)

    with patch.object(Path, "open", opened):
        yield
