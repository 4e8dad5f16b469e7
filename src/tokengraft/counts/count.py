"""`count`: reads a corpus once and counts its pretokens. `letters_of`: the scripts that a text is written in."""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from importlib.util import find_spec
from operator import add
from pathlib import Path
from types import NoneType
from typing import NamedTuple

from tokengraft import _core
from tokengraft.corpus.open import Corpus, open_corpus, paths_of
from tokengraft.corpus.options import ReadOptions, Totals, only_paths
from tokengraft.counts.pretoken_counts import (
    EVERYTHING,
    PretokenCounts,
    chosen_rows,
    open_counts,
    split_counts,
    write_counts,
)
from tokengraft.counts.threads import (
    CountJob,
    CountOptions,
    Engine,
    HoldOut,
    adding_counter,
    count_inputs,
    finished_tables,
    new_counter,
)
from tokengraft.counts.weights import whole_weights
from tokengraft.errors import OptionError, Progress, option, require_type, wrong_type
from tokengraft.progress import logger, stage
from tokengraft.tokenizer.llama_cpp import converter_table
from tokengraft.tokenizer.tokenizer import Tokenizer


class HeldOutCounts(NamedTuple):
    """Counts, and the texts that were held out of them: documents, and pieces of long ones."""

    counts: PretokenCounts
    held_out: tuple[str, ...]
    """In the order of their hashes, each once."""
    held_out_documents: int
    """Documents whose beginning is held out, copies included. They are not among the documents of the counts."""


def reading_warnings(totals: Totals) -> tuple[str, ...]:
    """Warnings about text that was replaced or skipped, one sentence each; empty if there is none.

    >>> reading_warnings(Totals(skipped=2))
    ('2 documents or files could not be read, or not to their end, and were left out',)
    """
    replaced = (
        f"{totals.replaced:,} places in the text were not UTF-8 and were replaced by U+FFFD; "
        "if the text is in another encoding, convert it first: iconv -f LATIN1 -t UTF-8"
    )
    skipped = f"{totals.skipped:,} documents or files could not be read, or not to their end, and were left out"
    return (replaced,) * bool(totals.replaced) + (skipped,) * bool(totals.skipped)


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
        weights: One weight for each item of a list of paths. Only their ratio matters: counts are multiplied by the
            smallest whole numbers with this ratio, so 1 and 1/3 are 3 and 1. Limits are for each item then.
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
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("read_options", read_options, ReadOptions, NoneType)
    require_type("count_options", count_options, CountOptions, NoneType)
    read_options, count_options = read_options or ReadOptions(), count_options or CountOptions()
    if engine or address:
        engine, address = engine or count_options.engine, address or count_options.address
        count_options = replace(count_options, engine=engine, address=address)
    if weights is None:
        with counted(CountJob.of(tokenizer, read_options, count_options), corpus, progress) as (metadata, counter):
            return replace(metadata, table=counter.finish().take(EVERYTHING, count_options.min_count))
    items, factors = _weighted_items(corpus), whole_weights(weights)
    if len(items) != len(factors) or not items:
        raise OptionError(
            f"{len(factors)} weights were given for {len(items)} corpora", hint="give one weight for each corpus"
        )
    for item in items:
        require_engine(item, count_options)

    def weighted() -> Iterator[PretokenCounts]:
        options = replace(count_options, min_count=1)
        for item, factor in zip(items, factors, strict=True):
            # Limits are for each item: those of the first ones alone would have a weight and not be read.
            part = count(tokenizer, item, read_options=read_options, count_options=options, progress=progress)
            yield part.scale(factor)

    with engine_kept(count_options):
        total = reduce(add, weighted())
    import numpy as np

    numbers = np.frombuffer(total.table.columns()[2], "<u8")
    table = chosen_rows(total.table, numbers >= count_options.min_count)
    return replace(total, table=table, min_count=count_options.min_count)


def _weighted_items(corpus: Corpus) -> list[Corpus]:
    """The corpora that have a weight each."""
    paths = paths_of(corpus)
    if paths is not None:
        return [*paths]
    if isinstance(corpus, list | tuple) and any(isinstance(item, str) for item in corpus):
        raise OptionError(
            "weights are for several corpora, and the list has texts",
            hint="count each list of texts for itself and add up: tg.count(tokenizer, texts).scale(2) + ...",
        )
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
    """The counts of a corpus without the texts that are held out, and those texts.

    Copies of a held-out text are not counted. The limits of ``count_options`` include held-out text. The totals are
    those of the counted text, except for what was replaced or skipped, which includes held-out text.

    Examples:
        >>> tok = tg.load("model")
        >>> lines, limits, hold_out = ReadOptions(documents="lines"), CountOptions(), HoldOut(one_in=50)
        >>> result = count_with_hold_out(tok, "et.txt", read_options=lines, count_options=limits, hold_out=hold_out)
        >>> len(result.held_out), result.counts.totals.documents
        (12, 388)
    """
    job = CountJob.of(tokenizer, read_options, count_options, hold_out)
    with counted(job, corpus, progress) as (metadata, counter):
        share = counter.hold_out_share()
        held_out = tuple(text for text, at_start, inside in share if at_start or inside)
        documents = sum(at_start for _, at_start, _ in share)
        counts = replace(metadata, table=counter.finish().take(EVERYTHING, count_options.min_count))
        return HeldOutCounts(counts, held_out, documents)


def count_to_file(
    job: CountJob, corpus: Corpus, out: Path, *, force: bool = False, progress: Progress | None = None
) -> PretokenCounts:
    """Counts a corpus into a Parquet file in bounded memory. Returns its metadata, with an empty table."""
    with counted(job, corpus, progress) as (metadata, counter):
        write_counts(finished_tables(counter, metadata.min_count), metadata, out, force=force)
        return metadata


def merge_counts(paths: list[Path], out: Path, *, count_options: CountOptions, force: bool = False) -> PretokenCounts:
    """Adds up files of counts into one in bounded memory. Returns its metadata, with an empty table."""
    with adding_counter(count_options.memory // 2) as counter:
        parts = list[PretokenCounts]()
        for path in paths:
            part, tables = open_counts(path)
            parts.append(part)
            for table in tables:
                counter.add(table)
        metadata = sum(parts[1:], parts[0])
        metadata = replace(metadata, min_count=max(metadata.min_count, count_options.min_count))
        write_counts(finished_tables(counter, count_options.min_count), metadata, out, force=force)
        return metadata


def counts_of(
    tokenizer: Tokenizer,
    corpus: Corpus,
    *,
    read_options: ReadOptions,
    count_options: CountOptions,
    progress: Progress | None = None,
) -> PretokenCounts:
    """The counts of a corpus of text, of files of counts, or of both."""
    files, text = split_counts(corpus)
    parts = [PretokenCounts.load(file) for file in files]
    if text is not None:
        with only_paths() if files else nullcontext():
            parts.append(
                count(tokenizer, text, read_options=read_options, count_options=count_options, progress=progress)
            )
    return sum(parts[1:], parts[0])


@contextmanager
def counted(job: CountJob, corpus: Corpus, progress: Progress | None) -> Iterator[tuple[PretokenCounts, _core.Counter]]:
    """The metadata of a counted corpus, with an empty table, and the counter, to be finished inside the block."""
    with ExitStack() as stack:
        if job.count_options.engine == "local":
            inputs = open_corpus(corpus, job.read_options)
            counter = stack.enter_context(new_counter(job))
            metadata = job.metadata(count_inputs(counter, job, inputs, progress), counter.added())
        else:
            require_engine(corpus, job.count_options)
            from tokengraft.counts.ray import counted_on_ray
            from tokengraft.counts.units import corpus_inputs

            inputs = corpus_inputs(corpus, job.read_options, job.count_options.engine)
            total, counter = stack.enter_context(counted_on_ray(job, inputs, progress))
            metadata = job.metadata(total.totals, total.added)
        totals = metadata.totals
        logger.info("read %s documents, %s bytes of text", f"{totals.documents:,}", f"{totals.bytes:,}")
        yield metadata, counter


@contextmanager
def engine_kept(count_options: CountOptions) -> Iterator[None]:
    """Keeps what an engine starts inside the block until its end, so that several corpora can be counted with it."""
    if count_options.engine == "local":
        yield
        return
    from tokengraft.counts.ray import kept

    with kept():
        yield


def require_engine(corpus: Corpus, count_options: CountOptions) -> None:
    """Refuses an engine that is not installed, and a corpus and options that it cannot count."""
    if (engine := count_options.engine) == "local":
        return
    for name in ("max_documents", "max_bytes"):
        if getattr(count_options, name) is not None:
            raise OptionError(
                f"{option(name)} is not possible with {option('engine', engine)}: no machine knows what others have "
                "read",
                hint=f"drop {option(name)}, or count a part of the files: {option('shard')} 0/64; or drop "
                f"{option('engine', engine)}",
            )
    if paths_of(corpus) is None:
        raise OptionError(
            f"a {type(corpus).__name__} in memory cannot be counted with {option('engine', engine)}",
            hint="write the text to files, and pass their paths; or count it with the local engine",
        )
    missing = [name for name in ("ray", "pandas") if find_spec(name) is None]  # Ray Data needs pandas
    if missing:
        raise OptionError(
            f"{option('engine', 'ray')} needs {missing[0]}, which is not installed",
            hint="pip install 'tokengraft[ray]'",
        )


def check_text_counts(tokenizer: Tokenizer) -> PretokenCounts:
    """The pretokens of the converter's check text, for ``extend(preserve=...)``.

    A merge that applies in none of them leaves the ids of the text, and so the converter's hash, as they are.
    """
    return count(tokenizer, iter([converter_table().check_text]), count_options=CountOptions(workers=1))


RARE = Fraction(1, 100)
"""A text is not written in a script that has a smaller share of its letters."""
NO_SCRIPT = frozenset(("Common", "Inherited", "Unknown"))
"""What Unicode says of characters that are not of one script."""


def letters_of(text: PretokenCounts) -> tuple[dict[str, str], Counter[str]]:
    """The script of every character of a text that has one, and how many letters of each script the text has."""
    characters = dict(text.table.characters())
    named = zip(characters, _core.scripts([*characters]), strict=True)
    script_of = {character: name for character, (name,) in named if name not in NO_SCRIPT}
    letters = Counter[str]()
    for character, name in script_of.items():
        letters[name] += characters[character]
    return script_of, letters


def written_in(letters: Counter[str]) -> set[str]:
    """The scripts that a text is written in, by the numbers of its letters."""
    most = {name for name, _ in letters.most_common(1)}
    return most | {name for name, number in letters.items() if number >= RARE * letters.total()}
