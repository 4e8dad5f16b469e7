"""`bits`: the bits that a model needs for a text. `train_briefly`: a few optimizer steps on all weights.

Documents are cut into `chunks` at places that do not depend on a tokenizer, so that all models read the same bytes.
`sequences` are chunks as ids, with the bytes of every token; `batches` are sequences of similar length.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import cos, log, pi
from typing import Any

import numpy as np
import numpy.typing as npt

from tokengraft.errors import CheckpointError
from tokengraft.measure.segments import Segmenter
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.train.models import LoadedModel, running

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


def steps_of(parts: Iterable[str], step_bytes: int, steps: int) -> Iterator[list[str]]:
    """The parts in groups of at least ``step_bytes`` bytes, in order; the last ones are left out if they are fewer.

    Examples:
        >>> list(steps_of(["aa", "bb", "cc", "dd", "ee"], 3, 9))
        [['aa', 'bb'], ['cc', 'dd']]
    """
    group, size, done = list[str](), 0, 0
    for part in parts:
        if done == steps:
            return
        group.append(part)
        size += len(part.encode())
        if size >= step_bytes:
            yield group
            group, size, done = [], 0, done + 1


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


def bits(loaded: LoadedModel, text: Sequences, new: Collection[int], progress: Any = None) -> tuple[Bits, Bits]:
    """The bits of all tokens of a text, and those of the tokens with the ids in ``new``.

    ``progress`` is called with the number of tokens scored since the last call.
    """
    is_new = np.zeros(loaded.rows, bool)
    is_new[[*new]] = True
    total = ours = 0.0
    for places, batch, targets in batches(loaded, text.ids):
        costs = _bits_of_batch(loaded, batch, targets)
        for place, row in zip(places, costs, strict=True):
            scored = row[: len(text.ids[place])]
            total += float(scored.sum())
            ours += float(scored[is_new[text.ids[place]]].sum())
        if progress:
            progress(sum(len(text.ids[place]) for place in places))
    if not np.isfinite(total):
        raise CheckpointError(
            "the model gives probabilities that are not numbers",
            hint="pass --dtype float32, or a lower --learning-rate if it was trained",
        )
    marked = [is_new[ids] for ids in text.ids]
    new_bytes = sum(int(sizes[mark].sum()) for sizes, mark in zip(text.n_bytes, marked, strict=True))
    return Bits(total, text.text_bytes, text.n_tokens), Bits(ours, new_bytes, sum(int(mark.sum()) for mark in marked))


def _bits_of_batch(loaded: LoadedModel, batch: Any, targets: Any) -> Any:
    """Bits of every token of a batch: one row for each sequence, from its first token on."""
    import torch

    with running("run", "check that transformers runs it, or pass a smaller --chunk-bytes if memory ran out"):
        with torch.inference_mode(), loaded.hardware.autocast():
            logits = loaded.model(input_ids=batch, use_cache=False).logits
        costs = _losses(logits, targets, "none")
    return costs.view(batch.shape)[:, len(loaded.start) - 1 :].double().cpu().numpy() / log(2)


def _losses(logits: Any, targets: Any, reduction: str) -> Any:
    """The cross-entropy of the next token at every position of a batch, or its sum."""
    import torch

    return torch.nn.functional.cross_entropy(
        logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100, reduction=reduction
    )


WARM_UP = 0.1
"""Share of the steps in which the learning rate rises; then it falls to 0 as a cosine."""
MAX_NORM = 1.0


@dataclass(frozen=True)
class TrainingPlan:
    """The text of every step, and how to train."""

    steps: tuple[tuple[str, ...], ...]
    """The chunks of each step, which do not depend on the tokenizer."""
    learning_rate: float

    @property
    def n_bytes(self) -> int:
        """Bytes of text in all steps."""
        return sum(len(chunk.encode()) for step in self.steps for chunk in step)


def train_briefly(loaded: LoadedModel, plan: TrainingPlan, progress: Any = None) -> None:
    """Trains a model in place, with AdamW, on all of its weights."""
    import torch

    weights = [weight for weight in loaded.model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        weights, lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=loaded.hardware.on_gpu
    )
    total = len(plan.steps)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, total))
    for number, step in enumerate(plan.steps):
        with running(f"trained, at step {number + 1}", "pass a smaller --chunk-bytes if memory ran out"):
            _step(loaded, ids_of(loaded.tokenizer, step))
            torch.nn.utils.clip_grad_norm_(weights, MAX_NORM)
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if progress:
            progress(sum(len(chunk.encode()) for chunk in step))


def learning_rate_factor(step: int, steps: int, warm_up: float = WARM_UP) -> float:
    """The share of the learning rate at a step, from 0: it rises, then falls as a cosine.

    >>> [round(learning_rate_factor(step, 10, 0.2), 2) for step in range(10)]
    [0.5, 1.0, 1.0, 0.96, 0.85, 0.69, 0.5, 0.31, 0.15, 0.04]
    """
    rising = max(1, round(warm_up * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + cos(pi * (step - rising) / max(1, steps - rising)))


def _step(loaded: LoadedModel, ids: Sequence[Ids]) -> None:
    """Adds the gradient of the mean loss of all tokens of a step."""
    n_tokens = sum(map(len, ids))
    for _, batch, targets in batches(loaded, ids):
        with loaded.hardware.autocast():
            logits = loaded.model(input_ids=batch, use_cache=False).logits
        (_losses(logits, targets, "sum") / n_tokens).backward()
