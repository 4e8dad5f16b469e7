"""`write_with_rows`: copies a model folder and replaces some rows of its tables. All other bytes stay."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from tokengraft.checkpoint.copy_file import share_or_copy
from tokengraft.checkpoint.layout import VocabTensor, Vocabulary
from tokengraft.checkpoint.model_files import REPORT, written_before
from tokengraft.checkpoint.tensors import Rows, narrow
from tokengraft.output.atomic import new_folder


def write_with_rows(
    folder: Path,
    out: Path,
    vocabulary: Vocabulary,
    ids: Sequence[int],
    rows: Sequence[Rows],
    summary: Mapping[str, Any],
    *,
    force: bool,
) -> None:
    """Writes a copy of a model folder in which the rows of some ids are others.

    Args:
        folder: The model.
        out: The folder to write.
        vocabulary: The tables of the model.
        ids: Whose rows are replaced.
        rows: Those of the embedding and, if it is not tied, those of the output.
        summary: What is added to `tokengraft.json`.
        force: Replace a folder that tokengraft wrote.

    Raises:
        OutputError: The folder cannot be written.
    """
    ours = written_before(out)
    with new_folder(out, replaceable=(lambda path: path.as_posix() in ours) if force else None) as partial:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            copy = partial / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            share_or_copy(path.resolve(), copy, Event(), hard_link=False)
        for tensor in vocabulary.tensors:
            if tensor.role != "bias":
                _replace_rows(partial, tensor, ids, rows[0] if tensor.role == "input" or vocabulary.tied else rows[1])
        _write_report(folder, partial, summary)


def _replace_rows(folder: Path, tensor: VocabTensor, ids: Sequence[int], rows: Rows) -> None:
    raw = narrow(rows, tensor.info.dtype)
    with (folder / tensor.file.path.name).open("r+b") as stream:
        for token_id, row in zip(ids, np.ascontiguousarray(raw), strict=True):
            stream.seek(tensor.info.start + token_id * tensor.info.row_bytes)
            stream.write(row.tobytes())


def _write_report(folder: Path, partial: Path, summary: Mapping[str, Any]) -> None:
    """Adds to the report of the folder, which lists the files that a later run may replace."""
    try:
        report = json.loads((folder / REPORT).read_bytes())
    except (OSError, ValueError, RecursionError):
        report = {}
    names = {path.relative_to(partial).as_posix() for path in partial.rglob("*") if path.is_file()} | {REPORT}
    report = (report if isinstance(report, dict) else {}) | {"files": sorted(names), "distill": dict(summary)}
    (partial / REPORT).write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")


def remove_work(folder: Path) -> None:
    """Removes the saved state of a finished run, and the folder if it has nothing else."""
    for name in ("distill.pt", "distill.partial"):
        (folder / name).unlink(missing_ok=True)
    with suppress(OSError):
        folder.rmdir()
