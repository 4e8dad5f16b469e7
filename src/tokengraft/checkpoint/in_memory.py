"""`transplant_model`: the same as `transplant` for a model in memory, for training code. Needs torch."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tokengraft.arguments import checked, wrong_type
from tokengraft.checkpoint.ids import FROM_MODEL, SUPPRESSED, renumber_config, suppressing, used_ids
from tokengraft.checkpoint.memory_tables import dtype_name, require_plain_tables, without_adapters
from tokengraft.checkpoint.other_tables import require_fixed_ids, require_no_other_tables
from tokengraft.checkpoint.padding import PadMultiple, padded_rows
from tokengraft.checkpoint.rows import (
    DEFAULT,
    INITIALISERS,
    TableInfo,
    chosen_initialisers,
    require_facts,
    require_initialisers,
    require_untied,
)
from tokengraft.checkpoint.rows.interface import Table
from tokengraft.checkpoint.table import TableShape, TableSpec, copied_rows, new_rows, reader, token_rows
from tokengraft.checkpoint.tensors import Raw
from tokengraft.checkpoint.unused import DEFAULT_HOLE_ROWS, HoleRows, Unused, require_hole_rows, unused_rows
from tokengraft.checkpoint.weights import initializer_range
from tokengraft.errors import CheckpointError
from tokengraft.log import stage
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


@checked
@stage("transplanting the model")
def transplant_model(
    model: Any,
    plan: VocabPlan,
    *,
    init: str = DEFAULT,
    output_init: str | None = None,
    hole_rows: HoleRows = DEFAULT_HOLE_ROWS,
    pad_multiple: PadMultiple = "keep",
    seed: int = 0,
) -> tuple[Source, ...]:
    """Gives a transformers model another vocabulary, in place: embedding, head, bias, tying and configs.

    The rows are those that `transplant` would write. Create optimizers afterwards: earlier ones hold the old
    parameters.

    Args:
        model: A `PreTrainedModel`, on any devices, or one wrapped by PEFT. It is changed. Its embedding and head must
            not be offloaded, and must not have adapters.
        plan: The plan from the old to the new vocabulary: ``tg.plan(old, new)``. For the initialiser `context`:
            ``tg.plan(old, new, counts=counts)``.
        init: Initialiser for new embedding rows, as for `transplant`.
        output_init: Initialiser for new rows of an untied output, as for `transplant`.
        hole_rows: What rows without a token get, as for `transplant`. Except with `keep`, the generation config
            suppresses their ids.
        pad_multiple: Make the number of rows a multiple of this. `keep` keeps the current padding.
        seed: Seed for random initialisers.

    Returns:
        The source of every row of the embedding: an old row, the pieces it was computed from, or None for a row
        without a token that does not keep the row it had.

    Raises:
        OptionError: There is no such initialiser, the plan lacks what it needs, or one is given for a tied output.
        CheckpointError: The model's tables are not supported.
    """
    require_initialisers(init, output_init)
    require_facts(plan, init, output_init)
    require_hole_rows(hole_rows)
    model = without_adapters(model)
    if not hasattr(model, "get_input_embeddings"):
        raise wrong_type(
            "`model` of `transplant_model`", model, ["a model of transformers; `transplant` takes folders"]
        )
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    require_plain_tables(embedding, head)
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
    # Everything that may fail is done before the first change.
    configs = _Configs(model, plan, (before, rows))
    unused = unused_rows(plan, (before, rows), hole_rows, configs.used_ids)
    changes = configs.changes(unused.rows)
    builder = _TableBuilder(plan, rows, seed, initializer_range(_text_config(model.config).to_dict()), unused)
    init, output_init = chosen_initialisers(init, output_init, tied=tied)
    table = builder.table(embedding.weight, init, "input")
    head_table = table if tied or head is None else builder.table(head.weight, output_init, "output")
    bias = builder.bias(head.bias) if getattr(head, "bias", None) is not None else None
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
    copies = builder.copies(before).tolist()
    made = (*plan.sources, *(None,) * (rows - plan.rows_after))
    return tuple(copy if copy >= 0 else source for copy, source in zip(copies, made, strict=True))


def _require_no_other_tables(model: Any, embedding: Any, head: Any) -> None:
    known = {id(table) for table in (embedding.weight, getattr(head, "weight", None), getattr(head, "bias", None))}
    others = ((name, tuple(table.shape)) for name, table in model.named_parameters() if id(table) not in known)
    require_no_other_tables(others, len(embedding.weight), model.config.to_dict())


@dataclass(frozen=True)
class _TableBuilder:
    plan: VocabPlan
    rows: int
    seed: int
    spread: float
    unused: Unused

    def copies(self, old_rows: int) -> npt.NDArray[np.int64]:
        """For every new row the old row that it copies, or -1."""
        return copied_rows(self.plan, old_rows, self.rows, self.unused.rows)

    def table(self, weight: "torch.Tensor", init: str, table: Table) -> Any:
        """The new parameter that replaces an old one."""
        return self._parameter(weight, self._spec(weight, init, table))

    def bias(self, weight: "torch.Tensor") -> Any:
        """The new parameter that replaces the bias of the head."""
        return self._parameter(weight, self._spec(weight, "fvt", "output").for_bias())

    def _spec(self, weight: "torch.Tensor", init: str, table: Table) -> TableSpec:
        info = TableInfo(
            ids=token_rows(self.plan, len(weight)),
            read=reader(_MemoryRows(weight), dtype_name(weight)),
            width=weight[:1].numel(),
            spread=self.spread,
            seed=self.seed,
            table=table,
            plan=self.plan,
        )
        return TableSpec(self.plan, self.copies(len(weight)), INITIALISERS[init], info, self.unused)

    def _parameter(self, weight: "torch.Tensor", spec: TableSpec) -> Any:
        import torch

        old, shape = (
            _MemoryRows(weight),
            TableShape(len(weight), weight[:1].numel() * weight.element_size(), dtype_name(weight)),
        )
        parts = new_rows(old, shape, spec)
        blocks = [old.raw(np.arange(p.start, p.stop)) if isinstance(p, range) else p for p in parts]
        raw = torch.from_numpy(np.concatenate(blocks))
        new = raw.view(weight.dtype).reshape(self.rows, *weight.shape[1:]).to(weight.device)
        return torch.nn.Parameter(new, requires_grad=weight.requires_grad)


class _Configs:
    """The configs of a model, and how they change."""

    def __init__(self, model: Any, plan: VocabPlan, rows: tuple[int, int]) -> None:
        self.generation = getattr(model, "generation_config", None)
        configs = [config for config in (model.config, self.generation) if config is not None]
        self._changes = [change for config in configs for change in _changes(config, plan, rows)]
        renumbered = (renumber_config(config.to_dict(), plan, rows, type(config).__name__) for config in configs)
        self.used_ids = {token_id for config in renumbered for token_id in used_ids(config)}

    def changes(self, unused: Collection[int]) -> list[tuple[Any, str, Any]]:
        """The changes of ids and sizes, and of the list of suppressed ids: (object, field, new value)."""
        if self.generation is None or not unused:
            return self._changes
        listed = {SUPPRESSED: getattr(self.generation, SUPPRESSED, None)}
        listed |= {name: value for config, name, value in self._changes if config is self.generation}
        suppressed = suppressing(listed, unused)[SUPPRESSED]
        return [*self._changes, (self.generation, SUPPRESSED, suppressed), (self.generation, FROM_MODEL, False)]


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
