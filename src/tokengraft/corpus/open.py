"""`open_corpus`: the inputs of a corpus: files, folders, globs, standard input, datasets, iterables; and shards."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokengraft.corpus.blocks import (
    Block,
    Cut,
    dataset_blocks,
    file_blocks,
    iterable_blocks,
    parquet_group_blocks,
    reporting,
    standard_input_blocks,
    unreadable,
)
from tokengraft.corpus.options import Format, ReadOptions
from tokengraft.errors import CorpusError

Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Any

FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
STDIN = "standard input"
"""The name of the input for `-`."""
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
UNSUPPORTED = (".bz2", ".xz", ".lz4", ".zip", ".7z", ".tar", ".br")


@dataclass(frozen=True)
class Input:
    """One input: a file, a row group of a file, standard input, or a Python object."""

    name: str
    size: int
    """Bytes on disk; 0 if unknown."""
    blocks: Callable[[Cut], Iterator[Block]]


def open_corpus(corpus: Corpus, read_options: ReadOptions) -> list[Input]:
    """The inputs of a corpus, in a fixed order: the files of a folder or glob by name, all others as given.

    Args:
        corpus: A file, a folder, a glob, ``-`` for standard input, a list of these, a `datasets` dataset, or any
            iterable of strings, each a document. A list of strings is taken for paths.
        read_options: How to read it.

    Raises:
        CorpusError: No input exists.
    """
    if isinstance(corpus, str | os.PathLike):
        inputs = _inputs_at(corpus, read_options)
    elif isinstance(corpus, list | tuple) and all(isinstance(item, str | os.PathLike) for item in corpus):
        inputs = [source for item in corpus for source in _inputs_at(item, read_options)]
    elif hasattr(corpus, "with_format") and hasattr(corpus, "iter"):
        inputs = [Input("the dataset", 0, lambda _: dataset_blocks(corpus, read_options))]
    elif isinstance(corpus, Mapping | bytes) or not isinstance(corpus, Iterable):
        raise CorpusError(
            f"a {type(corpus).__name__} cannot be read as a corpus",
            hint="give paths, a dataset (of a DatasetDict, one split), or an iterable of strings",
        )
    else:
        texts: Any = corpus
        inputs = [Input("the iterable", 0, lambda _: iterable_blocks(texts, read_options))]
    if not inputs:
        raise CorpusError("no corpus was given", hint="name files, a folder, a glob, or - for standard input")
    return inputs if read_options.shard is None else inputs[read_options.shard[0] :: read_options.shard[1]]


def _inputs_at(item: str | os.PathLike[str], read_options: ReadOptions) -> list[Input]:
    name = os.fspath(item)
    if name == "-":
        return [Input(STDIN, 0, partial(standard_input_blocks, read_options))]
    try:
        paths = _paths_at(name)
    except (OSError, ValueError) as error:  # a name that is too long or has a NUL, perhaps text instead of a path
        raise _missing(name, error) from error
    return [source for path in paths for source in _file_inputs(path, read_options)]


def _paths_at(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        paths = [file for file in sorted(path.rglob("*")) if file.is_file() and _format(file)[0]]
    elif path.exists() or not glob.has_magic(name):
        paths = [path]
    else:
        paths = [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207 (absolute ones too)
    if not paths:
        kind = "folder has no .txt, .jsonl or .parquet file" if path.is_dir() else "pattern matches no file"
        raise CorpusError(
            f"`{name}`: the {kind}", hint="check the path; quote globs so that the shell does not expand them"
        )
    return paths


def _format(path: Path) -> tuple[Format | None, str | None]:
    """The format and compression of a file, by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    stem = suffixes[:-1] if compression else suffixes
    return (FORMATS.get(stem[-1]) if stem else None), compression


def _file_inputs(path: Path, read_options: ReadOptions) -> list[Input]:
    """The inputs of a file. With `skip_bad`, an unreadable file is an input that fails when it is read."""
    try:
        return _readable_inputs(path, read_options)
    except CorpusError as error:
        if not read_options.skip_bad:
            raise
        return [Input(str(path), 0, partial(_failing, error))]


def _failing(error: CorpusError, _: Cut) -> Iterator[Block]:
    raise error


def _readable_inputs(path: Path, read_options: ReadOptions) -> list[Input]:
    form, compression = _format(path)
    form = read_options.format or form or "text"
    if path.suffix.lower() in UNSUPPORTED:
        raise CorpusError(
            f"`{path}` has an unsupported compression ({path.suffix})", hint="unpack it, or use .gz or .zst"
        )
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as error:
        raise _missing(str(path), error) from error
    if form == "parquet" and not compression and path.is_file():  # a pipe can be read only once, from start to end
        return _parquet_inputs(path, size, read_options)
    return [Input(str(path), size, partial(file_blocks, path, form, compression, read_options))]


def _missing(name: str, error: BaseException) -> CorpusError:
    failure = unreadable(name[:200], error)
    return CorpusError(failure.message, hint=f"{failure.hint}; pass documents in memory as an iterator: iter(texts)")


def _parquet_inputs(path: Path, size: int, read_options: ReadOptions) -> list[Input]:
    """The row groups of a Parquet file, each one an input, so that shards can share a file."""
    import pyarrow.parquet as pq

    with reporting(str(path)), pq.ParquetFile(path) as file:
        groups = file.metadata.num_row_groups
    if not groups:  # an empty file is valid
        return [Input(str(path), size, partial(file_blocks, path, "parquet", None, read_options))]
    share = size // groups
    return [
        Input(str(path), share, partial(parquet_group_blocks, path, group, share, read_options))
        for group in range(groups)
    ]
