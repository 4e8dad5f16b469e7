"""`NewRowsJob`: writes an adapter of PEFT with the changed rows of a model whose shapes do not change.

PEFT's `trainable_token_indices` replaces rows of the embedding, and of an untied output. It does not add to them, so an
adapter with the bytes of the new rows makes the base the adapted model exactly.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tokengraft.checkpoint.byte_ranges import read_into
from tokengraft.checkpoint.compare_files import ByteComparison
from tokengraft.checkpoint.ids import GENERATION
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor, architecture, module_path
from tokengraft.checkpoint.model_job import ModelJob
from tokengraft.checkpoint.result import Transplant, describe
from tokengraft.checkpoint.table import NewTables, OldRows, TransplantOptions
from tokengraft.checkpoint.tensors import Ids, Raw, TensorFile, all_finite, header_bytes, read_rows
from tokengraft.errors import CheckpointError, OptionError, option, require
from tokengraft.tokenizer.tokenizer import Tokenizer

ADAPTER_CONFIG, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
"""What PEFT puts before the path of every module."""
ROWS = "token_adapter.trainable_tokens_delta"
_NO_LAYERS = "dummy-target-modules"
"""What PEFT calls LoRA without layers. It refuses an empty list, and without the field it adapts attention layers."""


@dataclass(frozen=True)
class NewRowsJob(ModelJob):
    """A job that writes an adapter: of all files, only those of the tokenizer, and ids that are suppressed."""

    is_adapter: ClassVar[bool] = True

    @classmethod
    def prepare(
        cls, checkpoint: str | os.PathLike[str], new_tokenizer: Tokenizer | Any, options: TransplantOptions
    ) -> Self:
        """The job for the folder of a model and a tokenizer, after refusing what cannot be done."""
        job = super().prepare(checkpoint, new_tokenizer, options)
        adapter_tables(job.source, job.tables)
        names = (*job.files.tokenizer, *([GENERATION] if job.tables.unused.suppressed else []))
        written = {name: job.files.written[name] for name in names}
        return replace(job, files=replace(job.files, written=written, copied=(), left_out=()))

    @property
    def _rows(self) -> Ids:
        """The rows of the new tables that are not those of the old tables with the same number."""
        return np.flatnonzero(self.tables.copies != np.arange(len(self.tables.copies)))

    def describe(self) -> Transplant:
        """The result before anything is written."""
        warnings: tuple[str, ...] = ()
        if n := len(self.tables.unused.suppressed):
            warnings = (
                f"{n:,} ids without a token are suppressed in `{GENERATION}` of the adapter, which PEFT does not load; "
                "pass it to `generate`: `generation_config=GenerationConfig.from_pretrained(FOLDER)`",
            )
        return replace(describe(self.tables), adapter_rows=tuple(self._rows.tolist()), warnings=warnings)

    def write_weights(self, folder: Path) -> ByteComparison:
        """Writes the config and the weights of the adapter, and reads the weights again.

        Raises:
            OptionError: No row changes.
        """
        ids, found = self._rows, adapter_tables(self.source, self.tables)
        require(len(ids) > 0, "no row changes, so there is nothing to write to an adapter", "pass another tokenizer")
        infos = [
            replace(tensor.info.with_rows(len(ids)), name=f"{PREFIX}{path}.{ROWS}") for path, tensor in found.items()
        ]
        with np.errstate(all="ignore"), (folder / ADAPTER_WEIGHTS).open("wb") as new:
            new.write(header_bytes(infos, {"format": "pt"}))
            for tensor in found.values():
                for block in _blocks(self.tables, tensor, ids):
                    new.write(block.data)
        config = {
            "base_model_name_or_path": self.names[0],
            "inference_mode": True,
            "peft_type": "LORA",
            "target_modules": _NO_LAYERS,
            "task_type": "CAUSAL_LM",
            "trainable_token_indices": {path.rpartition(".")[2]: ids.tolist() for path in found},
        }
        (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        _require_equal(folder, self.tables, found, ids)
        return ByteComparison(new_rows=len(ids) * len(found))


def adapter_tables(source: Checkpoint, tables: NewTables) -> dict[str, VocabTensor]:
    """The tables whose rows an adapter replaces, by the paths of their modules: of a tied output, the embedding alone.

    Raises:
        OptionError: The number of rows changes.
        CheckpointError: PEFT would not replace the rows of all tables.
    """
    vocabulary = tables.vocabulary
    if tables.rows != vocabulary.rows:
        raise OptionError(
            f"the model has {vocabulary.rows:,} rows and would have {tables.rows:,}; an adapter "
            f"({option('as_adapter')}) can replace rows, but not change their number",
            hint=f"replace tokens with `tokengraft adapt --swap N`, which changes no shape; or {_whole()}",
        )
    for tensor in vocabulary.tensors:
        if tensor.further or tensor.role == "bias":
            raise _refused(f"the model has the table `{tensor.info.name}`, whose rows an adapter cannot replace")
    tied, stored = vocabulary.tied, any(tensor.role == "output" for tensor in vocabulary.tensors)
    says = source.config.get("tie_word_embeddings")
    if says is not tied and (stored or says is not None):
        raise _refused(
            f"`tie_word_embeddings` in config.json is {json.dumps(says)}, and the output of the model is "
            f"{'tied' if tied else 'untied'}; PEFT goes by the config, and would put the adapter on other tables",
            f"correct `tie_word_embeddings` in config.json; or {_whole()}",
        )
    wanted = ("input",) if tied else ("input", "output")
    found = {module_path(tensor, source.config): tensor for tensor in vocabulary.tensors if tensor.role in wanted}
    if None in found:
        raise _refused(f"the names that {architecture(source.config)} has for its modules in an adapter are not known")
    return {path: tensor for path, tensor in found.items() if path}


def _refused(reason: str, hint: str = "") -> CheckpointError:
    return CheckpointError(f"{reason}: {option('as_adapter')} is not possible", hint=hint or _whole())


def _whole() -> str:
    return f"leave out {option('as_adapter')}, which writes the whole model"


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
                        hint=f"check the source for rows that are not finite, or pass another {option('init')}, or "
                        f"{option('hole_rows', 'keep')}",
                    )
