"""`DocumentMeasures`: what is measured document by document, batch after batch."""

from array import array
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING

from tokengraft.evaluate.metrics import edit_distance, share
from tokengraft.evaluate.segments import Segmenter, Segments, n_words
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    import numpy as np


class TextSize:
    """The size of a text: the sum of its batches."""

    def __init__(self) -> None:
        self.documents = self.n_bytes = self.n_characters = self.n_words = 0

    def add(self, batch: list[str]) -> None:
        """Adds a batch of documents."""
        self.documents += len(batch)
        self.n_bytes += sum(len(document.encode()) for document in batch)
        self.n_characters += sum(map(len, batch))
        self.n_words += sum(map(n_words, batch))


class TokenCounts:
    """The tokens of a text with one tokenizer: the sum of its batches."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, self._segmenter = tokenizer, Segmenter(tokenizer)
        self.counted, self.n_pretokens, self.n_by_merges = Counter[int](), 0, 0
        self.lost, self.lost_by_merges = Counter[bytes](), Counter[bytes]()

    def add(self, batch: list[str]) -> Segments:
        """Adds a batch of documents, and returns their tokens."""
        segments = self._segmenter.segment(batch)
        self.counted.update(segments.counted())
        self.n_pretokens += segments.n_pretokens
        self.n_by_merges += segments.n_by_merges
        self.lost.update(self._segmenter.lost(batch))
        if self.tokenizer.ignore_merges:
            self.lost_by_merges.update(self._segmenter.lost(batch, by_merges=True))
        return segments


class Comparison:
    """The documents of a text with two tokenizers, compared: the sum of its batches."""

    def __init__(self, ours: Tokenizer, base: Tokenizer) -> None:
        names, base_names = token_names(ours, base)
        known = set(base_names.values())
        self.added = [token_id for token_id, name in names.items() if name not in known]
        numbers: dict[Hashable, int] = {}
        self._ours, self._base = _Names(names, numbers), _Names(base_names, numbers)
        self._documents = self._unmeasured = 0
        self._wins = self._exact = 0.0
        self._distances = array("d")

    def add(self, segments: Segments, before: Segments) -> None:
        """Adds the tokens of a batch of documents with both tokenizers."""
        self._documents += len(segments.lengths)
        shorter, same = segments.lengths < before.lengths, segments.lengths == before.lengths
        self._wins += float(shorter.sum() + same.sum() / 2)
        ours, theirs = self._ours.of(segments.ids), self._base.of(before.ids)
        for place in range(len(segments.lengths)):
            mine = ours[segments.starts[place] : segments.starts[place + 1]]
            base = theirs[before.starts[place] : before.starts[place + 1]]
            self._add(mine, base)

    def _add(self, mine: "np.ndarray", base: "np.ndarray") -> None:
        is_same = len(mine) == len(base) and bool((mine == base).all())
        self._exact += is_same
        distance = 0.0 if is_same else edit_distance(mine, base)
        if distance is None:
            self._unmeasured += 1
        else:
            self._distances.append(distance)

    @property
    def win_rate(self) -> float | None:
        """The share of documents with fewer tokens. Documents with as many count half."""
        return share(self._wins, self._documents)

    @property
    def exact_match(self) -> float | None:
        """The share of documents with unchanged segmentation."""
        return share(self._exact, self._documents)

    @property
    def edit_distance(self) -> float | None:
        """The mean over the documents that were measured; None if there is none."""
        return sum(self._distances) / len(self._distances) if self._distances else None

    @property
    def worst_edit_distance(self) -> float | None:
        """The largest of the documents that were measured; None if there is none."""
        return max(self._distances, default=None)

    @property
    def unmeasured(self) -> int:
        """Documents without an edit distance, because they differ over too many tokens."""
        return self._unmeasured


class _Names:
    """Ids of a tokenizer as numbers that are the same for the same token of another one."""

    def __init__(self, names: Mapping[int, Hashable], numbers: dict[Hashable, int]) -> None:
        import numpy as np

        ids = sorted(names)  # a table by id could need gigabytes
        self._ids = np.array(ids, np.uint32)
        self._numbers = np.array([numbers.setdefault(names[token_id], len(numbers)) for token_id in ids], np.int64)

    def of(self, ids: "np.ndarray") -> "np.ndarray":
        """The numbers of ids."""
        import numpy as np

        return self._numbers[np.searchsorted(self._ids, ids)]


def token_names(ours: Tokenizer, theirs: Tokenizer) -> tuple[Mapping[int, Hashable], Mapping[int, Hashable]]:
    """Names of tokens for comparing two tokenizers: strings, or bytes if their kinds differ."""
    if ours.kind == theirs.kind:
        return ours.strings, theirs.strings
    return {token.id: token.bytes for token in ours.tokens}, {token.id: token.bytes for token in theirs.tokens}
