"""`write_distilled`: writes an adapted model whose new rows are learned by distillation, after the transplant."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengraft.adapt.inputs import given_paths
from tokengraft.adapt.options import Job, work_folder
from tokengraft.adapt.result import Adaptation
from tokengraft.checkpoint.transplant import transplant
from tokengraft.corpus.open import STDIN, Corpus, open_corpus
from tokengraft.corpus.strings import only_paths
from tokengraft.errors import OptionError

DISTILL = "distill"
"""The initialiser that is not a function of rows: it runs the model. Rows start as with the default initialiser."""


def require_distillable(job: Job) -> None:
    """Refuses texts that cannot be read a second time, and a machine without torch.

    Raises:
        OptionError: A text to learn from is an object in memory or standard input, or torch is not installed.
    """
    from tokengraft.train.models import hardware

    for name, corpus in ((name, job.corpora[name]) for name in job.targets):
        sources = [] if given_paths(corpus) is None else open_corpus(corpus, job.options.read_options)
        if not sources or any(source.name == STDIN or Path(source.name).is_fifo() for source in sources):
            raise OptionError(
                f"--init {DISTILL} reads the text `{name}` a second time, which is only possible for files",
                hint="write the text to a file, or pass another --init and run `tokengraft distill` later",
            )
    hardware("auto", "auto")


def write_distilled(job: Job, result: Adaptation, rows: Mapping[str, Any], files: Mapping[str, bytes]) -> Adaptation:
    """Writes the model with default rows beside the output, learns its new rows, and writes the output.

    Raises:
        TokengraftError: A step failed.
    """
    from tokengraft.train.distill import DistillOptions, distill

    options, folder = job.options, work_folder(job.out) / "transplanted"
    others: dict[str, Any] = {"others": files, "request": result.request, "progress": options.progress}
    try:
        done = transplant(job.source, result.tokenizer, folder, force=folder.exists(), **rows, **others)
        for path in folder.glob("*.safetensors"):
            os.utime(path, (0, 0))  # an interrupted `distill` goes on only if the times of its inputs are the same
        job.start("learning rows by distillation")
        with only_paths():  # the names of several targets in one list may be taken for texts
            distill(
                job.source,
                folder,
                _targets(job),
                job.out,
                options=DistillOptions(seed=options.seed or 0),
                read_options=replace(options.read_options, shard=None, normalize=None, rules=None),
                force=options.force,
                progress=options.progress,
            )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return replace(result, transplant=done)


def _targets(job: Job) -> Corpus:
    """The files of all targets."""
    corpora = [job.corpora[name] for name in job.targets]
    return [path for corpus in corpora for path in (corpus if isinstance(corpus, list | tuple) else [corpus])]
