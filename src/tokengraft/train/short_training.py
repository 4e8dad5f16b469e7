"""`train_briefly`: a few optimizer steps on all weights, the same bytes at each step for every model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokengraft.train.models import LoadedModel, running
from tokengraft.train.sequences import Ids, batches, ids_of, targets_of

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
    """Trains a model in place, with AdamW, on all of its weights.

    Raises:
        CheckpointError: The model cannot be trained.
    """
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
    from math import cos, pi

    rising = max(1, round(warm_up * steps))
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + cos(pi * (step - rising) / max(1, steps - rising)))


def _step(loaded: LoadedModel, ids: Sequence[Ids]) -> None:
    """Adds the gradient of the mean loss of all tokens of a step."""
    import torch

    n_tokens = sum(map(len, ids))
    for places, batch in batches(loaded, ids):
        targets = targets_of(loaded, ids, places, batch.shape[1])
        with loaded.hardware.autocast():
            logits = loaded.model(input_ids=batch, use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-100, reduction="sum"
        )
        (loss / n_tokens).backward()
