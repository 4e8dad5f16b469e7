"""Corpora to blocks of text, ready for the core.

Reads files of text, JSON lines and Parquet, plain or compressed, standard input, datasets, and iterables of strings.
Reads in blocks of a few megabytes and never holds more than it must: a document that cannot be cut, or a long line.
Blocks depend on the input alone, so that what is counted does not depend on who counts it.
"""

import glob
import json
import os
import re
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

from tokengraft.counts import binary_buffers
from tokengraft.errors import CorpusError, OptionError
from tokengraft.piecemodel import PieceRules

Format = Literal["text", "jsonl", "parquet"]
Corpus = str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | Any

BLOCK = 1 << 20
_SURROGATE = re.compile("[\ud800-\udfff]")
FORMATS: dict[str, Format] = {
    ".txt": "text",
    ".text": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
UNSUPPORTED = (".bz2", ".xz", ".lz4", ".zip", ".7z", ".tar", ".br")


@dataclass(frozen=True)
class Reading:
    """How to read a corpus."""

    text_field: str = "text"
    """The field of JSON lines, or the column of Parquet, that has the text."""
    documents: Literal["files", "lines"] = "files"
    """What a document of a text file is."""
    format: Format | None = None
    """The format of all inputs; without it, each has that of its suffix, and unknown ones are text."""
    skip_bad: bool = False
    """Leave out what cannot be read and count it, instead of stopping there."""
    shard: tuple[int, int] | None = None
    """Read one share of the inputs: (number from 0, how many shares)."""
    normalize: Literal["nfkc"] | None = None
    """Normalize text before the tokenizer's own pipeline has it, as the paper does for SentencePiece types."""
    rules: PieceRules | None = None
    """SentencePiece types: the rules that pieces learned from the counts will keep. By default those of the model, or
    Llama's where there is only a `tokenizer.json`."""

    def __post_init__(self) -> None:
        if self.documents not in ("files", "lines") or self.format not in (None, "text", "jsonl", "parquet"):
            raise OptionError(
                f"there is no way to read {self.format!r} by {self.documents!r}",
                hint="documents are files or lines, formats text, jsonl or parquet",
            )
        if self.normalize not in (None, "nfkc"):
            raise OptionError(f"there is no normalization {self.normalize!r}", hint="pass nfkc")
        if self.shard and not 0 <= self.shard[0] < self.shard[1]:
            raise OptionError(
                f"there is no shard {self.shard[0]} of {self.shard[1]}",
                hint="shards are numbered from 0: 0/64 to 63/64",
            )


@dataclass(frozen=True)
class Block:
    """A few megabytes of a corpus, in a form that the core counts."""

    form: Literal["text", "lines", "documents", "jsonl"]
    data: bytes
    source: str
    offsets: bytes = b""
    """For documents: where each begins and the last ends."""
    at_start: bool = True
    """For text: whether it begins a document."""
    first_line: int = 1
    """For lines: the number of the first."""
    replaced: int = 0
    """Half surrogate pairs replaced on the way here."""
    progress: int = 0
    """How many bytes of the input, as it lies on disk, this block is the end of reading."""


@dataclass(frozen=True)
class Input:
    """One thing to read: a file, a row group of one, standard input, or something from Python."""

    name: str
    size: int
    """Bytes on disk, 0 where unknown."""
    blocks: Callable[["Cut"], Iterator[Block]]


@dataclass(frozen=True)
class Cut:
    """Where a stream may be cut into blocks, and how much of it may be gathered where it may not."""

    last: Callable[[bytes], int | None]
    """The last place in some bytes where a document may be cut, if there is one: `Counter.last_cut`."""
    longest: int | None = None
    """Bytes. A longer stretch that cannot be cut needs more memory than is allowed, and is refused."""
    enough: int | None = None
    """Bytes of text that are wanted: of a document that cannot be cut, no more are read."""


def open_corpus(corpus: Corpus, reading: Reading) -> list[Input]:
    """The inputs of a corpus, in a fixed order: files by name, and as given otherwise.

    Args:
        corpus: A file, a folder, a glob, ``-`` for standard input, a list of these, a `datasets` dataset, or any
            iterable of strings, each a document. A list of strings is taken for paths.
        reading: How to read it.

    Raises:
        CorpusError: There is nothing there.
    """
    if isinstance(corpus, str | os.PathLike):
        inputs = _inputs_at(corpus, reading)
    elif isinstance(corpus, list | tuple) and all(isinstance(item, str | os.PathLike) for item in corpus):
        inputs = [found for item in corpus for found in _inputs_at(item, reading)]
    elif hasattr(corpus, "with_format") and hasattr(corpus, "iter"):
        inputs = [Input("the dataset", 0, lambda _: _dataset_blocks(corpus, reading))]
    elif isinstance(corpus, Mapping | bytes) or not isinstance(corpus, Iterable):
        raise CorpusError(
            f"a {type(corpus).__name__} is no corpus",
            hint="give paths, a dataset (of a DatasetDict, one split), or an iterable of strings",
        )
    else:
        texts: Any = corpus
        inputs = [Input("the iterable", 0, lambda _: _iterable_blocks(texts))]
    if not inputs:
        raise CorpusError("no corpus was given", hint="name files, a folder, a glob, or - for standard input")
    return inputs if reading.shard is None else inputs[reading.shard[0] :: reading.shard[1]]


def documents(corpus: Corpus, reading: Reading, read: Callable[[str, int], object] | None = None) -> Iterator[str]:
    """The documents of a corpus, one after the other; what is not UTF-8 is replaced by U+FFFD.

    Slower than counting blocks, for every document passes through Python. ``read`` is told of (input, bytes on disk
    read since the last call).

    Raises:
        CorpusError: Something cannot be read.
    """
    for found in open_corpus(corpus, reading):
        for block in found.blocks(Cut(lambda _: None)):
            yield from _block_documents(block, reading)
            if read:
                read(found.name, block.progress)


def _block_documents(block: Block, reading: Reading) -> Iterator[str]:
    if block.form == "documents":
        places = array("q", block.offsets)
        if sys.byteorder == "big":
            places.byteswap()
        yield from (block.data[a:b].decode(errors="replace") for a, b in pairwise(places))
    elif block.form == "text":
        yield block.data.decode(errors="replace")
    else:
        for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
            if line.strip():
                yield (
                    _json_text(line, number, block, reading) if block.form == "jsonl" else line.decode(errors="replace")
                )


def _json_text(line: bytes, number: int, block: Block, reading: Reading) -> str:
    try:
        text = json.loads(line)[reading.text_field]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if reading.skip_bad:
            return ""
        raise CorpusError(
            f"`{block.source}`, line {number:,}: {error!r}", hint="mend the line, or pass --skip-bad"
        ) from error
    return text if isinstance(text, str) else ""


def _inputs_at(item: str | os.PathLike[str], reading: Reading) -> list[Input]:
    name = os.fspath(item)
    if name == "-":
        return [Input("standard input", 0, partial(_standard_input_blocks, reading))]
    try:
        paths = _paths_at(name)
        return [found for path in paths for found in _file_inputs(path, reading)]
    except (OSError, ValueError) as error:  # a name too long, or with a NUL: perhaps text in place of a path
        raise _unreadable(name[:200], error) from error


def _paths_at(name: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        paths = [found for found in sorted(path.rglob("*")) if found.is_file() and _format(found)[0]]
    elif path.exists() or not glob.has_magic(name):
        paths = [path]
    else:
        paths = [Path(found) for found in sorted(glob.glob(name, recursive=True))]  # noqa: PTH207 (absolute ones too)
    if not paths:
        kind = "folder has no .txt, .jsonl or .parquet file" if path.is_dir() else "pattern matches no file"
        raise CorpusError(f"`{name}`: the {kind}", hint="check the path; quote patterns so that the shell leaves them")
    return paths


def _standard_input_blocks(reading: Reading, cut: "Cut") -> Iterator[Block]:
    if sys.stdin is None:
        raise CorpusError("there is no standard input", hint="name files instead of -")
    with _reporting("standard input"):
        yield from _stream_blocks(sys.stdin.buffer, "standard input", None, reading, cut)


def _format(path: Path) -> tuple[Format | None, str | None]:
    """The format and compression of a file, by its name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    stem = suffixes[:-1] if compression else suffixes
    return (FORMATS.get(stem[-1]) if stem else None), compression


def _file_inputs(path: Path, reading: Reading) -> list[Input]:
    form, compression = _format(path)
    form = reading.format or form or "text"
    if path.suffix.lower() in UNSUPPORTED:
        raise CorpusError(f"`{path}` is compressed in a way that is not read", hint="unpack it, or use .gz or .zst")
    try:
        size = path.stat().st_size
        if form == "parquet" and not compression:
            return _parquet_inputs(path, size, reading)
    except OSError as error:
        if not reading.skip_bad:
            raise _unreadable(str(path), error) from error
        size = 0  # opening it will fail again, and be counted as skipped there
    return [Input(str(path), size, lambda cut: _file_blocks(path, form, compression, reading, cut))]


def _file_blocks(path: Path, form: Format, compression: str | None, reading: Reading, cut: Cut) -> Iterator[Block]:
    import pyarrow as pa

    with _reporting(str(path)), path.open("rb") as raw:
        stream: Any = pa.CompressedInputStream(pa.PythonFile(raw, "r"), compression) if compression else raw
        if form == "parquet":
            yield from _parquet_blocks(pa.BufferReader(stream.read()), str(path), None, reading)
        else:
            progress = raw.tell
            yield from _stream_blocks(stream, str(path), progress, reading, cut, form)


def _stream_blocks(
    stream: Any,
    name: str,
    tell: Callable[[], int] | None,
    reading: Reading,
    cut: Cut,
    form: Format | None = None,
) -> Iterator[Block]:
    """The blocks of a stream of bytes, cut where it can be cut."""
    form = form or reading.format or "text"
    if form == "parquet":
        import pyarrow as pa

        yield from _parquet_blocks(pa.BufferReader(stream.read()), name, None, reading)
        return
    kind: Any = "jsonl" if form == "jsonl" else "lines" if reading.documents == "lines" else "text"
    # Half a line of JSON is no text: there, no line is cut short.
    by_lines = Cut(lambda data: data.rfind(b"\n") + 1 or None, cut.longest, None if kind == "jsonl" else cut.enough)
    line, at_start, done = 1, True, 0
    for data in _cut_stream(stream, name, cut if kind == "text" else by_lines):
        position = tell() if tell else 0
        yield Block(kind, data, name, at_start=at_start, first_line=line, progress=position - done)
        line += data.count(b"\n") if kind != "text" else 0
        at_start, done = False, position


def _cut_stream(stream: Any, name: str, cut: Cut) -> Iterator[bytes]:
    """Stretches of a stream that end where ``cut`` says. What has no such place is gathered until it comes.

    Raises:
        CorpusError: A stretch that cannot be cut needs more memory than is allowed.
    """
    pending: list[bytes] = []
    first = True
    while data := stream.read(BLOCK):
        data = bytes(data)
        if first:
            data, first = data.removeprefix(b"\xef\xbb\xbf"), False
        at = cut.last(data)
        if at:
            yield b"".join([*pending, data[:at]])
            pending = [data[at:]]
        else:
            pending.append(data)
        gathered = sum(map(len, pending))
        if cut.enough is not None and gathered > cut.enough + _MARGIN:
            yield _whole_characters(b"".join(pending)[: cut.enough + _MARGIN])
            return
        if cut.longest is not None and gathered > cut.longest:
            raise _too_long(name, gathered, cut.longest)
    if any(pending):
        yield b"".join(pending)


_MARGIN = 8
"""Bytes read beyond a limit of text, so that the end of the text read lies beyond it by a character."""


def _whole_characters(data: bytes) -> bytes:
    """The data without a character at its end that is cut off.

    >>> _whole_characters("aõ".encode()[:2]), _whole_characters(b"a\xff")
    (b'a', b'a\xff')
    """
    for length in range(1, min(4, len(data) + 1)):
        lead = data[-length]
        if lead & 0xC0 != 0x80:
            size = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
            return data[:-length] if lead < 0xF5 and length < size else data
    return data


def _too_long(name: str, size: int, longest: int) -> CorpusError:
    return CorpusError(
        f"`{name}`: {size:,} bytes or more in one document or line that cannot be cut into parts; --memory allows "
        f"{longest:,} with this tokenizer",
        hint="raise --memory, or give the text as smaller documents, such as lines: --documents lines",
    )


def _parquet_inputs(path: Path, size: int, reading: Reading) -> list[Input]:
    """The row groups of a Parquet file, each an input of its own, so that shards can share a file."""
    import pyarrow.parquet as pq

    try:
        with _reporting(str(path)), pq.ParquetFile(path) as file:
            groups = file.metadata.num_row_groups
    except CorpusError:
        if not reading.skip_bad:
            raise
        groups = 1  # reading it will fail again, and be counted as skipped there
    share = size // max(groups, 1)
    return [Input(str(path), share, partial(_parquet_group, path, group, share, reading)) for group in range(groups)]


def _parquet_group(path: Path, group: int, size: int, reading: Reading, _: Cut) -> Iterator[Block]:
    with _reporting(str(path)):
        yield from _parquet_blocks(str(path), str(path), [group], reading, size)


def _parquet_blocks(
    source: Any, name: str, groups: list[int] | None, reading: Reading, size: int = 0
) -> Iterator[Block]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        names = file.schema_arrow.names
        if reading.text_field not in names:
            raise CorpusError(
                f"`{name}` has no column `{reading.text_field}`; it has {', '.join(f'`{n}`' for n in names)}",
                hint="name the column of the text: --text-field",
            )
        chosen = range(file.metadata.num_row_groups) if groups is None else groups
        rows = sum(file.metadata.row_group(g).num_rows for g in chosen)
        weight = sum(file.metadata.row_group(g).total_byte_size for g in chosen)
        batch = max(1, min(rows, rows * BLOCK // max(weight, 1)))
        for found in file.iter_batches(batch, row_groups=list(chosen), columns=[reading.text_field]):
            yield _arrow_block(found.column(0), name, size * len(found) // max(rows, 1))


def _dataset_blocks(dataset: Any, reading: Reading) -> Iterator[Block]:
    """The rows of a `datasets` dataset, in memory or streamed."""
    with _reporting("the dataset"):
        for table in dataset.with_format("arrow").iter(batch_size=512):
            if reading.text_field not in table.column_names:
                raise CorpusError(
                    f"the dataset has no column `{reading.text_field}`; it has {', '.join(table.column_names)}",
                    hint="name the column of the text: Reading(text_field=...)",
                )
            yield _arrow_block(table.column(reading.text_field).combine_chunks(), "the dataset", 0)


def _arrow_block(column: Any, name: str, progress: int) -> Block:
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    is_text = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    is_bytes = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view)
    if not any(test(kind) for test in (*is_text, *is_bytes)):
        raise CorpusError(
            f"the text of `{name}` is of type {column.type}, not string", hint="name the column: --text-field"
        )
    texts = column.drop_null().cast(kind).cast(pa.large_binary())
    data, offsets = binary_buffers(texts)
    return Block("documents", data, name, offsets=offsets, progress=progress)


def _iterable_blocks(texts: Iterable[str]) -> Iterator[Block]:
    """Strings, gathered until they make a block."""
    gathered: list[bytes] = []
    size = replaced = 0
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise CorpusError(
                f"document {number:,} of the iterable is a {type(text).__name__}, not a string",
                hint="give strings, such as `(row['text'] for row in rows)`",
            )
        try:
            gathered.append(text.encode())
        except UnicodeEncodeError:
            whole, halves = _SURROGATE.subn("\ufffd", text)
            gathered.append(whole.encode())
            replaced += halves
        size += len(gathered[-1])
        if size >= BLOCK:
            yield _document_block(gathered, replaced)
            gathered, size, replaced = [], 0, 0
    if gathered:
        yield _document_block(gathered, replaced)


def _document_block(documents: list[bytes], replaced: int) -> Block:
    offsets = array("q", accumulate(map(len, documents), initial=0))
    if sys.byteorder == "big":
        offsets.byteswap()
    return Block("documents", b"".join(documents), "the iterable", offsets=offsets.tobytes(), replaced=replaced)


@contextmanager
def _reporting(name: str) -> Iterator[None]:
    """Turns the errors of reading a file into a `CorpusError` that names it."""
    import pyarrow as pa

    try:
        yield
    except (OSError, EOFError, pa.ArrowException) as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: BaseException) -> CorpusError:
    reason = re.sub(r"\s+", " ", getattr(error, "strerror", None) or str(error))
    return CorpusError(
        f"cannot read `{name}`: {reason}", hint="check the file, or pass --skip-bad to leave such files out"
    )
