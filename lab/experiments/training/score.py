"""Bits that a model needs for texts if it has only some of its tokens.

    python -m lab.experiments.training.score MODEL ARMS.xz SCORES.json

`compression` calls `score` itself. The command is for a machine that has a GPU, torch and transformers, but not
tokengraft: `python -m lab.experiments.model_compression` writes the arms, and reads the scores.
"""

import io
import json
import lzma
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

LOGITS = {"cuda": 1 << 30, "cpu": 1 << 27}
"""Logits that are computed at once."""
XZ = {"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 26}
"""The arms have much in common: a large dictionary makes their file a third as large."""


@dataclass(frozen=True)
class Arm:
    """A smaller vocabulary of a model, and texts in its tokens. All ids are those of the whole vocabulary."""

    kept: np.ndarray
    """The ids of the tokens that are left."""
    texts: Mapping[str, Sequence[np.ndarray]]
    """By name: the tokens of each part of a text. A part is scored by itself, after the token that begins texts."""


def score(folder: Path, arms: Mapping[str, Arm]) -> dict[str, dict[str, list[float]]]:
    """The bits of every part of every text, by arm and text.

    A transplanted model has the rows of the kept tokens and no others. So its logits are those of the whole model
    without the columns of removed tokens.
    """
    found = {}
    for name, arm in arms.items():
        found[name] = {text: _bits(_model(folder), arm.kept, parts) for text, parts in arm.texts.items()}
    return found


@lru_cache(maxsize=1)
def _model(folder: Path) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device).eval()


def _bits(model: Any, kept: np.ndarray, parts: Sequence[np.ndarray]) -> list[float]:
    import torch

    columns = torch.from_numpy(kept.astype(np.int64)).to(model.device)
    place = torch.full((int(kept.max()) + 1,), -1, device=model.device)
    place[columns] = torch.arange(len(kept), device=model.device)
    start, bits = model.config.bos_token_id, [0.0] * len(parts)
    for chosen in _batches(parts, LOGITS[model.device.type] // model.config.vocab_size):
        sizes = [len(parts[i]) for i in chosen]
        ids = torch.full((len(chosen), 1 + max(sizes)), start, device=model.device)
        for row, i in enumerate(chosen):
            ids[row, 1 : 1 + sizes[row]] = torch.from_numpy(parts[i].astype(np.int64)).to(model.device)
        with torch.inference_mode():
            logits = model(ids[:, :-1]).logits  # padding is at the end, where causal attention does not see it
            for row, i in enumerate(chosen):
                scores = torch.log_softmax(logits[row, : sizes[row]].index_select(1, columns).float(), dim=-1)
                targets = place[ids[row, 1 : 1 + sizes[row]]]
                bits[i] = round(-float(scores.gather(1, targets[:, None]).double().sum()) / math.log(2), 4)
    return bits


def _batches(parts: Sequence[np.ndarray], tokens: int) -> Iterator[list[int]]:
    """Parts of similar length together, with at most ``tokens`` tokens, padding included; at least one part."""
    batch: list[int] = []
    for i in sorted((i for i in range(len(parts)) if len(parts[i])), key=lambda i: len(parts[i])):
        if batch and (len(batch) + 1) * len(parts[i]) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def write_arms(arms: Mapping[str, Arm], path: Path) -> None:
    """All arms in one file."""
    arrays = {}
    for name, arm in arms.items():
        arrays[f"{name}/kept"] = arm.kept
        for text, parts in arm.texts.items():
            arrays[f"{name}/{text}/ids"] = np.concatenate(parts)
            arrays[f"{name}/{text}/sizes"] = np.array([len(part) for part in parts], np.uint32)
    file = io.BytesIO()
    np.savez(file, **arrays)
    path.write_bytes(lzma.compress(file.getbuffer(), filters=[XZ]))


def read_arms(path: Path) -> dict[str, Arm]:
    """The arms of a file."""
    file = np.load(io.BytesIO(lzma.decompress(path.read_bytes())))
    found: dict[str, Arm] = {}
    for name in (key.removesuffix("/kept") for key in file.files if key.endswith("/kept")):
        texts = [key.split("/")[-2] for key in file.files if key.startswith(f"{name}/") and key.endswith("/ids")]
        parts = {
            text: np.split(file[f"{name}/{text}/ids"], np.cumsum(file[f"{name}/{text}/sizes"])[:-1]) for text in texts
        }
        found[name] = Arm(file[f"{name}/kept"], parts)
    return found


def main() -> None:
    """Scores the arms of a file, one after another."""
    model, arms, out = map(Path, sys.argv[1:])
    found = {}
    for name, arm in read_arms(arms).items():
        found |= score(model, {name: arm})
        totals = {text: round(sum(bits)) for text, bits in found[name].items()}
        print(name, totals, flush=True)
        out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
