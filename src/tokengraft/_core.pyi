from collections.abc import Callable
from os import PathLike
from typing import Protocol, final

__all__ = [
    "Bpe",
    "Counter",
    "Counts",
    "Cutter",
    "FileReader",
    "ParquetEncoder",
    "Part",
    "Pipeline",
    "Rows",
    "__version__",
    "documents",
    "encode_with_tokenizers",
    "extend",
    "scripts",
]

__version__: str

@final
class Bpe:
    """A BPE merge table."""
    def __new__(
        cls,
        vocab: dict[str, int],
        merges: list[tuple[int, int]],
        *,
        ignore_merges: bool,
        byte_fallback: bool,
        unk_token: str | None,
        fuse_unk: bool,
    ) -> Bpe: ...
    @property
    def cut_between(self) -> str | None:
        """The characters between which text may be cut where no token spans the cut; None where all may."""
    @property
    def spells_every_character(self) -> bool:
        """Whether every character is a token, or has a token for each of its bytes."""
    @property
    def drops_unknown(self) -> bool:
        """Whether characters that are not spelled are dropped without a trace."""
    def encode(self, pretoken: str) -> list[int]: ...
    def encode_by_merges(self, pretoken: str) -> list[int]: ...
    def structure(self) -> tuple[list[tuple[int, int, int]], list[int], list[int]]:
        """Merged tokens with their two parts, atomic tokens, unreachable tokens; each by ascending id."""

@final
class Pipeline:
    """The normalizer, pre-tokenizer and added tokens of a `tokenizer.json`."""
    def __new__(cls, skeleton: str) -> Pipeline: ...
    def pieces(self, text: str) -> list[str | int]: ...

class _PieceRules(Protocol):
    """What is read of a `tokengraft.tokenizer.sentencepiece.PieceRules`."""
    @property
    def split_by_unicode_script(self) -> bool: ...
    @property
    def split_by_number(self) -> bool: ...
    @property
    def split_by_whitespace(self) -> bool: ...
    @property
    def split_digits(self) -> bool: ...
    @property
    def treat_whitespace_as_suffix(self) -> bool: ...
    @property
    def allow_whitespace_only_pieces(self) -> bool: ...
    @property
    def max_sentencepiece_length(self) -> int: ...

@final
class Cutter:
    """Where the text of a SentencePiece-type vocabulary may be cut."""
    def __new__(cls, bpe: Bpe, rules: _PieceRules, added: list[str]) -> Cutter: ...
    def joined(self) -> list[str]: ...

_Limits = tuple[int, int]
_Tally = tuple[tuple[int, int, int, int, int, int], tuple[int, int], bool]

class _Block(Protocol):
    """What is read of a `tokengraft.corpus.Block`."""
    @property
    def form(self) -> str: ...
    @property
    def data(self) -> bytes | Part: ...
    @property
    def offsets(self) -> bytes: ...
    @property
    def nulls(self) -> bytes: ...
    @property
    def field(self) -> str: ...
    @property
    def at_start(self) -> bool: ...
    @property
    def whole(self) -> bool: ...

@final
class Counter:
    """Counts pretokens; every method may be called from any thread.

    Limits are (documents, bytes); a tally is (documents, bytes, characters, pretokens, replaced, skipped), then
    (documents, bytes) read, those of documents that are held out included, and whether the limit of bytes cut a text
    short. What to hold out is (one document in so many, bytes at most).
    """
    def __new__(
        cls,
        skeleton: str,
        *,
        byte_level: bool,
        cutter: Cutter | None,
        through_upstream: bool,
        spill_folder: str | PathLike[str] | None,
        bytes_per_table: int,
        document_memory: int,
        hold_out: tuple[int, int] | None,
    ) -> Counter: ...
    @property
    def longest_document(self) -> int:
        """The longest document that memory allows, in bytes."""
    def count(self, block: _Block, limits: _Limits, skip_bad: bool) -> _Tally: ...
    def held_out(self) -> list[str]:
        """The documents that are held out, in the order of their hashes."""
    def add(self, counts: Counts) -> None: ...
    def last_cut(self, data: bytes) -> int | None: ...
    def added(self) -> list[tuple[int, int]]: ...
    def finish(self) -> Rows: ...

@final
class Part:
    """A part of a file, in memory of the core."""
    def __len__(self) -> int: ...
    def __bytes__(self) -> bytes: ...
    def newlines(self) -> int: ...

@final
class FileReader:
    """Reads a file in parts that end at cuts, `block` bytes at a time."""
    def __new__(cls, path: str | PathLike[str], block: int) -> FileReader: ...
    @property
    def position(self) -> int:
        """Bytes read."""

    @property
    def pending(self) -> int:
        """Bytes read after the last cut."""

    def next(self, counter: Counter | None, longest: int | None) -> Part | None:
        """The next part, cut where a counter says, or without one at the end of a line.

        None at the end, and where more than `longest` bytes have no cut: then they are pending.
        """

@final
class ParquetEncoder:
    """Gives the bytes of a Parquet file of counts, part by part. They do not depend on threads."""
    def __new__(cls) -> ParquetEncoder: ...
    def rows(self, counts: Counts) -> list[bytes]:
        """The bytes of the next rows, in pieces. All calls but the last must have a multiple of 2^20 rows."""

    def footer(self, key: str, text: str) -> bytes:
        """The bytes after the last rows, with a text in the metadata of the file."""

@final
class Rows:
    """What was counted, in order, to be read once."""
    @property
    def on_disk(self) -> bool:
        """Whether some rows are on disk. If none are, all can be taken at once."""

    def take(self, most: int, min_count: int) -> Counts: ...

@final
class Counts:
    """Distinct pretokens in the order of their bytes, with their counts.

    Columns are the bytes of all pretokens, then where each begins and the last ends, and the counts, the latter two as
    little-endian 64-bit numbers.
    """
    def __new__(cls, data: bytes, offsets: bytes, counts: bytes) -> Counts: ...
    def __len__(self) -> int: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def total(self) -> int:
        """The sum of all counts."""
    def columns(self) -> tuple[bytes, bytes, bytes]: ...
    def __reduce__(self) -> tuple[type[Counts], tuple[bytes, bytes, bytes]]: ...
    def plus(self, other: Counts) -> Counts: ...
    def scaled(self, numerator: int, denominator: int) -> Counts: ...
    def frequent(self, min_count: int) -> Counts: ...
    def characters(self) -> list[tuple[str, int]]: ...
    def top(self, most: int, longest: int | None = None) -> list[tuple[bytes, int]]: ...
    def lost(self, bpe: Bpe, *, byte_level: bool, by_merges: bool) -> list[tuple[bytes, int]]:
        """How often each character occurs that a model drops or replaces by its unknown token, by its bytes."""
    def tokens(self, bpe: Bpe, *, byte_level: bool, by_merges: bool, uses: bool) -> list[tuple[int, int]]: ...

def extend(
    bpe: Bpe,
    counts: Counts,
    tokens: int,
    *,
    byte_level: bool,
    min_count: int,
    max_token_bytes: int,
    forbidden: list[str],
    rules: _PieceRules | None,
    unreachable_ranks: list[tuple[str, int, int]],
    max_candidates: int,
    allow: Callable[[str], bool] | None,
) -> tuple[list[str], list[tuple[int, int, int, int]]]:
    """New tokens, and merges as (left, right, product, count): base tokens by ascending id, then the new ones."""

def documents(block: _Block, skip_bad: bool) -> tuple[list[str], int, int]:
    """The documents of a block, how many stretches of them were replaced, and how many documents were skipped."""

def scripts(texts: list[str]) -> list[list[str]]:
    """The Unicode names of the scripts that each text is written in, sorted."""

def encode_with_tokenizers(tokenizer_json: str, texts: list[str]) -> list[list[int]]:
    """The ids that the `tokenizers` library itself gives, without special tokens."""
