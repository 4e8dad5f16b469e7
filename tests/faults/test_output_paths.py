"""Outputs that are links, inputs, inside inputs, or of the wrong type are refused, and nothing changes."""

import pytest
from injection import content
from scenarios import EVERY

WRITES_FILE = {"count", "count-spill", "counts-merge", "plan", "report", "transplant-gguf"}


def prepared(place):
    """A folder with outputs that must be refused."""
    folder = place.folder()
    (folder / "dangling").symlink_to("nowhere")
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "kept").write_bytes(b"mine")
    (folder / "linked").symlink_to("elsewhere")
    (folder / "file").write_bytes(b"mine")
    return folder


def listed(folder):
    """Every path below a folder, links as links; without the inputs, which the fixture compares."""
    paths = [path for path in folder.rglob("*") if path.parts[len(folder.parts)] not in ("inputs", "tmp")]
    return {str(path): str(path.readlink()) if path.is_symlink() else content(path) for path in paths}


@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
@pytest.mark.parametrize("place", EVERY, indirect=True)
def test_an_output_that_would_damage_something_is_refused(place, request, force):
    name = request.node.callspec.params["place"]
    folder = prepared(place)
    before = listed(folder)
    source = next(part for part in place.scenario.arguments if part.startswith("inputs/"))
    outs = [source, f"{source}/new", "inputs", "file/new", "elsewhere" if name in WRITES_FILE else "file"]
    outs += [] if force and name in WRITES_FILE else ["linked", "dangling"]
    for out in outs:
        arguments = [out if part == "out" else part for part in place.scenario.arguments]
        ended = place.server.run([*arguments, *(["--force"] if force else [])], folder)
        assert ended.status == 2, f"--out {out}: {ended.stderr}"
        assert "Traceback" not in ended.stderr
        assert "hint: " in ended.stderr
        assert listed(folder) == before, out
    place.assert_clean(folder, kept=["dangling", "elsewhere", "linked", "file"])


@pytest.mark.parametrize("place", ["count", "plan"], indirect=True)
@pytest.mark.parametrize("link", ["dangling", "linked-file"])
def test_with_force_a_link_is_replaced_and_what_it_names_is_not(place, link):
    folder = prepared(place)
    (folder / "linked-file").symlink_to("file")
    arguments = [link if part == "out" else part for part in place.scenario.arguments]
    ended = place.server.run([*arguments, "--force"], folder)
    assert ended.status == 0, ended.stderr
    assert not (folder / link).is_symlink()
    assert content(folder / link) == place.new[0]["out"]
    assert (folder / "file").read_bytes() == b"mine"
    assert not (folder / "nowhere").exists()
