"""`write_new_rows`: an adapter of PEFT with the changed rows of a model whose shapes do not change.

PEFT's `trainable_token_indices` replaces rows of the embedding, and of an untied output. It does not add to them, so an
adapter with the bytes of the new rows makes the base the adapted model exactly.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.checkpoint.byte_ranges import read_into
from tokengraft.checkpoint.compare_files import ByteComparison
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor, architecture, module_path
from tokengraft.checkpoint.table import NewTables, OldRows
from tokengraft.checkpoint.tensors import Ids, Raw, TensorFile, all_finite, header_bytes, read_rows
from tokengraft.errors import CheckpointError, OptionError

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the path of every module."""
ROWS = "token_adapter.trainable_tokens_delta"
_NO_LAYERS = "dummy-target-modules"
"""What PEFT calls LoRA without layers. It refuses an empty list, and without the field it adapts attention layers."""
_WHOLE = "leave out --as-adapter, which writes the whole model"


def adapter_tables(source: Checkpoint, tables: NewTables) -> dict[str, VocabTensor]:
    """The tables whose rows an adapter replaces, by the paths of their modules: of a tied output, the embedding alone.

    Raises:
        OptionError: The number of rows changes.
        CheckpointError: PEFT would not replace the rows of all tables.
    """
    vocabulary = tables.vocabulary
    if tables.rows != vocabulary.rows:
        raise OptionError(
            f"the model has {vocabulary.rows:,} rows and would have {tables.rows:,}; an adapter (--as-adapter) can "
            "replace rows, but not change their number",
            hint=f"replace tokens with `tokengraft adapt --swap N`, which changes no shape; or {_WHOLE}",
        )
    for tensor in vocabulary.tensors:
        if tensor.further or tensor.role == "bias":
            raise _refused(f"the model has the table `{tensor.info.name}`, whose rows an adapter cannot replace")
    _require_said(source, tables)
    wanted = ("input",) if vocabulary.tied else ("input", "output")
    found = {module_path(tensor, source.config): tensor for tensor in vocabulary.tensors if tensor.role in wanted}
    if None in found:
        raise _refused(f"the names that {architecture(source.config)} has for its modules in an adapter are not known")
    return {path: tensor for path, tensor in found.items() if path}


def _require_said(source: Checkpoint, tables: NewTables) -> None:
    """Refuses a config that lets PEFT take a tied output for an untied one, or the other way round."""
    tied, stored = tables.vocabulary.tied, any(tensor.role == "output" for tensor in tables.vocabulary.tensors)
    says = source.config.get("tie_word_embeddings")
    if says is not tied and (stored or says is not None):
        raise _refused(
            f"`tie_word_embeddings` in config.json is {json.dumps(says)}, and the output of the model is "
            f"{'tied' if tied else 'untied'}; PEFT goes by the config, and would put the adapter on other tables",
            f"correct `tie_word_embeddings` in config.json; or {_WHOLE}",
        )


def _refused(reason: str, hint: str = _WHOLE) -> CheckpointError:
    return CheckpointError(f"{reason}: --as-adapter is not possible", hint=hint)


def changed_rows(tables: NewTables) -> Ids:
    """The rows of the new tables that are not those of the old tables with the same number."""
    return np.flatnonzero(tables.copies != np.arange(len(tables.copies)))


def write_new_rows(source: Checkpoint, tables: NewTables, base: str, folder: Path) -> ByteComparison:
    """Writes the config and the weights of an adapter, and reads the weights again. ``base`` is the name of the model.

    Raises:
        OptionError: No row changes.
    """
    ids, found = changed_rows(tables), adapter_tables(source, tables)
    if not len(ids):
        raise OptionError("no row changes, so there is nothing to write to an adapter", hint="pass another tokenizer")
    infos = [replace(tensor.info.with_rows(len(ids)), name=f"{PREFIX}{path}.{ROWS}") for path, tensor in found.items()]
    with np.errstate(all="ignore"), (folder / ADAPTER_WEIGHTS).open("wb") as new:
        new.write(header_bytes(infos, {"format": "pt"}))
        for tensor in found.values():
            for block in _blocks(tables, tensor, ids):
                new.write(block.data)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(_config(base, [*found], ids), indent=2) + "\n", encoding="utf-8")
    _require_equal(folder, tables, found, ids)
    return ByteComparison(new_rows=len(ids) * len(found))


def _config(base: str, paths: list[str], ids: Ids) -> Mapping[str, Any]:
    return {
        "base_model_name_or_path": base,
        "inference_mode": True,
        "peft_type": "LORA",
        "target_modules": _NO_LAYERS,
        "task_type": "CAUSAL_LM",
        "trainable_token_indices": {path.rpartition(".")[2]: ids.tolist() for path in paths},
    }


def _blocks(tables: NewTables, tensor: VocabTensor, ids: Ids) -> Iterator[Raw]:
    """The new rows with some ids, in parts."""
    with tensor.file.path.open("rb", buffering=0) as stream:
        old: OldRows = partial(read_rows, stream, tensor.info)
        at = 0
        for part in tables.parts(tensor, old):
            wanted = ids[np.searchsorted(ids, at) : np.searchsorted(ids, at + len(part))] - at
            if len(wanted):
                yield np.ascontiguousarray(old(part.start + wanted) if isinstance(part, range) else part[wanted])
            at += len(part)


def _require_equal(folder: Path, tables: NewTables, found: Mapping[str, VocabTensor], ids: Ids) -> None:
    """Refuses a written file that differs from what was computed, or has numbers that are not finite."""
    written = TensorFile.open(folder / ADAPTER_WEIGHTS)
    with written.path.open("rb", buffering=0) as stream, np.errstate(all="ignore"):
        for info, tensor in zip(written.tensors.values(), found.values(), strict=True):
            stream.seek(info.start)
            for block in _blocks(tables, tensor, ids):
                again = np.empty_like(block)
                read_into(stream, again.reshape(-1))
                if not np.array_equal(again, block):
                    raise CheckpointError(f"rows of `{info.name}` differ from what was written", hint="check the disk")
                if not all_finite(again, info.dtype):
                    raise CheckpointError(
                        f"a new row of `{tensor.info.name}` has numbers that are not finite",
                        hint="check the source for rows that are not finite, or pass another --init, or "
                        "--hole-rows keep",
                    )
