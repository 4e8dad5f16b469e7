"""`HeldOutBits`: bits per byte of held-out texts while a `transformers.Trainer` trains. `plot`: the curves as SVG."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tokengraft.checkpoint.folder import open_checkpoint
from tokengraft.formats.sources import load_folder
from tokengraft.measure.bits import bits, chunk_bytes, chunks, sequences
from tokengraft.measure.models import LoadedModel, hardware, start_ids
from tokengraft.measure.plot import line_plot
from tokengraft.progress import logger
from tokengraft.training.options import WARN_LIMIT

KEY = "eval_{}_bits_per_byte"


class HeldOutBits(TrainerCallback):  # type: ignore[misc]
    """A callback that scores held-out texts before, while and after a model trains.

    It logs `eval_NAME_bits_per_byte` with the `log` of the trainer, so that TensorBoard, W&B and the log have it. Of
    several processes, each scores a part. For trainers made from `transformers.Trainer`, such as those of TRL.

    Examples:
        ``trainer.add_callback(HeldOutBits(trainer, "adapted", {"et": documents, "en": others}, kept=["en"]))``
    """

    def __init__(
        self,
        trainer: Any,
        folder: str | Path,
        texts: Mapping[str, Sequence[str]],
        *,
        kept: Collection[str] = (),
        points: int = 10,
        show: Callable[[str], None] | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> None:
        """Reads the tokenizer of the model's folder.

        Args:
            trainer: The trainer that it is added to.
            folder: The folder of the model, with its tokenizer.
            texts: Documents by name. Score little of each: it is done ``points`` times.
            kept: The names of texts that must not get worse: a warning says as soon as one is 3 % worse.
            points: How often it scores, evenly over the steps.
            show: Gets a line at every point; by default the logger `tokengraft`, at the level INFO.
            warn: Gets warnings; by default that logger.
        """
        checkpoint, tokenizer = open_checkpoint(Path(folder)), load_folder(Path(folder))
        size = chunk_bytes([folder])
        self.trainer, self.kept, self.points = trainer, {*kept}, points
        self.texts = {name: sequences(tokenizer, [*chunks(parts, size)]) for name, parts in texts.items()}
        self._show, self._warn, self._warned = show or logger.info, warn or logger.warning, set[str]()
        self._parts = tokenizer, start_ids(checkpoint, tokenizer), hardware()

    def scores(self) -> dict[str, float]:
        """Bits per byte of every text, by the model as it is now."""
        args, model = self.trainer.args, self.trainer.accelerator.unwrap_model(self.trainer.model)
        loaded = LoadedModel(model, *self._parts)
        sharded = self.trainer.is_fsdp_enabled or self.trainer.is_deepspeed_enabled  # all processes run each batch
        part = (0, 1) if sharded else (args.process_index, max(1, args.world_size))
        add = None if part[1] == 1 else lambda sums: _sum_of_processes(sums, args.device)
        found = {name: bits(loaded, text, part=part, add=add)[0] for name, text in self.texts.items()}
        return {name: score.bits / score.bytes for name, score in found.items()}

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Scores the model before training, unless it is resumed."""
        if not self.first(state):
            self._log(state)

    def on_step_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Scores the model if a point is reached."""
        marks = {round(point * state.max_steps / self.points) for point in range(1, self.points + 1)}
        if state.global_step in marks:
            self._log(state)

    def first(self, state: Any) -> dict[str, float]:
        """The scores before training; none if it has not begun."""
        entries = (entry for entry in state.log_history if all(KEY.format(name) in entry for name in self.texts))
        first = next(entries, None)
        return {name: first[KEY.format(name)] for name in self.texts} if first and self.texts else {}

    def _log(self, state: Any) -> None:
        scores = self.scores()
        self.trainer.log({KEY.format(name): score for name, score in scores.items()})
        first = self.first(state)
        if self.trainer.is_world_process_zero():
            self._show(f"step {state.global_step:,}/{state.max_steps:,}: {described(scores, first)}")
            for name in sorted(self.kept & {*scores} - self._warned):
                if scores[name] > (1 + WARN_LIMIT) * first[name]:
                    self._warned.add(name)
                    self._warn(
                        f"kept text `{name}` is {scores[name] / first[name] - 1:.1%} worse than before training, at "
                        f"step {state.global_step:,}; a lower --learning-rate or a larger --kept-share forgets less, "
                        "and blending gives a part back"
                    )


def described(scores: Mapping[str, float], first: Mapping[str, float]) -> str:
    """Scores in one line, with their change.

    >>> described({"et": 1.5, "en": 1.01}, {"et": 2.0, "en": 1.0})
    'et 1.500 (-25.0%), en 1.010 (+1.0%)'
    """
    changes = {name: f" ({score / first[name] - 1:+.1%})" if first.get(name) else "" for name, score in scores.items()}
    return ", ".join(f"{name} {score:.3f}{changes[name]}" for name, score in scores.items())


def _sum_of_processes(sums: list[float], device: Any) -> list[float]:
    import torch

    total = torch.tensor(sums, dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)
    return [float(value) for value in total]


def plot(history: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Bits per byte of every text over the steps, relative to those before training, as SVG."""
    entries = [entry for entry in history if names and KEY.format(names[0]) in entry]
    curves = {
        name: [[(entry["step"], entry[KEY.format(name)] / entries[0][KEY.format(name)] - 1) for entry in entries]]
        for name in names
    }
    last = max([1, *(int(entry["step"]) for entry in entries)])
    return line_plot(curves, (0, last), "change of bits per byte of held-out text; less is better", f"step {last:,}")
