"""`Input`: a part of a corpus. `Block`: a part of an input, for the core. `Cut`: where text may be cut into blocks."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from tokengraft import _core
from tokengraft.corpus.files import CorpusFile
from tokengraft.errors import CorpusError, TokengraftError

_Error = TypeVar("_Error", bound=TokengraftError)


@dataclass(frozen=True)
class Cut:
    """Where a stream may be cut into blocks, and how many bytes may be read without a cut."""

    last: Callable[[bytes], int | None]
    """The last position in a byte string where a document may be cut, if there is one: `Counter.last_cut`."""
    longest: int | None = None
    """Bytes. More text without a cut needs more memory than allowed, and is refused."""
    enough: int | None = None
    """Bytes of text that are needed. No more are read of a document that cannot be cut."""
    counter: _core.Counter | None = None
    """The counter that ``last`` belongs to: with it, the core reads and cuts files itself."""


@dataclass(frozen=True)
class Block:
    """A few megabytes of a corpus, in a form that the core reads."""

    form: Literal["text", "lines", "documents", "jsonl"]
    data: bytes | _core.Part
    source: str
    offsets: bytes = b""
    """For documents: the start of each, and the end of the last. For text: those of the pieces that may be held out."""
    nulls: bytes = b""
    """For documents: the indices of those without text."""
    field: str = ""
    """For JSON lines: the field that has the text."""
    at_start: bool = True
    """For text: whether it is the start of a document."""
    first: int = 1
    """For lines and documents: the number of the first."""
    start: int = 0
    """For lines of a part of a file: the byte from which on they are numbered."""
    replaced: int = 0
    """Unpaired surrogates that were replaced in Python."""
    progress: int = 0
    """Bytes on disk that were read for this block."""

    def documents(self, *, skip_bad: bool) -> tuple[list[str], int, int]:
        """The documents in the block, the number of replaced byte sequences, and the number of skipped documents."""
        try:
            texts, replaced, skipped = _core.documents(self, skip_bad)
        except CorpusError as error:
            raise self.placed(error) from error
        return texts, replaced + self.replaced, skipped

    def placed(self, error: _Error) -> _Error:
        """An error of the core with the line or row number of the file instead of the block."""

        def in_file(place: re.Match[str]) -> str:
            number = f"{place[1]} {int(place[2]) + self.first - 1:,}"
            return f"{number} after byte {self.start:,}" if self.start else number

        message = re.sub(r"^(line|row) (\d+)", in_file, error.message)
        return type(error)(f"`{self.source}`, {message}", hint=error.hint)


@dataclass(frozen=True)
class Input:
    """A file, a part of a file, standard input, or a Python object. Those of files can be pickled."""

    name: str
    size: int
    """Bytes on disk; 0 if unknown."""
    blocks: Callable[[Cut], Iterator[Block]]
    file: CorpusFile | None = None
