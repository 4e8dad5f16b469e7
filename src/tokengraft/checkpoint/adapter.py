"""Adapters of PEFT, read without PEFT: their folders, and `AdapterBlend`, which scales the change of the model.

`adapter_parts` are the tensors that belong to the embedding or the output of a model. What each is, is known by its
name. A tensor that has no clear meaning under another vocabulary is refused by name.

LoRA adds a product of two factors to a weight, so scaling one of them scales the change. Of saved tables and trainable
tokens, the mean with the rows of the model is written. Rows of new tokens are not scaled.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.checkpoint.folder import INDEX, SINGLE, Checkpoint
from tokengraft.checkpoint.ids import CONFIG, read_config
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary, find_vocabulary
from tokengraft.checkpoint.tensors import ITEM_BYTES, Extent, Ids, Raw, Rows, Tensor, TensorFile, narrow, write_tensors
from tokengraft.errors import CheckpointError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the path of every module."""
_PICKLED = "adapter_model.bin"
_LORA, _TOKENS = "LORA", "TRAINABLE_TOKENS"
INDICES = {_LORA: "trainable_token_indices", _TOKENS: "token_indices"}
"""The field with the ids of trainable tokens, by the type of the adapter."""
COLUMNS, FROZEN = "lora_embedding_A", "base_layer.weight"
"""The factor of LoRA with a column for each token; and a copy of the base's table."""
_DELTA = "trainable_tokens_delta"
_AXES: dict[str, tuple[int, int | None, int | None]] = {
    "weight": (2, 0, 1),
    "bias": (1, 0, None),
    "lora_A.weight": (2, None, 1),
    "lora_B.weight": (2, 0, None),
    "lora_B.bias": (1, 0, None),
    COLUMNS: (2, 1, None),
    "lora_embedding_B": (2, None, 0),
    FROZEN: (2, 0, 1),
    _DELTA: (2, None, 1),
    f"token_adapter.{_DELTA}": (2, None, 1),
}
"""Tensors of a table that are known, by the rest of their names: the number of axes, the axis of the vocabulary, and
the axis that is as long as a row of the table."""
PLAIN_STARTS = (None, True, False, "gaussian")
"""Values of `init_lora_weights` that do not change the base. `pissa` and others subtract parts of it, which depend on
all rows of a table."""
MERGE = "merge the adapter into its base (`merge_and_unload`), save the model with its tokenizer, and transplant that"


def is_adapter(folder: Path) -> bool:
    """Whether a folder has an adapter of PEFT, complete or not, and no model."""
    parts = (os.path.lexists(folder / name) for name in (ADAPTER_CONFIG, ADAPTER_WEIGHTS, _PICKLED))
    return any(parts) and not any(os.path.lexists(folder / name) for name in (CONFIG, SINGLE, INDEX))


def opened(folder: Path) -> tuple[dict[str, Any], TensorFile]:
    """The config and the header of an adapter."""
    path = folder / ADAPTER_CONFIG
    if not path.is_file():
        raise CheckpointError(f"`{folder}` has an adapter of PEFT without `{path.name}`", hint="add the file")
    if not (folder / ADAPTER_WEIGHTS).is_file():
        if (folder / _PICKLED).exists():
            raise CheckpointError(
                f"the adapter in `{folder}` is pickled (`{_PICKLED}`), and unpickling can run any code",
                hint="if you trust it, load and save it with PEFT: `model.save_pretrained('NEW')` writes safetensors",
            )
        raise CheckpointError(f"the adapter in `{folder}` has no `{ADAPTER_WEIGHTS}`", hint="add the file")
    config = read_config(path)
    kind = config.get("peft_type") if isinstance(config, dict) else None
    if not isinstance(kind, str):
        raise CheckpointError(f"`{path}` has no `peft_type`: it is not the config of an adapter", hint="add the field")
    for field, value in config.items():
        if "token" in field and isinstance(value, list) and value and field not in INDICES.values():
            raise does_not_fit(f"`{field}` lists ids of tokens, and the new tokenizer may split their text otherwise")
    return config, TensorFile.open(folder / ADAPTER_WEIGHTS)


@dataclass(frozen=True)
class Part:
    """A tensor of an adapter that belongs to a table of the model."""

    tensor: Tensor
    table: VocabTensor
    suffix: str
    """The rest of its name, after the path of the module."""

    @property
    def rows(self) -> int | None:
        """The number of tokens that it is for; None if it has no vocabulary axis."""
        axis = _AXES[self.suffix][1]
        return None if axis is None else self.tensor.shape[axis]

    @property
    def is_delta(self) -> bool:
        """Whether it has rows of trainable tokens."""
        return self.suffix.endswith(_DELTA)

    @property
    def by_token(self) -> VocabTensor:
        """The tensor with a row for each token."""
        tensor = turned(self.tensor) if self.suffix == COLUMNS else self.tensor
        return VocabTensor.of(tensor, "input" if self.table.role == "input" else "output")


def adapter_parts(file: TensorFile, vocabulary: Vocabulary, config: Mapping[str, Any]) -> dict[str, Part]:
    """The tensors that belong to tables of the model, by name, after refusing what has no clear meaning."""
    modules = {t.name.removesuffix(".weight"): t for t in vocabulary.tensors if t.name.endswith(".weight")}
    tied = [tensor for tensor in vocabulary.tensors if tensor.role == "input"]
    if not any(tensor.role == "output" for tensor in vocabulary.tensors):
        modules["lm_head"] = replace(tied[0], role="output")
    parts = dict[str, Part]()
    for name, tensor in file.tensors.items():
        found = _module(name.removeprefix(PREFIX), modules)
        if found:
            parts[name] = Part(tensor, *found)
            if reason := _unknown(parts[name], config):
                raise _unclear(name, reason)
            if parts[name].is_delta:
                ids_of(parts[name], config)
        elif _DELTA in name:
            raise _unclear(name, "it has rows of tokens for a module that is no table of the model")
    return parts


def _module(name: str, modules: Mapping[str, VocabTensor]) -> tuple[VocabTensor, str] | None:
    """The table that a tensor of an adapter belongs to, and the rest of its name.

    Paths may have one more part in front, in the adapter or in the model.
    """
    parts = name.split(".")
    for end in range(1, len(parts)):
        path = ".".join(parts[:end])
        for module, tensor in modules.items():
            if f".{path}".endswith(f".{module}") or f".{module}".endswith(f".{path}"):
                return tensor, ".".join(parts[end:])
    return None


def _unknown(part: Part, config: Mapping[str, Any]) -> str:
    """Why the meaning of a tensor of a table is not known, or its shape does not fit; empty if all is well."""
    kind, width, start = config["peft_type"], part.table.width, config.get("init_lora_weights")
    shape, dtype = part.tensor.shape, part.tensor.dtype
    if kind not in INDICES:
        return f"adapters of the type {kind} on tables of tokens are not supported"
    if "magnitude" in part.suffix:
        return "DoRA normalises the rows of a table, and new rows have no trained magnitude"
    if part.suffix not in _AXES or (kind == _TOKENS and not part.is_delta):
        return f"what it does to the table `{part.table.name}` is not known"
    if part.suffix.startswith("lora_") and not any(start is plain or start == plain for plain in PLAIN_STARTS):
        return f"with `init_lora_weights` {start!r} it is a part of the old table"
    axes, _, wide = _AXES[part.suffix]
    if len(shape) != axes or 0 in shape or (wide is not None and shape[wide] != width):
        return f"its shape {list(shape)} does not fit the table, whose rows have {width:,} numbers"
    if (part.rows is not None or part.is_delta) and dtype not in ITEM_BYTES:
        return f"it is of the type {dtype}, not of {', '.join(ITEM_BYTES)}"
    return ""


def ids_of(part: Part, config: Mapping[str, Any]) -> list[int]:
    """The ids of the rows of a tensor of trainable tokens."""
    field, name = INDICES[config["peft_type"]], part.tensor.name
    listed = config.get(field)
    if isinstance(listed, dict):
        path = name[: -len(part.suffix) - 1]
        listed = next((ids for module, ids in listed.items() if f".{path}".endswith(f".{module}")), None)
    elif part.table.role != "input" and config["peft_type"] == _LORA:
        listed = None  # a list is for the embedding
    if not isinstance(listed, list):
        raise _unclear(name, f"`{field}` in `{ADAPTER_CONFIG}` has no list of ids for it")
    if len(listed) != part.tensor.shape[0]:
        raise _unclear(name, f"it has {part.tensor.shape[0]:,} rows, and `{field}` {len(listed):,} ids")
    return listed


def require_ids(ids: Any, rows: int) -> None:
    """Refuses a list that has other things than different ids of rows."""
    wrong = [i for i in ids if type(i) is not int or not 0 <= i < rows] if isinstance(ids, list) else [ids]
    if wrong:
        raise does_not_fit(f"its config lists {wrong[0]!r:.80} as the id of a token, and there are {rows:,} rows")
    if len({*ids}) < len(ids):
        raise does_not_fit("its config lists the id of a token twice")


def require_layers(file: TensorFile, parts: Mapping[str, Part], model: Checkpoint) -> None:
    """Refuses LoRA layers for weights of another shape: the adapter is for another model."""
    held = {tensor.name: tensor.shape for tensor in model.tensors}
    for name, info in file.tensors.items():
        layer = f"{name.removeprefix(PREFIX).removesuffix('.lora_A.weight')}.weight"
        if not name.endswith(".lora_A.weight") or layer not in held or name in parts:
            continue
        if not info.shape or info.shape[-1] not in held[layer]:
            shapes = f"`{name}` has the shape {list(info.shape)}, and `{layer}` of the model {list(held[layer])}"
            raise does_not_fit(shapes)


def turned(matrix: Tensor) -> Tensor:
    """A matrix with rows and columns exchanged, in memory."""
    data = cache(lambda: exchanged(matrix.extent.read().reshape(matrix.shape[0], -1), matrix.dtype))
    return replace(matrix, shape=matrix.shape[::-1], data=data)


def exchanged(rows: Raw, dtype: str) -> Raw:
    """The columns of rows of numbers."""
    numbers = rows.reshape(len(rows), -1, ITEM_BYTES[dtype])
    return np.ascontiguousarray(numbers.transpose(1, 0, 2)).reshape(numbers.shape[1], -1)


def _unclear(name: str, reason: str) -> CheckpointError:
    return CheckpointError(f"`{name}` of the adapter cannot follow a change of the vocabulary: {reason}", hint=MERGE)


def does_not_fit(reason: str) -> CheckpointError:
    """The error for an adapter that cannot be one of the model's base, or has no clear meaning for it."""
    return CheckpointError(
        f"the adapter does not fit: {reason}", hint=f"pass the adapter of the model's base; otherwise {MERGE}"
    )


_SCALED = (".lora_B.weight", ".lora_B.bias", ".lora_embedding_B")
_UNSCALED = (".lora_A.weight", ".lora_embedding_A")


@dataclass(frozen=True)
class AdapterBlend:
    """An adapter, and the model that it was trained on."""

    config: Mapping[str, Any]
    file: TensorFile
    parts: Mapping[str, Part]
    """Tensors that belong to tables of the model."""
    model: Mapping[str, Tensor]
    is_new: "np.ndarray"
    share: float

    @classmethod
    def prepare(cls, folder: Path, model: Checkpoint, new: Ids, share: float) -> "AdapterBlend":
        """The job for an adapter, after refusing what does not become a mean by scaling."""
        config, file = opened(folder)
        vocabulary = find_vocabulary(model)
        start, kind = config.get("init_lora_weights"), config["peft_type"]
        unclear = next((name for name in file.tensors if "magnitude" in name), None)
        if kind not in INDICES or unclear or not any(start is plain or start == plain for plain in PLAIN_STARTS):
            what = f"`{unclear}` (DoRA)" if unclear else f"`peft_type` {kind!r} with `init_lora_weights` {start!r}"
            raise CheckpointError(f"scaling an adapter with {what} does not blend it with its model", hint=MERGE)
        parts = adapter_parts(file, vocabulary, config)
        require_layers(file, parts, model)
        wrong = next((part for part in parts.values() if part.rows not in (None, vocabulary.rows)), None)
        if wrong:
            raise CheckpointError(
                f"`{wrong.tensor.name}` is for {wrong.rows:,} tokens, and the model has {vocabulary.rows:,} rows",
                hint="pass the model that the adapter was trained on",
            )
        is_new = np.zeros(vocabulary.rows, bool)
        is_new[new] = True
        return cls(config, file, parts, {tensor.name: tensor for tensor in model.tensors}, is_new, share)

    def write(self, folder: Path) -> None:
        """Writes the weights of the adapter."""
        tensors = ((tensor, self._blended(tensor)) for tensor in self.file.tensors.values())
        write_tensors(folder / ADAPTER_WEIGHTS, tensors, self.file.metadata)

    def _blended(self, tensor: Tensor) -> Iterator[Extent | Raw]:
        changed = self._changed(tensor)
        yield tensor.extent if changed is None else narrow(changed, tensor.dtype)

    def _changed(self, tensor: Tensor) -> Rows | None:
        """The numbers of a tensor after the blend; None if it does not change."""
        part, name = self.parts.get(tensor.name), tensor.name
        if (part and part.suffix in (FROZEN, "lora_A.weight", "lora_embedding_B")) or (
            not part and name.endswith(_UNSCALED)
        ):
            return None
        if tensor.dtype not in ITEM_BYTES:
            raise CheckpointError(f"`{name}` is of the type {tensor.dtype}, which cannot be scaled", hint=MERGE)
        values, rest = tensor.numbers(), np.float32(1 - self.share)
        if not part:
            if name.endswith(_SCALED):
                return rest * values
            return rest * values + np.float32(self.share) * self._of_model(name.removeprefix(PREFIX), tensor)
        if part.suffix.startswith("lora_"):
            scales = np.where(self.is_new, np.float32(1), rest).astype(np.float32)
            by_token = scales if part.suffix == COLUMNS or values.ndim == 1 else scales[:, None]
            return values * by_token
        rows = np.arange(len(self.is_new))
        if part.is_delta:
            ids = ids_of(part, self.config)
            require_ids(ids, len(self.is_new))
            rows = np.array(ids, np.int64)
        of_model = self._of_model(part.table.name if part.suffix != "bias" else name.removeprefix(PREFIX), None)
        mean = rest * values + np.float32(self.share) * of_model.reshape(len(self.is_new), *values.shape[1:])[rows]
        mean[self.is_new[rows]] = values[self.is_new[rows]]
        return np.asarray(mean, np.float32)

    def _of_model(self, name: str, like: Tensor | None) -> Rows:
        """A tensor of the model as numbers."""
        names = [held for held in self.model if f".{held}".endswith(f".{name}") or f".{name}".endswith(f".{held}")]
        tensor = self.model[max(names, key=len)] if names else None
        if tensor is None or (like and tensor.shape != like.shape) or tensor.dtype not in ITEM_BYTES:
            raise CheckpointError(f"the model has no tensor of this shape for `{name}` of the adapter", hint=MERGE)
        return tensor.numbers()
