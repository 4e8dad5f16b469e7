"""`adapt`: the complete pipeline in one function: count, prune, extend, check, evaluate, transplant.

Every step is also available alone. This module only connects them.
"""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from tokengraft.adapt.cache import CountCache
from tokengraft.adapt.checks import Start, check_before_start, read_once
from tokengraft.adapt.inputs import TextInput, hashing
from tokengraft.adapt.measure import measured, open_tests
from tokengraft.adapt.mix import mix, shares
from tokengraft.adapt.options import AdaptOptions, Job, Size, Source, Target, new_job, work_folder
from tokengraft.adapt.record import request_of
from tokengraft.adapt.result import Adaptation
from tokengraft.adapt.vocabulary import Texts, new_vocabulary
from tokengraft.adapt.work import write_work
from tokengraft.adapt.write import write_result
from tokengraft.arguments import checked
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.strings import only_paths, paths_of
from tokengraft.counts.count import HeldOutCounts, count, engine_kept
from tokengraft.counts.llama_cpp import check_text_counts
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.segments import Text
from tokengraft.extend.parity import Parity
from tokengraft.frozen import FrozenDict
from tokengraft.log import stage

Parts = Mapping[str, HeldOutCounts]
Tests = Mapping[str, Text | PretokenCounts]


@checked
@stage("adapting")
def adapt(
    source: Source,
    *,
    target: Corpus | Mapping[str, Target | Corpus],
    out: str | os.PathLike[str],
    keep: Corpus | Mapping[str, Corpus] | None = None,
    swap: Size = 0,
    add: Size = 0,
    remove: int = 0,
    options: AdaptOptions | None = None,
) -> Adaptation:
    """Adapts a model, or only a tokenizer, to text: prunes, extends, checks, evaluates, and writes the result.

    Everything that can be checked is checked before any text is read. Documents are held out of every corpus before it
    is counted, and the result is evaluated on them. Counts are cached in a folder beside the output until it is
    complete, so that an interrupted run can resume.

    Args:
        source: A model folder with weights, or a tokenizer.
        target: The text to learn from, or several by name, each with a weight. The share of each target in the mix
            depends on its weight, not on its size.
        out: The folder to write.
        keep: Text whose tokens should be kept, or several by name. All of them together have the same weight as all
            targets together. Without pruning, they are only used for evaluation.
        swap: Replace N tokens: prune N, then learn N new ones, which take their ids. No shape and no other id changes.
            If the text yields fewer new tokens, fewer are replaced, with a warning. ``"auto"`` chooses N.
        add: Learn N tokens. Not together with ``swap``. ``"auto"`` chooses N on the held-out documents, as
            `choose_size` does.
        remove: Prune N tokens. Not together with ``swap``. If more are pruned than learned, ids are renumbered without
            holes.
        options: How to read text, protection, initialiser and more.

    Raises:
        OptionError: No size is given, or options contradict each other.
        CorpusError: A corpus cannot be read, or is too small to hold out documents.
        TokengraftError: A step failed.

    Examples:
        >>> done = tg.adapt("model", target="et.txt", keep="en.txt", swap=16, out="adapted")
        >>> done.plan.summary.added, done.plan.summary.removed
        (16, 16)
    """
    job = new_job(source, target, keep, out, (add, remove, swap), options)
    start = check_before_start(job)
    tests = open_tests(job, start.base)  # before the corpora: what is wrong with them is known at once
    cache = CountCache(work_folder(job.out), start.base, job.options)
    with hashing(job, start.base) as inputs:
        parts = _count(job, cache)
        with transformers_started():  # it is imported while the core learns
            done = _edit(job, start, (parts, tests), inputs)
    cache.clear()
    return done


def _edit(job: Job, start: Start, read: tuple[Parts, Tests], inputs: "Future[list[TextInput]]") -> Adaptation:
    """All steps after counting."""
    parts, tests = read
    texts = _texts(job, start, parts)
    vocabulary = new_vocabulary(start.base, texts, start.protection, job)
    result = measured(job, start, vocabulary, parts, texts.preserve, tests)
    result = replace(result, request=FrozenDict(request_of(job, inputs.result(), _documents(parts, result.test))))
    done = write_result(job, result, parts, tests, weighted=start.weights is not None, report=start.report)
    # Last: an interrupted run must not leave a folder that the same command refuses to replace.
    if job.options.keep_work is not None:
        write_work(Path(job.options.keep_work), result, parts, force=job.options.force)
    return done


def _documents(parts: Mapping[str, HeldOutCounts], test: Evaluation | None) -> dict[tuple[str, str], int]:
    """How many documents every text has, by whether it is for tests, and its name."""
    read = {("", name): part.counts.totals.documents + len(part.held_out) for name, part in parts.items()}
    return read | {("test", score.text): score.documents for score in (test.scores if test else ())}


def _count(job: Job, cache: CountCache) -> dict[str, HeldOutCounts]:
    parts = {}
    with engine_kept(job.options.count_options):
        for name, corpus in job.corpora.items():
            parts[name] = cache.count(name, corpus, job.options.progress, job.start)
    return parts


def _texts(job: Job, start: Start, parts: Mapping[str, HeldOutCounts]) -> Texts:
    """The mix of the targets, the mix of the targets with the text to keep, which has half of the weight, and more."""
    by_share = shares({name: target.weight for name, target in job.targets.items()})
    learn = [(parts[name].counts, share) for name, share in by_share.items()]
    keep = [(parts[name].counts, Fraction(1, len(job.kept))) for name in job.kept]
    held_out = tuple(document for name in job.targets for document in parts[name].held_out)
    return Texts(
        learn=mix(learn),
        keep=mix([*learn, *keep]),
        held_out=Text("held out", held_out),
        targets=tuple(parts[name].counts for name in job.targets),
        parity=_parity(job, start, parts) if job.options.balance == "parity" else None,
        preserve=_preserve(job, start, parts),
    )


def _parity(job: Job, start: Start, parts: Mapping[str, HeldOutCounts]) -> Parity:
    counts = {name: parts[name].counts for name in job.targets}
    max_share = 1.0 if job.options.max_share is None else job.options.max_share
    if not job.options.parity_text:
        return Parity(counts, max_share=max_share)
    texts = {name: _count_all(job, start, corpus) for name, corpus in job.options.parity_text.items()}
    return Parity.of_parallel(counts, texts, max_share=max_share)


def _preserve(job: Job, start: Start, parts: Mapping[str, HeldOutCounts]) -> PretokenCounts | None:
    """The counts of the text to preserve; None if there is none."""
    options, counts = job.options, list[PretokenCounts]()
    if options.preserve is not None:
        given = options.preserve
        counts += [given] if isinstance(given, PretokenCounts) else _counts_to_preserve(job, start, given)
    if options.preserve_keep:
        counts += [parts[name].counts for name in job.kept]
    if start.keep_hash:
        counts.append(check_text_counts(start.base))
    # Texts that were normalized and texts that were not are preserved together.
    alike = [replace(part, normalize=None) for part in counts]
    return sum(alike[1:], alike[0]) if alike else None


def _counts_to_preserve(job: Job, start: Start, corpus: Corpus) -> Iterator[PretokenCounts]:
    """The counts of a text to preserve. Files that are read by line are preserved as a whole too.

    Otherwise tokens that occur only at line breaks, such as those of source code, would not be preserved.
    """
    yield _count_all(job, start, corpus)
    options = job.options
    files = [path for path in paths_of(corpus) or () if not is_counts_file(path)]
    if options.read_options.documents == "lines" and files and not read_once(files, options.read_options):
        whole = replace(options, read_options=replace(options.read_options, documents="files"))
        with only_paths():  # a list of strings may be taken for texts
            by_file = _count_all(replace(job, options=whole), start, files)
        yield by_file


def _count_all(job: Job, start: Start, corpus: Corpus) -> PretokenCounts:
    """The counts of a corpus without hold-out. Files of counts, alone or in a list, are added up."""
    paths = paths_of(corpus) or []
    counted = [path for path in paths if is_counts_file(path)]
    parts = [PretokenCounts.load(path) for path in counted]
    text = [path for path in paths if path not in counted] if counted else corpus
    if not counted or text:  # a column of pandas has no truth value
        # Limits, shards and engines are for the text to learn from.
        read_options = replace(job.options.read_options, shard=None)
        given = job.options.count_options
        count_options = replace(given, max_bytes=None, max_documents=None, engine="local", address=None)
        with only_paths() if paths else nullcontext():
            parts.append(count(start.base, text, read_options=read_options, count_options=count_options))
    return sum(parts[1:], parts[0])
