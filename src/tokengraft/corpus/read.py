"""`read_documents`: the documents of a corpus as Python strings."""

from collections.abc import Callable, Generator, Iterable

from tokengraft.corpus.block import Cut
from tokengraft.corpus.blocks import too_long
from tokengraft.corpus.input import Input
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.totals import Totals
from tokengraft.errors import CorpusError

Read = Callable[[str, int], object]
"""Called with (input, bytes on disk read since the last call)."""


def documents(corpus: Corpus, read_options: ReadOptions, read: Read | None = None) -> Generator[str, None, Totals]:
    """A generator of the documents of a corpus: exactly those that `count` counts.

    Slower than counting, because every document becomes a Python string. The generator returns the totals:
    ``totals = yield from documents(...)``. `read_documents` returns both.

    Raises:
        CorpusError: An input cannot be read.

    Examples:
        >>> list(documents(iter(["a", "b"]), ReadOptions()))
        ['a', 'b']
    """
    return (yield from input_documents(open_corpus(corpus, read_options), read_options, read))


def input_documents(
    inputs: Iterable[Input], read_options: ReadOptions, read: Read | None = None, *, longest: int | None = None
) -> Generator[str, None, Totals]:
    """As `documents`, for inputs that are open. Documents of more than ``longest`` bytes are refused.

    Raises:
        CorpusError: An input cannot be read, or has a document that is too long.
    """
    totals = Totals()
    for source in inputs:
        totals += yield from _input_documents(source, read_options, read, longest)
    return totals


def read_documents(
    corpus: Corpus, read_options: ReadOptions, *, longest: int | None = None, most: int | None = None
) -> tuple[tuple[str, ...], Totals]:
    """All documents of a corpus, and the totals of what was read.

    Args:
        corpus: The corpus.
        read_options: How to read it.
        longest: The most bytes of a document.
        most: The most characters of all documents together.

    Raises:
        CorpusError: An input cannot be read, or is too long.

    Examples:
        >>> read_documents(iter(["a", "b"]), ReadOptions())
        (('a', 'b'), Totals(documents=2, bytes=2, characters=2, pretokens=0, replaced=0, skipped=0))
    """
    texts, characters = list[str](), 0
    reader = input_documents(open_corpus(corpus, read_options), read_options, longest=longest)
    while True:
        try:
            texts.append(next(reader))
        except StopIteration as end:
            return tuple(texts), end.value
        characters += len(texts[-1])
        if most is not None and characters > most:
            raise CorpusError(
                f"the text has over {most:,} characters, and all of it would be held in memory",
                hint="pass a part of it; `tokengraft evaluate` without a report takes text of any length",
            )


def _input_documents(
    source: Input, read_options: ReadOptions, read: Read | None, longest: int | None
) -> Generator[str, None, Totals]:
    totals = Totals()
    try:
        cut = Cut(_never, longest)
        for block in source.blocks(cut):
            texts, replaced, skipped = block.documents(skip_bad=read_options.skip_bad)
            short = [text for text in texts if longest is None or _n_bytes(text) <= longest]
            if len(short) < len(texts) and not read_options.skip_bad:
                raise too_long(source.name, max(map(_n_bytes, texts)), cut)
            totals += Totals(
                documents=len(short),
                bytes=sum(map(_n_bytes, short)),
                characters=sum(map(len, short)),
                replaced=replaced,
                skipped=skipped + len(texts) - len(short),
            )
            yield from short
            if read:
                read(source.name, block.progress)
    except CorpusError:
        if not read_options.skip_bad:
            raise
        totals += Totals(skipped=1)
    return totals


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _never(_: bytes) -> None:
    """Cuts no document."""
