"""`AdapterBlend`: an adapter of PEFT whose change of its model is scaled, but for rows of new tokens.

LoRA adds a product of two factors to a weight, so scaling one of them scales the change. Of saved tables and trainable
tokens, the mean with the rows of the model is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.checkpoint.layout import Checkpoint, find_vocabulary
from tokengraft.checkpoint.peft.new_rows import ADAPTER_WEIGHTS, PREFIX
from tokengraft.checkpoint.peft.parts import (
    COLUMNS,
    FROZEN,
    INDICES,
    MERGE,
    PLAIN_STARTS,
    Part,
    adapter_parts,
    ids_of,
    require_ids,
    require_layers,
)
from tokengraft.checkpoint.peft.transplant import opened
from tokengraft.checkpoint.tensors import (
    ITEM_BYTES,
    Ids,
    Raw,
    Rows,
    TensorFile,
    TensorInfo,
    header_bytes,
    narrow,
    read_tensor,
    widen,
)
from tokengraft.errors import CheckpointError

_SCALED = (".lora_B.weight", ".lora_B.bias", ".lora_embedding_B")
_UNSCALED = (".lora_A.weight", ".lora_embedding_A")


@dataclass(frozen=True)
class AdapterBlend:
    """An adapter, and the model that it was trained on."""

    config: Mapping[str, Any]
    file: TensorFile
    parts: Mapping[str, Part]
    """Tensors that belong to tables of the model."""
    model: Mapping[str, tuple[TensorInfo, TensorFile]]
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
                f"`{wrong.info.name}` is for {wrong.rows:,} tokens, and the model has {vocabulary.rows:,} rows",
                hint="pass the model that the adapter was trained on",
            )
        is_new = np.zeros(vocabulary.rows, bool)
        is_new[new] = True
        held = {info.name: (info, holder) for info, holder in model.tensors}
        return cls(config, file, parts, held, is_new, share)

    def write(self, folder: Path) -> None:
        """Writes the weights of the adapter."""
        with self.file.path.open("rb", buffering=0) as old, (folder / ADAPTER_WEIGHTS).open("wb") as out:
            out.write(header_bytes([*self.file.tensors.values()], self.file.metadata))
            for info in self.file.tensors.values():
                raw = read_tensor(old, info)
                changed = self._changed(info, raw)
                out.write((raw if changed is None else narrow(changed, info.dtype)).data)

    def _changed(self, info: TensorInfo, raw: Raw) -> Rows | None:
        """The numbers of a tensor after the blend; None if it does not change."""
        part, name = self.parts.get(info.name), info.name
        if (part and part.suffix in (FROZEN, "lora_A.weight", "lora_embedding_B")) or (
            not part and name.endswith(_UNSCALED)
        ):
            return None
        if info.dtype not in ITEM_BYTES:
            raise CheckpointError(f"`{name}` is of the type {info.dtype}, which cannot be scaled", hint=MERGE)
        values, rest = widen(raw, info.dtype).reshape(info.shape), np.float32(1 - self.share)
        if not part:
            if name.endswith(_SCALED):
                return rest * values
            return rest * values + np.float32(self.share) * self._of_model(name.removeprefix(PREFIX), info)
        if part.suffix.startswith("lora_"):
            scales = np.where(self.is_new, np.float32(1), rest).astype(np.float32)
            by_token = scales if part.suffix == COLUMNS or values.ndim == 1 else scales[:, None]
            return values * by_token
        rows = np.arange(len(self.is_new))
        if part.is_delta:
            ids = ids_of(part, self.config)
            require_ids(ids, len(self.is_new))
            rows = np.array(ids, np.int64)
        of_model = self._of_model(part.table.info.name if part.suffix != "bias" else name.removeprefix(PREFIX), None)
        mean = rest * values + np.float32(self.share) * of_model.reshape(len(self.is_new), *values.shape[1:])[rows]
        mean[self.is_new[rows]] = values[self.is_new[rows]]
        return np.asarray(mean, np.float32)

    def _of_model(self, name: str, like: TensorInfo | None) -> Rows:
        """A tensor of the model as numbers."""
        names = [held for held in self.model if f".{held}".endswith(f".{name}") or f".{name}".endswith(f".{held}")]
        info, file = self.model[max(names, key=len)] if names else (None, None)
        if info is None or file is None or (like and info.shape != like.shape) or info.dtype not in ITEM_BYTES:
            raise CheckpointError(f"the model has no tensor of this shape for `{name}` of the adapter", hint=MERGE)
        with file.path.open("rb", buffering=0) as stream:
            return widen(read_tensor(stream, info), info.dtype).reshape(info.shape)
