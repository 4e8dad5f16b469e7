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
import lzma
import math
import os
import random
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from lab.experiments.training.choices import solved
from lab.experiments.training.model import DEVICE, Arm, Models, hidden, next_token_loss, token_losses

LENGTH = 1024
PART = int(os.environ.get("TRAIN_SEQUENCES", "24"))
"""Sequences in memory at once."""
PARTS = ("held", "test", "flores")
"""Of the text that is scored: recipes are chosen on the first, and reported on the others."""
LARGEST_KEEP_SHARE = 0.3
SECONDS_PER_TOKEN = 12e-6
"""What a run needs at most beside others, before the first one is measured."""


@dataclass(frozen=True)
class Run:
    name: str
    data: str
    arm: str
    init: str = "fvt"
    lr: float = 2.4e-3
    seed: int = 0
    bytes: float = 50e6
    """Of text. More than there are: the documents are read again."""
    passes: int = 0
    """How often all text is read, instead of ``bytes``."""
    target_bytes: float = 0.0
    """Of the documents of the target, the first so many bytes; all if 0."""
    keep_share: float = 0.1
    """Share of the kept language in the text. Its documents are read on in the next pass, and again if they end."""
    start: bool = True
    """Whether every sequence begins with the token that separates documents, as every scored text does."""
    split: float = 0.0
    """How often a new token is read as the two tokens that it is made of, and these in the same way."""
    step_bytes: float = 178e3
    table_lr: float = 1.0
    """Learning rate of the embedding, relative to ``lr``."""
    table_decay: float = 0.0
    """Weight decay of the embedding."""
    row_lr: float = 1.0
    """Learning rate of the rows of new tokens, relative to that of the embedding."""
    rows_first: float = 0.0
    """Share of the text on which only the rows of new tokens are trained."""
    body_slow: float = 0.0
    """Share of the steps in which the learning rate of everything but the new rows rises from 0."""
    warm_up: float = 0.05
    floor: float | None = None
    """The rate falls to this part of its highest value by a cosine; None: to 0, in a line."""
    beta2: float = 0.95
    max_steps: int = 0
    curve: int = 8
    """In how many parts the training is scored."""
    row_pull: float = 0.0
    """Weight decay of the rows of new tokens, towards their first values."""
    old_share: float = 0.0
    """Share of the documents that is read in the tokens of the unchanged tokenizer."""
    decay: float = 0.1
    """Weight decay of all matrices but the embedding."""
    clip: float = 1.0
    """The largest norm of the gradients of a step."""
    words: bool = False
    """Whether the bits of every word of FLORES are written."""
    blend: tuple[float, ...] = ()
    """Shares of the weights before training with which the trained ones are scored too, as `tokengraft blend` does."""
    detailed: bool = False
    """Whether the bits of every scored line and document are written, and how tasks of `choices.py` are solved."""


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


def expected_tokens(run: Run, data: "Data") -> float:
    """An upper estimate: a token for 2 bytes of the target, one for 4 of the kept language."""
    read = run.passes * data.sizes[data.target(run)].sum() / (1 - run.keep_share) if run.passes else run.bytes
    return read * (0.5 if run.arm == "base" else 0.3)


class Data:
    """The text, and its tokens for each arm."""

    def __init__(self, folder: Path, separator: int, target_bytes: float = 0.0, cache: Path | None = None) -> None:
        self.folder, self.separator = folder, separator
        self.documents: list[str]
        if (folder / "data.json").exists():
            self.scored, self.n_target = self._read_study(target_bytes)
        else:
            with lzma.open(folder / "train.json.xz", "rt", encoding="utf-8") as file:
                self.documents = json.load(file)
            names = [path for part in PARTS for path in sorted(folder.glob(f"*_{part}.json"))]
            self.scored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in names}
            self.n_target = json.loads((folder / "documents.json").read_text())["train"].count(0)
        self.sizes = np.array([len(text.encode()) for text in self.documents])
        listed = folder / "documents.json"
        self.document_of = json.loads(listed.read_text()) if listed.exists() else {}
        self.arms: dict[str, Arm] = {}
        self.cache = cache and cache / f"{folder.name}-{target_bytes:.0f}"

    def _read_study(self, target_bytes: float) -> tuple[dict[str, list[str]], int]:
        """The first documents of the target, then as many of the kept language as any run may need."""
        scored, most, self.documents = {}, target_bytes or math.inf, []
        n_target = 0
        for language in json.loads((self.folder / "data.json").read_text()).values():
            text = json.loads((self.folder.parent / f"{language}.json").read_text(encoding="utf-8"))
            ends = np.cumsum([len(document.encode()) for document in text["documents"]])
            n = int(np.searchsorted(ends, most, side="right"))
            self.documents += text["documents"][:n]
            n_target = n_target or n
            most = ends[n - 1] * LARGEST_KEEP_SHARE / (1 - LARGEST_KEEP_SHARE)
            scored |= {f"{language}_held": text["held"], f"{language}_flores": text["flores"]}
        return scored, n_target

    def by_document(self, name: str, bits: np.ndarray) -> np.ndarray:
        """The bits of the documents of a scored text; of its lines, if its documents are not known."""
        return np.bincount(self.document_of[name], bits) if name in self.document_of else bits

    def target(self, run: Run) -> list[int]:
        """The documents of the target that a run reads."""
        most = run.target_bytes or math.inf
        return [*range(int(np.searchsorted(np.cumsum(self.sizes[: self.n_target]), most, side="right")))]

    def arm(self, name: str) -> "Arm":
        if name not in self.arms:
            cache = None
            if self.cache:
                self.cache.mkdir(parents=True, exist_ok=True)
                cache = self.cache / f"{name}.npz"
            self.arms[name] = Arm(self.folder / "arms" / name, self.documents, self.separator, cache)
        return self.arms[name]


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


def order_of(run: Run, data: Data) -> tuple[list[int], int]:
    """Documents in the order of the seed, shuffled again for every pass, up to the given number of bytes."""
    target, kept = data.target(run), [*range(data.n_target, len(data.sizes))]
    size = int(data.sizes[target].sum())
    wanted = size * run.keep_share / (1 - run.keep_share)
    most = run.passes * (size + wanted) if run.passes else run.bytes
    random.Random(run.seed).shuffle(kept)
    order, total, number, read = [], 0, 0, 0
    while total < most - 0.02 * size:
        documents = list(target)
        number += 1
        while kept and read < number * wanted:
            documents.append(kept[0])
            read += int(data.sizes[kept[0]])
            kept.append(kept.pop(0))
        random.Random(1000 * run.seed + number).shuffle(documents)
        for document in documents:
            if total >= most:
                break
            order.append(document)
            total += int(data.sizes[document])
    return order, total


def steps_of(arm: Arm, data: Data, order: list[int], run: Run) -> list[torch.Tensor]:
    """The sequences of each step."""
    old = data.arm("base").documents if run.old_share else arm.documents
    chance = random.Random(run.seed)
    stream = np.concatenate([(old if chance.random() < run.old_share else arm.documents)[i] for i in order])
    if run.split:
        stream = with_splits(stream, arm, run.split, np.random.default_rng(run.seed))
    length = LENGTH - run.start
    steps = max(1, round(data.sizes[order].sum() / run.step_bytes))
    per_step = max(1, round(len(stream) / steps / length)) * length
    parts = torch.from_numpy(stream).long().split(per_step)
    found = [part.reshape(-1, length) for part in parts if len(part) == per_step]
    if run.start:
        found = [torch.nn.functional.pad(part, (1, 0), value=arm.separator) for part in found]
    return found


def with_splits(stream: np.ndarray, arm: Arm, share: float, chance: np.random.Generator) -> np.ndarray:
    """A share of the new tokens as the two tokens of their merges, and these again."""
    new = set(arm.new.tolist())
    merges = json.loads((arm.folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["merges"]
    parts = np.zeros((len(arm.sources), 2), np.int32)
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        if (made := arm.tokenizer.token_to_id(left + right)) in new:
            parts[made] = arm.tokenizer.token_to_id(left), arm.tokenizer.token_to_id(right)
    is_new = np.zeros(len(arm.sources), bool)
    is_new[arm.new.numpy()] = parts[arm.new.numpy()].any(1)
    open_places = is_new[stream]
    while open_places.any():
        chosen = open_places & (chance.random(len(stream)) < share)
        if not chosen.any():
            break
        counts = 1 + chosen
        ends = np.cumsum(counts)
        longer, fresh = np.repeat(stream, counts), np.zeros(int(ends[-1]), bool)
        second = ends[chosen] - 1
        longer[second - 1], longer[second] = parts[stream[chosen]].T
        fresh[second - 1] = fresh[second] = True
        stream, open_places = longer, fresh & is_new[longer]
    return stream


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


if __name__ == "__main__":
    main()
