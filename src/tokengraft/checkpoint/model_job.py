"""`ModelJob`: gives the folder of a model the vocabulary of another tokenizer, and writes it as a folder."""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

from tokengraft import _core
from tokengraft.checkpoint.compare_files import ByteComparison, compare_models
from tokengraft.checkpoint.ids import CONFIG, Renumbering, id_fields, model_configs, read_config
from tokengraft.checkpoint.layout import (
    Checkpoint,
    find_vocabulary,
    generates,
    open_checkpoint,
    predicts_tokens,
    require_no_adapter,
)
from tokengraft.checkpoint.model_card import CardFacts, base_name, made_by, model_card, public_command
from tokengraft.checkpoint.model_files import (
    CARD,
    REPORT,
    ModelFiles,
    model_files,
    require_transformer_here,
    used_by_configs,
    with_suppressed,
    written_before,
)
from tokengraft.checkpoint.other_tables import require_fixed_ids
from tokengraft.checkpoint.padding import padded_rows, plan_of_rows, repaired
from tokengraft.checkpoint.result import Transplant, describe, write_report
from tokengraft.checkpoint.rows import DEFAULT_HOLE_ROWS, init_name, require_untied, unused_rows
from tokengraft.checkpoint.table import NewTables, TransplantOptions, initializer_range, write_weights
from tokengraft.errors import CheckpointError, OptionError
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
        require_untied(options.output_init, tied=vocabulary.tied)
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
        rows = padded_rows(changes.rows_before, changes.rows_after, vocabulary.rows, options.pad_multiple)
        renumbering = Renumbering(changes, (vocabulary.rows, rows))
        require_fixed_ids(vocabulary.shorter, source.config, renumbering)
        files = model_files(source, vocabulary, (old, new), renumbering)
        unused = unused_rows(changes, renumbering.rows, options.hole_rows or DEFAULT_HOLE_ROWS, used_by_configs(files))
        if not generates(source.config):
            unused = replace(unused, suppressed=frozenset())
        spread, has_output = initializer_range(source.text_config), predicts_tokens(source.config)
        tables = NewTables(vocabulary, changes, rows, options, unused, spread, has_output)
        given = os.fspath(new_tokenizer) if isinstance(new_tokenizer, str | os.PathLike) else "NEW_TOKENIZER"
        names = os.fspath(checkpoint), given
        return cls(names, source, old, new, with_suppressed(files, unused.suppressed), tables)

    def describe(self) -> Transplant:
        """The result before anything is written."""
        changed = {tensor.file.path.name for tensor in self.tables.vocabulary.tensors}
        copied = tuple(file.path.name for file in self.source.files if file.path.name not in changed)
        warnings = [*self._stale()]
        new = {self.new.strings[i] for i, source in enumerate(self.tables.plan.sources) if isinstance(source, tuple)}
        added = [token for token in self.old.added if token.content not in new]  # a repair gives them rows
        if lacking := [token.content for token in added if token.id >= self.tables.vocabulary.rows]:
            names = ", ".join(f"`{name}`" for name in lacking[:3])
            warning = f"the model has no row for {len(lacking):,} of its added tokens, and cannot use them: {names}"
            warnings.insert(0, warning)
        return replace(
            describe(self.tables),
            copied=copied,
            carried=self.files.carried,
            left_out=self.files.left_out,
            warnings=tuple(warnings),
        )

    def _stale(self) -> Iterator[str]:
        """Warnings of other files that name ids which have changed: what they are for is not known."""
        moved = Renumbering(self.tables.plan, (self.tables.vocabulary.rows, self.tables.rows)).moved
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
            new_ids = [row for row, source in enumerate(done.plan.sources) if isinstance(source, tuple)]
            write_report(done, self.source.folder / CONFIG, facts, partial, {"new_ids": new_ids})
        return done

    def write_weights(self, folder: Path) -> ByteComparison:
        """Writes the weight files, and compares them with those of the source."""
        options = self.tables.options
        return write_weights(self.source, self.tables, folder, options.hard_link, options.progress)

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
        return {
            "step": "transplant",
            "versions": {"tokengraft": _core.__version__},
            "options": {
                "init": init_name(options.inits[0]),
                "output_init": init_name(options.output_init) if options.output_init else None,
                "hole_rows": options.hole_rows,
                "pad_multiple": options.pad_multiple,
                "hard_link": options.hard_link,
                "seed": options.seed,
            },
            "inputs": [
                {"role": "model", "name": self.source.folder.name, "bytes": size, "sha256": self.old.content_hash},
                {"role": "tokenizer", "name": self.new.main, "sha256": self.new.content_hash},
            ],
        }
