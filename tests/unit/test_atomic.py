"""Writing loses nothing: whatever fails, is interrupted, is killed, or appears at the same name meanwhile."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from itertools import count

import pytest

from tokengraft import errors
from tokengraft.output import atomic, partial

OLD, NEW = {"a": b"old", "b/c": b"old too"}, {"a": b"new", "d": b"new too"}
CALLS = ("rename", "replace", "link", "mkdir", "fsync", "unlink", "rmdir", "open")
FAULTS = ("error", "interrupt", "interrupt-after", "errors-from-here-on")


def content(path):
    """What is at a path: the bytes of a file, the files of a folder, or None."""
    if path.is_dir():
        return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
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


# If all later calls fail too, an empty output may be left of the name that was reserved.
WRITES = [(old, new, kind, True) for old, new in ((OLD, NEW), (b"old", b"new")) for kind in FAULTS]
WRITES += [(None, new, kind, links) for new in (NEW, b"new") for kind in FAULTS[:3] for links in (True, False)]


@pytest.mark.parametrize("with_renameat2", [True, False])
@pytest.mark.parametrize(("old", "new", "kind", "with_links"), WRITES)
def test_whichever_call_fails_the_old_or_the_new_output_is_complete(
    tmp_path, old, new, kind, with_links, with_renameat2
):
    for at in count(1):
        parent = tmp_path / str(at)
        out = parent / "out"
        if old:
            write(out, old)
        message, failed = "", False
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, kind, at, with_renameat2=with_renameat2, with_links=with_links)
            try:
                write(out, new, force=bool(old))
            except (errors.OutputError, KeyboardInterrupt) as error:
                message, failed = str(error), True
            faults.on = False
        aside = [path for path in parent.iterdir() if path.suffix == ".old"] if parent.exists() else []
        assert content(out) in (old, new) or [content(path) for path in aside] == [old]
        assert all(path.name in message for path in aside)
        assert failed or content(out) == new
        if faults.calls < at:
            break
    assert at > 4


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("with_renameat2", [True, False])
@pytest.mark.parametrize("with_links", [True, False])
@pytest.mark.parametrize(("first", "second"), [(OLD, NEW), (b"1", b"2")], ids=["folder", "file"])
def test_of_two_runs_with_one_output_exactly_one_succeeds(
    tmp_path, monkeypatch, first, second, with_links, with_renameat2, force
):
    Faults(monkeypatch, "error", 0, with_renameat2=with_renameat2, with_links=with_links)
    out = tmp_path / "out"
    with pytest.raises(errors.OutputError, match="appeared or changed while it was being written"):
        write(out, first, force=force, meanwhile=lambda: write(out, second, force=force))
    assert content(out) == second
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("with_renameat2", [True, False])
def test_an_empty_folder_that_appears_meanwhile_is_not_replaced(tmp_path, monkeypatch, with_renameat2):
    Faults(monkeypatch, "error", 0, with_renameat2=with_renameat2, with_links=True)
    out = tmp_path / "out"
    with pytest.raises(errors.OutputError, match="appeared"):
        write(out, NEW, meanwhile=out.mkdir)
    assert content(out) == {}


def test_force_replaces_what_was_there_when_writing_began_and_nothing_else(tmp_path):
    out = tmp_path / "out"
    write(out, OLD)

    def put_another_in_its_place():
        out.rename(tmp_path / "moved")
        write(out, {"other": b"mine"})

    with pytest.raises(errors.OutputError, match="changed"):
        write(out, NEW, force=True, meanwhile=put_another_in_its_place)
    assert content(out) == {"other": b"mine"}
    with pytest.raises(errors.OutputError, match=r"weights.*`force=True` would delete"):
        write(out, NEW, force=True, meanwhile=lambda: (out / "weights").write_bytes(b"paid for"))
    assert (out / "weights").read_bytes() == b"paid for"


CHILD = """
import sys
from pathlib import Path
from tokengraft.output import atomic
with atomic.new_folder(Path(sys.argv[1]), replaceable=None) as folder:
    (folder / "half").write_bytes(b"half")
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def writer(tmp_path):
    """A process that has written half of `killed` and waits."""
    command = [sys.executable, "-c", CHILD, str(tmp_path / "killed")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.kill()


def partials(folder):
    return [path for path in folder.iterdir() if path.name.endswith(".partial")]


def test_what_a_killed_process_left_is_removed_by_the_next_run(writer, tmp_path):
    assert len(partials(tmp_path)) == 1
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    assert len(partials(tmp_path)) == 1
    write(tmp_path / "next", NEW)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["next"]


def test_what_a_run_that_was_killed_while_removing_left_is_removed_by_the_next(writer, tmp_path, monkeypatch):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    for at in range(1, 12):
        shutil.copytree(tmp_path, tmp_path.parent / f"left-{at}")
    for at in range(1, 12):
        folder = tmp_path.parent / f"left-{at}"
        with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
            Faults(patched, "interrupt-after", at, with_renameat2=True, with_links=True)
            partial.remove_abandoned(folder)
        partial.remove_abandoned(folder)
        assert partials(folder) == []


def test_a_run_whose_empty_folder_another_run_removes_takes_a_new_one(tmp_path, monkeypatch):
    make, made = tempfile.mkdtemp, []

    def make_and_lose(**options):
        made.append(make(**options))
        if len(made) == 1:
            partial.remove_abandoned(tmp_path)
        return made[-1]

    monkeypatch.setattr(tempfile, "mkdtemp", make_and_lose)
    write(tmp_path / "next", NEW)
    assert len(made) == 2
    assert content(tmp_path / "next") == NEW
    assert partials(tmp_path) == []


def test_what_a_running_process_writes_is_left_alone(writer, tmp_path):
    write(tmp_path / "next", NEW)
    assert len(partials(tmp_path)) == 1
    writer.communicate()
    assert content(tmp_path / "killed") == {"half": b"half"}


@pytest.mark.parametrize("named", ["", "0123456789ab-"])
def test_what_another_machine_may_be_writing_is_left_alone(writer, tmp_path, named):
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    (left,) = partials(tmp_path)
    left = left.rename(tmp_path / f".tokengraft-{named}x.partial")
    write(tmp_path / "next", NEW)
    assert partials(tmp_path) == [left]


def test_without_locks_no_run_removes_the_folder_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr(partial, "_lock", lambda *_, **__: False)
    write(tmp_path / "one", NEW, meanwhile=lambda: write(tmp_path / "two", NEW))
    assert content(tmp_path / "one") == content(tmp_path / "two") == NEW
    monkeypatch.undo()
    folder = tmp_path / ".tokengraft-x.partial"
    folder.mkdir()
    (folder / partial.LOCK).touch()
    partial.remove_abandoned(tmp_path)
    assert folder.exists()


def test_a_run_whose_folder_another_run_removes_before_it_is_locked_takes_a_new_one(tmp_path, monkeypatch):
    lock, calls = partial._lock, []

    def lock_late(descriptor, **options):
        calls.append(options)
        if len(calls) == 1:
            partial.remove_abandoned(tmp_path)
        return lock(descriptor, **options)

    monkeypatch.setattr(partial, "_lock", lock_late)
    write(tmp_path / "next", NEW)
    assert len(calls) == 3
    assert content(tmp_path / "next") == NEW
    assert partials(tmp_path) == []


def test_a_link_with_the_name_of_an_unfinished_output_is_not_followed(tmp_path):
    other = tmp_path / "other"
    write(other, {partial.LOCK: b"", f"{partial.RESULT}/kept": b"mine"})
    (tmp_path / f"{partial.PREFIX}{partial._kernel()}-x{partial.SUFFIX}").symlink_to(other)
    write(tmp_path / "next", NEW)
    assert content(other) == {partial.LOCK: b"", f"{partial.RESULT}/kept": b"mine"}


@pytest.mark.parametrize("is_empty", [True, False])
def test_the_folder_of_another_user_is_left_alone(tmp_path, monkeypatch, is_empty):
    folder = tmp_path / f"{partial.PREFIX}{partial._kernel()}-x{partial.SUFFIX}"
    folder.mkdir()
    if not is_empty:
        (folder / partial.LOCK).touch()
    user = os.geteuid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "geteuid", lambda: user + 1)
        partial.remove_abandoned(tmp_path)
        assert folder.exists()
    partial.remove_abandoned(tmp_path)
    assert not folder.exists()


def test_a_forked_process_that_leaves_the_block_removes_nothing(tmp_path):
    with ExitStack() as block:
        path = block.enter_context(partial.partial_path(tmp_path))
        path.write_bytes(b"of the first process")
        child = os.fork()
        if not child:
            try:
                block.close()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert path.read_bytes() == b"of the first process"
    assert partials(tmp_path) == []


def test_a_temporary_folder_that_cannot_be_written_is_named_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with (
        pytest.raises(errors.OutputError, match=r"missing`: No such file(?s:.*)set TMPDIR"),
        partial.temporary_folder(),
    ):
        pass


@pytest.mark.parametrize(
    "error", [OSError(errno.EPIPE, "pipe"), OSError(errno.EIO, "input", "elsewhere"), ValueError()]
)
def test_errors_about_other_things_than_temporary_files_are_not_changed(error):
    with pytest.raises(type(error)) as raised, partial.temporary_folder() as folder:
        raise error
    assert raised.value is error
    assert not folder.exists()


def test_an_unreadable_input_and_a_mistake_in_the_code_are_not_called_a_full_disk(tmp_path):
    with (
        pytest.raises(errors.UnreadableFileError, match=r"cannot read `.*missing`: No such file"),
        atomic.new_file(tmp_path / "out", force=False),
    ):
        (tmp_path / "missing").read_bytes()
    with pytest.raises(ValueError, match="a bug"), atomic.new_file(tmp_path / "out", force=False):
        raise ValueError("a bug")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("force", [False, True])
def test_a_name_that_cannot_be_written_is_refused_at_the_start(tmp_path, monkeypatch, force):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    for name in (".", "..", "a/..", "/", "a\0b", "x" * 256, "file/out"):
        with pytest.raises(errors.OutputError, match=r"not a valid output name|cannot write"):
            atomic.require_new(name, force=force)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write anywhere
    with pytest.raises(errors.OutputError, match="no permission to write"):
        atomic.require_new(tmp_path / "new" / "out", force=force)


def test_a_folder_is_never_replaced_by_a_file(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.OutputError, match="is a folder; the output is a file"):
        write(tmp_path / "out", b"new", force=True)


def test_an_unfinished_output_that_was_removed_and_made_again_is_not_complete(tmp_path):
    out = tmp_path / "folder" / "out"

    def lose(path):
        shutil.rmtree(out.parent)
        path.mkdir(parents=True)

    with pytest.raises(errors.OutputError, match="the unfinished output was removed meanwhile"):
        atomic.write_folder(NEW, out, replaceable=None, check=lose)
    assert not out.exists()


def test_a_signal_is_held_back_until_the_block_ends():
    done = []

    def interrupted_block():
        with partial.uninterrupted(), partial.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("all steps")

    with pytest.raises(KeyboardInterrupt):
        interrupted_block()
    assert done == ["all steps"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_every_signal_that_was_held_back_is_handled_once(monkeypatch):
    handled, sent = [], []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, lambda number, _: handled.append(number)) for number in numbers]
    try:
        with partial.uninterrupted():
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
            monkeypatch.setattr(signal, "raise_signal", sent.append)  # who listens to a wakeup descriptor would get it
        assert sorted(handled) == [signal.SIGINT, signal.SIGTERM]
        assert sent == []
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@pytest.mark.parametrize("at", range(1, 7))
def test_a_signal_while_handlers_are_changed_leaves_handlers_that_work(monkeypatch, at):
    """At the n-th change of a handler: three when the block begins, three when it ends."""
    change, calls = signal.signal, []
    before = {number: change(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}

    def change_and_receive(number, handler):
        changed = change(number, handler)
        calls.append(number)
        if len(calls) == at:
            for every in (signal.SIGINT, *before):
                os.kill(os.getpid(), every)
        return changed

    def run():
        with partial.uninterrupted():
            pass

    try:
        monkeypatch.setattr(signal, "signal", change_and_receive)
        with pytest.raises(KeyboardInterrupt):
            run()
        monkeypatch.undo()
        for number in (signal.SIGINT, *before):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(number)
    finally:
        monkeypatch.undo()
        change(signal.SIGINT, signal.default_int_handler)
        for number, handler in before.items():
            change(number, handler)


def test_names_may_have_newlines_and_spaces(tmp_path):
    write(tmp_path / "a\n b", NEW)
    assert content(tmp_path / "a\n b") == NEW


def test_modes_follow_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write(tmp_path / "folder", {"x/y": b""})
        write(tmp_path / "file", b"")
    finally:
        os.umask(before)
    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("folder", "folder/x", "folder/x/y", "file")]
    assert modes == [0o750, 0o750, 0o640, 0o640]


def test_an_input_is_never_an_output_and_two_outputs_are_never_one(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to("in")
    inputs = [None, "no/such-model", tmp_path / "in" / "a"]
    atomic.require_distinct(inputs, tmp_path / "out", None, tmp_path / "in-two")
    for out in ("in/a", "in", "link", "link/a", "in/a/below"):
        with pytest.raises(errors.OutputError, match="input"):
            atomic.require_distinct(inputs, tmp_path / out)
    for other in ("out", "out/x", "other/../out"):
        with pytest.raises(errors.OutputError, match="the other output"):
            atomic.require_distinct([], tmp_path / "out", tmp_path / other)


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("what", [OLD, b"old"], ids=["folder", "file"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link"])
def test_only_regular_files_and_folders_are_replaced(tmp_path, kind, what, force):
    out = tmp_path / "out"
    special(out, kind)
    before = out.lstat()
    with pytest.raises(errors.OutputError, match=f"is a {kind}") as caught:
        write(out, what, force=force)
    assert "force" not in str(caught.value)
    assert out.lstat() == before


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link"])
def test_a_folder_with_a_pipe_or_the_like_in_it_is_not_replaced(tmp_path, kind):
    out = tmp_path / "out"
    write(out, OLD)
    special(out / "x", kind)
    with pytest.raises(errors.OutputError, match="holds `x`"):
        write(out, NEW, force=True)
    assert content(out) == OLD


def test_a_pipe_that_takes_the_place_of_a_file_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    out = tmp_path / "out"
    write(out, b"old")
    number = out.stat().st_ino

    def put_a_pipe_in_its_place():
        out.unlink()
        os.mkfifo(out)
        reused = list(out.lstat())
        reused[stat.ST_INO] = number  # as file systems do
        monkeypatch.setattr(type(out), "lstat", lambda _: os.stat_result(reused))

    with pytest.raises(errors.OutputError, match="appeared or changed"):
        write(out, b"new", force=True, meanwhile=put_a_pipe_in_its_place)
    monkeypatch.undo()
    assert out.is_fifo()


def special(path, kind):
    """Makes something that is neither a regular file nor a folder."""
    if kind == "link":
        path.symlink_to(os.devnull)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        mode, device = (stat.S_IFSOCK, 0) if kind == "socket" else (stat.S_IFCHR, os.makedev(1, 3))
        try:
            os.mknod(path, mode | 0o600, device)
        except PermissionError:
            pytest.skip("only root makes devices")
