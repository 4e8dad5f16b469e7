"""Outputs of tiny inputs are those of the golden files, byte by byte; and every writer of the package has some."""

import ast
import sys
from pathlib import Path

import pytest
from golden_files import FILES, made, plain_surroundings, stored
from golden_writers import GOLDEN

import tokengraft

SOURCE = Path(tokengraft.__file__).parent
OPENERS = {"new_file", "new_folder", "write_folder", "write_result_file"}
WRITERS = {"save", "_save", "EditResult.save", "VocabPlan.save", "ModelJob.write", "GgufJob.write", "AdapterJob.write"}
WRITERS |= {
    "draft",
    "DraftJob.write",
    "write_counts",
    "write_page",
    "write_result",
    "write_result_file",
    "blend",
    "_Run._write",
}
"""The functions that open an output. Each has its golden files, except `_Run._write`, which needs a training."""
CHANGED = "the format of `{}` changed; if that is intended: `python tests/golden/golden_files.py --write {}`"


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_every_writer_writes_its_golden_files(name):
    found, expected = made(name), stored(name)
    assert sorted(found) == sorted(expected), CHANGED.format(name, name)
    for path, data in expected.items():
        assert found[path] == data, CHANGED.format(f"{name}/{path}", name)


def functions(tree, prefix=""):
    """Every function of a module with its qualified name, inner functions not included."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef):
            yield f"{prefix}{node.name}", node


def opens_output(function):
    calls = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(isinstance(call, ast.Name) and call.id in OPENERS for call in calls)


def test_every_function_that_writes_an_output_has_a_golden_file():
    """A new one is added to WRITERS together with its golden files."""
    modules = [path for path in SOURCE.rglob("*.py") if path.name != "atomic.py"]
    named = [pair for path in modules for pair in functions(ast.parse(path.read_text(encoding="utf-8")))]
    assert {name for name, function in named if opens_output(function)} == WRITERS


def test_golden_files_are_small():
    assert sum(path.stat().st_size for path in FILES.rglob("*") if path.is_file()) < 300_000
    assert {path.name for path in FILES.iterdir()} == {*GOLDEN}


def test_the_surroundings_of_a_writer_change_nothing_else(tmp_path):
    sys.modules.pop("this_is_new", None)
    with plain_surroundings(tmp_path):
        sys.modules["this_is_new"] = ast
    assert sys.modules.pop("this_is_new", None) is ast  # a module that is imported twice has two of each class
