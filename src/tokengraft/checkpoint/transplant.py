"""`transplant`: gives a checkpoint the vocabulary of another tokenizer, file by file, without loading the model.

Only tensors with a vocabulary axis are read and written, a block of rows at a time. All other bytes are copied.
"""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.checkpoint.behaviour import compare_models, require_torch
from tokengraft.checkpoint.gguf import GgufOptions, transplant_gguf
from tokengraft.checkpoint.gguf_file import is_gguf
from tokengraft.checkpoint.layout import Checkpoint, Vocabulary, find_vocabulary, open_checkpoint
from tokengraft.checkpoint.model_files import (
    REPORT,
    ModelFiles,
    model_files,
    used_by_configs,
    with_suppressed,
    written_before,
)
from tokengraft.checkpoint.other_tables import require_fixed_ids
from tokengraft.checkpoint.padding import PadMultiple, padded_rows
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import (
    DEFAULT,
    chosen_initialisers,
    require_counts,
    require_initialisers,
    require_untied,
)
from tokengraft.checkpoint.unused import DEFAULT_HOLE_ROWS, HoleRows, require_hole_rows, unused_rows
from tokengraft.checkpoint.weights import CheckpointWriter
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CheckpointError, OptionError, Progress
from tokengraft.formats.files import load_folder
from tokengraft.formats.sources import load
from tokengraft.log import stage
from tokengraft.output.atomic import new_folder, require_distinct, require_new
from tokengraft.plan import VocabPlan, plan
from tokengraft.tokenizer.tokenizer import Tokenizer


@checked
@stage("transplanting the checkpoint")
def transplant(
    checkpoint: str | os.PathLike[str],
    new_tokenizer: Tokenizer | str | os.PathLike[str] | Any,
    out: str | os.PathLike[str] | None,
    *,
    base: Tokenizer | str | os.PathLike[str] | Any | None = None,
    init: str = DEFAULT,
    output_init: str | None = None,
    hole_rows: HoleRows | None = None,
    counts: PretokenCounts | str | os.PathLike[str] | None = None,
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
        init: Initialiser for new embedding rows: `fvt`, `fvt-norm`, `fvt-script-norm`, `length-weighted`, `weighted`,
            `first-piece`, `last-piece`, `context`, `mean`, `mean-cov`, `random`.
        output_init: Initialiser for new rows of an untied output; by default ``init``, but `fvt` if that rescales rows.
            An error if the output is tied.
        hole_rows: What rows get whose ids have no token: `lowest`, a row that is never the most likely, `zero`, or
            `keep`, the row that they had. By default `lowest`; for a GGUF file with tables in which rows cannot be
            written, `keep`. Except with `keep`, the ids are also listed as suppressed in the generation config.
        counts: Counted text, or a file of counts, for the initialiser `context`.
        pad_multiple: Make the number of rows a multiple of this. `keep` keeps the current padding.
        hard_link: Hard-link unchanged files to the source. Writing to them in place then changes both. Not for GGUF.
        seed: Seed for random initialisers.
        force: Replace a folder that an earlier transplant wrote; for a GGUF file, any file.
        verify: Run both models and compare their logits before the result is renamed into place. Needs torch. Not for
            GGUF.
        others: Additional files for the folder, by name. They replace files of the source with the same name.
        request: What `tokengraft.json` records as the request; by default the options and inputs of this call.
        progress: Called with the bytes written.

    Raises:
        SourceNotFoundError: The folder is not a checkpoint.
        CheckpointError: The checkpoint is damaged, its architecture is not supported, or the models differ.
        CountsError: The counts cannot be read, or were made for another pipeline.
        OptionError: An option has an invalid value or no effect, or torch or gguf is not installed.
        OutputError: The folder exists or cannot be written.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> done = tg.transplant("model", new, "adapted")
        >>> done.rows_before, done.rows_after
        (397, 413)
    """
    require_initialisers(init, output_init)
    require_counts(counts is not None, init, output_init)
    if hole_rows is not None:
        require_hole_rows(hole_rows)
    _require_options(seed, verify=verify, dry=out is None)
    if out is not None:
        require_new(Path(out), force=force)
        paths = [tokenizer for tokenizer in (new_tokenizer, base) if isinstance(tokenizer, str | os.PathLike)]
        require_distinct([checkpoint, *paths], out)
    folder = Path(checkpoint)
    if is_gguf(folder):
        _require_folder_options(hard_link=hard_link, verify=verify, others=others)
        return transplant_gguf(
            folder,
            _loaded(new_tokenizer),
            None if out is None else Path(out),
            base=None if base is None else _loaded(base),
            options=GgufOptions(init, output_init, pad_multiple, seed, hole_rows, _counts(counts)),
            force=force,
            progress=progress,
        )
    _refuse_base(base)
    source = open_checkpoint(folder)
    vocabulary = find_vocabulary(source)
    require_untied(output_init, tied=vocabulary.tied)
    old = load_folder(folder)
    new = _loaded(new_tokenizer)
    changes = plan(old, new, counts=_counts(counts))
    _require_rows(changes, vocabulary)
    rows = padded_rows(changes, vocabulary.rows, pad_multiple)
    shorter = [table.info.shape[0] for table in vocabulary.shorter]
    require_fixed_ids(shorter, source.config, changes, (vocabulary.rows, rows))
    files = model_files(source, vocabulary, (old, new), changes, rows)
    sizes, how = (vocabulary.rows, rows), hole_rows or DEFAULT_HOLE_ROWS
    unused = unused_rows(changes, sizes, how, used_by_configs(files))
    files = with_suppressed(files, unused.rows)
    chosen = chosen_initialisers(init, output_init, tied=vocabulary.tied)
    writer = CheckpointWriter(source, vocabulary, changes, rows, chosen, seed, unused)
    done = writer.describe(files)
    if out is None:
        return done
    target = Path(out)
    ours = written_before(target) if force else set()
    with new_folder(target, replaceable=(lambda path: path.as_posix() in ours) if force else None) as partial:
        done = replace(done, compared=writer.write_weights(partial, hard_link, progress))
        _write_files(source, files, others or {}, partial)
        if verify:
            done = replace(done, behaviour=compare_models(folder, partial, changes))
        given = {"init": init, "output_init": output_init, "hole_rows": hole_rows, "pad_multiple": pad_multiple}
        asked = request or _request(source, (old, new), given | {"hard_link": hard_link, "seed": seed})
        _write_report(done, source, files, {"seed": seed, "request": dict(asked)}, partial)
    return done


def _require_options(seed: int, *, verify: bool, dry: bool) -> None:
    if seed < 0:
        raise OptionError(f"--seed is {seed}; it must be 0 or more", hint="pass --seed 0")
    if verify and dry:
        raise OptionError(
            "--verify runs the new model, but --dry-run does not write one", hint="leave out one of the two"
        )
    if verify:
        require_torch()


def _require_folder_options(*, hard_link: bool, verify: bool, others: Mapping[str, bytes] | None) -> None:
    """Refuses options that have no effect on a GGUF file."""
    for given, flag in ((hard_link, "--hard-link"), (verify, "--verify"), (others, "others")):
        if given:
            raise OptionError(f"{flag} does not apply to a GGUF file", hint=f"leave out {flag}")


def _refuse_base(base: object) -> None:
    if base is not None:
        raise OptionError(
            "--base applies to GGUF files; a folder has its own tokenizer", hint="leave out --base (base)"
        )


def _loaded(tokenizer: Tokenizer | Any) -> Tokenizer:
    return tokenizer if isinstance(tokenizer, Tokenizer) else load(tokenizer)


def _counts(counts: PretokenCounts | str | os.PathLike[str] | None) -> PretokenCounts | None:
    return counts if counts is None or isinstance(counts, PretokenCounts) else PretokenCounts.load(counts)


def _require_rows(changes: VocabPlan, vocabulary: Vocabulary) -> None:
    if changes.rows_before > vocabulary.rows:
        raise CheckpointError(
            f"the embedding has {vocabulary.rows:,} rows and the tokenizer in its folder needs {changes.rows_before:,}",
            hint="pass the folder with the tokenizer that the model was trained with",
        )


def _write_files(source: Checkpoint, files: ModelFiles, others: Mapping[str, bytes], folder: Path) -> None:
    """Writes every file without weights. ``others`` are written last and replace files of the same name."""
    for name in files.copied:
        shutil.copyfile(source.folder / name, folder / name)
    for name, data in {**files.written, **others}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _request(source: Checkpoint, tokenizers: tuple[Tokenizer, Tokenizer], options: Mapping[str, Any]) -> dict[str, Any]:
    """What was asked for, for `tokengraft.json`."""
    size = sum(file.path.stat().st_size for file in source.files)
    old, new = tokenizers
    return {
        "step": "transplant",
        "versions": {"tokengraft": _core.__version__},
        "options": options,
        "inputs": [
            {"role": "model", "name": source.folder.name, "bytes": size, "sha256": old.content_hash},
            {"role": "tokenizer", "name": new.main, "sha256": new.content_hash},
        ],
    }


def _write_report(
    done: Transplant, source: Checkpoint, files: ModelFiles, asked: Mapping[str, Any], folder: Path
) -> None:
    hashed = {name: sha256(files.written[name]).hexdigest() for name in sorted(files.tokenizer)}
    report = {
        "tokengraft": _core.__version__,
        "source": source.folder.name,
        "source_config_sha256": sha256((source.folder / "config.json").read_bytes()).hexdigest(),
        "tokenizer_sha256": hashed,
        **asked,
        "files": sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()),
        "transplant": done.as_dict(),
    }
    (folder / REPORT).write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
