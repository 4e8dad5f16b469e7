"""`HeldOutBits`: bits per byte of held-out texts while a `transformers.Trainer` trains. `plot`: the curves as SVG."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tokengraft.checkpoint.layout import open_checkpoint
from tokengraft.formats.sources import load_folder
from tokengraft.measure.bits import bits, chunk_bytes, chunks, sequences
from tokengraft.measure.models import LoadedModel, hardware, start_ids
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


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
WIDTH, HEIGHT, LEFT, BELOW = 640, 320, 56, 36


def plot(history: Iterable[Mapping[str, Any]], names: Sequence[str]) -> str:
    """Bits per byte of every text over the steps, relative to those before training, as SVG."""
    entries = [entry for entry in history if names and KEY.format(names[0]) in entry]
    curves = {
        name: [(entry["step"], entry[KEY.format(name)] / entries[0][KEY.format(name)] - 1) for entry in entries]
        for name in names
    }
    last = max([1, *(int(entry["step"]) for entry in entries)])
    changes: list[float] = [0.0, *(change for curve in curves.values() for _, change in curve)]
    low, high = min(changes), max(changes)
    span = max(high - low, 0.01)

    def x(step: float) -> float:
        return round(LEFT + step / last * (WIDTH - LEFT - 16), 1)

    def y(change: float) -> float:
        return round(24 + (high - change) / span * (HEIGHT - BELOW - 32), 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(0)}" y2="{y(0)}" stroke="#999"/>',
        f'<text x="{LEFT}" y="14">change of bits per byte of held-out text; less is better</text>',
        f'<text x="{WIDTH - 16}" y="{HEIGHT - 8}" text-anchor="end">step {last:,}</text>',
    ]
    labels = sorted({low, 0.0, high})
    lines += [f'<text x="{LEFT - 6}" y="{y(value) + 4}" text-anchor="end">{value:+.1%}</text>' for value in labels]
    for at, (name, curve) in enumerate(curves.items()):
        colour, points = COLOURS[at % len(COLOURS)], " ".join(f"{x(step)},{y(change)}" for step, change in curve)
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        label = f'<text x="{LEFT + 110 * at}" y="{HEIGHT - 8}" fill="{colour}">{escape(name)}</text>'
        lines.append(label)
    return "\n".join([*lines, "</svg>", ""])
