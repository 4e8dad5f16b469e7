"""Outputs that are links, pipes, devices, inputs, inside inputs, or of the wrong type are refused: nothing changes."""

import os
import stat
from contextlib import suppress

import pytest
from injection import ALL
from outputs import content
from scenarios import EVERY, FEW

WRITES_FILE = {"count", "count-spill", "counts-merge", "report", "transplant-gguf"}


def prepared(place):
    """A folder with outputs that must be refused."""
    folder = place.folder()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "kept").write_bytes(b"mine")
    (folder / "linked").symlink_to("elsewhere")
    (folder / "file").write_bytes(b"mine")
    (folder / "linked-file").symlink_to("file")
    os.mkfifo(folder / "pipe")
    (folder / "linked-pipe").symlink_to("pipe")
    os.mknod(folder / "socket", stat.S_IFSOCK | 0o600)
    with suppress(PermissionError):  # only root makes devices
        os.mknod(folder / "device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    return folder


RUNS = [*((name, True) for name in EVERY), *((name, False) for name in (EVERY if ALL else FEW))]
LINKS = ["dangling", "linked", "linked-file", "linked-pipe"]
SPECIAL = [*LINKS, "pipe", "socket", "device"]


def listed(folder):
    """Every path below a folder with its type, and the content of files. The fixture compares the inputs."""
    paths = [path for path in folder.rglob("*") if path.parts[len(folder.parts)] not in ("inputs", "tmp")]
    return {str(path): (path.lstat().st_mode, content(path) if is_plain(path) else None) for path in paths}


def is_plain(path):
    return not path.is_symlink() and (path.is_file() or path.is_dir())


@pytest.mark.parametrize(("place", "force"), RUNS, indirect=["place"])
def test_an_output_that_would_damage_something_is_refused(place, request, force):
    name = request.node.callspec.params["place"]
    folder = prepared(place)
    before = listed(folder)
    source = next(part for part in place.scenario.arguments if part.startswith("inputs/"))
    outs = [source, f"{source}/new", "inputs", "file/new", "elsewhere" if name in WRITES_FILE else "file"]
    for out in outs:
        arguments = [out if part == "out" else part for part in place.scenario.arguments]
        ended = place.server.run([*arguments, *(["--force"] if force else [])], folder)
        assert ended.status == 2, f"--out {out}: {ended.stderr}"
        assert "Traceback" not in ended.stderr
        assert "hint: " in ended.stderr
        assert listed(folder) == before, out
    place.assert_clean(folder, kept=["elsewhere", "file", *SPECIAL])


@pytest.mark.parametrize(("place", "force"), RUNS, indirect=["place"])
def test_an_output_that_is_no_file_or_folder_is_refused_and_force_is_not_suggested(place, force):
    folder = prepared(place)
    before = listed(folder)
    for name in place.scenario.outputs:
        for out in [out for out in SPECIAL if os.path.lexists(folder / out)]:
            arguments = [out if part == name else part for part in place.scenario.arguments]
            ended = place.server.run([*arguments, *(["--force"] if force else [])], folder)
            assert ended.status == 2, f"{name} = {out}: {ended.stderr}"
            assert "hint: " in ended.stderr
            assert "--force" not in ended.stderr
            assert listed(folder) == before, f"{name} = {out}"
