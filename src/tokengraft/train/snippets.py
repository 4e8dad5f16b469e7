"""`select_snippets`: short texts with new tokens, as the old and the new tokenizer encode them."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.train.chunks import chunks
from tokengraft.train.sequences import encoded

Ids = npt.NDArray[np.int64]
AT_ONCE = 512
"""Chunks that are encoded together: every distinct pretoken among them is encoded once."""


@dataclass(frozen=True)
class Snippet:
    """A text as ids of both tokenizers, and the places after which both have read the same bytes."""

    old: Ids
    new: Ids
    old_places: Ids
    """Places in ``old``, from the end of the first new token on."""
    new_places: Ids
    """The same places in ``new``."""


@dataclass(frozen=True)
class SnippetOptions:
    """Which snippets are selected."""

    per_token: int
    """Snippets that are wanted for each new token. A snippet counts for every new token in it."""
    snippet_bytes: int
    max_bytes: int
    """Text that is read at most."""


@dataclass(frozen=True)
class Selection:
    """The selected snippets, and how many contain each new token."""

    snippets: tuple[Snippet, ...]
    counts: Counter[int]


def select_snippets(
    documents: Iterable[str], old: Tokenizer, new: Tokenizer, wanted: Collection[int], options: SnippetOptions
) -> Selection:
    """Snippets with the wanted tokens, in the order of the text, until each has enough or the text ends.

    A snippet is selected if one of its new tokens has too few so far. Snippets that the two tokenizers do not read as
    the same bytes, such as those with unknown tokens, are left out.
    """
    aligner = _Aligner(old, new, frozenset(wanted))
    snippets, counts, missing = list[Snippet](), Counter[int](), set(wanted)
    parts = _first_bytes(chunks(documents, options.snippet_bytes), options.max_bytes)
    while missing and (block := tuple(islice(parts, AT_ONCE))):
        after = encoded(new, block)
        chosen = [(part, ids) for part, ids in zip(block, after, strict=True) if not missing.isdisjoint(ids)]
        before = encoded(old, [part for part, _ in chosen])
        for (_, ids), old_ids in zip(chosen, before, strict=True):
            tokens = {token for token in ids if token in aligner.wanted}
            if missing.isdisjoint(tokens):
                continue
            snippet = aligner.snippet(old_ids, ids)
            if snippet is not None:
                snippets.append(snippet)
                counts.update(tokens)
                missing -= {token for token in tokens if counts[token] >= options.per_token}
    return Selection(tuple(snippets), counts)


def _first_bytes(parts: Iterable[str], most: int) -> Iterator[str]:
    size = 0
    for part in parts:
        if size >= most:
            return
        size += len(part.encode())
        yield part


class _Aligner:
    def __init__(self, old: Tokenizer, new: Tokenizer, wanted: frozenset[int]) -> None:
        self.wanted = wanted
        self._old, self._new = ({token.id: token.bytes for token in tokenizer.tokens} for tokenizer in (old, new))

    def snippet(self, old: Sequence[int], new: Sequence[int]) -> Snippet | None:
        """The snippet of two segmentations; None if they are not the same bytes."""
        old_bytes, new_bytes = [self._old[i] for i in old], [self._new[i] for i in new]
        if b"".join(old_bytes) != b"".join(new_bytes):
            return None
        first = next(place for place, token in enumerate(new) if token in self.wanted)
        old_places, new_places = common_ends([*map(len, old_bytes)], [*map(len, new_bytes)])
        after = new_places >= first
        return Snippet(np.array(old), np.array(new), old_places[after], new_places[after])


def common_ends(old: Sequence[int], new: Sequence[int]) -> tuple[Ids, Ids]:
    """The places in two lists of lengths after which the sums are equal.

    >>> common_ends([1, 1, 2, 3], [2, 5])
    (array([1, 3]), array([0, 1]))
    """
    _, places, others = np.intersect1d(np.cumsum(old), np.cumsum(new), return_indices=True)
    return places, others
