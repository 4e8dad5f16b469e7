"""Texts split by tokenizers. Every distinct pretoken is encoded once."""

import os
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tokengraft.counting import count
from tokengraft.errors import CorpusError
from tokengraft.tokenizer import Tokenizer


@dataclass(frozen=True)
class Text:
    """A text to measure by: its documents."""

    name: str
    documents: tuple[str, ...]

    @property
    def n_bytes(self) -> int:
        """Bytes in UTF-8, newlines between documents not counted."""
        return sum(len(document.encode()) for document in self.documents)

    @property
    def n_words(self) -> int:
        """Words: what white space separates."""
        return sum(len(document.split()) for document in self.documents)


def read_text(name: str, source: str | os.PathLike[str] | Iterable[str]) -> Text:
    """The documents of a file, one a line, or of an iterable of strings.

    Raises:
        CorpusError: It cannot be read, or has no text.
    """
    if isinstance(source, str | os.PathLike):
        try:
            lines: Iterable[str] = Path(source).read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise CorpusError(
                f"cannot read the text `{source}`: {error}", hint="pass a file of UTF-8 text, a document a line"
            ) from error
    else:
        lines = source
    whole = (line.encode(errors="replace").decode() for line in lines)  # half a surrogate pair is no text
    documents = tuple(line.rstrip("\r") for line in whole if line.strip())
    if not documents:
        raise CorpusError(f"the text `{name}` is empty", hint="pass text that has documents, one a line")
    return Text(name, documents)


@dataclass(frozen=True)
class Segments:
    """A text as one tokenizer splits it."""

    documents: tuple[tuple[int, ...], ...]
    """The ids of each document."""
    n_pretokens: int
    """Pretokens and added tokens."""
    lost: Mapping[bytes, int]
    """Characters that the tokenizer drops or replaces by its unknown token, with their numbers."""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each document."""
        return [len(ids) for ids in self.documents]

    def counted(self) -> Counter[int]:
        """How often each token occurs."""
        return Counter(i for ids in self.documents for i in ids)

    def tokens(self, names: Mapping[int, Hashable]) -> list[list[Hashable]]:
        """The tokens of each document by name."""
        return [[names[i] for i in ids] for ids in self.documents]


def segment(tokenizer: Tokenizer, text: Text, *, by_merges: bool = False) -> Segments:
    """A text as a tokenizer splits it, with merge skipping as it has it or off."""
    encode = tokenizer.bpe.encode_by_merges if by_merges else tokenizer.bpe.encode
    known: dict[str, tuple[int, ...]] = {}
    n_pretokens = 0

    def ids(document: str) -> Iterator[int]:
        nonlocal n_pretokens
        for piece in tokenizer.pretokenize(document):
            n_pretokens += 1
            if isinstance(piece, int):
                yield piece
                continue
            if piece not in known:
                known[piece] = tuple(encode(piece))
            yield from known[piece]

    documents = tuple(tuple(ids(document)) for document in text.documents)
    lost = {} if tokenizer.spells_everything else _lost(tokenizer, text, by_merges)
    return Segments(documents, n_pretokens, lost)


def _lost(tokenizer: Tokenizer, text: Text, by_merges: bool) -> dict[bytes, int]:
    return count(tokenizer, iter(text.documents)).lost(tokenizer, by_merges=by_merges)
