"""New rows learn faster and old ones slower: `row_rates` for one's own loop, `RowRates` for a `transformers.Trainer`.

After a step of the optimizer, every row goes a multiple of the way that it went: the step that a group of parameters
with that multiple of the rate would take. Rows of a table cannot be such a group.
"""

from collections.abc import Sequence
from typing import Any

from tokengraft.errors import OptionError, option
from tokengraft.training.options import NEW_ROWS_FACTOR, OLD_ROWS_FACTOR

try:
    from transformers import TrainerCallback
except ImportError:  # the guide says what to install; `train` raises an error that does too
    TrainerCallback = object


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
