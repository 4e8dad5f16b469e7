"""`read_documents`: the documents of a corpus as Python strings."""

from collections.abc import Generator, Iterable, Iterator

from tokengraft.corpus.block import Cut, Input
from tokengraft.corpus.blocks import too_long
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions, Totals
from tokengraft.errors import CorpusError


def documents(corpus: Corpus, read_options: ReadOptions) -> Generator[str, None, Totals]:
    """A generator of the documents of a corpus: exactly those that `count` counts.

    Slower than counting, because every document becomes a Python string. The generator returns the totals:
    ``totals = yield from documents(...)``. `read_documents` returns both.

    Examples:
        >>> list(documents(iter(["a", "b"]), ReadOptions()))
        ['a', 'b']
    """
    return (yield from input_documents(open_corpus(corpus, read_options), read_options))


def input_documents(
    inputs: Iterable[Input], read_options: ReadOptions, *, longest: int | None = None
) -> Generator[str, None, Totals]:
    """As `documents`, for inputs that are open. Documents of more than ``longest`` bytes are refused."""
    totals, cut = Totals(), Cut(lambda _: None, longest)
    for source in inputs:
        try:
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
        except CorpusError:
            if not read_options.skip_bad:
                raise
            totals += Totals(skipped=1)
    return totals


def _n_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def read_documents(corpus: Corpus, read_options: ReadOptions) -> tuple[tuple[str, ...], Totals]:
    """All documents of a corpus, and the totals of what was read.

    Examples:
        >>> read_documents(iter(["a", "b"]), ReadOptions())
        (('a', 'b'), Totals(documents=2, bytes=2, characters=2, pretokens=0, replaced=0, skipped=0))
    """
    totals = list[Totals]()

    def read() -> Iterator[str]:
        totals.append((yield from documents(corpus, read_options)))

    return tuple(read()), totals[0]
