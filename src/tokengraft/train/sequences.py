"""`sequences`: chunks of text as ids, with the bytes of every token; and batches of sequences of similar length."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.evaluate.segments import Segmenter
from tokengraft.tokenizer.alphabet import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.train.models import LoadedModel

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sequences:
    """Chunks as ids, without the start token."""

    ids: tuple[Ids, ...]
    n_bytes: tuple[Ids, ...]
    """The bytes of every token."""
    text_bytes: int
    """Of all chunks."""

    @property
    def n_tokens(self) -> int:
        """Of all chunks."""
        return sum(map(len, self.ids))


def sequences(tokenizer: Tokenizer, chunks: Sequence[str]) -> Sequences:
    """The tokens of chunks, with their bytes. Chunks without a token are left out.

    The space that SentencePiece types put before a text is not a byte of it.
    """
    length_of = np.zeros(tokenizer.n_rows, np.int64)
    bytes_of = {token.id: token.bytes for token in tokenizer.tokens}
    length_of[[*bytes_of]] = [len(data) for data in bytes_of.values()]
    has_prefix = tokenizer.kind == "sentencepiece"
    ids, n_bytes = [], []
    for chunk, found in zip(chunks, encoded(tokenizer, chunks), strict=True):
        if not found:
            continue
        row = np.array(found, np.int64)
        sizes = length_of[row]
        if has_prefix and _spaces(map(bytes_of.__getitem__, found)) > len(chunk) - len(chunk.lstrip(" ▁")):
            sizes[0] -= 1
        ids.append(row)
        n_bytes.append(sizes)
    return Sequences(tuple(ids), tuple(n_bytes), sum(len(chunk.encode()) for chunk in chunks))


def _spaces(tokens: Iterable[bytes]) -> int:
    """The number of spaces that tokens begin with."""
    spaces = 0
    for data in tokens:
        rest = len(data.lstrip(b" "))
        spaces += len(data) - rest
        if rest:
            break
    return spaces


def ids_of(tokenizer: Tokenizer, chunks: Sequence[str]) -> tuple[Ids, ...]:
    """The ids of chunks. Chunks without a token are left out."""
    return tuple(np.array(ids, np.int64) for ids in encoded(tokenizer, chunks) if ids)


def encoded(tokenizer: Tokenizer, chunks: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The ids of each chunk, as in the document that it is cut from.

    A chunk often begins with the space before a word. A tokenizer that puts a space before every text would read two
    there, so the chunk is encoded without its own.
    """
    texts = tuple(chunks)
    if _doubles_space(tokenizer):
        texts = tuple(text[1:] if text.startswith(" ") and len(text) > 1 else text for text in texts)
    segments = Segmenter(tokenizer).segment([*texts])
    return tuple(tuple(segments.document(place).tolist()) for place in range(len(texts)))


def _doubles_space(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer puts a space before a text that begins with one, as the normalizer `Prepend` does."""
    strings = tokenizer.strings
    return b"".join(token_bytes(strings[i], tokenizer.kind) for i in tokenizer.encode(" a")).startswith(b"  ")


def batches(loaded: LoadedModel, ids: Sequence[Ids]) -> Iterator[tuple[list[int], Any]]:
    """The sequences in batches of similar length: their places, and a tensor of ids on the device.

    Every row begins with the start token and is padded at its end. Models are causal, so padding changes nothing
    before it, and no attention mask is needed. A batch has as many tokens as the memory for logits allows.
    """
    import torch

    order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
    most, n_start = loaded.hardware.max_logits // max(loaded.rows, 1), len(loaded.start)
    while order:
        width = len(ids[order[0]]) + n_start
        places, order = order[: max(1, most // width)], order[max(1, most // width) :]
        batch = np.zeros((len(places), width), np.int64)
        batch[:, :n_start] = loaded.start
        for row, place in zip(batch, places, strict=True):
            row[n_start : n_start + len(ids[place])] = ids[place]
        yield places, torch.from_numpy(batch).to(loaded.hardware.device)


def targets_of(loaded: LoadedModel, ids: Sequence[Ids], places: Sequence[int], width: int) -> Any:
    """The id that follows each position of a batch, and -100 where none is scored."""
    import torch

    targets = np.full((len(places), width), -100, np.int64)
    first = len(loaded.start) - 1
    for row, place in zip(targets, places, strict=True):
        row[first : first + len(ids[place])] = ids[place]
    return torch.from_numpy(targets).to(loaded.hardware.device)
