"""`adapt`: the complete pipeline in one function: count, prune, extend, check, evaluate, transplant.

Every step is also available alone. This module only connects them. `estimate` is the dry run. `count_corpora` keeps
counts of large texts beside the output until it is complete, so that an interrupted run can resume. They are used only
if everything that they depend on is unchanged: the tokenizer, every option for reading and counting except those in
`WITHOUT_EFFECT`, the hold-out, the version, and path, size and modification time of each file.
"""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.counts.count import HeldOutCounts, count_with_hold_out, engine_kept
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, CountsError, OutputError
from tokengraft.formats.sources import folder_files
from tokengraft.output.atomic import new_file
from tokengraft.output.partial import remove_abandoned
from tokengraft.pipeline.options import AdaptOptions, Size, Source, Target
from tokengraft.pipeline.prepare import prepare
from tokengraft.pipeline.request import Request, new_request, shown_steps, work_folder
from tokengraft.pipeline.result import Adaptation, record_of
from tokengraft.pipeline.texts import open_tests, texts_of
from tokengraft.pipeline.vocabulary import measured, new_vocabulary
from tokengraft.pipeline.write import write_result
from tokengraft.progress import stage
from tokengraft.representation import FrozenDict, shown
from tokengraft.tokenizer.tokenizer import Tokenizer
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
    is counted, and the result is evaluated on them. Counts of large texts are cached in a folder beside the output
    until it is complete, so that an interrupted run can resume.

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
    return adapt_request(new_request(source, target, keep, out, options, add=add, remove=remove, swap=swap))


def adapt_request(request: Request) -> Adaptation:
    """All steps of an adaptation."""
    with shown_steps(request) as asked:
        job = prepare(asked)
        tests = open_tests(job)  # before the corpora: what is wrong with them is known at once
        parts = count_corpora(job, job.base)
        with transformers_started():  # it is imported while the core learns
            texts = texts_of(job, parts, tests)
            vocabulary = new_vocabulary(job, texts)
            _core.give_back_freed()  # before a check and a report that need as much memory again
            result = measured(job, texts, vocabulary)
            _core.give_back_freed()
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
    options: AdaptOptions | None = None,
    **sizes: Size,
) -> Estimate:
    """The estimate for `adapt` with the same arguments, ``swap``, ``add`` and ``remove`` included. Reads no text.

    Raises:
        TokengraftError: `adapt` would raise the same error before reading any text.
    """
    return estimate_request(new_request(source, target, keep, out, options, **sizes))


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


WITHOUT_EFFECT = frozenset(("workers", "memory", "engine", "address"))
"""Fields of `CountOptions` that do not change the result. All other fields are part of the key."""
WORTH_KEEPING = 1 << 25
"""Bytes of text. A smaller one is counted again in a second: importing pyarrow, which writes counts, takes as long as
counting 10 MB, and 60 MB of memory."""
_OURS = re.compile(r".+-[0-9a-f]{24}\.(parquet|json)")


def count_corpora(job: Request, base: Tokenizer) -> dict[str, HeldOutCounts]:
    """The counts of every corpus without its held-out documents: from the cache, or counted now and cached."""
    with engine_kept(job.options.count_options):
        return {name: _cached(job, base, name, corpus) for name, corpus in job.corpora.items()}


def _cached(job: Request, base: Tokenizer, name: str, corpus: Corpus) -> HeldOutCounts:
    folder, key = work_folder(job.out), cache_key(base, corpus, job.options)
    files = [folder / f"{name}-{key}{suffix}" for suffix in (".parquet", ".json")] if key else []
    counted = _load(*files) if files else None
    job.start(f"counting {name}" if counted is None else f"counting {name}: resumed, from the interrupted run")
    if counted is None:
        counted = _counted(job, base, name, corpus)
        try:
            if files and counted.counts.totals.bytes >= WORTH_KEEPING:
                _save(counted, *files)
        except OutputError:
            if folder.exists():
                raise
            # Another run with the same output has ended, and removed the folder: this one goes on without it.
    return counted


def _counted(job: Request, base: Tokenizer, name: str, corpus: Corpus) -> HeldOutCounts:
    options = job.options
    counted = count_with_hold_out(
        base,
        corpus,
        read_options=options.read_options,
        count_options=options.count_options,
        hold_out=options.hold_out,
        progress=options.progress,
    )
    if not counted.held_out or not len(counted.counts):
        held_out = sum(len(text.encode()) for text in counted.held_out)
        raise CorpusError(
            f"the corpus `{name}` is too small: {counted.counts.totals.bytes:,} bytes to learn from, {held_out:,} "
            "bytes to measure on, and both are needed",
            hint="give more text; at least two documents, or one of more than 8 kB that can be cut at a space",
        )
    return counted


def clear(folder: Path) -> None:
    """Removes all cached counts, including those of other inputs. Other files in the folder are not touched.

    What cannot be removed stays: the result is complete without it.
    """
    with suppress(OSError):
        remove_abandoned(folder)
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name):
                path.unlink(missing_ok=True)
        folder.rmdir()  # refused if it has other files


def cache_key(tokenizer: Tokenizer, corpus: Corpus, options: AdaptOptions) -> str | None:
    """A hash of everything that the counts depend on; None if a corpus cannot be identified, such as a pipe."""
    files = _identities(corpus, options)
    if files is None:
        return None
    tokenizer_files = {name: sha256(data).hexdigest() for name, data in folder_files(tokenizer).items()}
    read_options, count_options, hold_out = (
        asdict(value) for value in (options.read_options, options.count_options, options.hold_out)
    )
    count_options = {name: value for name, value in count_options.items() if name not in WITHOUT_EFFECT}
    decisive = [_core.__version__, tokenizer_files, read_options, count_options, hold_out, files]
    return sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:24]


def _identities(corpus: Corpus, options: AdaptOptions) -> list[Any] | None:
    """Path, size and modification time of every file, in reading order, or the version of a remote one.

    None if one can have changed unnoticed: it is not a regular file, or a remote system gives no version.
    """
    if not isinstance(corpus, str | os.PathLike | list | tuple):
        return None
    files = [source.file for source in open_corpus(corpus, options.read_options)]
    known = {file: file.identity if file else None for file in dict.fromkeys(files)}
    return None if None in known.values() else [known[file] for file in files]


def _load(counts: Path, held_out: Path) -> HeldOutCounts | None:
    """The cached counts; None if there are none, or they cannot be read."""
    try:
        held = json.loads(held_out.read_bytes())
        texts, documents = held["texts"], held["documents"]
        known = isinstance(documents, int) and isinstance(texts, list) and all(isinstance(text, str) for text in texts)
        return HeldOutCounts(PretokenCounts.load(counts), tuple(texts), documents) if known else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError, CountsError):
        return None


def _save(counted: HeldOutCounts, counts: Path, held_out: Path) -> None:
    counted.counts.save(counts, force=True)
    held = {"documents": counted.held_out_documents, "texts": counted.held_out}
    with new_file(held_out, force=True) as partial:
        partial.write_text(json.dumps(held), encoding="utf-8")
