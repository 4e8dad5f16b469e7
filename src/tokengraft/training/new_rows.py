"""New rows learn faster: `faster_new_rows` for one's own loop, `FasterNewRows` for every `transformers.Trainer`.

After a step of the optimizer, the rows of new tokens have gone a part of the way. They are moved on by the same change,
so that they go ``factor`` times as far. That is the step that a group of parameters with ``factor`` times the rate
would take, and rows of a table cannot be such a group.
"""

from collections.abc import Sequence
from typing import Any

from tokengraft.errors import OptionError, option

try:
    from transformers import TrainerCallback
except ImportError:  # the guide says what to install; `train` raises an error that does too
    TrainerCallback = object


def faster_new_rows(optimizer: Any, model: Any, new_ids: Sequence[int], factor: float) -> list[Any]:
    """Makes the rows of new tokens learn faster, in embedding and head, tied or not. Returns the handles of the hooks.

    For optimizers whose step is proportional to the rate, as that of AdamW is, weight decay included.

    Args:
        optimizer: A torch optimizer that has the tables of the model, created before this call.
        model: A transformers model. Not wrapped, or wrapped by DDP.
        new_ids: The ids of the new tokens, such as `new_ids` of `training.json`.
        factor: How many times as fast they learn.

    Raises:
        OptionError: A table is sharded or not among the parameters of the optimizer: the hook would change wrong rows.
    """
    import torch

    if factor == 1 or not len(new_ids):
        return []
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's wrapper
    model = getattr(model, "module", model)
    tables = {id(table.weight): table.weight for table in _tables(model)}
    held = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
    for key, table in tables.items():
        is_part = type(table).__name__ == "DTensor" or hasattr(table, "ds_id") or table.ndim != 2
        if is_part or key not in held or not isinstance(optimizer, torch.optim.Optimizer):
            raise OptionError(
                f"new rows cannot learn faster: a table of {tuple(table.shape)} is sharded or is not a parameter of "
                "the optimizer",
                hint="train with DDP (`torchrun`), which keeps tables whole, or without faster rows: "
                f"{option('new_rows_factor', 1)}",
            )
    ids = torch.tensor([*new_ids], device=next(iter(tables.values())).device)
    before = dict[int, Any]()

    def remember(*_: Any) -> None:
        for key, table in tables.items():
            before[key] = table.detach()[ids.to(table.device)]

    def move_on(*_: Any) -> None:
        for key, table in tables.items():
            rows, place = before.pop(key), ids.to(table.device)
            table.data[place] = rows + factor * (table.data[place] - rows)

    return [optimizer.register_step_pre_hook(remember), optimizer.register_step_post_hook(move_on)]


def _tables(model: Any) -> list[Any]:
    modules = (model.get_input_embeddings(), model.get_output_embeddings())
    return [module for module in modules if module is not None and getattr(module, "weight", None) is not None]


class FasterNewRows(TrainerCallback):  # type: ignore[misc]
    """A callback for `transformers.Trainer`, and for trainers made from it, such as those of TRL and axolotl.

    Examples:
        ``SFTTrainer(..., callbacks=[FasterNewRows(recipe.new_ids, recipe.new_rows_factor)])``
    """

    def __init__(self, new_ids: Sequence[int], factor: float = 4.0) -> None:
        self.new_ids, self.factor = new_ids, factor
        self._handles = list[Any]()

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Registers the hook, now that the optimizer exists."""
        self._handles = faster_new_rows(given["optimizer"], given["model"], self.new_ids, self.factor)

    def on_train_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:  # noqa: ARG002
        """Removes the hook."""
        for handle in self._handles:
            handle.remove()
