"""`adapt`: the complete pipeline in one function: count, prune, extend, check, evaluate, transplant.

Every step is also available alone. This module only connects them. `estimate` is the dry run.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tokengraft.corpus.open import Corpus
from tokengraft.pipeline.cache import clear, count_corpora
from tokengraft.pipeline.options import AdaptOptions, Size, Source, Target
from tokengraft.pipeline.prepare import prepare
from tokengraft.pipeline.record import record_of
from tokengraft.pipeline.request import Request, new_request, shown_steps, work_folder
from tokengraft.pipeline.result import Adaptation
from tokengraft.pipeline.texts import open_tests, texts_of
from tokengraft.pipeline.vocabulary import measured, new_vocabulary
from tokengraft.pipeline.write import write_result
from tokengraft.progress import stage
from tokengraft.representation import FrozenDict, shown
from tokengraft.verify.transformers_loader import transformers_started


@stage("adapting")
def adapt(
    source: Source,
    *,
    target: Corpus | Mapping[str, Target | Corpus] | None = None,
    out: str | os.PathLike[str],
    keep: Corpus | Mapping[str, Corpus] | None = None,
    swap: Size = 0,
    add: Size = 0,
    remove: Size = 0,
    options: AdaptOptions | None = None,
) -> Adaptation:
    """Adapts a model, or only a tokenizer, to text: prunes, extends, checks, evaluates, and writes the result.

    Everything that can be checked is checked before any text is read. Documents are held out of every corpus before it
    is counted, and the result is evaluated on them. Counts are cached in a folder beside the output until it is
    complete, so that an interrupted run can resume.

    Args:
        source: A model folder with weights, or a tokenizer.
        target: The text to learn from, or several by name, each with a weight. The share of each target in the mix
            depends on its weight, not on its size. Not needed if ``options`` list all new tokens.
        out: The folder to write.
        keep: Text whose tokens should be kept, or several by name. All of them together have the same weight as all
            targets together. Without pruning, they are only used for evaluation.
        swap: Replace N tokens: prune N, then learn N new ones, which take their ids. No shape and no other id changes.
            If the text yields fewer new tokens, fewer are replaced, with a warning. ``"auto"`` chooses N.
        add: Learn N tokens. Not together with ``swap``. ``"auto"`` chooses N on the held-out documents, as
            `choose_size` does.
        remove: Prune N tokens. Not together with ``swap``. If more are pruned than learned, ids are renumbered without
            holes. ``"auto"`` prunes as many as leave `AdaptOptions.keep_coverage` of the tokens of all text, counted
            and held out, as they are.
        options: How to read text, protection, initialiser and more.

    Raises:
        OptionError: No size is given, or options contradict each other.
        CorpusError: A corpus cannot be read, or is too small to hold out a part of it.
        TokengraftError: A step failed.

    Examples:
        >>> done = tg.adapt("model", target="et.txt", keep="en.txt", swap=16, out="adapted")
        >>> done.plan.summary.added, done.plan.summary.removed
        (16, 16)
    """
    return adapt_request(new_request(source, target, keep, out, (add, remove, swap), options))


def adapt_request(request: Request) -> Adaptation:
    """All steps of an adaptation."""
    with shown_steps(request) as asked:
        job = prepare(asked)
        tests = open_tests(job)  # before the corpora: what is wrong with them is known at once
        parts = count_corpora(job, job.base)
        with transformers_started():  # it is imported while the core learns
            texts = texts_of(job, parts, tests)
            result = measured(job, texts, new_vocabulary(job, texts))
            result = replace(result, request=FrozenDict(record_of(job, texts, result.test)))
            done = write_result(job, texts, result)
        clear(work_folder(job.out))
        return done


_BASE_SECONDS, _TEXT_RATE, _WEIGHTS_RATE = 10.0, 20e6, 400e6
"""Seconds for loading and checking, bytes of text read per second, and bytes of weights written per second. Rough
values for two cores."""
_BASE_MEMORY = 500_000_000


@shown
@dataclass(frozen=True)
class Estimate:
    """The size and cost of an adaptation."""

    rows_before: int
    """Rows of the embedding; without weights, rows that the tokenizer needs."""
    rows_after: int
    """Assumes that the text yields as many tokens as asked for, or as `auto` may choose. With ``remove="auto"``, it is
    the number before any token is removed."""
    text_bytes: int
    """Size of all corpora on disk, up to --max-bytes each."""
    weights_bytes: int
    """Size of the checkpoint; 0 without weights."""
    parameters_added: int
    memory_bytes: int
    """Roughly twice the text, up to the memory for counting."""
    seconds: float
    """Roughly, on two cores."""
    removes_auto: bool = False
    """Whether `auto` chooses how many tokens to remove, so that rows and parameters are the most that there may be."""
    warnings: tuple[str, ...] = ()


def estimate(
    source: Source,
    *,
    target: Corpus | Mapping[str, Target | Corpus] | None = None,
    out: str | os.PathLike[str],
    keep: Corpus | Mapping[str, Corpus] | None = None,
    swap: Size = 0,
    add: Size = 0,
    remove: Size = 0,
    options: AdaptOptions | None = None,
) -> Estimate:
    """The estimate for `adapt` with the same arguments. Reads no text and writes nothing.

    Raises:
        TokengraftError: `adapt` would raise the same error before reading any text.
    """
    return estimate_request(new_request(source, target, keep, out, (add, remove, swap), options))


def estimate_request(request: Request) -> Estimate:
    """The estimate for a request."""
    job = prepare(request)
    given, weights, weights_bytes = job.listed.tokenizer, job.weights, job.weights.bytes if job.weights else 0
    is_short = job.listed.words is not None and not job.sizes.learn
    unknown = ["rows of included words are not part of the estimate"] if is_short else []
    return Estimate(
        rows_before=weights.rows if weights else job.original.n_rows,
        rows_after=weights.rows_after if weights else job.sizes.rows(given.n_rows, len(given.ids)),
        text_bytes=job.text_bytes,
        weights_bytes=weights_bytes,
        parameters_added=weights.parameters_added if weights else 0,
        memory_bytes=_BASE_MEMORY + min(2 * job.text_bytes, job.options.count_options.memory),
        seconds=_BASE_SECONDS + job.text_bytes / _TEXT_RATE + weights_bytes / _WEIGHTS_RATE,
        removes_auto=job.sizes.covering,
        warnings=(*job.warnings, *unknown),
    )
