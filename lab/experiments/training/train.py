"""Trains a model with several tokenizers on the same text, and scores all of them in bits per byte.

    python -m lab.experiments.training.train MODEL DATA --runs runs.json --out FILE     # DATA by `data.py`

Every run reads the same documents, in an order that depends only on the seed, and takes steps of the same number of
bytes. ``runs.json`` is a list of objects with the fields of `Run`. One line of JSON is written for each run, when it is
finished; runs that are already there are skipped. Needs torch, transformers and tokenizers.
"""

import argparse
import itertools
import json
import lzma
import math
import random
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import tokengraft as tg
from lab.experiments.training.distill import distill
from lab.experiments.training.model import DEVICE, Arm, Models, hidden, next_token_loss
from lab.experiments.training.shared import SharedRows

LENGTH = 1024
CURVE = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875)


@dataclass(frozen=True)
class Run:
    name: str
    data: str
    arm: str
    init: str = "fvt"
    lr: float = 2.4e-3
    seed: int = 0
    bytes: float = 50e6
    """Of text, including what the initialiser reads. More than there are: the documents are read again."""
    step_bytes: float = 178e3
    table_lr: float = 1.0
    """Learning rate of the embedding, relative to ``lr``."""
    row_lr: float = 1.0
    """Learning rate of the rows of new tokens, relative to that of the embedding."""
    share: float = 0.0
    """How much of the change of a new token's row its parts get that are new tokens too (see `shared.py`)."""
    rows_first: float = 0.0
    """Share of the text on which only the rows of new tokens are trained."""
    distill: float = 0.0
    """Share of the text on which the rows of new tokens are distilled."""
    distill_lr: float = 2e-3
    distill_batch: int = 64
    """Parts of documents, of at most 512 old tokens each."""
    hidden_weight: float = 1.0
    """Weight of the hidden states against the next token, for distillation."""
    warm_up: float = 0.05
    beta2: float = 0.95
    max_steps: int = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="file of results, one line for each run")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no run after this time")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    done = (
        {json.loads(line)["name"] for line in options.out.read_text().splitlines()} if options.out.exists() else set()
    )
    start, cache, models = time.monotonic(), {}, Models(options.model)
    for fields in json.loads(options.runs.read_text()):
        run = Run(**fields)
        if run.name in done or time.monotonic() - start > options.seconds:
            continue
        if run.data not in cache:
            cache[run.data] = Data(options.data / run.data, models.separator)
        result = train(run, models, cache[run.data])
        with options.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        scores = {name: round(value, 4) for name, value in result["scores"].items()}
        print(f"{time.monotonic() - start:5.0f} s  {run.name:28} {result['tokens_per_second']:9,.0f} tok/s", scores)


class Data:
    """The text, and its tokens for each arm."""

    def __init__(self, folder: Path, separator: int) -> None:
        self.folder, self.separator = folder, separator
        with lzma.open(folder / "train.json.xz", "rt", encoding="utf-8") as file:
            self.documents: list[str] = json.load(file)
        self.sizes = np.array([len(text.encode()) for text in self.documents])
        names = sorted(folder.glob("*_held.json")) + sorted(folder.glob("*_flores.json"))
        self.scored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in names}
        self.arms: dict[str, Arm] = {}

    def arm(self, name: str) -> "Arm":
        if name not in self.arms:
            self.arms[name] = Arm(self.folder / "arms" / name, self.documents, self.separator)
        return self.arms[name]


def train(run: Run, models: Models, data: Data) -> dict:
    torch.manual_seed(run.seed)
    arm = data.arm(run.arm)
    model, new = models.fresh(arm, run.init), arm.new.to(DEVICE)
    curve = [(0.0, *score_some(model, arm, data))]
    order, read = order_of(run, data.sizes)
    distilling = 0.0
    if run.distill:
        first, order = split_at(order, data.sizes, run.distill * run.bytes)
        at = time.monotonic()
        rows = distill(run, models.original, model.get_input_embeddings().weight.detach().clone(), data, arm, first)
        model.get_input_embeddings().weight.data[new] = rows
        distilling = time.monotonic() - at
        curve.append((float(data.sizes[first].sum()), *score_some(model, arm, data)))
    stream = arm.stream(order)
    left = data.sizes[order].sum()
    steps = max(1, round(left / run.step_bytes))
    per_step = max(1, round(len(stream) / steps / LENGTH)) * LENGTH
    steps = len(stream) // per_step
    if not steps:
        raise tg.TokengraftError(f"{len(stream):,} tokens are too few for a step", hint="give more text")
    if run.max_steps:
        steps = min(steps, run.max_steps)
    shared = SharedRows(arm, model.get_input_embeddings().weight, run.share) if run.share else None
    first_rows = model.get_input_embeddings().weight.detach()[new].clone()
    optimizer, spent = optimizer_of(run, model, shared), time.monotonic()
    rows_steps = round(run.rows_first * run.bytes / left * steps)
    marks = {round(share * steps): share for share in CURVE}
    aside = 0.0
    for step in range(steps):
        set_rates(optimizer, run, step, steps, rows_steps)
        batch = stream[step * per_step : (step + 1) * per_step].reshape(-1, LENGTH)
        if shared:
            take_shared_step(model, optimizer, batch, shared)
        else:
            take_step(model, optimizer, batch, new, run.row_lr, only_new=step < rows_steps)
        if step + 1 in marks:
            at = time.monotonic()
            bytes_read = read - left * (1 - (step + 1) / steps)
            curve.append((float(bytes_read), *score_some(model, arm, data)))
            aside += time.monotonic() - at
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    spent = time.monotonic() - spent - aside + distilling
    scores = {name: bits_per_byte(model, arm, texts) for name, texts in data.scored.items()}
    curve.append((float(read), *score_some(model, arm, data)))
    tokens = steps * per_step
    return {
        **asdict(run),
        "scores": scores,
        "curve": curve,
        "drift": drift(first_rows, model.get_input_embeddings().weight.detach()[new], arm, order),
        "steps": steps,
        "tokens": tokens,
        "seconds": spent,
        "tokens_per_second": tokens / spent,
        "bytes_read": int(read),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
    }


def order_of(run: Run, sizes: np.ndarray) -> tuple[list[int], int]:
    """Documents in the order of the seed, shuffled again for every pass, up to the given number of bytes."""
    order, total, passes = [], 0, 0
    while total < run.bytes:
        documents = list(range(len(sizes)))
        random.Random(1000 * run.seed + passes).shuffle(documents)
        passes += 1
        for document in documents:
            if total >= run.bytes:
                break
            order.append(document)
            total += int(sizes[document])
        if run.bytes - total < 0.02 * sizes.sum():
            break
    return order, total


def split_at(order: list[int], sizes: np.ndarray, size: float) -> tuple[list[int], list[int]]:
    at = int(np.searchsorted(np.cumsum(sizes[order]), size)) + 1
    return order[:at], order[at:]


def drift(before: torch.Tensor, after: torch.Tensor, arm: Arm, order: list[int]) -> dict:
    """How far rows of new tokens went from their first value, relative to its norm, by how often the token was read."""
    if not len(before):
        return {}
    times = np.bincount(np.concatenate([arm.documents[i] for i in order]), minlength=len(arm.sources))[arm.new]
    far = ((after - before).norm(dim=1) / before.norm(dim=1).clamp(min=1e-9)).cpu().numpy()
    limits = [0, 10, 100, 1_000, 10_000, math.inf]
    parts = {f"{low}+": (times >= low) & (times < high) for low, high in itertools.pairwise(limits)}
    return {name: [int(part.sum()), float(np.median(far[part]))] for name, part in parts.items() if part.any()}


def optimizer_of(run: Run, model: torch.nn.Module, shared: SharedRows | None) -> torch.optim.Optimizer:
    table = model.get_input_embeddings().weight
    others = [weight for weight in model.parameters() if weight is not table]
    groups = [
        {"params": [table], "relative": run.table_lr, "weight_decay": 0.0, "body": False},
        {"params": [w for w in others if w.ndim > 1], "relative": 1.0, "weight_decay": 0.1, "body": True},
        {"params": [w for w in others if w.ndim <= 1], "relative": 1.0, "weight_decay": 0.0, "body": True},
    ]
    if shared:
        rate = run.table_lr * run.row_lr
        groups.append({"params": [shared.changes], "relative": rate, "weight_decay": 0.0, "body": False})
    return torch.optim.AdamW(groups, lr=run.lr, betas=(0.9, run.beta2), fused=DEVICE == "cuda")


def set_rates(optimizer: torch.optim.Optimizer, run: Run, step: int, steps: int, rows_steps: int) -> None:
    """Linear warm-up, then linear to zero. While only rows are trained, their rate is constant."""
    first = step < rows_steps
    place, length = step - rows_steps, steps - rows_steps
    rise = min(1.0, (place + 1) / max(1, run.warm_up * length))
    for group in optimizer.param_groups:
        rate = min(rise, (length - place) / length)
        if first:
            rate = 0.0 if group["body"] else min(1.0, (step + 1) / 5)
        group["lr"] = run.lr * group["relative"] * rate


def take_step(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    batch: torch.Tensor,
    new: torch.Tensor,
    row_lr: float,
    *,
    only_new: bool,
) -> None:
    table = model.get_input_embeddings().weight
    add_gradients(model, batch)
    before = table.detach().clone() if only_new else table.detach()[new].clone()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    with torch.no_grad():
        if only_new:
            changed = before[new] + row_lr * (table[new] - before[new])
            table.copy_(before)
            table[new] = changed
        elif row_lr != 1 and len(new):
            table[new] = before + row_lr * (table[new] - before)


def take_shared_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor, shared: SharedRows
) -> None:
    add_gradients(model, batch)
    shared.take_gradients()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    shared.set_rows()


def add_gradients(model: torch.nn.Module, batch: torch.Tensor) -> None:
    table = model.get_input_embeddings().weight
    batch = batch.to(DEVICE, non_blocking=True)
    for part in batch.split(24):
        labels = torch.cat([part[:, 1:], torch.full_like(part[:, :1], -1)], dim=1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, part)
            loss = next_token_loss(states.flatten(0, 1), table.to(states.dtype), labels.flatten())
        (loss / batch.numel()).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)


@torch.no_grad()
def bits_per_byte(model: torch.nn.Module, arm: Arm, texts: list[str]) -> float:
    encoded = arm.tokenizer.encode_batch_fast(texts, add_special_tokens=False)
    items = sorted(([arm.separator, *item.ids] for item in encoded), key=len)
    table, nats = model.get_input_embeddings().weight, 0.0
    for batch in batches(items, 65_536 if DEVICE == "cuda" else 4_096):
        width = -(-max(map(len, batch)) // 64) * 64
        ids = torch.tensor([item + [arm.separator] * (width - len(item)) for item in batch], device=DEVICE)
        known = torch.tensor([len(item) for item in batch], device=DEVICE)[:, None]
        places = torch.arange(1, width + 1, device=DEVICE)[None]
        labels = torch.where(places < known, ids.roll(-1, 1), -1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, ids)
            nats += float(next_token_loss(states.flatten(0, 1), table.to(states.dtype), labels.flatten()))
    return nats / math.log(2) / sum(len(text.encode()) for text in texts)


def batches(items: list[list[int]], most: int) -> list[list[list[int]]]:
    made: list[list[list[int]]] = [[]]
    for item in items:
        if made[-1] and (len(made[-1]) + 1) * len(item) > most:
            made.append([])
        made[-1].append(item)
    return made


def score_some(model: torch.nn.Module, arm: Arm, data: Data) -> tuple[float, float]:
    """Bits per byte of a part of the held-out text, of the target and of the kept language."""
    held = {name: texts[:200] for name, texts in data.scored.items() if name.endswith("_held")}
    target = next(name for name in held if not name.startswith("en"))
    return bits_per_byte(model, arm, held[target]), bits_per_byte(model, arm, held["en_held"])


if __name__ == "__main__":
    main()
