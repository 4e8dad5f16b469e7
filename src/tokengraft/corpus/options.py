"""`ReadOptions`: how to read a corpus. `Totals`: how much of it was read."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from tokengraft.errors import OptionError, option, whole_number, wrong_type
from tokengraft.representation import require_fields, set_fields, shown

if TYPE_CHECKING:
    from tokengraft.tokenizer.piece_model import PieceRules

Format = Literal["text", "jsonl", "parquet"]
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
"""Suffixes of formats that are refused rather than read as text."""
are_only_paths = ContextVar("are_only_paths", default=False)
"""Whether all strings in lists are paths."""


@contextmanager
def only_paths() -> Iterator[None]:
    """Inside the block, all strings in lists are paths, as on the command line."""
    token = are_only_paths.set(True)
    try:
        yield
    finally:
        are_only_paths.reset(token)


@shown
@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus. The rules are the same for every command.

    - Text files: the whole file is one document, or each line is. A line ends with ``\\n`` or ``\\r\\n``, which is not
      part of the document. Lines with only white space are skipped. A whole file keeps its line ends. A byte order
      mark at the start of a file is dropped.
    - JSON lines: the text is in one field of the object on each line; blank lines are skipped.
    - Parquet and datasets: the text is in one column; every row is a document, empty ones included.
    - Folders: files whose name has a suffix of these formats, in all folders below. Names that begin with a dot are
      skipped, as by a glob. A file that is given by its name is always read.
    - A file that is gzip, zstd, xz, bzip2, zip or Parquet by its first bytes, and not by its name, is an error. So is
      text that begins with a byte order mark of UTF-16 or UTF-32, also in a compressed file.
    - Binary data is an error: a file, or a column of bytes, of whose first megabyte more than 2 % are zeros or not
      UTF-8. A file is read nevertheless if `format` is given.
    - Other bytes that are not UTF-8 are replaced by U+FFFD and counted (`Totals.replaced`).
    - A *bad document* is a line that is not JSON, or whose field is missing, null or not a string; or a row whose text
      is null. It is an error that names the file and the line or row, unless `skip_bad`.
    """

    text_field: str = "text"
    """The field of JSON lines, or the column of Parquet, that has the text."""
    documents: Literal["files", "lines"] = "files"
    """Whether a text file is one document, or each of its lines is."""
    format: Format | None = None
    """The format of all inputs. By default it depends on the file name suffix; unknown suffixes are text. If it is
    given, files of text or JSON lines may have any bytes."""
    skip_bad: bool = False
    """Skip bad documents and files that cannot be read, and count them (`Totals.skipped`)."""
    shard: tuple[int, int] | None = None
    """Read one shard of the corpus: (number from 0, number of shards). Shards have about the same number of bytes:
    row groups of Parquet files, and parts of large uncompressed files of lines, are divided between them."""
    normalize: Literal["nfkc"] | None = None
    """Normalize text before the tokenizer's own pipeline, as the paper does for SentencePiece types."""
    rules: "PieceRules | None" = None
    """SentencePiece types: the rules for pieces that are learned from the counts. By default those of the model, or
    Llama's if there is only a `tokenizer.json`."""

    def __post_init__(self) -> None:
        require_fields(self)
        set_fields(self, _shard, "shard")
        if self.documents not in ("files", "lines") or self.format not in (None, "text", "jsonl", "parquet"):
            raise OptionError(
                f"unknown read options: format {self.format!r}, documents {self.documents!r}",
                hint=f"pass {option('documents')} files or lines, and {option('format')} text, jsonl or parquet",
            )
        if self.normalize not in (None, "nfkc"):
            raise OptionError(
                f"there is no normalization {self.normalize!r}; only nfkc is supported",
                hint=f"pass {option('normalize', 'nfkc')}",
            )
        if self.shard and not 0 <= self.shard[0] < self.shard[1]:
            raise OptionError(
                f"there is no shard {self.shard[0]} of {self.shard[1]}",
                hint="shards are numbered from 0: 0/64 to 63/64",
            )


def _shard(name: str, shard: object) -> tuple[int, ...]:
    """A shard as two whole numbers."""
    if not isinstance(shard, list | tuple) or len(shard) != 2:
        raise wrong_type(f"`{name}`", shard, ["a tuple of two whole numbers"])
    return tuple(whole_number(name, number) for number in shard)


@shown
@dataclass(frozen=True)
class Totals:
    """How much of a corpus was read, replaced and skipped."""

    documents: int = 0
    bytes: int = 0
    """Of text, in UTF-8."""
    characters: int = 0
    pretokens: int = 0
    """Occurrences, before any minimum count."""
    replaced: int = 0
    """Byte sequences that were not UTF-8, each replaced by U+FFFD."""
    skipped: int = 0
    """Documents and files that were skipped because they could not be read."""

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))
