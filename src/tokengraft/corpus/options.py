"""`ReadOptions`: how to read a corpus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokengraft.arguments import checked
from tokengraft.errors import OptionError
from tokengraft.representation import shown

if TYPE_CHECKING:
    from tokengraft.tokenizer.sentencepiece import PieceRules

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


@shown
@checked
@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus. The rules are the same for every command.

    - Text files: the whole file is one document, or each line is. A line ends with ``\\n`` or ``\\r\\n``, which is not
      part of the document. Lines with only white space are skipped. A whole file keeps its line ends. A byte order
      mark at the start of a file is dropped.
    - JSON lines: the text is in one field of the object on each line; blank lines are skipped.
    - Parquet and datasets: the text is in one column; every row is a document, empty ones included.
    - Bytes that are not UTF-8 are replaced by U+FFFD and counted (`Totals.replaced`).
    - A *bad document* is a line that is not JSON, or whose field is missing, null or not a string; or a row whose text
      is null. It is an error that names the file and the line or row, unless `skip_bad`.
    """

    text_field: str = "text"
    """The field of JSON lines, or the column of Parquet, that has the text."""
    documents: Literal["files", "lines"] = "files"
    """Whether a text file is one document, or each of its lines is."""
    format: Format | None = None
    """The format of all inputs. By default it depends on the file name suffix; unknown suffixes are text."""
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
        if self.documents not in ("files", "lines") or self.format not in (None, "text", "jsonl", "parquet"):
            raise OptionError(
                f"unknown read options: format {self.format!r}, documents {self.documents!r}",
                hint="pass --documents files or lines, and --format text, jsonl or parquet",
            )
        if self.normalize not in (None, "nfkc"):
            raise OptionError(
                f"there is no normalization {self.normalize!r}; only nfkc is supported", hint="pass --normalize nfkc"
            )
        if self.shard and not 0 <= self.shard[0] < self.shard[1]:
            raise OptionError(
                f"there is no shard {self.shard[0]} of {self.shard[1]}",
                hint="shards are numbered from 0: 0/64 to 63/64",
            )
