"""`Segmenter`: the tokens of documents, in batches. Texts: documents in memory, or read when they are needed."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokengraft import _core
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.read import input_documents, read_documents
from tokengraft.corpus.totals import Totals
from tokengraft.counts.count import count, reading_warnings
from tokengraft.counts.fingerprint import cutter, may_be_cut, piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.errors import CorpusError, OptionError
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np

BATCH_CHARACTERS = 4 << 20
"""Documents are processed in batches of this many characters, or one document if that is longer."""
LONGEST_DOCUMENT = 1 << 25
"""Bytes of a document. Documents are compared as a whole: each needs up to 35 times its size in memory."""
LONGEST_TEXT = 1 << 28
"""Characters of a text that is held in memory."""
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
        return sum(map(n_words, self.documents))


def n_words(document: str) -> int:
    """Words of a document, separated by white space. Those of a long one are not all in memory at once.

    >>> n_words("a b\\u3000 c ")
    3
    """
    if len(document) <= BATCH_CHARACTERS:
        return len(document.split())
    return sum(1 for _ in re.finditer(r"\S+", document))


def batches(documents: Iterable[str]) -> Iterator[list[str]]:
    """The documents in batches of about `BATCH_CHARACTERS`."""
    batch, size = list[str](), 0
    for document in documents:
        batch.append(document)
        size += len(document)
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class StreamedText:
    """A text whose documents are read when they are needed, once."""

    def __init__(self, name: str, source: Corpus, read_options: ReadOptions) -> None:
        self.name, self.totals = name, Totals()
        """How much was read, replaced and skipped, as soon as all documents are read."""
        self._inputs, self._read_options = open_corpus(source, read_options), read_options

    @property
    def documents(self) -> Iterator[str]:
        """The documents.

        Raises:
            CorpusError: The text cannot be read, is empty, or has a document that is too long.
        """
        is_empty = True
        reader = input_documents(self._inputs, self._read_options, longest=LONGEST_DOCUMENT)
        while True:
            try:
                document = next(reader)
            except StopIteration as end:
                self.totals = end.value
                break
            is_empty = is_empty and not document.strip()
            yield document
        if is_empty:
            raise _empty(self.name)


def _empty(name: str) -> CorpusError:
    return CorpusError(f"the text `{name}` is empty", hint="pass text that has documents")


def read_text(name: str, source: Corpus, read_options: ReadOptions | None = None) -> Text:
    """The documents of a corpus, as `count` reads them; by default one document per line of text files.

    Args:
        name: The name of the text.
        source: Whatever `count` accepts.
        read_options: How to read it.

    Raises:
        CorpusError: It cannot be read, has no text, or is too long.
        OptionError: ``read_options`` has `normalize` or `rules`, which are only for counting.
    """
    read_options = _reading(read_options)
    counted = [item for item in (source if isinstance(source, list | tuple) else [source]) if is_counts_file(item)]
    if counted:
        raise CorpusError(f"`{counted[0]}` is a file of counts, which has no documents", hint="pass the text itself")
    documents, totals = read_documents(source, read_options, longest=LONGEST_DOCUMENT, most=LONGEST_TEXT)
    if not any(document.strip() for document in documents):
        raise _empty(name)
    return Text(name, documents, totals)


def _reading(read_options: ReadOptions | None) -> ReadOptions:
    read_options = read_options or LINES
    if read_options.normalize or read_options.rules:
        raise OptionError(
            "normalization and piece rules are for counting, not for evaluation",
            hint="leave out `normalize` and `rules`",
        )
    return read_options


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


def stream_text(
    name: str, source: "Text | PretokenCounts | Corpus", read_options: ReadOptions | None
) -> Text | StreamedText | PretokenCounts:
    """As `open_text`, but the documents of a corpus are read when they are needed.

    Raises:
        CorpusError: It cannot be read.
        CountsError: The counts were weighted, or lack rare pretokens.
    """
    source = _loaded_counts(name, source)
    if isinstance(source, PretokenCounts):
        source.require_unchanged()
    if isinstance(source, Text | PretokenCounts):
        return source
    return StreamedText(name, source, _reading(read_options))


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


def text_warnings(name: str, text: Text | StreamedText | PretokenCounts) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, with the name of the text."""
    return tuple(f"{name}: {warning}" for warning in reading_warnings(text.totals))


def lost_bytes(lost: Mapping[bytes, int]) -> int:
    """Bytes of characters that a tokenizer drops or replaces by its unknown token."""
    return sum(len(text) * count for text, count in lost.items())


@dataclass(frozen=True)
class Segments:
    """The tokens of some documents with one tokenizer."""

    ids: "np.ndarray"
    """The ids of all documents, one after the other."""
    starts: "np.ndarray"
    """Where each document begins in ``ids``, and where the last one ends."""
    n_pretokens: int
    """Pretokens and added tokens."""
    n_by_merges: int
    """Tokens with merge skipping off."""

    @property
    def lengths(self) -> "np.ndarray":
        """Tokens of each document."""
        import numpy as np

        return np.diff(self.starts)

    def document(self, place: int) -> "np.ndarray":
        """The ids of a document."""
        return self.ids[self.starts[place] : self.starts[place + 1]]

    def counted(self) -> Counter[int]:
        """How often each token occurs."""
        import numpy as np

        if len(self.ids) and self.ids.max() < 1 << 20:  # faster than sorting, and a table of at most 8 MB
            table = np.bincount(self.ids)
            found = table.nonzero()[0]
            counts = table[found]
        else:
            found, counts = np.unique(self.ids, return_counts=True)
        return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))


class Segmenter:
    """Splits documents into tokens. Keeps the tokens of frequent pretokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._core = _core.Segmenter(
            tokenizer.bpe,
            tokenizer.skeleton,
            byte_level=tokenizer.kind == "byte-level",
            cutter=cutter(tokenizer, piece_rules(tokenizer)) if may_be_cut(tokenizer) else None,
        )

    def segment(self, documents: list[str]) -> Segments:
        """The tokens of documents.

        Raises:
            CorpusError: A document cannot be cut into parts and is too long.
        """
        import numpy as np

        ids, lengths, n_pretokens, n_by_merges = self._core.segment(documents)
        ends = np.cumsum(np.frombuffer(lengths, np.uint64).astype(np.int64))
        return Segments(np.frombuffer(ids, np.uint32), np.concatenate(([0], ends)), n_pretokens, n_by_merges)

    def lost(self, documents: list[str], *, by_merges: bool = False) -> dict[bytes, int]:
        """How often each character occurs that the tokenizer drops or replaces by its unknown token."""
        return lost_characters(self.tokenizer, documents, by_merges=by_merges)


@dataclass(frozen=True)
class TokenTotals:
    """The number of tokens of each document of a text, and how often each token occurs."""

    lengths: "np.ndarray"
    counted: Counter[int]
    lost: Mapping[bytes, int]
    """How often each character occurs that the tokenizer drops or replaces by its unknown token."""


def token_totals(tokenizer: Tokenizer, documents: Iterable[str]) -> TokenTotals:
    """The number of tokens of each document, and how often each token occurs."""
    import numpy as np

    segmenter, lengths = Segmenter(tokenizer), [np.zeros(0, np.int64)]
    counted, lost = Counter[int](), Counter[bytes]()
    for batch in batches(documents):
        segments = segmenter.segment(batch)
        lengths.append(segments.lengths)
        counted.update(segments.counted())
        lost.update(segmenter.lost(batch))
    return TokenTotals(np.concatenate(lengths), counted, lost)


def lost_characters(tokenizer: Tokenizer, documents: Iterable[str], *, by_merges: bool = False) -> dict[bytes, int]:
    """How often each character of documents occurs that a tokenizer drops or replaces by its unknown token."""
    if tokenizer.spells_everything:
        return {}
    return count(tokenizer, iter(documents)).lost(tokenizer, by_merges=by_merges)
