"""Callbacks for a `transformers.Trainer`: `HeldOutBits` scores texts while it trains, `RowRates` sets rates of rows.

New rows learn faster and old ones slower: `row_rates` does it in one's own loop. After a step of the optimizer, every
row goes a multiple of the way that it went: the step that a group of parameters with that multiple of the rate would
take. Rows of a table cannot be such a group.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.folder import open_checkpoint
from tokengraft.errors import OptionError, option
from tokengraft.formats.sources import load_folder
from tokengraft.measure.bits import bits, chunk_bytes, chunks, sequences
from tokengraft.measure.models import LoadedModel, hardware, start_ids
from tokengraft.progress import logger
from tokengraft.representation import line_plot
from tokengraft.training.options import NEW_ROWS_FACTOR, OLD_ROWS_FACTOR, WARN_LIMIT

try:
    from transformers import TrainerCallback
except ImportError:  # the guide says what to install; `train` raises an error that does too
    TrainerCallback = object

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


def row_rates(
    optimizer: Any,
    model: Any,
    new_ids: Sequence[int],
    new: float = NEW_ROWS_FACTOR,
    old: float = OLD_ROWS_FACTOR,
) -> list[Any]:
    """Gives new and old rows rates of their own, in embedding and head, tied or not. Returns the handles of the hooks.

    For optimizers whose step is proportional to the rate, as that of AdamW is, weight decay included. Rows without a
    gradient stay as they are. If ``old`` is not 1, the hook keeps a copy of the tables during a step. Train in 32 bits:
    in bfloat16, a tenth of a small step is rounded to nothing.

    Args:
        optimizer: A torch optimizer that has the tables of the model, created before this call.
        model: A transformers model. Not wrapped, or wrapped by DDP.
        new_ids: The ids of the new tokens, such as `new_ids` of `training.json`.
        new: How many times as fast as the other weights new rows learn.
        old: The same of all other rows.

    Raises:
        OptionError: A table is sharded or not among the parameters of the optimizer: the hook would change wrong rows.
    """
    import torch

    if old == 1 and (new == 1 or not len(new_ids)):
        return []
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    model = getattr(model, "module", model)
    tables = {id(table.weight): table.weight for table in _tables(model)}
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for key, table in tables.items():
        is_part = type(table).__name__ == "DTensor" or hasattr(table, "ds_id") or table.ndim != 2
        if is_part or key not in held or not isinstance(optimizer, torch.optim.Optimizer):
            raise OptionError(
                f"rows cannot have rates of their own: a table of {tuple(table.shape)} is sharded or is not a "
                "parameter of the optimizer",
                hint="train with DDP (`torchrun`), which keeps tables whole, or without rates of rows: "
                f"{option('new_rows_factor', 1)} {option('old_rows_factor', 1)}",
            )
    ids = torch.tensor([*new_ids], dtype=torch.long, device=next(iter(tables.values())).device)
    before = dict[int, Any]()

    def remember(*_: Any) -> None:
        for key, table in tables.items():
            before[key] = table.detach().clone() if old != 1 else table.detach()[ids.to(table.device)]

    def move_on(*_: Any) -> None:
        for key, table in tables.items():
            rows, place = before.pop(key), ids.to(table.device)
            if old == 1:
                table.data[place] = rows + new * (table.data[place] - rows)
            else:  # in place, without a second copy: the table is its change for a moment
                change = table.data.sub_(rows)
                fast = new * change[place]
                change.mul_(old)[place] = fast
                change.add_(rows)

    return [optimizer.register_step_pre_hook(remember), optimizer.register_step_post_hook(move_on)]


def _tables(model: Any) -> list[Any]:
    modules = (model.get_input_embeddings(), model.get_output_embeddings())
    return [module for module in modules if module is not None and getattr(module, "weight", None) is not None]


class RowRates(TrainerCallback):  # type: ignore[misc]
    """A callback for `transformers.Trainer`, and for trainers made from it, such as those of TRL and axolotl.

    Examples:
        ``SFTTrainer(..., callbacks=[RowRates(settings.new_ids)])``
    """

    def __init__(self, new_ids: Sequence[int], new: float = NEW_ROWS_FACTOR, old: float = OLD_ROWS_FACTOR) -> None:
        self.new_ids, self.new, self.old = new_ids, new, old
        self._handles = list[Any]()

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Registers the hook, now that the optimizer exists."""
        self._handles = row_rates(given["optimizer"], given["model"], self.new_ids, self.new, self.old)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Removes the hook."""
        for handle in self._handles:
            handle.remove()
