"""Bits of texts and words by a model in training."""

import math

import numpy as np
import torch

from lab.experiments.training.model import DEVICE, Arm, hidden, token_losses
from lab.experiments.training.text import Data


def bits_per_byte(model: torch.nn.Module, arm: Arm, texts: list[str]) -> float:
    return float(bits_of(model, arm, texts).sum() / size_of(texts))


def size_of(texts: list[str]) -> int:
    """In bytes."""
    return sum(len(text.encode()) for text in texts)


@torch.no_grad()
def bits_of(model: torch.nn.Module, arm: Arm, texts: list[str], before: list[str] | None = None) -> np.ndarray:
    """The bits of each text after the separator, and after another text if one is given. Texts are split apart."""
    encode = arm.tokenizer.encode_batch_fast
    starts = encode(before, add_special_tokens=False) if before else None
    items = []
    for place, item in enumerate(encode(texts, add_special_tokens=False)):
        start = [arm.separator, *(starts[place].ids if starts else ())]
        items.append(([*start, *item.ids], len(start), place))
    table, bits = model.get_input_embeddings().weight, np.zeros(len(texts))
    for batch in padded_batches(sorted(items, key=lambda item: len(item[0])), 32_768 if DEVICE == "cuda" else 4_096):
        width = -(-max(len(ids) for ids, _, _ in batch) // 64) * 64
        ids = torch.tensor([ids + [arm.separator] * (width - len(ids)) for ids, _, _ in batch], device=DEVICE)
        first, end = (
            torch.tensor(n, device=DEVICE)[:, None] for n in zip(*((b, len(a)) for a, b, _ in batch), strict=True)
        )
        places = torch.arange(1, width + 1, device=DEVICE)[None]
        labels = torch.where((places >= first) & (places < end), ids.roll(-1, 1), -1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, ids)
            losses = token_losses(states.flatten(0, 1), table.to(states.dtype), labels.flatten())
        bits[[place for _, _, place in batch]] = losses.reshape(ids.shape).sum(1).double().cpu().numpy() / math.log(2)
    return bits


@torch.no_grad()
def word_bits(model: torch.nn.Module, arm: Arm, texts: list[str]) -> list[list[float]]:
    """The bits of each word of each text, white space before it included, and how many tokens of it are new."""
    new, table, found = set(arm.new.tolist()), model.get_input_embeddings().weight, []
    for text, item in zip(texts, arm.tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        ids = torch.tensor([[arm.separator, *item.ids]], device=DEVICE)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, ids[:, :-1])[0]
            losses = torch.nn.functional.cross_entropy(
                torch.nn.functional.linear(states, table.to(states.dtype)).float(), ids[0, 1:], reduction="none"
            )
        losses = (losses / math.log(2)).tolist()
        spaces = (place for place in range(1, len(text)) if text[place].isspace() and not text[place - 1].isspace())
        starts = [0, *spaces]
        words = [[0.0, 0, 0] for _ in starts]
        for (begin, _), token, loss in zip(item.offsets, item.ids, losses, strict=True):
            word = words[np.searchsorted(starts, begin, side="right") - 1]
            word[0] += loss
            word[1] += 1
            word[2] += token in new
        found.append([[round(bits, 2), n, fresh] for bits, n, fresh in words])
    return found


def padded_batches(items: list[tuple[list[int], int, int]], most: int) -> list[list[tuple[list[int], int, int]]]:
    made: list[list[tuple[list[int], int, int]]] = [[]]
    for item in items:
        if made[-1] and (len(made[-1]) + 1) * len(item[0]) > most:
            made.append([])
        made[-1].append(item)
    return made


def score_some(model: torch.nn.Module, arm: Arm, data: Data) -> tuple[float, float]:
    """Bits per byte of a part of the held-out text, of the target and of the kept language."""
    held = {name: texts[:200] for name, texts in data.scored.items() if name.endswith("_held")}
    target = next(name for name in held if not name.startswith("en"))
    return bits_per_byte(model, arm, held[target]), bits_per_byte(model, arm, held["en_held"])
