"""`transplant`: gives a checkpoint the vocabulary of another tokenizer, file by file, without loading the model.

Only tensors with a vocabulary axis are read and written, a block of rows at a time. All other bytes are copied.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.compare_files import compare_models, require_torch
from tokengraft.checkpoint.gguf.file import is_gguf
from tokengraft.checkpoint.gguf.transplant import transplant_gguf
from tokengraft.checkpoint.ids import Renumbering, id_fields, model_configs
from tokengraft.checkpoint.layout import Checkpoint, find_vocabulary, generates, open_checkpoint, require_no_adapter
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
from tokengraft.checkpoint.padding import PadMultiple, padded_rows
from tokengraft.checkpoint.result import Transplant, describe
from tokengraft.checkpoint.rows import (
    DEFAULT,
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
from tokengraft.output.atomic import new_folder, require_distinct, require_new, write_files
from tokengraft.progress import stage
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import VocabPlan, plan

_MARIAN = "source.spm"


@stage("transplanting the checkpoint")
def transplant(
    checkpoint: str | os.PathLike[str],
    new_tokenizer: Tokenizer | str | os.PathLike[str] | Any,
    out: str | os.PathLike[str] | None,
    *,
    base: Tokenizer | str | os.PathLike[str] | Any | None = None,
    init: Init = DEFAULT,
    output_init: Init | None = None,
    hole_rows: HoleRows | None = None,
    pad_multiple: PadMultiple = "keep",
    hard_link: bool = False,
    seed: int = 0,
    force: bool = False,
    verify: bool = False,
    others: Mapping[str, bytes] | None = None,
    request: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Transplant:
    """Gives a checkpoint the vocabulary of another tokenizer, without loading the model.

    Kept rows are copied bit for bit. New rows are computed from the rows of the tokens that the old tokenizer splits
    them into. Every config that names a token id is rewritten. The result is written beside the target, compared with
    the source, and then renamed into place.

    Args:
        checkpoint: A folder with `config.json`, safetensors files and the old tokenizer; or a GGUF file, which needs
            the `gguf` package. It is not changed.
        new_tokenizer: The new tokenizer, or whatever `load` reads.
        out: The folder to write, or for a GGUF file the file. None is a dry run: nothing is written.
        base: For a GGUF file: the tokenizer that it was converted with, which is then compared with that of the file.
        init: Initialiser for new embedding rows: `fvt`, `length-weighted`, `mean`, `random`, or a function that gets
            the new tokens with the rows of their pieces (`tokengraft.checkpoint.rows.NewTokens`) and the old table
            (`TableInfo`), and gives an array with a row for each token.
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
    if verify:
        _require_verifiable(dry=out is None)
    if out is not None:
        require_new(Path(out), force=force)
        paths = [tokenizer for tokenizer in (new_tokenizer, base) if isinstance(tokenizer, str | os.PathLike)]
        require_distinct([checkpoint, *paths], out)
    folder = Path(checkpoint)
    if is_gguf(folder):
        for given, flag in ((hard_link, "--hard-link"), (verify, "--verify"), (others, "others")):
            if given:
                raise OptionError(f"{flag} does not apply to a GGUF file", hint=f"leave out {flag}")
        new, known = _loaded(new_tokenizer), None if base is None else _loaded(base)
        target = None if out is None else Path(out)
        return transplant_gguf(folder, new, target, base=known, options=options, force=force, progress=progress)
    if base is not None:
        raise OptionError("--base applies to GGUF files; a folder has its own tokenizer", hint="leave out --base")
    job = _prepare(folder, new_tokenizer, options)
    done = job.describe()
    if out is None:
        return done
    ours = written_before(Path(out)) if force else set()
    with new_folder(Path(out), replaceable=(lambda path: path.as_posix() in ours) if force else None) as partial:
        done = replace(done, compared=write_weights(job.source, job.tables, partial, hard_link, progress))
        job.write_files(others or {}, partial)
        if verify:
            done = replace(done, behaviour=compare_models(folder, partial, done.plan))
        if CARD not in (others or {}):
            (partial / CARD).write_bytes(job.card(done, new_tokenizer))
        job.write_report(done, request or job.request(hard_link=hard_link), partial)
    return done


def _require_verifiable(*, dry: bool) -> None:
    if dry:
        raise OptionError(
            "--verify runs the new model, but a dry run does not write one", hint="leave out one of the two"
        )
    require_torch()


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

    def describe(self) -> Transplant:
        changed = {tensor.file.path.name for tensor in self.tables.vocabulary.tensors}
        copied = tuple(file.path.name for file in self.source.files if file.path.name not in changed)
        files, rows = self.files, self.tables.vocabulary.rows
        done = replace(describe(self.tables), copied=copied, carried=files.carried, left_out=files.left_out)
        if lacking := [token.content for token in self.old.added if token.id >= rows]:
            names = ", ".join(f"`{name}`" for name in lacking[:3])
            warning = f"the model has no row for {len(lacking):,} of its added tokens, and cannot use them: {names}"
            done = replace(done, warnings=(*done.warnings, warning))
        return done

    def write_files(self, others: Mapping[str, bytes], folder: Path) -> None:
        """Writes every file without weights. ``others`` are written last and replace files of the same name."""
        for name in self.files.copied:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.source.folder / name, folder / name)
        write_files({**self.files.written, **others}, folder)

    def card(self, done: Transplant, given: object) -> bytes:
        """The model card of a result; ``given`` is what was passed as the new tokenizer."""
        options, words = self.tables.options, ["tokengraft", "transplant", base_name(self.source.folder)]
        words.append(os.fspath(given) if isinstance(given, str | os.PathLike) else "NEW_TOKENIZER")
        for name, default in vars(RowOptions()).items():
            if (value := getattr(options, name)) != default:
                words += [f"--{name.replace('_', '-')}", str(value)]
        made = public_command([*words, "--out", "transplanted"])
        if any(map(callable, (options.init, options.output_init))):
            made = "With `tokengraft.transplant` in Python, and a function as initialiser."
        return model_card(self.source.folder, done.plan, done, CardFacts(made_by(made, REPORT), _measured(done)))

    def request(self, *, hard_link: bool) -> dict[str, Any]:
        """What was asked for, for `tokengraft.json`."""
        options, size = self.tables.options, sum(file.path.stat().st_size for file in self.source.files)
        return {
            "step": "transplant",
            "versions": {"tokengraft": _core.__version__},
            "options": {
                "init": init_name(options.init),
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
        report = {
            "tokengraft": _core.__version__,
            "source": self.source.folder.name,
            "source_config_sha256": sha256((self.source.folder / "config.json").read_bytes()).hexdigest(),
            "tokenizer_sha256": {name: sha256(written[name]).hexdigest() for name in sorted(self.files.tokenizer)},
            "seed": self.tables.options.seed,
            "request": dict(request),
            "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()),
            "transplant": done.as_dict(),
        }
        text = json.dumps(report, ensure_ascii=False, indent=2) + "\n"
        # A name that is not UTF-8 has surrogates, and this is how JSON escapes them.
        (folder / REPORT).write_text(text, encoding="utf-8", errors="backslashreplace")


def _measured(done: Transplant) -> str:
    """What a transplant alone measures."""
    missing = "Not measured: the bytes per token of any text, and the model itself (bits per byte, downstream tasks)."
    if not done.behaviour:
        return missing
    worst = f"{done.behaviour.worst:.1e}"
    return f"Logits of kept tokens differ from those of the source by at most {worst} of the largest.\n\n{missing}"


def plan_of_rows(changes: VocabPlan, old: Tokenizer, rows: int, configs: Mapping[str, Any]) -> VocabPlan:
    """The plan for a table that may lack rows for the last added tokens of its tokenizer.

    Gemma-3's models for text lack the row of `<image_soft_token>`. Such a token has a hole in the new table, whose row
    is never generated, or again no row if the number of ids does not change.

    Raises:
        CheckpointError: Another token lacks a row, or one that is used: by a config, or as a part of a new token.
    """
    if changes.rows_before <= rows:
        return changes
    lacking = {token_id for token_id in old.ids.values() if token_id >= rows}
    if not lacking.issubset(token.id for token in old.added):
        raise CheckpointError(
            f"the embedding has {rows:,} rows and the tokenizer in its folder needs {changes.rows_before:,}",
            hint="pass the folder with the tokenizer that the model was trained with",
        )
    used = {i: f"`{field}` of `{name}`" for name, config in configs.items() for field, i in id_fields(config)}
    used |= {i: "a new token" for source in changes.sources if isinstance(source, tuple) for i in source}
    for token_id in sorted(lacking & used.keys()):
        raise CheckpointError(
            f"the embedding has {rows:,} rows, and {used[token_id]} needs that of {token_id:,}",
            hint="give the model a row for every token first: `resize_token_embeddings` in transformers",
        )
    sources = tuple(None if isinstance(source, int) and source >= rows else source for source in changes.sources)
    if changes.rows_after == changes.rows_before and not any(source is not None for source in sources[rows:]):
        sources = sources[:rows]
    removed = tuple(token_id for token_id in changes.removed if token_id < rows)
    return replace(changes, rows_before=rows, sources=sources, removed=removed, lengths=changes.lengths[:rows])


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
    tables = NewTables(vocabulary, changes, rows, options, unused, initializer_range(source.text_config))
    return _Job(source, old, new, with_suppressed(files, unused.suppressed), tables)
