"""`transplant`: gives a checkpoint the vocabulary of another tokenizer, file by file, without loading the model.

Only tensors with a vocabulary axis are read and written, a block of rows at a time. All other bytes are copied.
"""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.compare_files import compare_models, require_torch
from tokengraft.checkpoint.gguf.file import is_gguf
from tokengraft.checkpoint.gguf.transplant import transplant_gguf
from tokengraft.checkpoint.ids import GENERATION, Renumbering, id_fields, model_configs, read_config
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
    used_by_configs,
    with_suppressed,
    written_before,
)
from tokengraft.checkpoint.other_tables import require_fixed_ids
from tokengraft.checkpoint.padding import PadMultiple, padded_rows, plan_of_rows
from tokengraft.checkpoint.peft.new_rows import adapter_tables, changed_rows, write_new_rows
from tokengraft.checkpoint.peft.transplant import AdapterJob, is_adapter
from tokengraft.checkpoint.result import Transplant, describe
from tokengraft.checkpoint.rows import (
    DEFAULT_HOLE_ROWS,
    HoleRows,
    Init,
    init_name,
    require_untied,
    unused_rows,
)
from tokengraft.checkpoint.sentence_modules import require_transformer_here
from tokengraft.checkpoint.table import NewTables, RowOptions, initializer_range, write_weights
from tokengraft.errors import CheckpointError, OptionError, Progress, require_type
from tokengraft.formats.sources import load, load_folder
from tokengraft.output.atomic import Replaceable, new_folder, require_distinct, require_new, write_files
from tokengraft.progress import stage
from tokengraft.tokenizer.numbered import require_unbroken
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import plan

_MARIAN = "source.spm"


@stage("transplanting the checkpoint")
def transplant(
    checkpoint: str | os.PathLike[str],
    new_tokenizer: Tokenizer | str | os.PathLike[str] | Any,
    out: str | os.PathLike[str] | None,
    *,
    base: Tokenizer | str | os.PathLike[str] | Any | None = None,
    init: Init | None = None,
    output_init: Init | None = None,
    hole_rows: HoleRows | None = None,
    pad_multiple: PadMultiple = "keep",
    hard_link: bool = False,
    seed: int = 0,
    force: bool = False,
    verify: bool = False,
    as_adapter: bool = False,
    others: Mapping[str, bytes] | None = None,
    request: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Transplant:
    """Gives a checkpoint the vocabulary of another tokenizer, without loading the model.

    Kept rows are copied bit for bit. New rows are computed from the rows of the tokens that the old tokenizer splits
    them into. Every config that names a token id is rewritten. The result is written beside the target, compared with
    the source, and then renamed into place.

    Args:
        checkpoint: A folder with `config.json`, safetensors files and the old tokenizer; a GGUF file, which needs the
            `gguf` package; or an adapter of PEFT that was trained on the old vocabulary. It is not changed.
        new_tokenizer: The new tokenizer, or whatever `load` reads. For an adapter, the folder of the new model.
        out: The folder to write, or for a GGUF file the file. None is a dry run: nothing is written.
        base: For a GGUF file or an adapter: its old tokenizer, which is compared with the one that it has itself.
        init: Initialiser for new embedding rows: `fvt-rare`, `fvt`, `length-weighted`, `mean`, `random`, or a function
            that gets the new tokens with the rows of their pieces (`tokengraft.checkpoint.rows.NewTokens`) and the old
            table (`TableInfo`), and gives an array with a row for each token. By default `fvt-rare`; for an adapter,
            the one that its model was transplanted with.
        output_init: Initialiser for new rows of an untied output; by default ``init``. An error if the output is tied.
        hole_rows: What rows get whose ids have no token: `lowest`, a row that is never the most likely, `zero`, or
            `keep`, the row that they had. By default `lowest`; for a GGUF file with tables in which rows cannot be
            written, `keep`. Except with `keep`, all ids without a token are listed as suppressed in the generation
            config, padding included.
        pad_multiple: Make the number of rows a multiple of this. `keep` keeps the current padding.
        hard_link: Hard-link unchanged files to the source. Writing to them in place then changes both. Not for GGUF.
        seed: Seed for random initialisers, and for functions.
        force: Replace a folder that an earlier transplant wrote; for a GGUF file, any file.
        verify: Run both models and compare their logits before the result is renamed into place. Needs torch. Not for
            GGUF.
        as_adapter: Write an adapter of PEFT with the changed rows, and the tokenizer, instead of a model. Only if the
            number of rows does not change, as in a swap. With the model of ``checkpoint`` it is the new model.
        others: Additional files for the folder, by name. They replace files of the source with the same name.
        request: What `tokengraft.json` records as the request; by default the options and inputs of this call.
        progress: Called with the bytes written.

    Raises:
        SourceNotFoundError: The folder is not a checkpoint.
        CheckpointError: The checkpoint is damaged, its architecture is not supported, or the models differ.
        OptionError: An option has an invalid value or no effect, or torch or gguf is not installed.
        OutputError: The folder exists or cannot be written.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> done = tg.transplant("model", new, "adapted")
        >>> done.rows_before, done.rows_after
        (397, 413)
    """
    require_type("checkpoint", checkpoint, str, os.PathLike)
    options = RowOptions(init, output_init, hole_rows, pad_multiple, seed)
    if verify and out is None:
        raise OptionError(
            "--verify runs the new model, but a dry run does not write one", hint="leave out one of the two"
        )
    if out is not None:
        require_new(Path(out), force=force)
        paths = [tokenizer for tokenizer in (new_tokenizer, base) if isinstance(tokenizer, str | os.PathLike)]
        require_distinct([checkpoint, *paths], out)
    folder = Path(checkpoint)
    if is_gguf(folder):
        given = {"--hard-link": hard_link, "--verify": verify, "--as-adapter": as_adapter, "others": others}
        _require_absent(given, "a GGUF file")
        new, known = _loaded(new_tokenizer), None if base is None else _loaded(base)
        target = None if out is None else Path(out)
        return transplant_gguf(folder, new, target, base=known, options=options, force=force, progress=progress)
    if is_adapter(folder):
        given = {"--hard-link": hard_link, "--verify": verify, "--as-adapter": as_adapter, "others": others}
        _require_absent(given | {"--pad-multiple": pad_multiple != "keep"}, "an adapter")
        adapter = AdapterJob.prepare(folder, new_tokenizer, None if base is None else _loaded(base), options)
        return _transplant_adapter(adapter, out, force=force)
    if base is not None:
        raise OptionError(
            "--base applies to GGUF files and adapters; a folder has its own tokenizer", hint="leave out --base"
        )
    if as_adapter:
        _require_absent({"--hard-link": hard_link, "--verify": verify}, "an adapter (--as-adapter)")
    if verify:
        require_torch()
    job = _prepare(folder, new_tokenizer, options)
    job = job.for_adapter() if as_adapter else job
    done = job.describe()
    if out is None:
        return done
    with new_folder(Path(out), replaceable=_replaceable(Path(out)) if force else None) as partial:
        if as_adapter:
            compared = write_new_rows(job.source, job.tables, os.fspath(checkpoint), partial)
        else:
            compared = write_weights(job.source, job.tables, partial, hard_link, progress)
        done = replace(done, compared=compared)
        job.write_files(others or {}, partial)
        if verify:
            done = replace(done, behaviour=compare_models(folder, partial, done.plan))
        if CARD not in (others or {}):
            (partial / CARD).write_bytes(job.card(done, new_tokenizer, as_adapter=as_adapter))
        job.write_report(done, request or job.request(hard_link=hard_link), partial)
    return done


def _transplant_adapter(job: AdapterJob, out: str | os.PathLike[str] | None, *, force: bool) -> Transplant:
    done = job.describe()
    if out is None:
        return done
    with new_folder(Path(out), replaceable=_replaceable(Path(out)) if force else None) as partial:
        done = replace(done, compared=job.write(partial))
        _write_report(job.report(done), partial)
    return done


def _replaceable(out: Path) -> Replaceable:
    """A test whether an earlier transplant wrote a file."""
    ours = written_before(out)
    return lambda path: path.as_posix() in ours


def _write_report(report: Mapping[str, Any], folder: Path) -> None:
    """Writes `tokengraft.json`, with the names of all files in the folder."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    text = json.dumps({**report, "files": files}, ensure_ascii=False, indent=2) + "\n"
    # A name that is not UTF-8 has surrogates, and this is how JSON escapes them.
    (folder / REPORT).write_text(text, encoding="utf-8", errors="backslashreplace")


def _require_absent(options: Mapping[str, Any], what: str) -> None:
    for flag, given in options.items():
        if given:
            raise OptionError(f"{flag} does not apply to {what}", hint=f"leave out {flag}")


def _loaded(tokenizer: Tokenizer | Any) -> Tokenizer:
    return tokenizer if isinstance(tokenizer, Tokenizer) else load(tokenizer)


@dataclass(frozen=True)
class _Job:
    """Everything that is decided before a byte is written."""

    source: Checkpoint
    old: Tokenizer
    new: Tokenizer
    files: ModelFiles
    tables: NewTables
    adapter_rows: tuple[int, ...] | None = None
    """The rows of an adapter; None for a whole model."""

    def for_adapter(self) -> "_Job":
        """The job that writes an adapter: of all files, only those of the tokenizer, and ids that are suppressed."""
        adapter_tables(self.source, self.tables)
        names = (*self.files.tokenizer, *([GENERATION] if self.tables.unused.suppressed else []))
        written = {name: self.files.written[name] for name in names}
        files = replace(self.files, written=written, copied=(), left_out=())
        return replace(self, files=files, adapter_rows=tuple(changed_rows(self.tables).tolist()))

    def describe(self) -> Transplant:
        if self.adapter_rows is not None:
            return replace(describe(self.tables), adapter_rows=self.adapter_rows, warnings=tuple(self._suppressed()))
        changed = {tensor.file.path.name for tensor in self.tables.vocabulary.tensors}
        copied = tuple(file.path.name for file in self.source.files if file.path.name not in changed)
        files, rows = self.files, self.tables.vocabulary.rows
        done = replace(describe(self.tables), copied=copied, carried=files.carried, left_out=files.left_out)
        if lacking := [token.content for token in self.old.added if token.id >= rows]:
            names = ", ".join(f"`{name}`" for name in lacking[:3])
            warning = f"the model has no row for {len(lacking):,} of its added tokens, and cannot use them: {names}"
            done = replace(done, warnings=(*done.warnings, warning))
        return replace(done, warnings=(*done.warnings, *self._stale()))

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

    def _suppressed(self) -> Iterator[str]:
        if n := len(self.tables.unused.suppressed):
            yield (
                f"{n:,} ids without a token are suppressed in `{GENERATION}` of the adapter, which PEFT does not load; "
                "pass it to `generate`: `generation_config=GenerationConfig.from_pretrained(FOLDER)`"
            )

    def write_files(self, others: Mapping[str, bytes], folder: Path) -> None:
        """Writes every file without weights. ``others`` are written last and replace files of the same name."""
        for name in self.files.copied:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.source.folder / name, folder / name)
        write_files({**self.files.written, **others}, folder)

    def card(self, done: Transplant, given: object, *, as_adapter: bool) -> bytes:
        """The model card of a result; ``given`` is what was passed as the new tokenizer."""
        options, words = self.tables.options, ["tokengraft", "transplant", base_name(self.source.folder)]
        words.append(os.fspath(given) if isinstance(given, str | os.PathLike) else "NEW_TOKENIZER")
        for name, default in vars(RowOptions()).items():
            if (value := getattr(options, name)) != default:
                words += [f"--{name.replace('_', '-')}", str(value)]
        made = public_command([*words, *["--as-adapter"] * as_adapter, "--out", "transplanted"])
        if any(map(callable, (options.init, options.output_init))):
            made = "With `tokengraft.transplant` in Python, and a function as initialiser."
        facts = CardFacts(made_by(made, REPORT), _measured(done), is_adapter=as_adapter)
        return model_card(self.source.folder, done.plan, done, facts)

    def request(self, *, hard_link: bool) -> dict[str, Any]:
        """What was asked for, for `tokengraft.json`."""
        options, size = self.tables.options, sum(file.path.stat().st_size for file in self.source.files)
        return {
            "step": "transplant",
            "versions": {"tokengraft": _core.__version__},
            "options": {
                "init": init_name(options.inits[0]),
                "output_init": init_name(options.output_init) if options.output_init else None,
                "hole_rows": options.hole_rows,
                "pad_multiple": options.pad_multiple,
                "hard_link": hard_link,
                "seed": options.seed,
            },
            "inputs": [
                {"role": "model", "name": self.source.folder.name, "bytes": size, "sha256": self.old.content_hash},
                {"role": "tokenizer", "name": self.new.main, "sha256": self.new.content_hash},
            ],
        }

    def write_report(self, done: Transplant, request: Mapping[str, Any], folder: Path) -> None:
        """Writes `tokengraft.json`."""
        written = self.files.written
        report: dict[str, Any] = {
            "tokengraft": _core.__version__,
            "source": self.source.folder.name,
            "source_config_sha256": sha256((self.source.folder / "config.json").read_bytes()).hexdigest(),
            "tokenizer_sha256": {name: sha256(written[name]).hexdigest() for name in sorted(self.files.tokenizer)},
            "seed": self.tables.options.seed,
            "request": dict(request),
            "files": [],
            "transplant": done.as_dict(),
            "new_ids": [row for row, source in enumerate(done.plan.sources) if isinstance(source, tuple)],
        }
        _write_report(report, folder)


def _measured(done: Transplant) -> str:
    """What a transplant alone measures."""
    missing = "Not measured: the bytes per token of any text, and the model itself (bits per byte, downstream tasks)."
    if not done.behaviour:
        return missing
    worst = f"{done.behaviour.worst:.1e}"
    return f"Logits of kept tokens differ from those of the source by at most {worst} of the largest.\n\n{missing}"


def _require_ids_of_files(source: Checkpoint) -> None:
    """Refuses a tokenizer of Marian: two SentencePiece models, and a list that gives their pieces ids."""
    if (source.folder / _MARIAN).exists():
        raise CheckpointError(
            f"`{source.folder}` has a tokenizer of Marian (`{_MARIAN}`): a text is split by one model for its source "
            "language or one for its target, and a piece without an id in `vocab.json` is unknown. It is not supported",
            hint="pass a model with a single tokenizer, as a `tokenizer.json`",
        )


def _prepare(folder: Path, new_tokenizer: Tokenizer | Any, options: RowOptions) -> _Job:
    require_no_adapter(folder)
    require_transformer_here(folder)
    source = open_checkpoint(folder)
    vocabulary = find_vocabulary(source)
    require_untied(options.output_init, tied=vocabulary.tied)
    _require_ids_of_files(source)
    old, new = load_folder(folder), _loaded(new_tokenizer)
    require_unbroken(new, old)
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
    return _Job(source, old, new, with_suppressed(files, unused.suppressed), tables)
