"""Texts split by tokenizers. Every distinct pretoken is encoded once."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from tokengraft.corpus import Corpus, ReadOptions, Totals, read_documents
from tokengraft.counts.count import count, reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.errors import CorpusError, OptionError
from tokengraft.tokenizer.tokenizer import Tokenizer

LINES = ReadOptions(documents="lines")
"""How text to measure by is read unless the caller says otherwise."""


@dataclass(frozen=True)
class Text:
    """A text to measure by: its documents."""

    name: str
    documents: tuple[str, ...]
    totals: Totals = field(default_factory=Totals)
    """What was read, replaced and skipped."""

    @property
    def n_bytes(self) -> int:
        """Bytes in UTF-8, newlines between documents not counted."""
        return sum(len(document.encode()) for document in self.documents)

    @property
    def n_words(self) -> int:
        """Words: what white space separates."""
        return sum(len(document.split()) for document in self.documents)


def read_text(name: str, source: Corpus, read_options: ReadOptions | None = None) -> Text:
    """The documents of a corpus, as `count` reads them; by default one document per line of text files.

    Args:
        name: What to call the text.
        source: Whatever `count` accepts. A list of strings is taken for paths; documents in memory are given as any
            other iterable, such as ``iter(texts)``.
        read_options: How to read it.

    Raises:
        CorpusError: It cannot be read, or has no text.
        OptionError: The reading has options that only counting has.
    """
    read_options = read_options or LINES
    if read_options.normalize or read_options.rules:
        raise OptionError(
            "normalization and piece rules are for counting, not for measuring",
            hint="leave out `normalize` and `rules`",
        )
    if is_counts_file(source):
        raise CorpusError(f"`{source}` has counts, and counts have no documents", hint="pass the text itself")
    documents, totals = read_documents(source, read_options)
    if not any(document.strip() for document in documents):
        raise CorpusError(f"the text `{name}` is empty", hint="pass text that has documents")
    return Text(name, documents, totals)


def open_text(
    name: str, source: "Text | PretokenCounts | Corpus", read_options: ReadOptions | None
) -> Text | PretokenCounts:
    """What to measure by: counts as they are or in a file, a text as it is, or the documents of a corpus.

    Raises:
        CorpusError: It cannot be read, or has no text.
        CountsError: The counts were weighted, or lack rare pretokens.
    """
    if is_counts_file(source):
        source = PretokenCounts.load(source)
    if isinstance(source, PretokenCounts):
        source.require_unchanged()
    return source if isinstance(source, Text | PretokenCounts) else read_text(name, source, read_options)


def text_warnings(name: str, text: Text | PretokenCounts) -> tuple[str, ...]:
    """What a user must know of how a text was read, with its name."""
    return tuple(f"{name}: {warning}" for warning in reading_warnings(text.totals))


def lost_bytes(lost: Mapping[bytes, int]) -> int:
    """Bytes of characters that a tokenizer drops or replaces by its unknown token."""
    return sum(len(text) * count for text, count in lost.items())


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
