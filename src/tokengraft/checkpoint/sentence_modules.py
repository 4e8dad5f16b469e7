"""Folders of sentence-transformers: `modules.json` names the parts of a model, most of them with a folder of their own.

Such a part, for example pooling or a dense layer, does not depend on the vocabulary, and its files are copied. One that
does is refused by name. Nothing is unpickled, and no class that `modules.json` names is imported.
"""

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from tokengraft.checkpoint.ids import read_config
from tokengraft.checkpoint.tensors import TensorFile
from tokengraft.errors import CheckpointError
from tokengraft.formats.sources import is_tokenizer_file

MODULES = "modules.json"


def require_transformer_here(folder: Path) -> None:
    """Refuses a folder of sentence-transformers whose transformer is in a folder inside it."""
    for path, kind in _modules(folder):
        if path.parts and kind.rsplit(".", 1)[-1].endswith("Transformer"):
            raise CheckpointError(
                f"`{folder}` is a folder of sentence-transformers whose transformer is in `{path}`",
                hint=f"transplant `{folder / path}`, then put the result in the place of `{path}` in a copy of the "
                "folder",
            )


def module_files(folder: Path) -> list[str]:
    """The files in folders that `modules.json` names, by their relative paths. Folders that are links are not read."""
    named = {path.as_posix() for path, _ in _modules(folder) if path.parts}
    found = {name for path in named for name in _files(folder, path)}
    return sorted(found)


def require_no_vocabulary(folder: Path, names: list[str], rows: int) -> None:
    """Refuses files of modules that depend on the vocabulary: a tokenizer, or a size as large as the embedding."""
    for name in names:
        path = folder / name
        if is_tokenizer_file(Path(path.name)):
            what = "is a tokenizer of its own"
        elif path.suffix == ".safetensors" and any(rows in t.shape for t in TensorFile.open(path).tensors.values()):
            what = f"has a tensor with an axis of {rows:,}, as long as the vocabulary"
        elif path.suffix == ".json" and rows in _numbers(read_config(path)):
            what = f"has the number {rows:,}, the size of the vocabulary"
        else:
            continue
        raise CheckpointError(
            f"`{name}`, which `{MODULES}` names as a part of the model, {what}: it would no longer match",
            hint="pass a model whose other modules do not depend on the vocabulary, such as pooling and dense layers",
        )


def _modules(folder: Path) -> Iterator[tuple[PurePosixPath, str]]:
    """The folder of every module, which is empty for this one, and the name of its class."""
    path = folder / MODULES
    listed = read_config(path) if path.is_file() else None
    for module in listed if isinstance(listed, list) else []:
        inner = module.get("path") if isinstance(module, dict) else None
        if not isinstance(inner, str):
            continue
        place = PurePosixPath(inner)
        if place.is_absolute() or ".." in place.parts or "\\" in inner or "\0" in inner:
            raise CheckpointError(
                f"`{path}` names `{inner!r:.80}` as the folder of a module, which is not inside `{folder}`",
                hint="correct the path in the source",
            )
        yield place, str(module.get("type"))


def _files(folder: Path, inner: str) -> Iterator[str]:
    if (folder / inner).is_symlink():
        return
    for parent, folders, names in os.walk(folder / inner):
        folders[:] = [name for name in folders if not name.startswith(".")]
        shown = (Path(parent) / name for name in names if not name.startswith("."))
        yield from (path.relative_to(folder).as_posix() for path in shown if path.is_file())


def _numbers(value: Any) -> Iterator[int]:
    """Every whole number in JSON data."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _numbers(item)
    elif type(value) is int:
        yield value
