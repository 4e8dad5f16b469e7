"""`RowModel`: a frozen model that reads text with old rows (teacher) or with new rows that are learned (student)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tokengraft.errors import CheckpointError
from tokengraft.train.models import LoadedModel
from tokengraft.train.snippets import Ids, Snippet


@dataclass(frozen=True)
class Batch:
    """Snippets as tensors. Rows begin with the start token and are padded at the end."""

    old: Any
    new: Any
    targets: Any
    """The token after each position of ``new``, or -100."""
    rows: Any
    """For every common place: the snippet, the position in ``old``, and the position in ``new``."""


@dataclass(frozen=True)
class Teacher:
    """What the model before its vocabulary was changed has of its own."""

    table: Any
    """Its embedding."""
    start: tuple[int, ...]
    """Its ids before every text. They may be others than those of the student."""


def batch_of(snippets: Sequence[Snippet], old_start: Sequence[int], start: Sequence[int], device: str) -> Batch:
    """A batch of snippets on a device."""
    import torch

    old = _padded([snippet.old for snippet in snippets], old_start, 0)
    new = _padded([snippet.new for snippet in snippets], start, 0)
    targets = np.full_like(new, -100)
    for row, snippet in zip(targets, snippets, strict=True):
        row[len(start) - 1 : len(start) - 1 + len(snippet.new)] = snippet.new
    places = [
        (number, old_place + len(old_start), new_place + len(start))
        for number, snippet in enumerate(snippets)
        for old_place, new_place in zip(snippet.old_places, snippet.new_places, strict=True)
    ]
    arrays = (old, new, targets, np.array(places, np.int64).T.copy())
    return Batch(*(torch.from_numpy(array).to(device) for array in arrays))


def _padded(ids: Sequence[Ids], start: Sequence[int], filling: int) -> Ids:
    padded = np.full((len(ids), len(start) + max(map(len, ids))), filling, np.int64)
    padded[:, : len(start)] = start
    for row, found in zip(padded, ids, strict=True):
        row[len(start) : len(start) + len(found)] = found
    return padded


class RowModel:
    """A model whose weights are frozen. The rows of some ids are given with every call."""

    def __init__(self, loaded: LoadedModel, teacher: Teacher, ids: Sequence[int], layer: int) -> None:
        import torch

        self.loaded, self.layer, self.old_start = loaded, layer, teacher.start
        loaded.model.requires_grad_(False)
        embedding, head = loaded.model.get_input_embeddings(), loaded.model.get_output_embeddings()
        self.table = embedding.weight
        self.head = None if head is None or head.weight is embedding.weight else head.weight
        self.old_table = teacher.table.to(self.table)
        self.ids = torch.tensor([*ids], device=self.table.device)
        self._input = _name_of(loaded.model, self.table)
        self._output = None if self.head is None else _name_of(loaded.model, self.head)
        self._body_input = _name_of(loaded.model.base_model, self.table)

    @property
    def tied(self) -> bool:
        """Whether input and output share their rows."""
        return self.head is None

    def teacher_states(self, batch: Batch) -> Any:
        """The hidden states at the common places, when the old tokens are read."""
        import torch

        with torch.no_grad():
            body = self.loaded.model.base_model
            options = {"input_ids": batch.old, "use_cache": False, "output_hidden_states": True}
            made = torch.func.functional_call(body, {self._body_input: self.old_table}, (), options)
        return made.hidden_states[self.layer][batch.rows[0], batch.rows[1]].float()

    def student(self, batch: Batch, rows: Any, head_rows: Any) -> tuple[Any, Any]:
        """The hidden states at the common places, and the mean loss of the next token, with given rows.

        Args:
            batch: The snippets.
            rows: The input rows of the ids.
            head_rows: Their rows of an untied output; None if it is tied.
        """
        import torch

        weights = {self._input: self._with(self.table, rows)}
        if self._output is not None:
            weights[self._output] = self._with(self.head, head_rows)
        options = {"input_ids": batch.new, "use_cache": False, "output_hidden_states": True}
        made = torch.func.functional_call(self.loaded.model, weights, (), options)
        loss = torch.nn.functional.cross_entropy(made.logits.flatten(0, 1).float(), batch.targets.flatten())
        return made.hidden_states[self.layer][batch.rows[0], batch.rows[2]].float(), loss

    def _with(self, table: Any, rows: Any) -> Any:
        return table.index_copy(0, self.ids, rows.to(table.dtype))


def _name_of(module: Any, weight: Any) -> str:
    """The name of a weight in a module.

    Raises:
        CheckpointError: The module does not have it.
    """
    for name, held in module.named_parameters():
        if held is weight:
            return str(name)
    raise CheckpointError(
        f"the embedding is not a weight of {type(module).__name__}, so its rows cannot be learned",
        hint="use an initialiser: `tokengraft transplant --init`",
    )
