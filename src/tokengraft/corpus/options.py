"""`ReadOptions`: how to read a corpus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tokengraft.errors import OptionError

if TYPE_CHECKING:
    from tokengraft.tokenizer.sentencepiece import PieceRules

Format = Literal["text", "jsonl", "parquet"]


@dataclass(frozen=True)
class ReadOptions:
    """How to read a corpus. Every command that reads text reads it by the same rules.

    - Text files: the whole file is one document, or each line is. A line ends with ``\\n`` or ``\\r\\n``, which is not
      part of the document; lines of white space alone are no documents. A whole file keeps its line ends. A byte order
      mark at the start of a file is dropped.
    - JSON lines: the text is in one field of the object on each line; blank lines are left out.
    - Parquet and datasets: the text is in one column; every row is a document, empty ones included.
    - Bytes that are not UTF-8 are replaced by U+FFFD and counted (`Totals.replaced`).
    - A *bad document* is a line that is not JSON, or whose field is missing, null or not a string; or a row whose text
      is null. It is an error that names the file and the line or row, unless `skip_bad`.
    """

    text_field: str = "text"
    """The field of JSON lines, or the column of Parquet, that has the text."""
    documents: Literal["files", "lines"] = "files"
    """What a document of a text file is."""
    format: Format | None = None
    """The format of all inputs; without it, each has that of its suffix, and unknown ones are text."""
    skip_bad: bool = False
    """Leave out bad documents and files that cannot be read, and count them (`Totals.skipped`)."""
    shard: tuple[int, int] | None = None
    """Read one share of the inputs: (number from 0, how many shares)."""
    normalize: Literal["nfkc"] | None = None
    """Normalize text before the tokenizer's own pipeline has it, as the paper does for SentencePiece types."""
    rules: "PieceRules | None" = None
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
