"""`TrainingPlan`: what is decided before a training run starts: passes, tokens, steps, memory, time, what is scored."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from tokengraft import _core
from tokengraft.checkpoint.folder import Checkpoint, open_checkpoint
from tokengraft.checkpoint.ids import CONFIG
from tokengraft.checkpoint.layout import find_vocabulary
from tokengraft.checkpoint.model_files import REPORT
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.errors import CorpusError, option
from tokengraft.measure.bits import bits, chunk_bytes, chunks, sequences
from tokengraft.measure.models import LoadedModel, hardware, start_ids
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.training.options import MAX_PASSES, MIN_STEPS, SHARES, STEP_BYTES, TrainingSettings, TrainOptions
from tokengraft.training.text import HELD_OUT_BYTES, SCORED_SHARE, Ids, TrainingText, mix, old_tokens, packed, sample

LENGTH, SHORTEST = 1024, 64
"""Tokens of a sequence: the most, and the fewest where the text is small."""
WEIGHT_BYTES, ACTIVATION_BYTES, LOGIT_BYTES = 16, 40, 16
"""Memory: for a weight with its gradient and the state of AdamW; for a number of a layer's width; for a logit."""
CPU_TOKENS = 2048
"""Tokens of a batch on a CPU: more are no faster, and then long without a sign of progress."""
BACKWARD = 3.2
"""How much longer a token takes in training than in scoring."""
TIMED_BYTES, TIMED_SECONDS = 2000, 1.0
"""Text that is scored to estimate the time, at least, and how long that must take to say something."""
_SHAPE = (("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd"))


@dataclass(frozen=True)
class Steps:
    """How the tokens are divided into steps."""

    n: int
    per_step: int
    """Sequences of a step, of all processes together."""
    length: int
    batch: int
    """Sequences that a process has in memory at once."""


@dataclass(frozen=True)
class TrainingPlan:
    """What a training run was asked for. Everything else is computed when it is needed."""

    folder: Path
    tokenizer: Tokenizer
    text: TrainingText
    options: TrainOptions

    @property
    def world(self) -> int:
        """The number of processes, which launchers set."""
        return int(os.environ.get("WORLD_SIZE", "1"))

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model before training."""
        return open_checkpoint(self.folder)

    @cached_property
    def start(self) -> tuple[int, ...]:
        """The ids before every document and at the beginning of every sequence."""
        return start_ids(self.checkpoint, self.tokenizer)

    @cached_property
    def source(self) -> Path | None:
        """The model before its adaptation, if it is where `tokengraft.json` says, with the same config."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            record = json.loads((self.folder / REPORT).read_bytes())
            source = Path(record["request"]["source"])
            if sha256((source / CONFIG).read_bytes()).hexdigest() == record["source_config_sha256"]:
                return source
        return None

    @cached_property
    def recipe(self) -> TrainingSettings:
        """What `training.json` says, with the options in its place where they are given."""
        width = self.checkpoint.text_config.get("hidden_size") or self.checkpoint.text_config.get("n_embd") or 0
        recipe = TrainingSettings.of(self.folder, width=width, rows=find_vocabulary(self.checkpoint).rows)
        names = ("learning_rate", "new_rows_factor", "old_rows_factor", "kept_share", "step_bytes")
        given = {name: value for name in names if (value := getattr(self.options, name)) is not None}
        return replace(recipe, **given)

    @cached_property
    def passes(self) -> float:
        """As many as cost the tokens of one pass with the old tokenizer, if they were not given."""
        if self.options.passes != "auto":
            return float(self.options.passes)
        ids, _ = self._packed(1, 5_000_000)
        before = old_tokens(ids, self.recipe.new_ids, self.recipe.pieces)
        return min(MAX_PASSES, max(1.0, round(before / max(1, len(ids)), 1)))

    def _packed(self, passes: float, max_bytes: int | None) -> tuple[Ids, int]:
        documents = mix(
            self.text.target, self.text.keep, share=self.recipe.kept_share, passes=passes, seed=self.options.seed
        )
        return packed(self.tokenizer, documents, self.start, max_bytes)

    @cached_property
    def ids(self) -> tuple[Ids, int]:
        """The tokens of all passes in the order of training, and the bytes of their text."""
        ids, n_bytes = self._packed(self.passes, self.options.max_bytes)
        if not n_bytes or len(ids) <= 2 * self.world:
            raise CorpusError(
                f"the text has {len(ids)} tokens, too few for a step", hint=f"pass more to {option('text')}"
            )
        return ids, n_bytes

    @property
    def passes_read(self) -> float:
        """How often the text is read: less than `passes` if `max_bytes` ends the training before."""
        n_bytes, most = self.ids[1], self.options.max_bytes
        if most is None or n_bytes < most:
            return self.passes
        share = self.recipe.kept_share if self.text.keep else 0.0
        size = sum(len(document.encode()) for document in self.text.target)
        return min(self.passes, float(f"{n_bytes * (1 - share) / size:.2g}"))

    @cached_property
    def steps(self) -> Steps:
        """Steps of equal size. They do not depend on the number of processes, if it divides their sequences."""
        (ids, n_bytes), config = self.ids, self.checkpoint.text_config
        context = config.get("max_position_embeddings") or config.get("n_positions") or LENGTH
        longest = min(LENGTH, context, max(SHORTEST, len(ids) // SHORTEST), len(ids) // self.world)
        length = min(self.options.length or 1 << (longest.bit_length() - 1), context, len(ids) // self.world)
        length = max(length, len(self.start) + 1)
        n_sequences = len(ids) // (length - len(self.start))
        wanted = self.options.step_bytes or min(self.recipe.step_bytes, max(1, n_bytes // MIN_STEPS))
        per_step = max(1, round(n_sequences * wanted / n_bytes))
        grain = 8 if per_step >= 16 else 2 if per_step >= 2 else 1
        per_step = min(per_step // grain * grain, n_sequences)
        per_step = max(1, per_step // self.world if per_step >= self.world else 1) * self.world
        most = self.options.batch or self._fitting(length)
        here = per_step // self.world
        batch = next(n for n in range(min(most, here), 0, -1) if here % n == 0)
        return Steps(n_sequences // per_step, per_step, length, batch)

    @property
    def learning_rate(self) -> float:
        """The highest rate: as given, else that of `training.json`, for steps of its size.

        Smaller steps have noisier gradients. The rate of AdamW then falls with the root of their size. On 60 kB of
        text, in steps of 3 kB, SmolLM2 lost 12 % of its English at the rate for 89 kB.
        """
        if self.options.learning_rate is not None:
            return self.options.learning_rate
        tokens = self.steps.per_step * (self.steps.length - len(self.start))
        size = tokens * self.ids[1] / len(self.ids[0])
        return float(f"{self.recipe.learning_rate * min(1.0, size / STEP_BYTES) ** 0.5:.2g}")

    @property
    def _token_bytes(self) -> int:
        """Memory for a token of a batch: activations and logits."""
        config, rows = self.checkpoint.text_config, find_vocabulary(self.checkpoint).rows
        layers, width = (config.get(name) or config.get(short) or 32 for name, short in _SHAPE)
        return layers * width * ACTIVATION_BYTES + rows * LOGIT_BYTES

    @cached_property
    def _weights(self) -> int:
        return sum(info.size // ITEM_BYTES.get(info.dtype, 1) for info in self.checkpoint.tensors)

    def _fitting(self, length: int) -> int:
        where = hardware()
        if not where.on_gpu:
            return max(1, CPU_TOKENS // length)
        left = 0.8 * where.memory - WEIGHT_BYTES * self._weights
        return 1 << max(0, int(left // (self._token_bytes * length)).bit_length() - 1) if left > 0 else 1

    @property
    def memory(self) -> int:
        """Bytes that a process will need, about."""
        copied = 0  # of the tables, by `row_rates`
        if self.recipe.old_rows_factor != 1:
            tables = find_vocabulary(self.checkpoint).tensors
            copied = sum(4 * table.size // ITEM_BYTES.get(table.dtype, 1) for table in tables)
        return WEIGHT_BYTES * self._weights + copied + self.steps.batch * self.steps.length * self._token_bytes

    @property
    def new_ids(self) -> "np.ndarray":
        """The ids of new rows."""
        return np.array(self.recipe.new_ids, np.int64)

    @cached_property
    def scored(self) -> dict[str, tuple[str, ...]]:
        """The documents of every held-out text that are scored."""
        most = int(min(max(self.ids[1] // SCORED_SHARE, HELD_OUT_BYTES[0]), HELD_OUT_BYTES[1]))
        return {name: sample(documents, most) for name, documents in self.text.held_out.items()}

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the weights before training that are scored."""
        if self.options.blend == "auto":
            return SHARES if self.text.kept else (0.0,)
        return tuple(dict.fromkeys((0.0, float(self.options.blend))))

    def seconds(self, loaded: LoadedModel) -> tuple[float, float]:
        """About how long scoring and training will take, by the speed of scoring some of the held-out text."""
        size, documents = chunk_bytes([self.folder]), [one for documents in self.scored.values() for one in documents]
        total, some = sum(len(document.encode()) for document in documents), TIMED_BYTES
        while True:  # more text until its time says something; the first also prepares a GPU
            text = sequences(loaded.tokenizer, [*chunks(sample(documents, some), size)])
            start = monotonic()
            bits(loaded, text)
            seconds = monotonic() - start
            if seconds > TIMED_SECONDS or some >= total:
                break
            some *= 8
        times = 1 + len(self.shares) + bool(self.source)
        training = BACKWARD * seconds / max(1, text.n_tokens) * len(self.ids[0]) / self.world
        return times * total * seconds / max(1, text.text_bytes), training

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What decides the weights of the run. A work folder is only used by a run with the same."""
        files = {
            file.path.name: [(status := file.path.stat()).st_size, status.st_mtime_ns] for file in self.checkpoint.files
        }
        options = {name: value for name, value in asdict(self.options).items() if name not in ("blend", "batch")}
        return {
            "tokengraft": _core.__version__,
            "model": {"files": files, "tokenizer": self.tokenizer.content_hash},
            "options": options | {"trainer": dict(self.options.trainer)},
            "recipe": asdict(self.recipe) | {"new_ids": len(self.recipe.new_ids), "pieces": sum(self.recipe.pieces)},
            "text": sha256(self.ids[0].tobytes()).hexdigest(),
            "steps": {name: n for name, n in asdict(self.steps).items() if name != "batch"},
        }
