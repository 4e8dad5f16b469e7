"""What the examples in docstrings run against: a folder with a tiny checkpoint and small texts, and the name `tg`."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from checkpoints import ENGLISH, ESTONIAN, checkpoint

import tokengraft as tg


@pytest.fixture(scope="session")
def doctest_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `model`, a checkpoint of random weights with 397 tokens, and the texts `et.txt` and `en.txt`."""
    folder = tmp_path_factory.mktemp("doctest")
    checkpoint(folder / "model")
    (folder / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def doctest_folder(request: pytest.FixtureRequest) -> None:
    """Runs every example of a docstring in its own copy of the folder; does nothing for other tests."""
    if not isinstance(request.node, pytest.DoctestItem):
        return
    namespace: dict[str, Any] = request.getfixturevalue("doctest_namespace")
    namespace["tg"] = tg
    folder = request.getfixturevalue("tmp_path") / "examples"
    shutil.copytree(request.getfixturevalue("doctest_files"), folder)
    request.getfixturevalue("monkeypatch").chdir(folder)
