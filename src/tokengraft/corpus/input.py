"""`Input`: a part of a corpus that is read from its start to its end."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tokengraft.corpus.block import Block, Cut
from tokengraft.corpus.blocks import CorpusFile


@dataclass(frozen=True)
class Input:
    """One input: a file, a part of a file, standard input, or a Python object. Those of files can be pickled."""

    name: str
    size: int
    """Bytes on disk; 0 if unknown."""
    blocks: Callable[[Cut], Iterator[Block]]
    file: CorpusFile | None = None
