"""transformers in a process of its own: the same answers as in this one, and no way to hang or to leave it behind."""

import subprocess
import sys
from pathlib import Path

import builders
import pytest

from tokengraft.verify import transformers_loader
from tokengraft.verify.transformers_loader import (
    CannotLoadError,
    announce,
    load_with_transformers,
    transformers_installed,
    transformers_started,
)

pytest.importorskip("transformers")
TEXTS = ["the cat", "", "õ\ud83d 漢 <|think|>", "a" * 3000]


@pytest.fixture
def not_imported(monkeypatch):
    """As in a command, where nothing has imported transformers."""
    monkeypatch.delitem(sys.modules, "transformers")


@pytest.fixture
def folder(tmp_path):
    return builders.write(tmp_path / "model", builders.byte_level())


def answers(folder):
    """Two answers with tokens, and one after the folder was announced."""
    first = load_with_transformers(folder, TEXTS[:2] + TEXTS[3:], tokens=True)
    announce(folder)
    return first, load_with_transformers(folder, ["the"]), load_with_transformers(folder, ["the"])


def test_the_process_gives_the_answers_of_this_one(folder, monkeypatch):
    here = answers(folder)
    assert here[0].ids[0]
    monkeypatch.delitem(sys.modules, "transformers")
    with transformers_started():
        process = transformers_loader._PROCESS.get()
        with transformers_started():
            assert transformers_loader._PROCESS.get() is process
        assert transformers_installed()
        assert answers(folder) == here
        assert "transformers" not in sys.modules
    assert process._popen.returncode is not None


def test_a_folder_that_cannot_be_loaded_is_the_same_error(tmp_path, monkeypatch):
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CannotLoadError) as here:
        load_with_transformers(tmp_path, ["a"])
    monkeypatch.delitem(sys.modules, "transformers")
    with transformers_started():
        announce(tmp_path)
        with pytest.raises(CannotLoadError) as there:
            load_with_transformers(tmp_path, ["a"])
    assert str(there.value) == str(here.value)


@pytest.mark.usefixtures("not_imported")
def test_if_the_process_is_killed_transformers_is_imported_here(folder):
    with transformers_started():
        process = transformers_loader._PROCESS.get()
        process._popen.kill()
        process._popen.wait()
        announce(folder)
        assert load_with_transformers(folder, ["the cat"]).ids == [[262, 290]]
        assert transformers_installed()


@pytest.mark.usefixtures("not_imported")
def test_without_an_interpreter_transformers_is_imported_here(folder, monkeypatch):
    monkeypatch.setattr(sys, "executable", "")
    with transformers_started():
        assert transformers_loader._PROCESS.get() is None
        assert load_with_transformers(folder, ["the cat"]).ids == [[262, 290]]


@pytest.mark.usefixtures("not_imported")
def test_code_in_the_current_folder_is_not_imported(tmp_path, monkeypatch):
    builders.write(tmp_path / "model", builders.byte_level())
    for name in ("transformers", "json", "tokenizers", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the current folder')")
    monkeypatch.chdir(tmp_path)
    with transformers_started():
        process = transformers_loader._PROCESS.get()
        assert load_with_transformers(Path("model"), ["the cat"]).ids == [[262, 290]]
        assert process._popen.poll() is None


@pytest.mark.parametrize("stop", [subprocess.Popen.terminate, subprocess.Popen.kill])
def test_the_process_ends_with_the_one_that_started_it(stop):
    code = """
from tokengraft.verify.transformers_loader import transformers_installed, transformers_started
with transformers_started():
    transformers_installed()
    input("ready\\n")
"""
    pipe = subprocess.PIPE
    parent = subprocess.Popen([sys.executable, "-uc", code], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert parent.stdout.readline() == "ready\n"
    stop(parent)
    parent.communicate(timeout=60)  # until stderr is closed, which the other process has too


STRUCTURE = """
import sys
sys.modules["torch"] = None
from tokengraft.verify.transformers_loader import _import_faster
if sys.argv[1] == "faster":
    _import_faster()
    import transformers.utils.import_utils as utils
    assert "<lambda>" in utils.fetch__all__.__qualname__
import transformers
for name in sorted(transformers._class_to_module):
    print(name, transformers._class_to_module[name], sorted(transformers._object_missing_backend.get(name, [])))
print(transformers.__version__, sorted(name for name in sys.modules if name.startswith("transformers")))
"""


def test_the_faster_import_finds_what_transformers_finds():
    plain, faster = (
        subprocess.run([sys.executable, "-c", STRUCTURE, how], capture_output=True, text=True, check=True).stdout
        for how in ("plain", "faster")
    )
    assert faster.count("\n") > 1000
    assert faster == plain


@pytest.mark.parametrize("missing", ["fetch__all__", "create_import_structure_from_path"])
def test_another_version_of_transformers_is_imported_as_it_is(missing, monkeypatch):
    from transformers.utils import import_utils

    monkeypatch.delattr(import_utils, missing)
    before = dict(vars(import_utils))
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "transformers")
        transformers_loader._import_faster()
        assert "transformers" not in sys.modules
    assert dict(vars(import_utils)) == before
