"""`bits`: how many bits a model needs for a text, in all and for the tokens that another tokenizer lacks."""

from collections.abc import Collection
from dataclasses import dataclass
from math import log
from typing import Any

import numpy as np

from tokengraft.errors import CheckpointError
from tokengraft.train.models import LoadedModel, running
from tokengraft.train.sequences import Sequences, batches, targets_of


@dataclass(frozen=True)
class Bits:
    """The bits that a model needs for some tokens, and the bytes of these."""

    bits: float
    bytes: int
    tokens: int

    @property
    def per_byte(self) -> float | None:
        """Bits per byte; None without bytes."""
        return self.bits / self.bytes if self.bytes else None

    def __sub__(self, other: "Bits") -> "Bits":
        return Bits(self.bits - other.bits, self.bytes - other.bytes, self.tokens - other.tokens)


def bits(loaded: LoadedModel, text: Sequences, new: Collection[int], progress: Any = None) -> tuple[Bits, Bits]:
    """The bits of all tokens of a text, and those of the tokens in ``new``.

    Args:
        loaded: The model.
        text: The text, as its tokenizer encodes it.
        new: Ids.
        progress: Called with the number of tokens scored since the last call.

    Raises:
        CheckpointError: The model cannot be run, or gives a probability that is not a number.
    """
    is_new = np.zeros(loaded.rows, bool)
    is_new[[*new]] = True
    total = ours = 0.0
    for places, batch in batches(loaded, text.ids):
        costs = _bits_of_batch(loaded, text, places, batch)
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


def _bits_of_batch(loaded: LoadedModel, text: Sequences, places: list[int], batch: Any) -> Any:
    """Bits of every token of a batch: one row for each sequence, from its first token on."""
    import torch

    with running("run", "check that transformers runs it, or pass a smaller --chunk-bytes if memory ran out"):
        with torch.inference_mode(), loaded.hardware.autocast():
            logits = loaded.model(input_ids=batch, use_cache=False).logits
        targets = targets_of(loaded, text.ids, places, batch.shape[1])
        costs = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100, reduction="none"
        )
    first = len(loaded.start) - 1
    return costs.view(batch.shape)[:, first:].double().cpu().numpy() / log(2)
