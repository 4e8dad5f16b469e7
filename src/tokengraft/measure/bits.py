"""`score_models`: bits per byte of models on texts. `bits`: the bits that a model needs for a text.

The only way to score in the package: training, blending and evaluation give the same figure for a model and a text.
Documents are cut into `chunks` at places that do not depend on a tokenizer, so that all models read the same bytes.
`sequences` are chunks as ids, with the bytes of every token; `batches` are sequences of similar length.
"""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.layout import open_checkpoint
from tokengraft.errors import CheckpointError, Progress, option
from tokengraft.formats.sources import load_folder
from tokengraft.measure.compare import new_tokens
from tokengraft.measure.models import LoadedModel, free_memory, hardware, load_model, running
from tokengraft.measure.segments import Segmenter, Text
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

CHUNK_BYTES = 1500
"""The default size of a chunk. At four bytes per token it is a context of a few hundred tokens."""


def chunks(documents: Iterable[str], max_bytes: int = CHUNK_BYTES) -> Iterator[str]:
    """The documents, cut into parts of at most ``max_bytes`` bytes. Joined, they are the documents again.

    A part ends before white space in its second half, if there is some, else between two characters.

    Examples:
        >>> list(chunks(["one two three", "four"], 8))
        ['one two', ' three', 'four']
        >>> list(chunks(["õõõõõ"], 5))
        ['õõ', 'õõ', 'õ']
    """
    for document in documents:
        raw, at = document.encode(), 0
        while at < len(raw):
            end = _end(raw, at, max_bytes)
            yield raw[at:end].decode()
            at = end


def _end(raw: bytes, start: int, max_bytes: int) -> int:
    limit = start + max_bytes
    if limit >= len(raw):
        return len(raw)
    space = max(raw.rfind(space, start + max_bytes // 2, limit + 1) for space in (b" ", b"\n"))
    if space > start:
        return space
    while raw[limit] & 0xC0 == 0x80:  # not inside a character
        limit -= 1
    return limit


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


def encoded(tokenizer: Tokenizer, chunks: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The ids of each chunk, as in the document that it is cut from.

    A chunk often begins with the space before a word. A tokenizer that puts a space before every text would read two
    there, so the chunk is encoded without its own.
    """
    texts, strings = [*chunks], tokenizer.strings
    # The normalizer `Prepend` puts a space before a text that begins with one.
    with_space = b"".join(token_bytes(strings[i], tokenizer.kind) for i in tokenizer.encode(" a"))
    if with_space.startswith(b"  "):
        texts = [text[1:] if text.startswith(" ") and len(text) > 1 else text for text in texts]
    segments = Segmenter(tokenizer).segment(texts)
    return tuple(tuple(segments.document(place).tolist()) for place in range(len(texts)))


def batches(loaded: LoadedModel, ids: Sequence[Ids]) -> Iterator[tuple[list[int], Any, Any]]:
    """The sequences in batches of similar length: their places, and on the device the ids and those that follow them.

    -100 follows where nothing is scored. Every row begins with the start token and is padded at its end. Models are
    causal, so padding changes nothing before it, and no attention mask is needed. A batch has as many tokens as the
    memory for logits allows.
    """
    import torch

    order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
    most, n_start = loaded.hardware.max_logits // max(loaded.rows, 1), len(loaded.start)
    while order:
        width = len(ids[order[0]]) + n_start
        places, order = order[: max(1, most // width)], order[max(1, most // width) :]
        batch, targets = np.zeros((len(places), width), np.int64), np.full((len(places), width), -100, np.int64)
        batch[:, :n_start] = loaded.start
        for row, target, place in zip(batch, targets, places, strict=True):
            end = n_start + len(ids[place])
            row[n_start:end] = target[n_start - 1 : end - 1] = ids[place]
        yield places, *(torch.from_numpy(rows).to(loaded.hardware.device) for rows in (batch, targets))


@dataclass(frozen=True)
class Bits:
    """The bits that a model needs for some tokens, and the bytes of these."""

    bits: float
    bytes: int
    tokens: int


def bits(
    loaded: LoadedModel,
    text: Sequences,
    new: Collection[int] = (),
    *,
    progress: Callable[[int], None] | None = None,
    part: tuple[int, int] = (0, 1),
    add: Callable[[list[float]], list[float]] | None = None,
) -> tuple[Bits, Bits]:
    """The bits of all tokens of a text, and those of the tokens with the ids in ``new``.

    ``progress`` is called with the number of tokens scored since the last call. Of several processes, each scores its
    ``part``, such as (0, 2), and ``add`` gives the sums over all of them.
    """
    is_new = np.zeros(loaded.rows, bool)
    is_new[[*new]] = True
    sums, trains = [0.0, 0.0], loaded.model.training
    loaded.model.eval()
    for place_of_batch, (places, batch, targets) in enumerate(batches(loaded, text.ids)):
        if place_of_batch % part[1] == part[0]:
            costs = _bits_of_batch(loaded, batch, targets)
            for place, row in zip(places, costs, strict=True):
                scored = row[: len(text.ids[place])]
                sums[0] += float(scored.sum())
                sums[1] += float(scored[is_new[text.ids[place]]].sum())
        if progress:
            progress(sum(len(text.ids[place]) for place in places))
    loaded.model.train(trains)
    total, ours = add(sums) if add else sums
    if not np.isfinite(total):
        raise CheckpointError(
            "the model gives probabilities that are not numbers",
            hint=f"if it was trained, train it again with a lower {option('learning_rate')}",
        )
    marked = [is_new[ids] for ids in text.ids]
    new_bytes = sum(int(sizes[mark].sum()) for sizes, mark in zip(text.n_bytes, marked, strict=True))
    return Bits(total, text.text_bytes, text.n_tokens), Bits(ours, new_bytes, sum(int(mark.sum()) for mark in marked))


def _bits_of_batch(loaded: LoadedModel, batch: Any, targets: Any) -> Any:
    """Bits of every token of a batch: one row for each sequence, from its first token on."""
    import torch

    with running("run", "check that transformers runs it, and that the memory is large enough"):
        with torch.inference_mode(), loaded.hardware.autocast():
            logits = loaded.model(input_ids=batch, use_cache=False).logits
        costs = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100, reduction="none"
        )
    return costs.view(batch.shape)[:, len(loaded.start) - 1 :].double().cpu().numpy() / log(2)


def chunk_bytes(folders: Iterable[str | os.PathLike[str]]) -> int:
    """Bytes of a chunk that all models can read: a token has at least one byte, and some come before a text."""
    known = (open_checkpoint(Path(folder)).text_config.get("max_position_embeddings") for folder in folders)
    return max(16, min([CHUNK_BYTES, *(n - 8 for n in known if type(n) is int and n > 0)]))


def score_models(
    models: Mapping[str, str | os.PathLike[str]], texts: Mapping[str, Text], *, progress: Progress | None = None
) -> dict[tuple[str, str], tuple[Bits, Bits]]:
    """The bits of every model for every text, by their names: of all tokens, and of those that the first model lacks.

    Before every chunk a model reads its start token, so that no byte is left out. One model is in memory at a time.
    """
    where, size = hardware(), chunk_bytes(models.values())
    base = load_folder(Path(next(iter(models.values()))))
    parts = {name: tuple(chunks(text.documents, size)) for name, text in texts.items()}
    total = len(models) * sum(len(part.encode()) for text in parts.values() for part in text)
    scores = {}
    for name, folder in models.items():
        loaded = load_model(folder, where)
        new = new_tokens(loaded.tokenizer, base)
        for text, documents in parts.items():
            found = sequences(loaded.tokenizer, documents)
            rate = found.text_bytes / max(found.n_tokens, 1)

            def report(n: int, what: str = f"{name}, {text}", rate: float = rate) -> None:
                if progress:
                    progress(what, round(n * rate), total)

            scores[name, text] = bits(loaded, found, new, progress=report)
        del loaded
        free_memory()
    return scores
