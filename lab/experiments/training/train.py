"""Trains a model with several tokenizers on the same text, and scores all of them in bits per byte.

    python -m lab.experiments.training.train MODEL DATA --runs runs.json --out FILE

DATA is written by `data.py` or `study.py`.

Every run reads the same documents, in an order that depends only on the seed, and takes steps of the same number of
bytes. ``runs.json`` is a list of objects with the fields of `Run`. One line of JSON is written for each run, when it is
finished; runs that are already there are skipped. With ``--workers``, several processes share the runs and the GPU: a
small model does not fill a large one. Needs torch, transformers and tokenizers.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

from lab.experiments.training.bits import bits_of, score_some, size_of, word_bits
from lab.experiments.training.choices import solved
from lab.experiments.training.model import DEVICE, Arm, Models, hidden, next_token_loss
from lab.experiments.training.text import Data, Run, order_of, steps_of

PART = int(os.environ.get("TRAIN_SEQUENCES", "24"))
"""Sequences in memory at once."""
SECONDS_PER_TOKEN = 12e-6
"""What a run needs at most beside others, before the first one is measured."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="file of results, one line for each run")
    parser.add_argument("--seconds", type=float, default=math.inf, help="start no run that would end after this time")
    parser.add_argument("--workers", type=int, default=1, help="processes that share the GPU")
    parser.add_argument("--cache", type=Path, help="folder for tokens that processes share")
    parser.add_argument("--set", nargs="*", default=[], metavar="NAME=JSON", help="fields of all runs")
    options = parser.parse_args()
    if options.workers > 1:
        sys.exit(share_runs(options.workers))
    torch.set_float32_matmul_precision("high")
    given = {name: json.loads(value) for name, value in (item.split("=", 1) for item in options.set)}
    work(options, [Run(**{**fields, **given}) for fields in json.loads(options.runs.read_text())])


def share_runs(workers: int) -> int:
    """Starts processes with the same options, and waits for them."""
    at = sys.argv.index("--workers")
    rest = sys.argv[1:at] + sys.argv[at + 2 :]
    environment = {**os.environ, "TRAIN_BEGAN": str(time.time()), "TRAIN_WORKERS": str(workers)}
    command = [sys.executable, "-m", "lab.experiments.training.train", *rest]
    started = [subprocess.Popen(command, env=environment) for _ in range(workers)]
    return max(process.wait() for process in started)


def work(options: argparse.Namespace, runs: list[Run]) -> None:
    """Takes the runs in order that no other process has taken, and appends the results to the file."""
    began = float(os.environ.get("TRAIN_BEGAN", time.time()))
    claims = Path(tempfile.gettempdir()) / f"claims-{began}"
    claims.mkdir(parents=True, exist_ok=True)
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    done = {json.loads(line)["name"] for line in lines}
    cache, models, rate = {}, Models(options.model), SECONDS_PER_TOKEN
    for run in runs:
        key = run.data, run.target_bytes
        if run.name in done or (claims / run.name).exists() or time.time() - began > options.seconds:
            continue
        if key not in cache:
            cache[key] = Data(options.data / run.data, models.separator, run.target_bytes, options.cache)
        data = cache[key]
        if time.time() - began + rate * expected_tokens(run, data) > options.seconds or not claimed(claims / run.name):
            continue
        try:
            at = time.time()
            result = train(run, models, data)
        except Exception:  # the other runs matter more
            print(f"{run.name} failed\n{traceback.format_exc()}", flush=True)
            continue
        took = time.time() - at
        rate = took / result["tokens"]
        result["parallel"] = int(os.environ.get("TRAIN_WORKERS", "1"))
        with options.out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        scores = {name: round(value, 4) for name, value in result["scores"].items()}
        print(f"{time.time() - began:5.0f} s  {run.name:34} {took:4.0f} s {1 / rate:9,.0f} tok/s", scores, flush=True)


def claimed(path: Path) -> bool:
    """Whether this process is the first that takes a run."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def expected_tokens(run: Run, data: Data) -> float:
    """An upper estimate: a token for 2 bytes of the target, one for 4 of the kept language."""
    read = run.passes * data.sizes[data.target(run)].sum() / (1 - run.keep_share) if run.passes else run.bytes
    return read * (0.5 if run.arm == "base" else 0.3)


def train(run: Run, models: Models, data: Data) -> dict:
    torch.manual_seed(run.seed)
    arm = data.arm(run.arm)
    model, new = models.fresh(arm, run.init), arm.new.to(DEVICE)
    order, read = order_of(run, data)
    curve = [(0.0, *score_some(model, arm, data))]
    batches = steps_of(arm, data, order, run)
    steps = len(batches)
    if not steps:
        raise ValueError("the text is too short for a step: give more")
    if run.max_steps:
        steps = min(steps, run.max_steps)
    first_rows = model.get_input_embeddings().weight.detach()[new].clone()
    optimizer, spent = optimizer_of(run, model), time.monotonic()
    rows_steps = round(run.rows_first * run.bytes / read * steps)
    marks = {round(part / run.curve * steps) for part in range(1, run.curve)}
    aside, norms = 0.0, []
    for step in range(steps):
        set_rates(optimizer, run, step, steps, rows_steps)
        slow = min(1.0, (step + 1) / (run.body_slow * steps)) if run.body_slow else 1.0
        for group in optimizer.param_groups:
            group["lr"] *= slow
        norms.append(
            take_step(
                model, optimizer, batches[step], new, run.row_lr / slow, only_new=step < rows_steps, clip=run.clip
            )
        )
        if run.row_pull:
            with torch.no_grad():
                table = model.get_input_embeddings().weight
                rate = min(1.0, optimizer.param_groups[0]["lr"] * run.row_lr * run.row_pull)
                table[new] = torch.lerp(table[new], first_rows, rate)
        if step + 1 in marks:
            at = time.monotonic()
            curve.append((read * (step + 1) / steps, *score_some(model, arm, data)))
            aside += time.monotonic() - at
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    spent = time.monotonic() - spent - aside
    bits = {name: bits_of(model, arm, texts) for name, texts in data.scored.items()}
    scores = {name: float(bits[name].sum() / size_of(texts)) for name, texts in data.scored.items()}
    curve.append((float(read), *score_some(model, arm, data)))
    tokens = sum(batch.numel() for batch in batches[:steps])
    details = {}
    if run.detailed:
        reported = {name: data.by_document(name, found) for name, found in bits.items() if not name.endswith("_held")}
        details["bits"] = {name: [round(float(value), 3) for value in found] for name, found in reported.items()}
        details["moved"] = moved(first_rows, model.get_input_embeddings().weight.detach()[new])
        details["choices"] = solved(lambda texts, before=None: bits_of(model, arm, texts, before), data.scored)
    if run.words:
        flores = {name: texts for name, texts in data.scored.items() if name.endswith("_flores")}
        details["words"] = {name: word_bits(model, arm, texts) for name, texts in flores.items()}
    if run.save:
        models.save(arm, Path(run.save))
    if run.blend:
        details["blended"] = blended(run, models, arm, data)
    return {
        **asdict(run),
        "bytes": float(read) if run.passes else run.bytes,
        "scores": scores,
        "curve": curve,
        "new": len(new),
        "steps": steps,
        "tokens": tokens,
        "seconds": spent,
        "tokens_per_second": tokens / spent,
        "bytes_read": int(read),
        "norms": [round(float(norm), 3) for norm in norms],
        **details,
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if DEVICE == "cuda" else "cpu",
    }


@torch.no_grad()
def blended(run: Run, models: Models, arm: Arm, data: Data) -> dict[str, dict[str, object]]:
    """The scores of the trained model, whose weights are mixed with those before training. New rows stay as trained.

    The model of the arm has its first weights afterwards.
    """
    model = models.made[len(arm.sources)]
    trained = [weight.detach().clone() for weight in model.parameters()]
    model, new, found = models.fresh(arm, run.init), arm.new.to(DEVICE), {}
    first = [weight.detach().clone() for weight in model.parameters()]
    table = model.get_input_embeddings().weight
    for share in run.blend:
        for weight, after, before in zip(model.parameters(), trained, first, strict=True):
            weight.copy_((1 - share) * after + share * before)
            if weight is table:
                weight[new] = after[new]
        bits = {name: bits_of(model, arm, texts) for name, texts in data.scored.items()}
        scores = {name: float(bits[name].sum() / size_of(texts)) for name, texts in data.scored.items()}
        found[str(share)] = {"scores": scores}
        if run.detailed:
            reported = {name: data.by_document(name, part) for name, part in bits.items() if not name.endswith("_held")}
            found[str(share)]["bits"] = {name: [round(float(v), 3) for v in part] for name, part in reported.items()}
    return found


def moved(before: torch.Tensor, after: torch.Tensor) -> dict[str, list[float]]:
    """Percentiles 0 to 100 of how far rows of new tokens went, and of how much their norms changed."""
    if not len(before):
        return {}
    changes = {"distance": (after - before).norm(dim=1), "norm": after.norm(dim=1) - before.norm(dim=1)}
    percentiles = np.linspace(0, 1, 101)
    return {name: np.quantile(x.cpu().numpy(), percentiles).round(4).tolist() for name, x in changes.items()}


def optimizer_of(run: Run, model: torch.nn.Module) -> torch.optim.Optimizer:
    table = model.get_input_embeddings().weight
    others = [weight for weight in model.parameters() if weight is not table]
    groups = [
        {"params": [table], "relative": run.table_lr, "weight_decay": run.table_decay, "body": False},
        {"params": [w for w in others if w.ndim > 1], "relative": 1.0, "weight_decay": run.decay, "body": True},
        {"params": [w for w in others if w.ndim <= 1], "relative": 1.0, "weight_decay": 0.0, "body": True},
    ]
    return torch.optim.AdamW(groups, lr=run.lr, betas=(0.9, run.beta2), fused=DEVICE == "cuda")


def set_rates(optimizer: torch.optim.Optimizer, run: Run, step: int, steps: int, rows_steps: int) -> None:
    """Linear warm-up, then linear or by a cosine. While only rows are trained, their rate is constant."""
    first = step < rows_steps
    place, length = step - rows_steps, steps - rows_steps
    rise = min(1.0, (place + 1) / max(1, run.warm_up * length))
    fall = (length - place) / length
    if run.floor is not None:
        fall = run.floor + (1 - run.floor) * (1 + math.cos(math.pi * (1 - fall))) / 2
    for group in optimizer.param_groups:
        rate = min(rise, fall)
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
    clip: float,
) -> torch.Tensor:
    """One step of the optimizer. Returns the norm of the gradients."""
    table = model.get_input_embeddings().weight
    add_gradients(model, batch)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
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
    return norm


def add_gradients(model: torch.nn.Module, batch: torch.Tensor) -> None:
    table = model.get_input_embeddings().weight
    batch = batch.to(DEVICE, non_blocking=True)
    for part in batch.split(PART):
        labels = torch.cat([part[:, 1:], torch.full_like(part[:, :1], -1)], dim=1)
        with torch.autocast(DEVICE, torch.bfloat16):
            states = hidden(model, part)
            loss = next_token_loss(states.flatten(0, 1), table.to(states.dtype), labels.flatten())
        (loss / batch.numel()).backward()


if __name__ == "__main__":
    main()
