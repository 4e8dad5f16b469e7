"""`ModelJob`: gives the folder of a model the vocabulary of another tokenizer, and writes it as a folder.

`NewRowsJob` writes an adapter of PEFT with the changed rows instead, for a model whose shapes do not change. PEFT's
`trainable_token_indices` replaces rows of the embedding, and of an untied output. It does not add to them, so an
adapter with the bytes of the new rows makes the base the adapted model exactly.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tokengraft.checkpoint.adapter import ADAPTER_CONFIG, ADAPTER_WEIGHTS, PREFIX
from tokengraft.checkpoint.folder import (
    Checkpoint,
    architecture,
    generates,
    initializer_range,
    open_checkpoint,
    predicts_tokens,
    require_no_adapter,
)
from tokengraft.checkpoint.ids import CONFIG, GENERATION, id_fields, model_configs, read_config
from tokengraft.checkpoint.in_memory import compare_models
from tokengraft.checkpoint.layout import VocabTensor, find_vocabulary, module_path, require_fixed_ids
from tokengraft.checkpoint.model_card import CardFacts, base_name, made_by, model_card, public_command
from tokengraft.checkpoint.model_files import (
    CARD,
    REPORT,
    ModelFiles,
    model_files,
    require_transformer_here,
    untrained_rows,
    used_by_configs,
    with_suppressed,
    written_before,
)
from tokengraft.checkpoint.result import (
    ByteComparison,
    Transplant,
    describe,
    not_finite,
    request_of,
    write_report,
    write_weights,
)
from tokengraft.checkpoint.rows import init_name, unused_rows
from tokengraft.checkpoint.table import (
    NewTables,
    TransplantOptions,
    plan_of_rows,
    renumbering_of,
    repaired,
)
from tokengraft.checkpoint.tensors import Ids, Tensor, TensorFile, all_finite, write_tensors
from tokengraft.errors import CheckpointError, OptionError, option, require
from tokengraft.formats.sources import load, load_folder
from tokengraft.output.atomic import new_folder, write_files
from tokengraft.tokenizer.known_tokens import require_unbroken
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import plan

_MARIAN = "source.spm"
_NOT_MEASURED = "Not measured: the bytes per token of any text, and the model itself (bits per byte, downstream tasks)."


@dataclass(frozen=True)
class ModelJob:
    """Everything that is decided before a byte is written."""

    names: tuple[str, str]
    """The model and the new tokenizer, as they were given."""
    source: Checkpoint
    old: Tokenizer
    new: Tokenizer
    files: ModelFiles
    tables: NewTables
    is_adapter: ClassVar[bool] = False

    @classmethod
    def prepare(
        cls, checkpoint: str | os.PathLike[str], new_tokenizer: Tokenizer | Any, options: TransplantOptions
    ) -> Self:
        """The job for the folder of a model and a tokenizer, after refusing what cannot be done."""
        folder = Path(checkpoint)
        require_no_adapter(folder)
        require_transformer_here(folder)
        source = open_checkpoint(folder)
        vocabulary = find_vocabulary(source)
        if (folder / _MARIAN).exists():
            raise CheckpointError(
                f"`{folder}` has a tokenizer of Marian (`{_MARIAN}`): a text is split by one model for its source "
                "language or one for its target, and a piece without an id in `vocab.json` is unknown. It is not "
                "supported",
                hint="pass a model with a single tokenizer, as a `tokenizer.json`",
            )
        old = load_folder(folder)
        new = new_tokenizer if isinstance(new_tokenizer, Tokenizer) else load(new_tokenizer)
        require_unbroken(new, old)
        is_own = isinstance(new_tokenizer, str | os.PathLike) and Path(new_tokenizer).resolve() == folder.resolve()
        if is_own and old.n_rows > vocabulary.rows:
            changes = repaired(plan(old, new), old, vocabulary.rows)
        else:
            changes = plan_of_rows(plan(old, new), old, vocabulary.rows, model_configs(folder))
        if options.hole_rows == "keep" and old.n_rows > vocabulary.rows:
            raise OptionError(
                "`hole_rows` is `keep`, and the model has no rows for some of its added tokens, which could get others",
                hint="leave it out: these tokens get a row that is never chosen",
            )
        renumbering = renumbering_of(changes, vocabulary.rows, options.pad_multiple)
        require_fixed_ids(vocabulary.shorter, source.config, renumbering)
        files = model_files(source, vocabulary, (old, new), renumbering)
        unused = unused_rows(renumbering, options.hole_rows, used_by_configs(files))
        if not generates(source.config):
            unused = replace(unused, suppressed=frozenset())
        spread, has_output = initializer_range(source.text_config), predicts_tokens(source.config)
        tables = NewTables(vocabulary, renumbering, options, unused, spread, has_output)
        given = os.fspath(new_tokenizer) if isinstance(new_tokenizer, str | os.PathLike) else "NEW_TOKENIZER"
        names = os.fspath(checkpoint), given
        return cls(names, source, old, new, with_suppressed(files, unused.suppressed), tables)

    def describe(self) -> Transplant:
        """The result before anything is written."""
        changed = {tensor.path.name for tensor in self.tables.vocabulary.tensors}
        copied = tuple(file.path.name for file in self.source.files if file.path.name not in changed)
        warnings = [*self._stale()]
        new = {self.new.strings[i] for i, source in enumerate(self.tables.plan.sources) if isinstance(source, tuple)}
        added = [token for token in self.old.added if token.content not in new]  # a repair gives them rows
        if lacking := [token.content for token in added if token.id >= self.tables.vocabulary.rows]:
            names = ", ".join(f"`{name}`" for name in lacking[:3])
            warning = (
                f"the model has no row for {len(lacking):,} of its added tokens, and cannot use them: {names}; if it "
                "should, run `tokengraft transplant MODEL MODEL` first, which gives every token a row"
            )
            warnings.insert(0, warning)
        earlier = untrained_rows(self.source.folder)
        untrained = tuple(row for row, source in enumerate(self.tables.plan.sources) if source in earlier)
        if untrained:
            warnings.append(
                f"{len(untrained):,} rows of the source were added by an earlier adaptation, and its record says of no "
                "training: they count as new, and `tokengraft train` trains them with the new ones"
            )
        return replace(
            describe(self.tables),
            untrained=untrained,
            copied=copied,
            carried=self.files.carried,
            left_out=self.files.left_out,
            warnings=tuple(warnings),
        )

    def _stale(self) -> Iterator[str]:
        """Warnings of other files that name ids which have changed: what they are for is not known."""
        moved = self.tables.renumbering.moved
        for path in (self.source.folder / name for name in self.files.copied if name.endswith(".json")):
            try:
                fields = id_fields(read_config(path))
            except CheckpointError:  # it is not a config
                continue
            if old := [(name, i) for name, i in fields if moved.get(i) != i and 0 <= i < self.tables.vocabulary.rows]:
                (name, token_id), new = old[0], moved.get(old[0][1])
                now = "was removed" if new is None else f"is {new:,} now: correct it"
                yield f"`{path.name}` is copied as it is, and `{name}` in it is {token_id:,}, an id that {now}"

    def write(
        self,
        out: Path,
        *,
        force: bool,
        others: Mapping[str, bytes] | None = None,
        request: Mapping[str, Any] | None = None,
    ) -> Transplant:
        """Writes the folder. ``others`` are further files; they replace files of the source with the same name.

        ``request`` is what `tokengraft.json` records as the request; by default the options and inputs of the job.
        """
        written = {**self.files.written, **(others or {})}
        with new_folder(out, replaceable=written_before(out) if force else None) as partial:
            done = replace(self.describe(), compared=self.write_weights(partial))
            for name in self.files.copied:
                (partial / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(self.source.folder / name, partial / name)
            write_files(written, partial)
            if self.tables.options.verify:
                done = replace(done, behaviour=compare_models(self.source.folder, partial, done.plan))
            if CARD not in written:
                (partial / CARD).write_bytes(self._card(done))
            hashes = {name: sha256(self.files.written[name]).hexdigest() for name in sorted(self.files.tokenizer)}
            facts = {"tokenizer_sha256": hashes, "seed": self.tables.options.seed}
            facts["request"] = dict(request or self._request())
            new = (row for row, source in enumerate(done.plan.sources) if isinstance(source, tuple))
            new_ids = sorted([*new, *done.untrained])
            write_report(done, self.source.folder / CONFIG, facts, partial, {"new_ids": new_ids})
        return done

    def write_weights(self, folder: Path) -> ByteComparison:
        """Writes the weight files, and compares them with those of the source."""
        return write_weights(self.source, [self.tables], folder)

    def _card(self, done: Transplant) -> bytes:
        options, words = self.tables.options, ["tokengraft", "transplant", base_name(self.source.folder), self.names[1]]
        for name in ("init", "output_init", "hole_rows", "pad_multiple", "seed"):
            if (value := getattr(options, name)) != getattr(TransplantOptions, name):
                words += [f"--{name.replace('_', '-')}", str(value)]
        made = public_command([*words, *["--as-adapter"] * self.is_adapter, "--out", "transplanted"])
        if any(map(callable, (options.init, options.output_init))):
            made = "With `tokengraft.transplant` in Python, and a function as initialiser."
        measured = _NOT_MEASURED
        if done.behaviour:
            worst = f"{done.behaviour.worst:.1e}"
            measured = f"Logits of kept tokens differ from those of the source by at most {worst} of the largest."
            measured += f"\n\n{_NOT_MEASURED}"
        facts = CardFacts(made_by(made, REPORT), measured, is_adapter=self.is_adapter)
        return model_card(self.source.folder, done.plan, done, facts)

    def _request(self) -> dict[str, Any]:
        options, size = self.tables.options, sum(file.path.stat().st_size for file in self.source.files)
        output_init = init_name(options.output_init) if options.output_init else None
        asked = {"init": init_name(options.inits[0]), "output_init": output_init}
        asked |= {name: getattr(options, name) for name in ("hole_rows", "pad_multiple", "hard_link", "seed")}
        inputs = [
            {"role": "model", "name": self.source.folder.name, "bytes": size, "sha256": self.old.content_hash},
            {"role": "tokenizer", "name": self.new.main, "sha256": self.new.content_hash},
        ]
        return request_of("transplant", asked, inputs)


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
        """Writes the config and the weights of the adapter, and reads the weights again."""
        ids, found = self._rows, adapter_tables(self.source, self.tables)
        require(len(ids) > 0, "no row changes, so there is nothing to write to an adapter", "pass another tokenizer")
        written = [
            (replace(tensor.with_rows(len(ids)), name=f"{PREFIX}{path}.{ROWS}"), self.tables.blocks(tensor, ids))
            for path, tensor in found.items()
        ]
        write_tensors(folder / ADAPTER_WEIGHTS, written, {"format": "pt"})
        config = {
            "base_model_name_or_path": self.names[0],
            "inference_mode": True,
            "peft_type": "LORA",
            "target_modules": _NO_LAYERS,
            "task_type": "CAUSAL_LM",
            "trainable_token_indices": {path.rpartition(".")[2]: ids.tolist() for path in found},
        }
        (folder / ADAPTER_CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
        again = TensorFile.open(folder / ADAPTER_WEIGHTS).tensors.values()
        for tensor, new in zip(found.values(), again, strict=True):
            self._require_equal(tensor, new)
        return ByteComparison(new_rows=len(ids) * len(found))

    def _require_equal(self, tensor: VocabTensor, new: Tensor) -> None:
        """Refuses a written table that differs from what was computed, or has numbers that are not finite."""
        at = 0
        with np.errstate(all="ignore"):
            for block in self.tables.blocks(tensor, self._rows):
                again = new.read(np.arange(at, at := at + len(block)))
                if not np.array_equal(again, block):
                    raise CheckpointError(f"rows of `{new.name}` differ from what was written", hint="check the disk")
                if not all_finite(again, new.dtype):
                    raise not_finite(tensor.name)


def adapter_tables(source: Checkpoint, tables: NewTables) -> dict[str, VocabTensor]:
    """The tables whose rows an adapter replaces, by the paths of their modules: of a tied output, the embedding alone.

    Refuses a change of the number of rows, and models in which PEFT would not replace the rows of all tables.
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
            raise _refused(f"the model has the table `{tensor.name}`, whose rows an adapter cannot replace")
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
