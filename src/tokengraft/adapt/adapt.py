"""`adapt`: the complete pipeline in one function: count, prune, extend, check, evaluate, transplant.

Every step can also be taken alone; this module only connects them.
"""

import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

from tokengraft.adapt.cache import CountCache
from tokengraft.adapt.checks import Start, check_before_start
from tokengraft.adapt.measure import measured
from tokengraft.adapt.mix import mix, shares
from tokengraft.adapt.options import KEEP, AdaptOptions, Job, Sizes, Source, Target, new_job
from tokengraft.adapt.result import Adaptation
from tokengraft.adapt.vocabulary import Texts, new_vocabulary
from tokengraft.adapt.write import write_result
from tokengraft.corpus import Corpus
from tokengraft.counts.count import HeldOutCounts
from tokengraft.errors import Progress


def adapt(
    source: Source,
    *,
    target: Corpus | Mapping[str, Target | Corpus],
    out: str | os.PathLike[str],
    keep: Corpus | None = None,
    swap: int = 0,
    add: int = 0,
    remove: int = 0,
    options: AdaptOptions | None = None,
) -> Adaptation:
    """Adapts a model, or a tokenizer alone, to text: prunes, extends, checks, measures, transplants.

    Everything that can be checked is checked before any text is read. Documents are held out of every corpus before it
    is counted, and the result is measured on them. Counts are kept in a folder beside the output until all is done, so
    that an interrupted run can resume.

    Args:
        source: A model folder with weights, or a tokenizer.
        target: The text to learn from, or several by name, each with a weight. Every target gets its weight's share of
            the mix, however much text it has.
        out: The folder to write.
        keep: Text whose tokens should stay. It counts as much as all targets together. Without pruning it is only
            measured.
        swap: Replace this many tokens: prune as many, then learn as many, which take their ids. No shape and no other
            id changes. If the text yields fewer, fewer are replaced and a warning says so.
        add: Learn this many tokens, without a swap.
        remove: Prune this many tokens, without a swap. Where more are pruned than learned, ids close up.
        options: How to read text, protection, initialiser and more.

    Raises:
        OptionError: Nothing is asked for, or two things that exclude each other.
        CorpusError: A corpus cannot be read, or is too small to hold something out of.
        TokengraftError: As the steps raise it.

    Examples:
        >>> done = tg.adapt("model", target="et.txt", keep="en.txt", swap=16, out="adapted")
        >>> done.plan.summary.added, done.plan.summary.removed
        (16, 16)
    """
    job = new_job(source, target, keep, out, Sizes(add, remove, swap), options)
    start = check_before_start(job)
    cache = CountCache(work_folder(job.out), start.base, job.options)
    parts = _count(job, cache, start)
    vocabulary = new_vocabulary(start.base, _texts(job, parts), start.protection, job)
    job.start("checking and measuring")
    result = measured(job, start, vocabulary, parts)
    job.start("writing")
    held_out = {name: [*part.held_out] for name, part in parts.items()}
    done = write_result(job, result, held_out, weighted=start.weights is not None, report=start.report)
    cache.clear()
    return done


def work_folder(out: Path) -> Path:
    """Where counts are kept until the output is complete."""
    whole = out.resolve()
    return whole.with_name(whole.name + ".work")


def _count(job: Job, cache: CountCache, start: Start) -> dict[str, HeldOutCounts]:
    parts = {}
    for name, corpus in job.corpora.items():
        job.start(f"counting {name}")
        parts[name] = cache.count(name, corpus, _progress(job, start))
    return parts


def _progress(job: Job, start: Start) -> Progress | None:
    """Progress as a share of all corpora, not of one."""
    progress = job.options.progress
    return (lambda name, more, _: progress(name, more, start.text_bytes)) if progress else None


def _texts(job: Job, parts: Mapping[str, HeldOutCounts]) -> Texts:
    """The targets by their shares; and with the text to keep, which counts as much as all of them together."""
    by_share = shares({name: target.weight for name, target in job.targets.items()})
    learn = [(parts[name].counts, share) for name, share in by_share.items()]
    keep = [(parts[KEEP].counts, Fraction(1))] if KEEP in parts else []
    return Texts(learn=mix(learn), keep=mix([*learn, *keep]))
