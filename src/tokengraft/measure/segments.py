"""`Segmenter`: the tokens of documents, in batches. Texts: documents in memory, or read when they are needed."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from types import NoneType

import numpy as np

from tokengraft import _core
from tokengraft.corpus.files import LocalFile
from tokengraft.corpus.open import Corpus, input_documents, open_corpus
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.counts.count import count, reading_warnings
from tokengraft.counts.fingerprint import Fingerprint, cutter, may_be_cut, piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts, split_counts
from tokengraft.errors import CorpusError, CountsError, OptionError, require_type
from tokengraft.tokenizer.tokenizer import Tokenizer

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

    @cached_property
    def n_bytes(self) -> int:
        """Bytes in UTF-8, newlines between documents not counted."""
        return sum(len(document.encode()) for document in self.documents)


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


def read_ahead(batches: Iterator[list[str]]) -> Iterator[list[str]]:
    """The same batches. While the caller uses one, another thread reads the next.

    The thread reads and the caller works, because an interrupt stops only what the main thread does.
    """
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


class StreamedText:
    """A text whose documents are read when they are needed, once."""

    def __init__(self, name: str, source: Corpus, read_options: ReadOptions) -> None:
        self.name, self.totals = name, Totals()
        """How much was read, replaced and skipped, as soon as all documents are read."""
        self._inputs, self._read_options = open_corpus(source, read_options), read_options

    @property
    def is_in_files(self) -> bool:
        """Whether another thread can read it without waiting for others: it is no pipe, URL or iterator."""
        files = (each.file for each in self._inputs)
        return all(isinstance(file, LocalFile) and file.is_regular for file in files)

    def _read(self) -> Iterator[str]:
        self.totals = yield from input_documents(self._inputs, self._read_options, longest=LONGEST_DOCUMENT)

    @property
    def documents(self) -> Iterator[str]:
        """The documents. A text without any is refused at its end."""
        is_empty = True
        for document in self._read():
            is_empty = is_empty and not document.strip()
            yield document
        if is_empty:
            raise CorpusError(f"the text `{self.name}` is empty", hint="pass text that has documents")


def read_text(name: str, source: Corpus, read_options: ReadOptions | None = None) -> Text:
    """The documents of a corpus, as `count` reads them; by default one document per line of text files."""
    options = _reading(read_options)
    if counted := split_counts(source)[0]:
        raise CorpusError(f"`{counted[0]}` is a file of counts, which has no documents", hint="pass the text itself")
    streamed, documents, n_characters = StreamedText(name, source, options), list[str](), 0
    for document in streamed.documents:
        documents.append(document)
        n_characters += len(document)
        if n_characters > LONGEST_TEXT:
            raise CorpusError(
                f"the text has over {LONGEST_TEXT:,} characters, and all of it would be held in memory",
                hint="pass a part of it; `tokengraft evaluate` without a report takes text of any length",
            )
    return Text(name, tuple(documents), streamed.totals)


def _reading(read_options: ReadOptions | None) -> ReadOptions:
    require_type("read_options", read_options, ReadOptions, NoneType)
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
    """The text or counts to evaluate on: given as such, loaded from files of counts, or read from a corpus."""
    given = _given(name, source)
    return read_text(name, source, read_options) if given is None else given


def stream_text(
    name: str, source: "Text | PretokenCounts | Corpus", read_options: ReadOptions | None
) -> Text | StreamedText | PretokenCounts:
    """As `open_text`, but the documents of a corpus are read when they are needed."""
    given = _given(name, source)
    return StreamedText(name, source, _reading(read_options)) if given is None else given


def _given(name: str, source: "Text | PretokenCounts | Corpus") -> Text | PretokenCounts | None:
    """The source if it is a text, its counts if it has counts; None if it is a corpus."""
    files, text = split_counts(source)
    if files and text is not None:
        raise CorpusError(
            f"the text `{name}` has counts (`{files[0]}`) and text (`{text[0]}`)",
            hint="give each its own name: NAME=FILES",
        )
    if files:
        parts = [PretokenCounts.load(file) for file in files]
        source = sum(parts[1:], parts[0])
    if isinstance(source, PretokenCounts):
        source.require_unchanged()
    return source if isinstance(source, Text | PretokenCounts) else None


def text_warnings(name: str, text: Text | StreamedText | PretokenCounts) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, with the name of the text."""
    return tuple(f"{name}: {warning}" for warning in reading_warnings(text.totals))


def lost_bytes(lost: Mapping[bytes, int]) -> int:
    """Bytes of characters that a tokenizer drops or replaces by its unknown token."""
    return sum(len(text) * count for text, count in lost.items())


@dataclass(frozen=True)
class Segments:
    """The tokens of some documents with one tokenizer."""

    ids: np.ndarray
    """The ids of all documents, one after the other."""
    starts: np.ndarray
    """Where each document begins in ``ids``, and where the last one ends."""
    n_pretokens: int
    """Pretokens and added tokens."""
    n_by_merges: int
    """Tokens with merge skipping off."""

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document."""
        return np.diff(self.starts)

    def document(self, place: int) -> np.ndarray:
        """The ids of a document."""
        return self.ids[self.starts[place] : self.starts[place + 1]]


DENSE = 1 << 20
"""Below this, a table by id is faster than sorting, and has at most 8 MB."""


def frequencies(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different ids, sorted, and how often each occurs."""
    if not len(ids) or ids.max() >= DENSE:
        return np.unique(ids, return_counts=True)
    table = np.bincount(ids)
    found = table.nonzero()[0]
    return found, table[found]


class Segmenter:
    """Splits documents into tokens, on all cores. Keeps the tokens of frequent pretokens.

    Several tokenizers must have one pipeline, as `same_pipelines` groups them: documents are pretokenized once.
    """

    def __init__(self, tokenizer: Tokenizer, *others: Tokenizer) -> None:
        self._core = _core.Segmenter(
            [each.core_model for each in (tokenizer, *others)],
            tokenizer.skeleton,
            cutter=cutter(tokenizer, piece_rules(tokenizer)) if may_be_cut(tokenizer) else None,
        )

    def segment_by_each(self, documents: list[str]) -> list[Segments]:
        """The tokens of documents with each tokenizer."""
        found = []
        for ids, lengths, n_pretokens, n_by_merges in self._core.segment(documents):
            starts = np.concatenate(([0], np.cumsum(np.frombuffer(lengths, np.uint64).astype(np.int64))))
            found.append(Segments(np.frombuffer(ids, np.uint32), starts, n_pretokens, n_by_merges))
        return found

    def segment(self, documents: list[str]) -> Segments:
        """The tokens of documents with the first tokenizer."""
        return self.segment_by_each(documents)[0]


def same_pipelines(tokenizers: Mapping[str, Tokenizer]) -> list[list[str]]:
    """The names of tokenizers, those together that the pretokens of the first one are valid for."""
    groups: list[list[str]] = []
    for name, tokenizer in tokenizers.items():
        for group in groups:
            first = tokenizers[group[0]]
            if tokenizer.skeleton == first.skeleton and _takes_pretokens(tokenizer, first):
                group.append(name)
                break
        else:
            groups.append([name])
    return groups


def _takes_pretokens(tokenizer: Tokenizer, of: Tokenizer) -> bool:
    """Whether a tokenizer can encode the pretokens of another one, which may be cut where one of its tokens spans."""
    if not may_be_cut(tokenizer) and not may_be_cut(of):
        return tokenizer.kind == of.kind
    try:
        rules = piece_rules(of)
        Fingerprint.of(tokenizer, rules).require_counts(Fingerprint.of(of, rules))
    except CountsError:
        return False
    return may_be_cut(tokenizer) == may_be_cut(of)


class TokenTotals:
    """The tokens of a text with one tokenizer: the sum of its batches."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.n_pretokens, self.n_by_merges = 0, 0
        self.lost, self.lost_by_merges = Counter[bytes](), Counter[bytes]()
        """How often each character occurs that the tokenizer drops or replaces by its unknown token."""
        self._lengths: list[np.ndarray] = []
        self._counted = Counter[int]()
        self._waiting: list[tuple[np.ndarray, np.ndarray]] = []

    @property
    def counted(self) -> Counter[int]:
        """How often each token occurs."""
        if self._waiting:
            ids, times = map(np.concatenate, zip(*self._waiting, strict=True))
            found, places = np.unique(ids, return_inverse=True)
            total = np.zeros(len(found), np.int64)
            np.add.at(total, places, times)
            self._counted.update(dict(zip(found.tolist(), total.tolist(), strict=True)))
            self._waiting.clear()
        return self._counted

    @classmethod
    def of_counts(cls, tokenizer: Tokenizer, counts: PretokenCounts) -> "TokenTotals":
        """The tokens of counted text. The lengths of its documents are not known."""
        found, skips = cls(tokenizer), tokenizer.ignore_merges
        found._counted.update(counts.tokens(tokenizer))
        found.n_pretokens = counts.totals.pretokens + sum(counts.added.values())
        found.n_by_merges = sum((counts.tokens(tokenizer, by_merges=True) if skips else found.counted).values())
        found.lost.update(counts.lost(tokenizer))
        found.lost_by_merges.update(counts.lost(tokenizer, by_merges=True) if skips else found.lost)
        return found

    def add(self, batch: list[str], segments: Segments) -> None:
        """Adds a batch of documents with their tokens."""
        self._lengths.append(segments.lengths)
        self._waiting.append(frequencies(segments.ids))
        if sum(len(ids) for ids, _ in self._waiting) > DENSE:
            _ = self.counted  # before they take more memory
        self.n_pretokens += segments.n_pretokens
        self.n_by_merges += segments.n_by_merges
        if not self.tokenizer.spells_everything:
            counts = count(self.tokenizer, iter(batch))
            self.lost.update(counts.lost(self.tokenizer))
            self.lost_by_merges.update(counts.lost(self.tokenizer, by_merges=True))

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each document."""
        return np.concatenate([np.zeros(0, np.int64), *self._lengths])


def token_totals(tokenizer: Tokenizer, documents: Iterable[str]) -> TokenTotals:
    """The tokens of documents with one tokenizer."""
    totals, segmenter = TokenTotals(tokenizer), Segmenter(tokenizer)
    for batch in batches(documents):
        totals.add(batch, segmenter.segment(batch))
    return totals
