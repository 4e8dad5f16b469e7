"""`transplant`: gives a checkpoint the vocabulary of another tokenizer, file by file, without loading the model.

Only tensors with a vocabulary axis are read and written, a block of rows at a time. All other bytes are copied.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.adapter import is_adapter
from tokengraft.checkpoint.adapter_transplant import AdapterJob
from tokengraft.checkpoint.draft import DraftJob, is_draft
from tokengraft.checkpoint.gguf_file import is_gguf
from tokengraft.checkpoint.gguf_transplant import GgufJob
from tokengraft.checkpoint.in_memory import require_torch
from tokengraft.checkpoint.model_job import ModelJob, NewRowsJob
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import Init
from tokengraft.checkpoint.table import TransplantOptions, require_absent
from tokengraft.errors import OptionError, option, require_type
from tokengraft.formats.sources import load
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.progress import stage
from tokengraft.tokenizer.tokenizer import Tokenizer

_SPECIAL: tuple[tuple[Callable[[Path], bool], type[GgufJob | AdapterJob | DraftJob], str], ...] = (
    (is_gguf, GgufJob, "a GGUF file"),
    (is_adapter, AdapterJob, "an adapter"),
    (is_draft, DraftJob, "a draft"),
)
"""What is not the folder of a model, and has a vocabulary all the same."""


@stage("transplanting the checkpoint")
def transplant(
    checkpoint: str | os.PathLike[str],
    new_tokenizer: Tokenizer | str | os.PathLike[str] | Any,
    out: str | os.PathLike[str] | None,
    *,
    init: Init | None = None,
    base: Tokenizer | str | os.PathLike[str] | Any | None = None,
    as_adapter: bool = False,
    force: bool = False,
    options: TransplantOptions | None = None,
) -> Transplant:
    """Gives a checkpoint the vocabulary of another tokenizer, without loading the model.

    Kept rows are copied bit for bit. New rows are computed from the rows of the tokens that the old tokenizer splits
    them into. Every config that names a token id is rewritten. The result is written beside the target, compared with
    the source, and then renamed into place.

    Args:
        checkpoint: A folder with `config.json`, safetensors files and the old tokenizer; a GGUF file, which needs the
            `gguf` package; an adapter of PEFT or a draft (EAGLE-3) of the old vocabulary. It is not changed.
        new_tokenizer: The new tokenizer, or whatever `load` reads. For an adapter, the folder of the new model.
        out: The folder to write, or for a GGUF file the file. None is a dry run: nothing is written.
        init: Initialiser for new embedding rows: `fvt-rare`, `fvt`, `length-weighted`, `mean`, `random`, or a function
            that gets the new tokens with the rows of their pieces (`tokengraft.checkpoint.rows.NewTokens`) and the old
            table (`TableInfo`), and gives an array with a row for each token. By default `fvt-rare`; for an adapter,
            the one that its model was transplanted with.
        base: For a GGUF file, an adapter or a draft: its old tokenizer. It is compared with the one that it has.
        as_adapter: Write an adapter of PEFT with the changed rows, and the tokenizer, instead of a model. Only if the
            number of rows does not change, as in a swap. With the model of ``checkpoint`` it is the new model.
        force: Replace a folder that an earlier transplant wrote; for a GGUF file, any file.
        options: The other initialiser, rows without a token, padding, the seed, and how files are written.

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
    chosen = TransplantOptions.of(options, init)
    if chosen.verify and out is None:
        raise OptionError(
            f"{option('verify')} runs the new model, but a dry run does not write one", hint="leave out one of the two"
        )
    if out is not None:
        require_new(Path(out), force=force)
        paths = [tokenizer for tokenizer in (new_tokenizer, base) if isinstance(tokenizer, str | os.PathLike)]
        require_distinct([checkpoint, *paths], out)
    folder = Path(checkpoint)
    written = {"hard_link": chosen.hard_link, "verify": chosen.verify}
    job: ModelJob | GgufJob | AdapterJob | DraftJob
    special = next((row for row in _SPECIAL if row[0](folder)), None)
    if special:
        _, kind, what = special
        padded = {"pad_multiple": chosen.pad_multiple != "keep"} if kind is AdapterJob else {}
        require_absent(written | {"as_adapter": as_adapter} | padded, what)
        old = base if base is None or isinstance(base, Tokenizer) else load(base)
        job = kind.prepare(folder, new_tokenizer, old, chosen)
    elif base is not None:
        raise OptionError(
            f"{option('base')} applies to GGUF files, adapters and drafts; a folder has its own tokenizer",
            hint=f"leave out {option('base')}",
        )
    elif as_adapter:
        require_absent(written, f"an adapter ({option('as_adapter')})")
        job = NewRowsJob.prepare(checkpoint, new_tokenizer, chosen)
    else:
        if chosen.verify:
            require_torch()
        job = ModelJob.prepare(checkpoint, new_tokenizer, chosen)
    return job.describe() if out is None else job.write(Path(out), force=force)
