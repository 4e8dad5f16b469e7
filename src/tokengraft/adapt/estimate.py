"""`estimate`: the size and cost of an adaptation, before any text is read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tokengraft.adapt.checks import check_before_start
from tokengraft.adapt.options import AdaptOptions, Size, Source, Target, new_job
from tokengraft.arguments import checked
from tokengraft.corpus.open import Corpus
from tokengraft.representation import shown

_BASE_SECONDS, _TEXT_RATE, _WEIGHTS_RATE = 10.0, 20e6, 400e6
"""Seconds for loading and checking, bytes of text read per second, and bytes of weights written per second. Rough
values for two cores."""
_BASE_MEMORY = 500_000_000


@shown
@checked
@dataclass(frozen=True)
class Estimate:
    """The size and cost of an adaptation."""

    rows_before: int
    """Rows of the embedding; without weights, rows that the tokenizer needs."""
    rows_after: int
    """Assumes that the text yields as many tokens as asked for, or as `auto` may choose."""
    text_bytes: int
    """Size of all corpora on disk, up to --max-bytes each."""
    weights_bytes: int
    """Size of the checkpoint; 0 without weights."""
    parameters_added: int
    memory_bytes: int
    """Roughly twice the text, up to the memory for counting."""
    seconds: float
    """Roughly, on two cores."""
    warnings: tuple[str, ...] = ()


@checked
def estimate(
    source: Source,
    *,
    target: Corpus | Mapping[str, Target | Corpus],
    out: str | os.PathLike[str],
    keep: Corpus | Mapping[str, Corpus] | None = None,
    swap: Size = 0,
    add: Size = 0,
    remove: int = 0,
    options: AdaptOptions | None = None,
) -> Estimate:
    """The estimate for `adapt` with the same arguments. Reads no text and writes nothing.

    Raises:
        TokengraftError: `adapt` would raise the same error before reading any text.
    """
    job = new_job(source, target, keep, out, (add, remove, swap), options)
    start = check_before_start(job)
    base, weights = start.base, start.weights
    return Estimate(
        rows_before=weights.rows if weights else base.n_rows,
        rows_after=weights.rows_after if weights else job.sizes.rows(base.n_rows, len(base.ids)),
        text_bytes=start.text_bytes,
        weights_bytes=weights.bytes if weights else 0,
        parameters_added=weights.parameters_added if weights else 0,
        memory_bytes=_BASE_MEMORY + min(2 * start.text_bytes, job.options.count_options.memory),
        seconds=_BASE_SECONDS + start.text_bytes / _TEXT_RATE + (weights.bytes if weights else 0) / _WEIGHTS_RATE,
        warnings=start.warnings,
    )
