"""`Run`: the settings of a training run. `Data`: its text. `steps_of`: the sequences of every step."""

import json
import lzma
import math
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from lab.experiments.training.model import Arm

LENGTH = 1024
PARTS = ("held", "test", "flores")
"""Of the text that is scored: recipes are chosen on the first, and reported on the others."""
LARGEST_KEEP_SHARE = 0.3


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
    save: str = ""
    """Folder for the trained model, in 16 bits; none if empty."""
    detailed: bool = False
    """Whether the bits of every scored line and document are written, and how tasks of `choices.py` are solved."""


class Data:
    """The text, and its tokens for each arm."""

    def __init__(self, folder: Path, separator: int, target_bytes: float = 0.0, cache: Path | None = None) -> None:
        self.folder, self.separator = folder, separator
        self.documents: list[str]
        listed = folder / "documents.json"
        self.document_of = json.loads(listed.read_text()) if listed.exists() else {}
        if (folder / "data.json").exists():
            self.scored, self.n_target = self._read_study(target_bytes)
        else:
            with lzma.open(folder / "train.json.xz", "rt", encoding="utf-8") as file:
                self.documents = json.load(file)
            names = [path for part in PARTS for path in sorted(folder.glob(f"*_{part}.json"))]
            self.scored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in names}
            languages = self.document_of.get("train", [0] * len(self.documents))
            if languages != sorted(languages):
                raise SystemExit(f"{folder} is from an earlier version of `data.py`: write it anew")
            self.n_target = languages.count(0)
        self.sizes = np.array([len(text.encode()) for text in self.documents])
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
