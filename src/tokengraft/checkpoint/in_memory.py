"""`transplant_model`: the same as `transplant` for a model in memory, for training code. Needs torch."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.ids import renumber_config
from tokengraft.checkpoint.other_tables import require_fixed_ids, require_no_other_tables
from tokengraft.checkpoint.padding import PadMultiple, padded_rows
from tokengraft.checkpoint.rows import INITIALISERS, TableInfo, require_initialisers, require_untied
from tokengraft.checkpoint.table import TableShape, TableSpec, copied_rows, new_rows, reader, token_rows
from tokengraft.checkpoint.tensors import Raw
from tokengraft.checkpoint.weights import initializer_range
from tokengraft.errors import CheckpointError
from tokengraft.plan import Source, VocabPlan

if TYPE_CHECKING:
    import torch


class _MemoryRows:
    """Rows of a tensor as bytes."""

    def __init__(self, weight: "torch.Tensor") -> None:
        import torch

        table = weight.detach().cpu().contiguous().reshape(len(weight), -1)
        self._bytes = table.view(torch.uint8).numpy()

    def raw(self, rows: npt.NDArray[np.int64]) -> Raw:
        """The bytes of the given rows, in the given order."""
        block: Raw = self._bytes[rows]
        return block


def transplant_model(
    model: Any,
    plan: VocabPlan,
    *,
    init: str = "fvt",
    output_init: str | None = None,
    pad_multiple: PadMultiple = "keep",
    seed: int = 0,
) -> tuple[Source, ...]:
    """Gives a transformers model another vocabulary, in place: embedding, head, bias, tying and configs.

    The rows are those that `transplant` would write. Create optimizers afterwards: earlier ones hold the old
    parameters.

    Args:
        model: A `PreTrainedModel`. It is changed.
        plan: The plan from the old to the new vocabulary: ``tg.plan(old, new)``.
        init: Initialiser for new embedding rows, as for `transplant`.
        output_init: Initialiser for new rows of an untied output.
        pad_multiple: Make the number of rows a multiple of this. `keep` keeps the current padding.
        seed: Seed for random initialisers.

    Returns:
        The source of every row of the embedding: an old row, the pieces it was computed from, or None for the mean.

    Raises:
        OptionError: There is no such initialiser, or one is given for a tied output.
        CheckpointError: The model's tables are not supported.
    """
    require_initialisers(init, output_init)
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not hasattr(embedding, "weight") or embedding.weight.ndim != 2:
        raise CheckpointError("the model has no plain input embedding", hint="pass a decoder-only language model")
    before = len(embedding.weight)
    if plan.rows_before > before:
        raise CheckpointError(
            f"the embedding has {before:,} rows and the old tokenizer needs {plan.rows_before:,}",
            hint="make the plan with the tokenizer that the model was trained with",
        )
    _require_no_other_tables(model, embedding, head)
    rows = padded_rows(plan, before, pad_multiple)
    require_fixed_ids((), model.config.to_dict(), plan, (before, rows))
    tied = head is None or head.weight is embedding.weight or bool(model.config.tie_word_embeddings)
    require_untied(output_init, tied=tied)
    builder = _TableBuilder(plan, rows, seed, initializer_range(_text_config(model.config).to_dict()))
    # Everything that may fail is done before the first change.
    configs = [config for config in (model.config, getattr(model, "generation_config", None)) if config is not None]
    changes = [change for config in configs for change in _changes(config, plan, (before, rows))]
    table = builder.table(embedding.weight, init, "input")
    head_table = table if tied or head is None else builder.table(head.weight, output_init or init, "output")
    bias = builder.table(head.bias, "fvt", "output") if getattr(head, "bias", None) is not None else None
    embedding.weight, embedding.num_embeddings = table, rows
    if getattr(embedding, "padding_idx", None) is not None:
        embedding.padding_idx = plan.moved.get(embedding.padding_idx)
    if head is not None:
        head.weight, head.out_features = head_table, rows
        if bias is not None:
            head.bias = bias
    for config, name, value in changes:
        setattr(config, name, value)
    for module in model.modules():
        if vars(module).get("vocab_size") == before:
            module.vocab_size = rows
    copies = copied_rows(plan, before, rows).tolist()
    made = (*plan.sources, *(None,) * (rows - plan.rows_after))
    return tuple(copy if copy >= 0 else source for copy, source in zip(copies, made, strict=True))


def _require_no_other_tables(model: Any, embedding: Any, head: Any) -> None:
    known = {id(table) for table in (embedding.weight, getattr(head, "weight", None), getattr(head, "bias", None))}
    others = ((name, tuple(table.shape)) for name, table in model.named_parameters() if id(table) not in known)
    require_no_other_tables(others, len(embedding.weight), model.config.to_dict())


class _TableBuilder:
    def __init__(self, plan: VocabPlan, rows: int, seed: int, spread: float) -> None:
        self.plan, self.rows, self.seed, self.spread = plan, rows, seed, spread

    def table(self, weight: "torch.Tensor", init: str, table: Any) -> Any:
        """The new parameter that replaces an old one."""
        import torch

        names = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
        if weight.dtype not in names:
            raise CheckpointError(
                f"a table of tokens has the type {weight.dtype}, which is not supported",
                hint="load the model in bfloat16, float16 or float32",
            )
        old, dtype = _MemoryRows(weight), names[weight.dtype]
        shape = TableShape(len(weight), weight[:1].numel() * weight.element_size(), dtype)
        info = TableInfo(
            ids=token_rows(self.plan, len(weight)),
            read=reader(old, dtype),
            width=shape.width,
            spread=self.spread,
            seed=self.seed,
            table=table,
        )
        copies = copied_rows(self.plan, len(weight), self.rows)
        parts = new_rows(old, shape, TableSpec(self.plan, copies, INITIALISERS[init], info))
        blocks = [old.raw(np.arange(p.start, p.stop)) if isinstance(p, range) else p for p in parts]
        raw = torch.from_numpy(np.concatenate(blocks))
        new = raw.view(weight.dtype).reshape(self.rows, *weight.shape[1:]).to(weight.device)
        return torch.nn.Parameter(new, requires_grad=weight.requires_grad)


def _text_config(config: Any) -> Any:
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def _changes(config: Any, plan: VocabPlan, rows: tuple[int, int]) -> Iterator[tuple[Any, str, Any]]:
    """The changes of ids and sizes in a config object: (object, field, new value)."""
    before = config.to_dict()
    after = renumber_config(before, plan, rows, type(config).__name__)
    for name, value in after.items():
        if isinstance(value, dict) and hasattr(getattr(config, name, None), "to_dict"):
            yield from _changes(getattr(config, name), plan, rows)
        elif value != before[name]:
            yield config, name, value
