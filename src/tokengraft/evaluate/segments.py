"""`segment`: the tokens of every document of a text. Every distinct pretoken is encoded once."""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field

from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.read import read_documents
from tokengraft.corpus.totals import Totals
from tokengraft.counts.count import count, reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.errors import CorpusError, OptionError
from tokengraft.tokenizer.tokenizer import Tokenizer

LINES = ReadOptions(documents="lines")
"""The default options for reading an evaluation text."""


@dataclass(frozen=True)
class Text:
    """An evaluation text: its documents."""

    name: str
    documents: tuple[str, ...]
    totals: Totals = field(default_factory=Totals)
    """How much was read, replaced and skipped."""

    @property
    def n_bytes(self) -> int:
        """Bytes in UTF-8, newlines between documents not counted."""
        return sum(len(document.encode()) for document in self.documents)

    @property
    def n_words(self) -> int:
        """Words, separated by white space."""
        return sum(len(document.split()) for document in self.documents)


def read_text(name: str, source: Corpus, read_options: ReadOptions | None = None) -> Text:
    """The documents of a corpus, as `count` reads them; by default one document per line of text files.

    Args:
        name: The name of the text.
        source: Whatever `count` accepts.
        read_options: How to read it.

    Raises:
        CorpusError: It cannot be read, or has no text.
        OptionError: ``read_options`` has `normalize` or `rules`, which are only for counting.
    """
    read_options = read_options or LINES
    if read_options.normalize or read_options.rules:
        raise OptionError(
            "normalization and piece rules are for counting, not for evaluation",
            hint="leave out `normalize` and `rules`",
        )
    counted = [item for item in (source if isinstance(source, list | tuple) else [source]) if is_counts_file(item)]
    if counted:
        raise CorpusError(f"`{counted[0]}` is a file of counts, which has no documents", hint="pass the text itself")
    documents, totals = read_documents(source, read_options)
    if not any(document.strip() for document in documents):
        raise CorpusError(f"the text `{name}` is empty", hint="pass text that has documents")
    return Text(name, documents, totals)


def open_text(
    name: str, source: "Text | PretokenCounts | Corpus", read_options: ReadOptions | None
) -> Text | PretokenCounts:
    """The text or counts to evaluate on: given as such, loaded from a file of counts, or read from a corpus.

    Raises:
        CorpusError: It cannot be read, or has no text.
        CountsError: The counts were weighted, or lack rare pretokens.
    """
    source = _loaded_counts(name, source)
    if isinstance(source, PretokenCounts):
        source.require_unchanged()
    return source if isinstance(source, Text | PretokenCounts) else read_text(name, source, read_options)


def _loaded_counts(name: str, source: "Text | PretokenCounts | Corpus") -> "Text | PretokenCounts | Corpus":
    """The sum of the counts, if the source is a file of counts or a list of such files; else the source.

    Raises:
        CorpusError: Some files are counts and some are text.
    """
    items = source if isinstance(source, list | tuple) else [source]
    files = [item for item in items if is_counts_file(item)]
    if not files:
        return source
    if len(files) < len(items):
        other = next(item for item in items if item not in files)
        raise CorpusError(
            f"the text `{name}` has counts (`{files[0]}`) and text (`{other}`)",
            hint="give each its own name: NAME=FILES",
        )
    parts = [PretokenCounts.load(file) for file in files]
    return sum(parts[1:], parts[0])


def text_warnings(name: str, text: Text | PretokenCounts) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, with the name of the text."""
    return tuple(f"{name}: {warning}" for warning in reading_warnings(text.totals))


def lost_bytes(lost: Mapping[bytes, int]) -> int:
    """Bytes of characters that a tokenizer drops or replaces by its unknown token."""
    return sum(len(text) * count for text, count in lost.items())


@dataclass(frozen=True)
class Segments:
    """The tokens of a text with one tokenizer."""

    documents: tuple[tuple[int, ...], ...]
    """The ids of each document."""
    n_pretokens: int
    """Pretokens and added tokens."""
    lost: Mapping[bytes, int]
    """How often each character occurs that the tokenizer drops or replaces by its unknown token."""

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
    """The tokens of a text. ``by_merges`` turns merge skipping (`ignore_merges`) off."""
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
    return Segments(documents, n_pretokens, lost_characters(tokenizer, text, by_merges=by_merges))


def lost_characters(tokenizer: Tokenizer, text: Text, *, by_merges: bool = False) -> dict[bytes, int]:
    """How often each character of a text occurs that a tokenizer drops or replaces by its unknown token."""
    if tokenizer.spells_everything:
        return {}
    return count(tokenizer, iter(text.documents)).lost(tokenizer, by_merges=by_merges)
