"""Paths, globs, URLs and shards: which inputs a corpus has. `input_documents`: their documents as strings.

`paths_of`: whether a corpus is given as paths or as text in memory. A list of strings may be either. It is never
guessed: a list that has signs of both is refused.
"""

import glob
import os
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import heapify, heapreplace
from itertools import compress
from pathlib import Path
from typing import Any

from tokengraft.corpus.block import Block, Cut, Input, column_blocks, dataset_blocks, is_arrow, several_columns
from tokengraft.corpus.blocks import (
    BLOCK,
    file_blocks,
    iterable_blocks,
    parquet_group_blocks,
    split_input,
    standard_input_blocks,
    too_long,
)
from tokengraft.corpus.files import (
    CorpusFile,
    LocalFile,
    RemoteFile,
    input_without_credentials,
    is_glob,
    is_hidden,
    is_url,
    missing,
    remote_files,
    suffixes_of,
)
from tokengraft.corpus.options import COMPRESSIONS, FORMATS, UNSUPPORTED, Format, ReadOptions, Totals, are_only_paths
from tokengraft.errors import CorpusError, described

_SUFFIXES = (*FORMATS, *COMPRESSIONS, *UNSUPPORTED)
_MAX_PATH = 1024
"""Longer strings are not looked up as paths."""
_BEGINNINGS = ("/", "./", "../", "~/")
_SPACE_INSIDE = re.compile(r"\S\s+\S")


def paths_of(corpus: Any) -> list[str | os.PathLike[str]] | None:
    """The paths, globs and URLs that a corpus is given as; None if it is something in memory, such as texts.

    A string alone is a path. A list of strings has texts if at least one of them has white space inside, and none
    exists as a file or looks like a path.

    Examples:
        >>> paths_of(["et.txt"]), paths_of(["Kass magab.", "Yes"])
        (['et.txt'], None)
    """
    if isinstance(corpus, str | os.PathLike):
        return [corpus]
    if not isinstance(corpus, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in corpus):
        return None
    if are_only_paths.get() or not all(isinstance(item, str) for item in corpus):
        return [*corpus]
    try:  # asking the system for each of a million texts would take seconds
        here = frozenset(os.listdir())  # noqa: PTH208 (names, not paths)
    except OSError:
        here = frozenset()
    text = next((item for item in corpus if _SPACE_INSIDE.search(item) and not _is_path(item, here)), None)
    if text is None:
        return [*corpus]
    path = next((item for item in corpus if _is_path(item, here)), None)
    if path is not None:
        raise CorpusError(
            f"a list of strings has either paths or texts: {text[:60]!r} can only be a text, and {path[:60]!r} exists "
            "or looks like a path",
            hint="if all are texts, pass an iterator: iter(texts); if all are paths: [Path(name) for name in names]",
        )
    return None


def _is_path(name: str, here: frozenset[str]) -> bool:
    """Whether a string looks like a path, or begins with a name in the working folder."""
    if name == "-" or name.startswith(_BEGINNINGS) or is_url(name):
        return True
    if len(name) > _MAX_PATH or "\n" in name:
        return False
    return name.lower().endswith(_SUFFIXES) or name.partition("/")[0] in here


PART_BYTES = 64 << 20
"""A smaller file is not divided."""
PARTS_PER_SHARD = 16
"""Files are divided into parts of at least this share of a shard, so that the number of parts does not grow."""


def shard_of(inputs: Sequence[Input], shard: tuple[int, int]) -> list[Input]:
    """The inputs of one shard, in their order. Shards have about the same number of bytes.

    The largest input is assigned first, each to the shard that has the least so far; equal ones in their order.
    """
    number, n_shards = shard
    loads = [(0, 0, at) for at in range(n_shards)]
    heapify(loads)
    chosen: list[int] = []
    for place in sorted(range(len(inputs)), key=lambda place: -inputs[place].size):
        size, n_inputs, at = loads[0]
        heapreplace(loads, (size + inputs[place].size, n_inputs + 1, at))
        if at == number:
            chosen.append(place)
    return [inputs[place] for place in sorted(chosen)]


Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Any

STDIN = "standard input"
"""The name of the input for `-`."""
_FILES_AT_ONCE = 16
_MOST_GROUPS = 512
"""Inputs of a Parquet file."""


def open_corpus(corpus: Corpus, read_options: ReadOptions) -> list[Input]:
    """The inputs of a corpus, in a fixed order: the files of a folder or glob by name, all others as given.

    A corpus is what `count` reads: paths, globs, URLs, ``-``, or text in memory. A string alone is a path.
    """
    paths = paths_of(corpus)
    if paths is None:
        inputs = [_in_memory(corpus, read_options)]
    else:
        files = [entry for path in paths for entry in _found_at(os.fspath(path), read_options)]
        # The footer of a remote Parquet file takes several requests, and there may be thousands of files.
        with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
            each = pool.map if any(isinstance(entry, RemoteFile) for entry in files) else map
            inputs = [source for some in each(partial(_entry_inputs, read_options), files) for source in some]
    if not inputs:
        raise CorpusError("no corpus was given", hint="name files, a folder, a glob, or - for standard input")
    if read_options.shard is None:
        return inputs
    # Large files of lines are divided, so that shards can share them.
    size = max(PART_BYTES, sum(source.size for source in inputs) // (PARTS_PER_SHARD * read_options.shard[1]))
    return shard_of([part for source in inputs for part in split_input(source, size)], read_options.shard)


def _in_memory(corpus: Any, read_options: ReadOptions) -> Input:
    """Text in memory as an input. Refuses tables with several columns, and what is no text."""
    if hasattr(corpus, "with_format") and hasattr(corpus, "iter"):
        return Input("the dataset", 0, lambda _: dataset_blocks(corpus, read_options))
    is_ours = type(corpus).__module__.startswith("tokengraft.")  # some results are iterables of tokens
    if is_ours or isinstance(corpus, Mapping | bytes) or not (is_arrow(corpus) or isinstance(corpus, Iterable)):
        raise CorpusError(
            f"a corpus is {described(corpus)}, which cannot be read",
            hint="give paths, a dataset (of a DatasetDict, one split), or an iterable of strings",
        )
    # A table would iterate over the names of its columns.
    names = next((getattr(corpus, name) for name in ("column_names", "columns") if hasattr(corpus, name)), None)
    if isinstance(corpus, Iterable) and isinstance(names, Iterable) and not isinstance(names, str):
        columns = [*map(str, names)]
        if len(columns) != 1 or not is_arrow(corpus):
            raise several_columns(type(corpus).__name__, columns)
    if is_arrow(corpus):
        return Input(f"the {type(corpus).__name__}", 0, lambda _: column_blocks(corpus, BLOCK))
    return Input("the iterable", 0, lambda _: iterable_blocks(corpus, read_options))


def local_files(corpus: Corpus, read_options: ReadOptions) -> set[Path]:
    """The files on this machine that a corpus has, with links resolved; none of text in memory."""
    sources = open_corpus(corpus, read_options) if paths_of(corpus) is not None else []
    return {Path(source.name).resolve() for source in sources if os.path.lexists(source.name)}


def files_at(name: str) -> list[CorpusFile]:
    """The files at a path, glob or URL, in the order of their names."""
    return [entry for entry in _found_at(name, ReadOptions()) if not isinstance(entry, Input)]


def _found_at(name: str, read_options: ReadOptions) -> list[CorpusFile | Input]:
    """The files at a path or URL. Standard input, and with `skip_bad` what does not exist, are inputs already."""
    if not name:  # `Path("")` is the working folder
        raise missing(name, OSError("a path is empty"))
    if name == "-":
        return [Input(STDIN, 0, partial(standard_input_blocks, read_options))]
    found = list[CorpusFile | Input]()
    if is_url(name):
        name, is_folder, url = input_without_credentials(name), not is_glob(name), name
        try:
            found += remote_files(url, has_format=lambda file: _format(file)[0] is not None)
        except CorpusError as error:
            return [_unreadable(name, error, read_options)]
    else:
        path = Path(name)
        try:
            is_folder, paths = path.is_dir(), [path]
            if is_folder:
                below = (file for file in sorted(path.rglob("*")) if not is_hidden(file.as_posix(), path.as_posix()))
                paths = [file for file in below if file.is_file() and _format(file)[0]]
            elif not path.exists() and glob.has_magic(name):
                paths = [Path(match) for match in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207 (absolute too)
        except (OSError, ValueError) as error:  # a name that is too long or has a NUL, perhaps text instead of a path
            raise missing(name, error) from error
        for path in paths:
            try:
                found.append(LocalFile(path, path.stat().st_size))
            except (OSError, ValueError) as error:
                found.append(_unreadable(str(path), missing(str(path), error), read_options))
    if not found:
        kind = "folder has no .txt, .jsonl or .parquet file" if is_folder else "pattern matches no file"
        hint = "check the path; quote globs so that the shell does not expand them"
        raise CorpusError(f"`{name}`: the {kind}", hint=hint)
    return found


def _unreadable(name: str, error: CorpusError, read_options: ReadOptions) -> Input:
    """With `skip_bad`, an input that fails when it is read; otherwise the error is raised."""
    if not read_options.skip_bad:
        raise error
    return Input(name, 0, partial(_failing, error))


def _failing(error: CorpusError, _: Cut) -> Iterator[Block]:
    raise error


def _format(file: CorpusFile | Path) -> tuple[Format | None, str | None]:
    """The format and compression of a file, by the suffixes of its name."""
    suffixes = suffixes_of(file)
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    stem = suffixes[:-1] if compression else suffixes
    return (FORMATS.get(stem[-1]) if stem else None), compression


def _entry_inputs(read_options: ReadOptions, entry: CorpusFile | Input) -> list[Input]:
    """The inputs of a file: the row groups of a Parquet file, so that shards can share it, or the file.

    Several row groups are one input if there are very many: every input reads the list of all.
    """
    if isinstance(entry, Input):
        return [entry]
    last, (file_format, compression) = "".join(suffixes_of(entry)[-1:]), _format(entry)
    file_format = read_options.format or file_format or "text"
    if last in UNSUPPORTED:
        error = CorpusError(
            f"`{entry.name}` has an unsupported compression ({last})", hint="unpack it, or use .gz or .zst"
        )
        return [_unreadable(entry.name, error, read_options)]
    groups = 0  # an empty file is valid
    if file_format == "parquet" and not compression and entry.is_regular:  # a pipe can be read only once
        import pyarrow.parquet as pq

        try:
            with entry.reporting(), entry.open_parts() as raw, pq.ParquetFile(raw) as parquet:
                groups = parquet.metadata.num_row_groups
        except CorpusError as error:
            return [_unreadable(entry.name, error, read_options)]
    if not groups:
        blocks = partial(file_blocks, entry, file_format, compression, read_options)
        return [Input(entry.name, entry.size, blocks, entry)]
    step = -(-groups // _MOST_GROUPS)
    parts = [range(start, min(start + step, groups)) for start in range(0, groups, step)]
    sizes = [len(part) * entry.size // groups for part in parts]
    return [
        Input(entry.name, size, partial(parquet_group_blocks, entry, part, size, read_options), entry)
        for part, size in zip(parts, sizes, strict=True)
    ]


def input_documents(
    inputs: Iterable[Input], read_options: ReadOptions, *, longest: int | None = None
) -> Generator[str, None, Totals]:
    """A generator of the documents of inputs: exactly those that `count` counts. It returns the totals.

    Slower than counting, because every document becomes a Python string. Documents of more than ``longest`` bytes are
    refused.
    """
    totals, cut = Totals(), Cut(lambda _: None, longest)
    for source in inputs:
        try:
            for block in source.blocks(cut):
                texts, replaced, skipped = block.documents(skip_bad=read_options.skip_bad)
                sizes = [*map(_n_bytes, texts)]
                is_short = [longest is None or size <= longest for size in sizes]
                if not all(is_short) and not read_options.skip_bad:
                    raise too_long(source.name, max(sizes), cut)
                short = [*compress(texts, is_short)]
                totals += Totals(
                    documents=len(short),
                    bytes=sum(compress(sizes, is_short)),
                    characters=sum(map(len, short)),
                    replaced=replaced,
                    skipped=skipped + len(texts) - len(short),
                )
                yield from short
        except CorpusError:
            if not read_options.skip_bad:
                raise
            totals += Totals(skipped=1)
    return totals


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())
