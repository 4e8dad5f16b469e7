"""`AdapterJob`: makes an adapter of PEFT that was trained on the old vocabulary fit a transplanted model.

Layers are copied. Of the embedding and the output, tensors with a vocabulary axis follow the plan: saved tables, and
the factor of LoRA that has a row or a column for each token. LoRA is linear in that factor. So kept tokens keep their
change, and that of a new token is the mean over its pieces, as its row in the model is. Rows of
`trainable_token_indices` follow their tokens. What has no such meaning is refused by name. Nothing is unpickled.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft.checkpoint.adapter import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    COLUMNS,
    FROZEN,
    INDICES,
    MERGE,
    Part,
    adapter_parts,
    does_not_fit,
    exchanged,
    ids_of,
    opened,
    require_ids,
    require_layers,
    turned,
)
from tokengraft.checkpoint.folder import Checkpoint, has_weights, predicts_tokens
from tokengraft.checkpoint.folder import open_checkpoint as open_model
from tokengraft.checkpoint.ids import CONFIGS, Renumbering, id_fields, model_configs
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary, find_vocabulary, require_no_other_tables
from tokengraft.checkpoint.model_files import CARD, REPORT, is_old, other_entries, recorded, written_before
from tokengraft.checkpoint.result import (
    ByteComparison,
    Transplant,
    comparisons,
    describe,
    request_of,
    write_report,
)
from tokengraft.checkpoint.rows import BLOCK, init_name, unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, plan_of_rows
from tokengraft.checkpoint.tensors import (
    ITEM_BYTES,
    Extent,
    Ids,
    Raw,
    Tensor,
    TensorFile,
    narrow,
    widen,
    write_tensors,
)
from tokengraft.errors import CheckpointError, OptionError, SourceNotFoundError, option
from tokengraft.formats.sources import folder_files, load_folder
from tokengraft.output.atomic import new_folder, write_files
from tokengraft.output.json_file import JsonStyle
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan, plan

MAX_PADDING = 1024
_LINEAR = ("fvt-rare", "fvt", "length-weighted", "mean")


@dataclass(frozen=True)
class AdapterJob:
    """Everything that is decided before a byte is written."""

    folder: Path
    config: dict[str, Any]
    """As it was read."""
    file: TensorFile
    parts: Mapping[str, Part]
    """Tensors that belong to tables of the model, by their names."""
    model: Checkpoint
    new: Tokenizer
    tables: NewTables
    warnings: tuple[str, ...] = ()

    @classmethod
    def prepare(cls, folder: Path, model: Any, base: Tokenizer | None, options: TransplantOptions) -> "AdapterJob":
        """The job for an adapter and the folder of the new model, after refusing what cannot be done."""
        config, file = opened(folder)
        if not isinstance(model, str | os.PathLike) or not has_weights(model):
            raise OptionError(
                "the first argument is an adapter; the second must be the folder of the model that it will be used "
                "with: its base, transplanted",
                hint="transplant the base first: `tokengraft transplant BASE NEW_TOKENIZER --out NEW_MODEL`, then "
                "`tokengraft transplant ADAPTER NEW_MODEL --out NEW_ADAPTER`",
            )
        checkpoint = open_model(Path(model))
        vocabulary = find_vocabulary(checkpoint)
        old, new = _old_tokenizer(folder, config, base), load_folder(checkpoint.folder)
        parts = adapter_parts(file, vocabulary, config)
        require_layers(file, parts, checkpoint)
        changes, rows = _plan(old, new, parts, vocabulary)
        others = [(name, tensor.shape) for name, tensor in file.tensors.items() if name not in parts]
        # The old number of rows is known only if a table is among the parts: here it may have any padding.
        for size in sorted({n for _, shape in others for n in shape if 0 <= n - changes.rows_before <= MAX_PADDING}):
            require_no_other_tables(others, size, checkpoint.config)
        fields = [field for one in model_configs(checkpoint.folder).values() for field in id_fields(one)]
        renumbering = Renumbering(changes, (rows, vocabulary.rows))
        unused = replace(unused_rows(renumbering, options.hole_rows, fields), suppressed=frozenset())
        changed = tuple(part.by_token for part in parts.values() if part.rows is not None and part.suffix != FROZEN)
        warnings: tuple[str, ...] = ()
        if changed and any(isinstance(source, tuple) for source in changes.sources):
            options, warnings = _with_inits(options, checkpoint.folder, tied=vocabulary.tied)
        tables = Vocabulary(changed, rows, vocabulary.tied, "the names of PEFT")
        has_output = predicts_tokens(checkpoint.config)
        new_tables = NewTables(tables, renumbering, options, unused, has_output=has_output, of_changes=True)
        job = cls(folder, config, file, parts, checkpoint, new, new_tables, warnings)
        for part in parts.values():
            if part.suffix == FROZEN:
                job._require_base(part)
        job.new_config()  # refuses ids that are not valid
        if not any(job._written()):
            raise CheckpointError(
                "all that the adapter has are rows of tokens, and the new vocabulary has none of its tokens",
                hint="use the transplanted model without it",
            )
        return job

    def describe(self) -> Transplant:
        """The result before anything is written."""
        entries = other_entries(self.folder, (ADAPTER_CONFIG, ADAPTER_WEIGHTS))
        left_out = [path.name + "/" * path.is_dir() for path in entries if not _is_copied(path)]
        return replace(describe(self.tables), left_out=tuple(left_out), warnings=self.warnings)

    def write(self, out: Path, *, force: bool) -> Transplant:
        """Writes the folder, and compares the tensors with those of the source."""
        config = self.folder / ADAPTER_CONFIG
        with new_folder(out, replaceable=written_before(out) if force else None) as folder:
            for path in filter(_is_copied, other_entries(self.folder, (ADAPTER_CONFIG, ADAPTER_WEIGHTS))):
                shutil.copyfile(path, folder / path.name)
            changed = JsonStyle.of(config.read_bytes()).dump(self.new_config())
            write_files(folder_files(self.new) | {ADAPTER_CONFIG: changed}, folder)
            weights = folder / ADAPTER_WEIGHTS
            write_tensors(weights, self._written(), self.file.metadata)
            done = replace(self.describe(), compared=self._compare(TensorFile.open(weights)))
            inputs = [
                {"role": "adapter", "name": self.folder.name, "bytes": self.file.path.stat().st_size},
                {"role": "model", "name": self.model.folder.name, "sha256": self.new.content_hash},
            ]
            names, options = ("init", "output_init", "hole_rows"), self.tables.options
            asked = {name: getattr(options, name) for name in names} | {"init": options.inits[0]}
            write_report(done, config, {"request": request_of("transplant", asked, inputs)}, folder)
        return done

    def _written(self) -> Iterator[tuple[Tensor, Iterable[Extent | Raw]]]:
        """The tensors to write, with their parts."""
        tables = self.tables
        for name, tensor in self.file.tensors.items():
            part = self.parts.get(name)
            if part is not None and part.is_delta:
                if len(kept := self._kept(part)):
                    yield tensor.with_rows(len(kept)), [tensor.read(kept)]
            elif part is None or part.rows is None:
                yield tensor, [tensor.extent]
            elif part.suffix == COLUMNS:
                after = tables.resized(part.by_token)
                yield replace(after, shape=after.shape[::-1]), self._columns(part.by_token)
            elif part.suffix != FROZEN:
                yield tables.resized(part.by_token), tables.parts(part.by_token)

    def _columns(self, tensor: VocabTensor) -> Iterator[Raw]:
        yield exchanged(np.concatenate([*self.tables.parts(tensor)]), tensor.dtype)

    def _compare(self, new: TensorFile) -> ByteComparison:
        """Compares what was written with the source: copied tensors, and kept rows and columns of the others."""
        copies = {name: self._kept(part) for name, part in self.parts.items() if part.rows or part.is_delta}
        columns = {name for name, part in self.parts.items() if part.suffix == COLUMNS}

        def by_token(file: TensorFile) -> TensorFile:
            held = {name: file.tensors[name] for name in new.tensors}
            return replace(file, tensors=held | {name: turned(held[name]) for name in columns})

        return ByteComparison.total(part() for part in comparisons(by_token(self.file), by_token(new), copies))

    def _require_base(self, part: Part) -> None:
        """Refuses a copy of the base's table that is not the table of the model: when loaded, it would replace that."""
        copies, table, ours = self.tables.copies, part.table, part.tensor
        kept = np.flatnonzero(copies >= 0)
        for ids in (kept[at : at + BLOCK] for at in range(0, len(kept), BLOCK)):
            of_model = widen(table.read(ids), table.dtype)
            # The model may have been loaded in 16 bits and saved in 32.
            rounded = (narrow(widen(narrow(of_model, kind), kind), ours.dtype) for kind in ITEM_BYTES)
            if not any(np.array_equal(ours.read(copies[ids]), rows) for rows in rounded):
                raise CheckpointError(
                    f"`{ours.name}` and `{table.name}` of the model differ in rows of kept tokens: one of "
                    "them was trained since, and the adapter would replace the model's",
                    hint=MERGE,
                )

    def new_config(self) -> dict[str, Any]:
        """The config for the new model, with the new ids of trainable tokens."""
        config = self.config | {"base_model_name_or_path": str(self.model.folder)}
        if "revision" in config:  # of the old base
            config["revision"] = None
        field = INDICES.get(config["peft_type"], "")
        listed = config.get(field)
        if listed is None:
            return config
        if isinstance(listed, dict):
            moved = {name: [*self._moved(ids).values()] for name, ids in listed.items()}
            config[field] = {name: ids for name, ids in moved.items() if ids} or None
        else:
            config[field] = [*self._moved(listed).values()] or None
        return config

    def _moved(self, ids: list[int]) -> dict[int, int]:
        """The new ids of those that have a row in the new vocabulary, by their place in the list."""
        rows = self.tables.vocabulary.rows
        require_ids(ids, rows)
        moved = self.tables.renumbering.moved
        return {place: moved[token_id] for place, token_id in enumerate(ids) if token_id in moved}

    def _kept(self, part: Part) -> Ids:
        """The old row of each new one, or -1; of trainable tokens, the rows that stay."""
        if not part.is_delta:
            return self.tables.copies
        return np.array([*self._moved(ids_of(part, self.config))], np.int64)


def _is_copied(path: Path) -> bool:
    # A card names the old model as the base.
    return not (is_old(path) or path.name in (*CONFIGS, CARD))


def _old_tokenizer(folder: Path, config: Mapping[str, Any], base: Tokenizer | None) -> Tokenizer:
    """The tokenizer that an adapter was trained with: given, or that of its folder. Two must have the same ids."""
    own = None
    with suppress(SourceNotFoundError):
        own = load_folder(folder)
    if own and base and own.ids != base.ids:
        raise CheckpointError(
            f"the tokenizer in `{folder}` has another vocabulary than {option('base')}",
            hint=f"leave out {option('base')}, or pass the tokenizer that the adapter was trained with",
        )
    tokenizer = base or own
    if tokenizer is None:
        raise CheckpointError(
            f"`{folder}` has no tokenizer, so the old vocabulary is not known",
            hint=f"pass the tokenizer of its base (`{config.get('base_model_name_or_path')}`): "
            f"{option('base', 'TOKENIZER')}",
        )
    return tokenizer


def _plan(old: Tokenizer, new: Tokenizer, parts: Mapping[str, Part], vocabulary: Vocabulary) -> tuple[VocabPlan, int]:
    """The plan, and the rows of the old tables: as tensors say, else those of the model if tokens need as many."""
    changes = plan(old, new)
    sizes = sorted({part.rows for part in parts.values() if part.rows is not None})
    if len(sizes) > 1:
        raise does_not_fit(f"its tables are for {' and '.join(f'{n:,}' for n in sizes)} tokens")
    alike = changes.rows_before == changes.rows_after
    rows = sizes[0] if sizes else vocabulary.rows if alike else changes.rows_before
    changes = plan_of_rows(changes, old, rows, {})
    if changes.rows_after > vocabulary.rows:
        raise does_not_fit(f"the model has {vocabulary.rows:,} rows, and tokens need {changes.rows_after:,}")
    return changes, rows


def _with_inits(options: TransplantOptions, model: Path, *, tied: bool) -> tuple[TransplantOptions, tuple[str, ...]]:
    """The options with the initialisers that the model was transplanted with, and warnings.

    Refuses others than these, and initialisers by which the change of a new token's row is not known.
    """
    used = [recorded(model, "transplant", "init", role) for role in ("input", "output")]
    is_known, warnings = all(isinstance(init, str) for init in used), tuple[str, ...]()
    if not is_known and options.init is None:
        warnings = (
            f"`{model}` has no `{REPORT}`, or it does not say with which initialiser the model was transplanted: the "
            f"rows of new tokens are made with {options.inits[0]}; pass --init if the model has others",
        )
    elif is_known:
        asked = [options.init or used[0], options.output_init or options.init or used[1]]
        if asked[: 1 if tied else 2] != used[: 1 if tied else 2]:
            asked_names, names = (" and ".join(dict.fromkeys(map(init_name, inits))) for inits in (asked, used))
            raise OptionError(
                f"the model was transplanted with the initialiser {names}, and {asked_names} was asked for: rows of "
                "new tokens in the adapter are changes of those of the model",
                hint=f"leave out {option('init')} and {option('output_init')}: those of the model are used",
            )
        options = replace(options, init=used[0], output_init=None if used[0] == used[1] else used[1])
    if not all(init in _LINEAR for init in options.inits):
        raise OptionError(
            f"the initialiser for new rows of an adapter must be one of {', '.join(_LINEAR)}, not "
            f"{init_name(options.inits[0])}: its rows are changes of those of the model",
            hint=f"transplant the model with another {option('init')}, or {MERGE}",
        )
    return options, warnings
