"""Writing loses nothing: whatever fails, is interrupted, is killed, or appears at the same name meanwhile."""

import os
import stat
from itertools import count

import pytest
from outputs import NEW, OLD, Faults, content, write

from tokengraft import errors
from tokengraft.output import atomic

FAULTS = ("error", "interrupt", "interrupt-after", "errors-from-here-on")


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
