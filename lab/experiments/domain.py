"""`domain`: what text to learn from. Single sources, prose, text without duplicates, and limits on large sources."""

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import tokengraft as tg
from lab.experiments.data import Folder, MissingDataError, digest
from lab.experiments.experiment import Cell, Experiment, Row, Rows, Setup
from lab.experiments.intervals import Interval, paired_change
from lab.experiments.languages import language_of
from lab.experiments.learn import extended, tokens_by_line
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import NOTHING, Table, distinct, number, only, percent, select

LANGUAGES = ("et", "de", "fi", "ru", "ar", "ja", "zh", "hi")
PROSE = ("bible", "commonvoice", "edt_treebank", "ted", "ud_edt_devtest", "ud_ewt_devtest", "wikipedia")
"""Sources of continuous text: news, fiction, encyclopedias, talks, spoken sentences. The others are software
documentation, user interfaces and lists of laws."""
SMALLEST = 1_000_000
"""Bytes of text of a source, or of prose, that is learned from alone."""
SHARES = (25, 50)
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")
"""A word, or a character of a script without spaces."""
SHINGLE = 5
METHODS = {
    "all": "everything",
    "prose": "prose only",
    "half prose": "half prose by weight",
    "lines": "each line once",
    "near lines": "no near-duplicate lines",
    "near documents": "no near-duplicate documents",
    **{f"share {share}": f"at most {share} % per source" for share in SHARES},
}


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """A row for each text and size, with intervals of the change against everything."""
    base, documents = setup.tokenizer(cell.model), setup.documents(cell.language)
    texts = {"flores": setup.data.sentences(cell.language), "held_out": documents.held_out}
    sizes = {name: sum(len(text.encode(errors="replace")) for text in part) for name, part in texts.items()}
    before: dict[tuple[str, int], list[int]] = {}
    for method, counts in _counts(base, by_source(setup, cell.language)):
        for size, tokenizer in extended(base, tg.extend(base, counts, max(setup.sizes)), setup.sizes).items():
            row: dict[str, Any] = {"method": method, "size": size, "bytes": counts.totals.bytes}
            for name, text in texts.items():
                tokens = tokens_by_line(tokenizer, text)
                row[name] = sizes[name] / sum(tokens)
                if method == "all":
                    before[name, size] = tokens
                elif (name, size) in before and (name == "flores" or method in METHODS):
                    change = paired_change(before[name, size], tokens)
                    row |= {f"{name}_change": change.value, f"{name}_low": change.low, f"{name}_high": change.high}
            yield row


def by_source(setup: Setup, language: str) -> dict[str, list[str]]:
    """The documents to learn from by source, the largest source first."""
    import pyarrow.parquet as pq

    if not isinstance(setup.data.source, Folder):
        raise MissingDataError("`domain` needs sources by name", hint="pass --data DIR with Parquet files")
    names: dict[bytes, str] = {}
    for path in setup.data.source.files(language):
        if path.suffix != ".parquet" or "source" not in pq.read_schema(path).names:
            raise MissingDataError(f"`{path}` has no column `source`", hint="`domain` reads Parquet with this column")
        table = pq.read_table(path, columns=["text", "source"])
        texts, sources = (table.column(name).to_pylist() for name in ("text", "source"))
        names |= {digest(text): source.rpartition(".")[2] for text, source in zip(texts, sources, strict=True) if text}
    found: dict[str, list[str]] = {}
    for text in setup.documents(language).train:
        found.setdefault(names[digest(text)], []).append(text)
    return dict(sorted(found.items(), key=lambda item: -sum(map(len, item[1]))))


def _counts(base: tg.Tokenizer, sources: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tg.PretokenCounts]]:
    """The counts of each text."""
    parts = {name: tg.count(base, iter(texts)) for name, texts in sources.items()}
    yield "all", _sum(parts.values())
    for name, counts in parts.items():
        if counts.totals.bytes >= SMALLEST:
            yield f"source {name}", counts
    prose = [counts for name, counts in parts.items() if name in PROSE]
    if sum(counts.totals.bytes for counts in prose) >= SMALLEST and len(prose) < len(parts):
        yield "prose", _sum(prose)
        halves = [_sum(prose), _sum(counts for name, counts in parts.items() if name not in PROSE)]
        larger = max(half.totals.bytes for half in halves)
        yield "half prose", _sum(half.scale(Fraction(larger, half.totals.bytes)) for half in halves)
    documents = sorted((text for texts in sources.values() for text in texts), key=digest)
    yield "lines", tg.count(base, distinct_lines(documents))
    yield "near lines", tg.count(base, without_near_duplicates(documents, of_lines=True))
    yield "near documents", tg.count(base, without_near_duplicates(documents, of_lines=False))
    for share in SHARES:
        limited = shares({name: counts.totals.bytes for name, counts in parts.items()}, Fraction(share, 100))
        if limited:
            yield f"share {share}", _sum(parts[name].scale(round(1000 * w)) for name, w in limited.items() if w)


def _sum(parts: Iterable[tg.PretokenCounts]) -> tg.PretokenCounts:
    first, *others = parts
    return sum(others, first)


def distinct_lines(documents: Iterable[str]) -> Iterator[str]:
    """The documents without lines that were there before.

    >>> [*distinct_lines(["a\\nb", "b", "b\\nc"])]
    ['a\\nb', 'c']
    """
    seen: set[bytes] = set()

    def is_new(line: str) -> bool:
        before = len(seen)
        seen.add(digest(line))
        return len(seen) > before

    return _lines_that(is_new, documents)


def without_near_duplicates(documents: Iterable[str], *, of_lines: bool) -> Iterator[str]:
    """The documents without those, or without those of their lines, that are nearly the same as earlier ones.

    At least half of their sequences of five words were there before. Of whole documents, one in 8 sequences is
    looked at. Shorter texts are one sequence.

    >>> [*without_near_duplicates(["a b c d e f g\\na b c", "a b c d e f h", "a b c\\nd"], of_lines=True)]
    ['a b c d e f g\\na b c', 'd']
    """
    seen: set[int] = set()

    def is_new(text: str) -> bool:
        words = WORD.findall(text)
        starts = range(max(len(words) - SHINGLE + 1, 1))
        hashes = {zlib.crc32(" ".join(words[i : i + SHINGLE]).encode()) for i in starts}
        sampled = hashes if of_lines else {h for h in hashes if h % 8 == 0}
        known = len(sampled & seen)
        seen.update(sampled)
        return 2 * known < len(sampled) or not sampled

    return _lines_that(is_new, documents) if of_lines else filter(is_new, documents)


def _lines_that(is_new: Callable[[str], bool], documents: Iterable[str]) -> Iterator[str]:
    """The documents with those of their lines that are new. Lines stay together, as line ends are parts of tokens."""
    for document in documents:
        if lines := [*filter(is_new, document.split("\n"))]:
            yield "\n".join(lines)


def shares(sizes: Mapping[str, int], share: Fraction) -> dict[str, Fraction] | None:
    """A weight of at most 1 for each source, so that none has more than a share; None if that cannot be, or is so.

    >>> shares({"a": 80, "b": 10, "c": 10}, Fraction(1, 2))
    {'a': Fraction(1, 4), 'b': Fraction(1, 1), 'c': Fraction(1, 1)}
    """
    ordered = sorted(sizes, key=lambda name: -sizes[name])
    for n in range(len(ordered)):  # the n largest get as much as the limit allows
        rest = sum(sizes[name] for name in ordered[n:])
        limit = share * rest / (1 - n * share) if n * share < 1 else Fraction(0)
        if limit >= sizes[ordered[n]]:
            if n == 0:
                return None
            return {name: min(Fraction(1), limit / sizes[name]) for name in sizes}
    return None


def _interval(row: Row, name: str = "flores") -> Interval:
    return Interval(*(row[f"{name}_{part}"] for part in ("change", "low", "high")))


def tables(rows: Rows) -> list[Table]:
    """The changes on FLORES at a glance; with intervals, on FLORES and on held-out text; and every source."""
    return [_overview(rows), _changes(rows, "flores"), _changes(rows, "held_out"), _sources(rows)]


def _overview(rows: Rows) -> Table:
    languages = distinct(rows, "language")
    lines = []
    for method, label in METHODS.items():
        found = [only(_chosen(rows, language), method=method) for language in languages]
        if method == "all" or not any(found):
            continue
        intervals = [_interval(row) for row in found if row]
        better, worse = (sum(getattr(one, side) for one in intervals) for side in ("above_zero", "below_zero"))
        lines.append((label, better, worse, *(_short(row) for row in found)))
    return Table(
        "Text to learn from, against everything",
        ("learned from", "better", "worse", *languages),
        lines,
        "Change in bytes per token on FLORES, percent. Better, worse: languages whose 95 % interval is above or below "
        "zero; other changes are in brackets.",
    )


def _short(row: Row | None) -> str | None:
    if row is None:
        return None
    interval = _interval(row)
    text = percent(interval.value, signed=True).removesuffix(" %")
    return text if interval.above_zero or interval.below_zero else f"({text})"


def _chosen(rows: Rows, language: str) -> Rows:
    """The rows of the largest size that all texts but single sources are large enough for."""
    mine = select(rows, language=language)
    methods = {size: {row["method"] for row in select(mine, size=size)} & METHODS.keys() for size in _sizes(mine)}
    return select(mine, size=max((size for size in methods if methods[size] == methods[min(methods)]), default=0))


def _sizes(rows: Rows) -> list[int]:
    return sorted(distinct(rows, "size"))


def _changes(rows: Rows, name: str) -> Table:
    lines = []
    for language in distinct(rows, "language"):
        mine = _chosen(rows, language)
        everything = only(mine, method="all")
        if everything is None:
            continue
        cells = [only(mine, method=method) for method in METHODS if method != "all"]
        changes = [str(_interval(row, name)) if row else NOTHING for row in cells]
        size = f"{everything['size']:,}"
        lines.append((language_of(language).name, size, number(everything[name]), *changes))
    text = "FLORES" if name == "flores" else "held-out documents"
    note = (
        f"Bytes per token on {text} after learning from everything, and the change with its 95 % interval when "
        "learning from other text. A dash: too little text, or nothing that the limit changes."
    )
    heads = ("language", "added", *METHODS.values())
    return Table(f"Text to learn from, measured on {text}", heads, lines, note)


def _sources(rows: Rows) -> Table:
    lines = []
    for language in distinct(rows, "language"):
        mine = _chosen(rows, language)
        for row in sorted(mine, key=lambda row: -row["flores"]):
            if row["method"].startswith(("source", "all", "prose")):
                name = row["method"].removeprefix("source ")
                change = NOTHING if name == "all" else str(_interval(row))
                megabytes = number(row["bytes"] / 1e6, 1)
                lines.append((language_of(language).name, name, megabytes, number(row["flores"]), change))
    heads = ("language", "learned from", "MB", "bytes per token, FLORES", "change")
    note = "Sources of less than 1 MB, and those that do not give enough tokens, are left out."
    return Table("Single sources", heads, lines, note)


def panels(rows: Rows) -> list[Panel]:
    """The change on FLORES by language, for each text."""
    languages = distinct(rows, "language")
    series = []
    for method, label in METHODS.items():
        found = [only(_chosen(rows, language), method=method) for language in languages]
        if method != "all":
            values = [100 * row["flores_change"] if row else None for row in found]
            series.append(Series(label, [*range(len(languages))], values))
    title = "Change against everything: " + ", ".join(languages)
    return [Panel(title, "language", "percent, FLORES", series)]


EXPERIMENT = Experiment(
    name="domain",
    title="Text to learn from",
    source="not measured",
    about=(
        "Continued training on everything, on each source alone, on prose alone, without repeated lines, without "
        "near-duplicate documents or lines (half of the sequences of five words were there before), and with a limit "
        "on the share of each source (larger sources are weighted down)."
    ),
    languages=LANGUAGES,
    sizes=(2_000, 8_000, 16_000),
    needs_english=False,
)
