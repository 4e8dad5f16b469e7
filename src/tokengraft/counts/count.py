"""`count`: counts the pretokens of a corpus. The only step that reads the corpus.

The result does not depend on the engine, the number of threads or the order of blocks.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from tokengraft import _core
from tokengraft.arguments import checked, wrong_type
from tokengraft.corpus.open import Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.strings import paths_of
from tokengraft.corpus.totals import Totals
from tokengraft.counts.engines.units import corpus_inputs, require_countable
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.counts.options import CountOptions, Engine, HoldOut
from tokengraft.counts.partial import adding_counter, finished_tables
from tokengraft.counts.pretoken_counts import (
    EVERYTHING,
    PretokenCounts,
    as_weight,
    open_counts,
    write_counts,
)
from tokengraft.counts.threads import CountJob, count_inputs, new_counter
from tokengraft.errors import OptionError, Progress
from tokengraft.frozen import FrozenDict
from tokengraft.log import logger, stage
from tokengraft.tokenizer.tokenizer import Tokenizer


class HeldOutCounts(NamedTuple):
    """Counts, and the documents that were held out of them."""

    counts: PretokenCounts
    held_out: tuple[str, ...]
    """In the order of their hashes."""


def reading_warnings(totals: Totals) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, one sentence each; empty if there is none.

    >>> reading_warnings(Totals(skipped=2))
    ('2 documents or files could not be read, or not to their end, and were left out',)
    """
    warnings = []
    if totals.replaced:
        warnings.append(
            f"{totals.replaced:,} places in the text were not UTF-8 and were replaced by U+FFFD; "
            "if the text is in another encoding, convert it first: iconv -f LATIN1 -t UTF-8"
        )
    if totals.skipped:
        warnings.append(
            f"{totals.skipped:,} documents or files could not be read, or not to their end, and were left out"
        )
    return tuple(warnings)


@checked
@stage("counting pretokens")
def count(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    weights: Iterable[int | Fraction | str] | None = None,
    read_options: ReadOptions | None = None,
    count_options: CountOptions | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
    address: str | None = None,
) -> PretokenCounts:
    """How often each distinct pretoken of a corpus occurs.

    Pretokens are exactly those of the tokenizer's own normalizer and pre-tokenizer. The result does not depend on the
    number of workers, the size of blocks or the order of files.

    Args:
        tokenizer: The tokenizer, or any other one with the same pipeline.
        corpus: A file, folder, glob, URL, ``-``, or a list of these. Or text in memory: a list or another iterable of
            strings, a `datasets` dataset, or a column of pandas, polars or Arrow. A string alone is a path. A list of
            strings has texts if one has white space inside and none looks like a path; with both it is refused.
        weights: One weight for each item of a list of paths. Its counts are multiplied by it.
        read_options: How to read the corpus.
        count_options: Workers, memory and limits.
        progress: Called as text is read, with the name of the input, the bytes read since the last call, and those of
            all files. Of text in memory: bytes of text, and 0 for the total.
        engine: ``"ray"`` to count on Ray, as `CountOptions.engine`: files only, which all machines of the cluster must
            be able to read, with the same version of tokengraft installed.
        address: The Ray cluster, as `CountOptions.address`.

    Raises:
        CorpusError: An input cannot be read.
        OptionError: The engine cannot count this corpus with these options.

    Examples:
        >>> tok = tg.load("model")
        >>> tg.count(tok, "en.txt").top(2)
        [(b' cat', 1000), (b' the', 1000)]
        >>> tg.count(tok, ["et.txt", "en.txt"], weights=[1, 3]).top(2)
        [(b' cat', 3000), (b' the', 3000)]
    """
    read_options, count_options = read_options or ReadOptions(), count_options or CountOptions()
    if engine or address:
        engine, address = engine or count_options.engine, address or count_options.address
        count_options = replace(count_options, engine=engine, address=address)
    if weights is None:
        with counted(tokenizer, corpus, read_options, count_options, progress) as (summary, counter):
            return replace(summary, table=counter.finish().take(EVERYTHING, count_options.min_count))
    items = _weighted_items(corpus)
    ratios = [*map(as_weight, weights)]
    if len(items) != len(ratios) or not items:
        raise OptionError(
            f"{len(ratios)} weights were given for {len(items)} corpora", hint="give one weight for each corpus"
        )
    for item in items:
        require_engine(item, count_options)
    total: PretokenCounts | None = None
    with engine_kept(count_options):
        for item, ratio in zip(items, ratios, strict=True):
            left = _left_of(count_options, total.totals if total else Totals())
            if left is None:
                break
            part = count(tokenizer, item, read_options=read_options, count_options=left, progress=progress)
            total = total + part.scale(ratio) if total else part.scale(ratio)
    if total is None:
        raise OptionError("no corpus was given", hint="pass at least one file, folder or glob")
    return replace(total, table=total.table.frequent(count_options.min_count), min_count=count_options.min_count)


def _weighted_items(corpus: Corpus) -> list[Corpus]:
    """The corpora that have a weight each."""
    paths = paths_of(corpus)
    if paths is None and isinstance(corpus, list | tuple) and any(isinstance(item, str) for item in corpus):
        raise OptionError(
            "weights are for several corpora, and the list has texts",
            hint="count each list of texts for itself and add up: tg.count(tokenizer, texts).scale(2) + ...",
        )
    if paths is not None:
        return [*paths]
    if not isinstance(corpus, Iterable):
        raise wrong_type("`corpus` of `count`, with weights,", corpus, ["a list of corpora"])
    return [*corpus]


def count_with_hold_out(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    read_options: ReadOptions,
    count_options: CountOptions,
    hold_out: HoldOut,
    progress: Progress | None = None,
) -> HeldOutCounts:
    """The counts of a corpus without held-out documents, and those documents.

    Copies of a held-out document are not counted. The limits of ``count_options`` include held-out documents. The
    totals are those of the counted text, except for what was replaced or skipped, which includes held-out documents.

    Raises:
        CorpusError: An input cannot be read.

    Examples:
        >>> tok = tg.load("model")
        >>> lines, limits, hold_out = ReadOptions(documents="lines"), CountOptions(), HoldOut(one_in=50)
        >>> result = count_with_hold_out(tok, "et.txt", read_options=lines, count_options=limits, hold_out=hold_out)
        >>> len(result.held_out), result.counts.totals.documents
        (12, 388)
    """
    with counted(tokenizer, corpus, read_options, count_options, progress, hold_out) as (summary, counter):
        held_out = tuple(counter.held_out())
        return HeldOutCounts(
            replace(summary, table=counter.finish().take(EVERYTHING, count_options.min_count)), held_out
        )


def _left_of(count_options: CountOptions, done: Totals) -> CountOptions | None:
    """The options with the remaining limits and no minimum count; None if a limit is reached."""
    documents = None if count_options.max_documents is None else count_options.max_documents - done.documents
    text = None if count_options.max_bytes is None else count_options.max_bytes - done.bytes
    if (documents is not None and documents < 1) or (text is not None and text < 1):
        return None
    return replace(count_options, max_documents=documents, max_bytes=text, min_count=1)


def count_to_file(
    tokenizer: Tokenizer,
    corpus: Corpus,
    out: Path,
    *,
    read_options: ReadOptions,
    count_options: CountOptions,
    force: bool = False,
    progress: Progress | None = None,
) -> PretokenCounts:
    """Counts a corpus into a Parquet file in bounded memory. Returns its metadata, with an empty table."""
    with counted(tokenizer, corpus, read_options, count_options, progress) as (summary, counter):
        write_counts(finished_tables(counter, count_options.min_count), summary, out, force=force)
        return summary


def merge_counts(paths: list[Path], out: Path, *, count_options: CountOptions, force: bool = False) -> PretokenCounts:
    """Adds up files of counts into one in bounded memory. Returns its metadata, with an empty table.

    Raises:
        CountsError: The counts were made for different pipelines.
    """
    with adding_counter(count_options.memory // 2) as counter:
        summary: PretokenCounts | None = None
        for path in paths:
            part, tables = open_counts(path)
            for table in tables:
                counter.add(table)
            summary = part if summary is None else summary + part
        if summary is None:
            raise OptionError("no file of counts was given", hint="name the files to add up")
        summary = replace(summary, min_count=max(summary.min_count, count_options.min_count))
        write_counts(finished_tables(counter, count_options.min_count), summary, out, force=force)
        return summary


@contextmanager
def counted(
    tokenizer: Tokenizer,
    corpus: Corpus,
    read_options: ReadOptions,
    count_options: CountOptions,
    progress: Progress | None,
    hold_out: HoldOut | None = None,
) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of a counted corpus, with an empty table, and the counter, to be finished inside the block."""
    fingerprint = Fingerprint.of(tokenizer, read_options.rules)
    job = CountJob(tokenizer, fingerprint.rules, read_options, count_options, hold_out)
    with _counted_by_engine(job, corpus, progress) as (totals, added, counter):
        contents = {token.id: token.content for token in tokenizer.added}
        summary = PretokenCounts(
            table=_core.Counts(b"", bytes(8), b""),
            totals=totals,
            added=FrozenDict(dict(sorted((contents[i], n) for i, n in added))),
            fingerprint=fingerprint,
            min_count=count_options.min_count,
            normalize=read_options.normalize,
        )
        logger.info("read %s documents, %s bytes of text", f"{totals.documents:,}", f"{totals.bytes:,}")
        yield summary, counter


@contextmanager
def _counted_by_engine(
    job: CountJob, corpus: Corpus, progress: Progress | None
) -> Iterator[tuple[Totals, Iterable[tuple[int, int]], _core.Counter]]:
    """The totals, the occurrences of added tokens by id, and the counter."""
    if job.count_options.engine == "local":
        inputs = open_corpus(corpus, job.read_options)
        with new_counter(job) as counter:
            totals = count_inputs(counter, job, inputs, progress)
            yield totals, counter.added(), counter
        return
    require_engine(corpus, job.count_options)
    inputs = corpus_inputs(corpus, job.read_options, job.count_options.engine)
    from tokengraft.counts.engines.ray import counted_on_ray

    with counted_on_ray(job, inputs, progress) as (summary, counter):
        yield summary.totals, summary.added, counter


@contextmanager
def engine_kept(count_options: CountOptions) -> Iterator[None]:
    """Keeps what an engine starts inside the block until its end, so that several corpora can be counted with it."""
    if count_options.engine == "local":
        yield
        return
    from tokengraft.counts.engines.ray import kept

    with kept():
        yield


def require_engine(corpus: Corpus, count_options: CountOptions) -> None:
    """Refuses an engine that is not installed, and a corpus and options that it cannot count.

    Raises:
        OptionError: The engine cannot be used.
    """
    if count_options.engine == "local":
        return
    require_countable(corpus, count_options)
    missing = [name for name in ("ray", "pandas") if find_spec(name) is None]  # Ray Data needs pandas
    if missing:
        raise OptionError(
            f"--engine ray needs {missing[0]}, which is not installed", hint="pip install 'tokengraft[ray]'"
        )
