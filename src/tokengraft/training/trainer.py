"""`trained`: runs the Trainer with the pieces of the package, from its last saved step if there is one."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PrinterCallback, Trainer, TrainerCallback

from tokengraft.errors import option
from tokengraft.measure.models import LoadedModel, no_progress_bar, running
from tokengraft.progress import Stages
from tokengraft.training.callbacks import HeldOutBits, RowRates
from tokengraft.training.plan import TrainingPlan
from tokengraft.training.text import Ids, sample

CURVE_SHARE, CURVE_BYTES = 0.006, 1000
"""Text that is scored at each point of the curves: ten points cost 2 % of the training."""
CURVE_COST = 0.05
"""The most that all points cost of the training, as long as there are two. A byte is scored in a third of the time that
it is trained on."""
_TIMES = ("runtime", "per_second", "total_flos")
"""Parts of the names of figures that differ from run to plan."""


class Sequences(torch.utils.data.Dataset):  # type: ignore[misc]
    """Tokens in sequences of equal length, in the order of training.

    Each begins with the start tokens, as scored and served text does. Else the model would read them only in the middle
    of its context.
    """

    def __init__(self, ids: Ids, length: int, n: int, start: Sequence[int]) -> None:
        room = length - len(start)
        self.ids, self.start = ids[: n * room].reshape(n, room), np.array(start, np.int64)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        ids = torch.from_numpy(np.concatenate([self.start, self.ids[place].astype(np.int64)]))
        return {"input_ids": ids, "labels": ids}


class _Progress(TrainerCallback):  # type: ignore[misc]
    """Shows the tokens that were read, after every batch."""

    def __init__(self, shown: Stages, tokens: int, total: int) -> None:
        self.shown, self.tokens, self.total = shown, tokens, total

    def on_substep_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        self.shown.update(f"step {state.global_step + 1:,}/{state.max_steps:,}", self.tokens, self.total)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        self.shown.update(f"step {state.global_step:,}/{state.max_steps:,}", self.tokens, self.total)


def trained(plan: TrainingPlan, loaded: LoadedModel, args: Any, shown: Stages) -> list[dict[str, Any]]:
    """Trains the model, saves its weights as 32-bit floats in the work folder, and returns the log."""
    steps, (ids, n_bytes) = plan.steps, plan.ids
    loaded.model.config.use_cache = False
    trainer = Trainer(
        model=loaded.model.train(),
        args=args,
        train_dataset=Sequences(ids, steps.length, steps.n * steps.per_step, plan.start),
        data_collator=torch.utils.data.default_collate,
        callbacks=[RowRates(plan.recipe.new_ids, plan.recipe.new_rows_factor, plan.recipe.old_rows_factor)],
    )
    trainer.remove_callback(PrinterCallback)

    most = int(max(CURVE_BYTES, CURVE_SHARE * n_bytes / max(1, len(plan.scored))))
    texts = {name: sample(documents, most) for name, documents in plan.scored.items()}
    scored = sum(len(text.encode()) for some in texts.values() for text in some)
    points = max(1, min(10, int(3 * CURVE_COST * n_bytes / max(1, scored)) - 1))  # one more before the first step

    def warn(text: str) -> None:
        shown.note(f"warning: {text}")

    scoring = HeldOutBits(trainer, plan.folder, texts, kept=plan.text.kept, points=points, show=shown.note, warn=warn)
    trainer.add_callback(scoring)
    tokens = steps.batch * steps.length * plan.world
    trainer.add_callback(_Progress(shown, tokens, steps.n * steps.per_step * steps.length))
    size = max((sum(len(text.encode()) for text in some) for some in texts.values()), default=0)
    shown.note(f"while it trains, {size:,} bytes of each held-out text are scored at most")
    last = last_checkpoint(Path(args.output_dir))
    if last:
        step = int(last.name.rpartition("-")[2])
        shown.note(f"going on after step {step:,}")
        shown.update("", step * steps.per_step * steps.length, steps.n * steps.per_step * steps.length)
    with running("trained", f"pass a smaller {option('batch')} if memory ran out"), no_progress_bar():
        trainer.train(resume_from_checkpoint=str(last) if last else None)
        trainer.save_model(str(Path(args.output_dir) / "trained"))
    history = [
        {name: value for name, value in entry.items() if not any(part in name for part in _TIMES)}
        for entry in trainer.state.log_history
    ]
    trainer.accelerator.free_memory()
    return history


def last_checkpoint(work: Path) -> Path | None:
    """The last checkpoint that is complete; others are removed.

    The state is written last, and not at once: a run that was killed then leaves a part of it.
    """
    found = sorted(work.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    complete = [path for path in found if _is_complete(path / "trainer_state.json")]
    for path in found:
        if path not in complete:
            shutil.rmtree(path, ignore_errors=True)
    return complete[-1] if complete else None


def _is_complete(state: Path) -> bool:
    try:
        return bool(json.loads(state.read_bytes()))
    except (OSError, ValueError):
        return False
