"""Unfinished outputs: removed by the next run and by no other process, and signals that wait until a step is done."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress

import pytest
from outputs import NEW, Faults, content, write

from tokengraft import errors
from tokengraft.output import atomic, partial

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

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark has one of its own, if its tests ran here
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted_block()
        assert done == ["all steps"]
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


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
