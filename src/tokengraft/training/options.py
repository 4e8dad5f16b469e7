"""`TrainOptions`: how to train. `TrainingSettings`: what is known about an adapted model: new rows, rate and shares."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tokengraft.checkpoint.ids import read_config
from tokengraft.checkpoint.model_files import REPORT, TRAINING
from tokengraft.errors import CheckpointError, OptionError, number, option, positive, seed
from tokengraft.representation import FrozenDict, set_fields, shown

MEASURED_RATE, MEASURED_WIDTH = 9e-4, 576
"""A learning rate for SmolLM2-135M, and its hidden size. 6e-4 learns 2 to 4 % less and keeps English 1 % better
(`lab/experiments/results/equal-compute`)."""
NEW_ROWS_FACTOR = 4.0
"""New rows that learn four times as fast as the rest ended better than without, and better than after a stage of their
own (`lab/experiments/results/continued-pretraining`)."""
OLD_ROWS_FACTOR = 0.1
"""Old rows that learn a tenth as fast keep text that is not trained on 3 to 7 % better, and cost next to nothing
(`lab/experiments/results/equal-compute`)."""
KEPT_SHARE = 0.1
"""The share of text in the languages to keep. More was no better."""
STEP_BYTES = 89_000
MIN_STEPS = 30
"""Steps are smaller if the text is too short for as many."""
MAX_PASSES = 3
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""The shares of the untrained weights that are tried."""
KEPT_LIMIT, WARN_LIMIT = 0.01, 0.03
"""How much worse kept text may be after blending; and from when on a warning is printed while training."""
OURS = (
    *("output_dir", "learning_rate", "seed", "max_steps", "num_train_epochs", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "train_sampling_strategy", "save_strategy", "remove_unused_columns"),
)
"""Fields of `TrainingArguments` that the options and the text decide."""


def measured_rate(width: int) -> float:
    """The learning rate for a model of a hidden size: lower for wider models.

    >>> measured_rate(576), measured_rate(2048)
    (0.0009, 0.00025)
    """
    return float(f"{MEASURED_RATE * MEASURED_WIDTH / max(width, MEASURED_WIDTH):.1e}")


@shown
@dataclass(frozen=True)
class TrainingSettings:
    """What `training.json` says about an adapted model. A model without it has no new rows."""

    learning_rate: float
    new_ids: tuple[int, ...] = ()
    pieces: tuple[int, ...] = ()
    """The number of old tokens that each new token replaces."""
    new_rows_factor: float = NEW_ROWS_FACTOR
    old_rows_factor: float = OLD_ROWS_FACTOR
    kept_share: float = KEPT_SHARE
    step_bytes: int = STEP_BYTES

    @classmethod
    def of(
        cls, folder: str | os.PathLike[str], *, width: int = MEASURED_WIDTH, rows: int | None = None
    ) -> "TrainingSettings":
        """The settings in a model folder. ``width`` is the hidden size, and ``rows`` are the rows of its embedding."""
        path = Path(folder) / TRAINING
        if not path.is_file():  # a transplant, or a model that was not changed
            path = Path(folder) / REPORT
        found = read_config(path) if path.is_file() else {}
        try:
            known = {
                name: found[name]
                for name in ("learning_rate", "new_rows_factor", "old_rows_factor", "kept_share", "step_bytes")
                if name in found
            }
            ids, pieces = tuple(found.get("new_ids", ())), tuple(found.get("pieces", ()))
            if not all(type(i) is int and 0 <= i < (rows or i + 1) for i in (*ids,)) or len(pieces) not in (
                0,
                len(ids),
            ):
                raise ValueError("`new_ids` are not rows of the model, or `pieces` are not as many")
            if not all(type(n) is int and n >= 0 for n in pieces):
                raise ValueError("`pieces` are not numbers of tokens")
            recipe = cls(**{"learning_rate": measured_rate(width)} | known, new_ids=ids, pieces=pieces)
            TrainOptions(**known)
        except (AttributeError, TypeError, ValueError, OptionError) as error:
            raise CheckpointError(
                f"`{path}` cannot be used: {str(error).splitlines()[0]}",
                hint="correct the file, or adapt the model again",
            ) from error
        return recipe


@shown
@dataclass(frozen=True)
class TrainOptions:
    """How to train. What is None is taken from `training.json`, or chosen by the text and the hardware."""

    passes: float | Literal["auto"] = "auto"
    """How often the text is read. By default as often as costs the tokens of one pass with the old tokenizer, at most
    three times."""
    max_bytes: int | None = None
    """Train on this much text at most, kept text included: for a short run."""
    learning_rate: float | None = None
    """The highest. It rises over the first tenth of the steps, then falls to 0 as a cosine."""
    blend: float | Literal["auto"] = "auto"
    """The share of the weights before training in the result. By default the smallest with which kept text is at most
    1 % worse than before training."""
    kept_share: float | None = None
    """The share of kept text in the training text, in bytes."""
    new_rows_factor: float | None = None
    """New rows learn this many times as fast as the layers of the model."""
    old_rows_factor: float | None = None
    """The same of all other rows. 0: they stay as they are."""
    step_bytes: int | None = None
    """Text of each step."""
    length: int | None = None
    """Tokens of a sequence."""
    batch: int | None = None
    """Sequences that a process has in memory at once. It changes the speed, not the result."""
    seed: int = 0
    """Decides the order of the text."""
    trainer: Mapping[str, Any] = field(default_factory=FrozenDict)
    """More fields of `transformers.TrainingArguments`, such as `report_to` and `gradient_checkpointing`."""

    def __post_init__(self) -> None:
        set_fields(self, seed, "seed")
        for name in ("max_bytes", "step_bytes", "length", "batch"):
            if getattr(self, name) is not None:
                set_fields(self, positive, name)
        limits = {"passes": (0, 100), "learning_rate": (0, 1), "new_rows_factor": (0, 1000)}
        for name, (low, high) in limits.items():
            value = getattr(self, name)
            if value is not None and value != "auto" and not low < number(name, value) < high:
                raise OptionError(
                    f"{option(name)} is {value}; it must be above {low} and below {high}",
                    hint=f"leave out {option(name)}",
                )
        for name, high in {"blend": 1, "kept_share": 1, "old_rows_factor": 1000}.items():
            value = getattr(self, name)
            if value is not None and value != "auto" and not 0 <= number(name, value) < high:
                raise OptionError(
                    f"{option(name)} is {value}; it must be at least 0 and below {high}",
                    hint=f"leave out {option(name)}",
                )
        object.__setattr__(self, "trainer", FrozenDict(json.loads(json.dumps(dict(self.trainer)))))
        if ours := [name for name in self.trainer if name in OURS]:
            raise OptionError(
                f"`{ours[0]}` of the Trainer is decided by other options and by the text",
                hint="see `tokengraft train --help-all`",
            )
