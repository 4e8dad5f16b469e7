"""`require_transplant`: refuses two checkpoints of which one is not a transplant of the other.

A teacher that is another model would teach the wrong rows, and nothing would look wrong.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tokengraft.checkpoint.byte_ranges import equal_bytes
from tokengraft.checkpoint.ids import model_settings
from tokengraft.checkpoint.layout import Checkpoint, VocabTensor, Vocabulary
from tokengraft.checkpoint.tensors import RowReader
from tokengraft.errors import CheckpointError
from tokengraft.plan import Source

HINT = "distill the output of `tokengraft transplant` or `adapt` of this very model, before it is trained"
_BYTES_AT_ONCE = 1 << 22


def require_transplant(
    base: Checkpoint, adapted: Checkpoint, tables: tuple[Vocabulary, Vocabulary], sources: Sequence[Source]
) -> None:
    """Refuses two models that differ in more than their vocabulary: in a setting, a weight, or a row of a kept token.

    Args:
        base: The model before its vocabulary was changed.
        adapted: The model after it.
        tables: The tensors with a vocabulary axis, of both.
        sources: Where the rows of the second come from, as in a `VocabPlan`.

    Raises:
        CheckpointError: With the first difference.
    """
    _require_same_settings(base, adapted)
    _require_same_body(base, adapted, {t.info.name for part in tables for t in part.tensors})
    _require_same_rows(base, adapted, tables, sources)


def _require_same_settings(base: Checkpoint, adapted: Checkpoint) -> None:
    ours, theirs = model_settings(base.config), model_settings(adapted.config)
    name = _first_difference(ours, theirs)
    if name is not None:
        raise CheckpointError(
            f"`{name}` in config.json differs between `{base.folder}` and `{adapted.folder}`: only ids and the size of "
            "the vocabulary may",
            hint=HINT,
        )


def _first_difference(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> str | None:
    """The name of the first setting that differs, nested ones as ``outer.inner``."""
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        one, two = ours.get(name), theirs.get(name)
        if isinstance(one, dict) and isinstance(two, dict):
            inner = _first_difference(one, two)
            if inner is not None:
                return f"{name}.{inner}"
        elif one != two:
            return name
    return None


def _require_same_body(base: Checkpoint, adapted: Checkpoint, tables: set[str]) -> None:
    theirs = {name: (file, info) for file in adapted.files for name, info in file.tensors.items()}
    for file in base.files:
        for name, info in file.tensors.items():
            if name in tables:
                continue
            other, same = theirs.get(name), False
            if other is not None and (other[1].dtype, other[1].shape) == (info.dtype, info.shape):
                with file.path.open("rb", buffering=0) as one, other[0].path.open("rb", buffering=0) as two:
                    same = equal_bytes(one, info.start, two, other[1].start, info.size)
            if not same:
                raise CheckpointError(
                    f"`{name}` differs between `{base.folder}` and `{adapted.folder}`: only the vocabulary may",
                    hint=HINT,
                )


def _require_same_rows(
    base: Checkpoint, adapted: Checkpoint, tables: tuple[Vocabulary, Vocabulary], sources: Sequence[Source]
) -> None:
    kept = np.array([(new, old) for new, old in enumerate(sources) if isinstance(old, int)], np.int64).reshape(-1, 2)
    theirs = {tensor.info.name: tensor for tensor in tables[1].tensors}
    for tensor in tables[0].tensors:
        name, other = tensor.info.name, theirs.get(tensor.info.name)
        row = None if other is None else _differing_row(tensor, other, kept)
        if other is None or row is not None:
            what = f"row {row:,} of `{name}`, of a kept token," if row is not None else f"`{name}`"
            raise CheckpointError(f"{what} differs between `{base.folder}` and `{adapted.folder}`", hint=HINT)


def _differing_row(ours: VocabTensor, theirs: VocabTensor, kept: Any) -> int | None:
    """The first row of a kept token that is not copied, by its new id; None if all are."""
    if (ours.info.dtype, ours.info.shape[1:]) != (theirs.info.dtype, theirs.info.shape[1:]):
        return 0
    inside = (kept[:, 0] < theirs.info.shape[0]) & (kept[:, 1] < ours.info.shape[0])
    rows, step = kept[inside], max(1, _BYTES_AT_ONCE // max(ours.info.row_bytes, 1))
    with ours.file.path.open("rb", buffering=0) as one, theirs.file.path.open("rb", buffering=0) as two:
        old, new = RowReader(one, ours.info), RowReader(two, theirs.info)
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            differing = np.flatnonzero((old.raw(part[:, 1]) != new.raw(part[:, 0])).any(axis=1))
            if len(differing):
                return int(part[differing[0], 0])
    return None
