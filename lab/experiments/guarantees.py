"""`guarantees`: what guarantees cost, languages in balance, and sizes chosen by support. Not in the paper."""

from collections.abc import Callable, Iterator
from fractions import Fraction

import tokengraft as tg
from lab.experiments.experiment import MODEL_NAMES, Cell, Experiment, Row, Rows, Setup
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, only, percent, select

BALANCED = ("et", "ar", "hi")
"""Learned together in the table of languages in balance."""
SCRIPTS = {"Latn": "Latin", "Cyrl": "Cyrillic", "Arab": "Arabic", "Jpan": "Han", "Hani": "Han", "Other": "Devanagari"}
MOST = 64_000
"""The tokens that a size is chosen from."""


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """Rows of the part: `guarantees`, `balance` (for the first language only) or `sizes`."""
    yield from {"guarantees": _guarantees, "balance": _balance, "sizes": _sizes}[cell.part](setup, cell)


def _guarantees(setup: Setup, cell: Cell) -> Iterator[Row]:
    """How many tokens each guarantee leaves, what they gain, and what changes in English."""
    base, n = setup.tokenizer(cell.model), max(setup.sizes)
    counts = setup.train_counts(cell.model, cell.language)
    preserved = {name: setup.train_counts(cell.model, name) for name in _preserved(setup)}
    first, *others = preserved.values()
    everything = sum(others, first)
    test = {"": setup.flores_counts(cell.model, cell.language)}
    limits = tg.Limits(scripts=[SCRIPTS[language_of(cell.language).script]])
    ways: dict[str, Callable[[], tg.Extension]] = {
        "none": lambda: tg.extend(base, counts, n),
        "preserve": lambda: tg.extend(base, counts, n, preserve=everything),
        "scripts": lambda: tg.extend(base, counts, n, limits=limits),
    }
    for way, learn in ways.items():
        extension = learn()
        extended = extension.apply(base)
        changed = {f"changed_{name}": _changed(base, extended, text) for name, text in preserved.items()}
        gain = tg.measure.curves(base, extension, test, [len(extension)]).points[-1].gain[""]
        refused = len(extension.refused) if way == "preserve" else None
        found = {"learned": len(extension), "refused": refused, "gain": gain, **changed}
        yield {"table": "guarantees", "way": way, **found}


def _preserved(setup: Setup) -> list[str]:
    """The texts that must not change: English, and Python code if the data has a corpus `python`."""
    return [ENGLISH, *(name for name in setup.data.source.languages() if name == "python")]


def _changed(base: tg.Tokenizer, extended: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    """The share of the occurrences of pretokens that have other tokens."""
    return text.changed(base, extended).table.total() / text.table.total()


def _balance(setup: Setup, cell: Cell) -> Iterator[Row]:
    """The gain of each language if tokens are learned for all of them together."""
    if cell.language != BALANCED[0]:
        return
    base, n = setup.tokenizer(cell.model), max(setup.sizes)
    train = {language: setup.train_counts(cell.model, language) for language in BALANCED}
    test = {language: setup.flores_counts(cell.model, language) for language in BALANCED}
    largest = max(counts.totals.bytes for counts in train.values())
    equal = [counts.scale(Fraction(largest, counts.totals.bytes)) for counts in train.values()]
    ways = {
        "all text": sum([*train.values()][1:], next(iter(train.values()))),
        "equal weights": sum(equal[1:], equal[0]),
        "parity": tg.learn.Parity(train),
        "parity, at most 50 % for one": tg.learn.Parity(train, max_share=0.5),
    }
    for way, counts in ways.items():
        point = tg.measure.curves(base, tg.extend(base, counts, n), test, [n]).points[-1]
        gains = {f"gain_{language}": point.gain[language] for language in BALANCED}
        yield {"table": "balance", "way": way, **gains, "spread": point.gain_spread}


def _sizes(setup: Setup, cell: Cell) -> Iterator[Row]:
    """What `choose_size` takes."""
    base, counts = setup.tokenizer(cell.model), setup.train_counts(cell.model, cell.language)
    test = setup.flores_counts(cell.model, cell.language)
    extension = tg.extend(base, counts, MOST)
    choice = tg.measure.choose_size(base, extension, counts, test)
    gain = tg.measure.curves(base, extension, {"": test}, [choice.size]).points[-1].gain[""]
    found = {"learned": len(extension), "knee": choice.knee, "supported": choice.supported, "chosen": choice.size}
    yield {"table": "sizes", "text_bytes": counts.totals.bytes, **found, "gain": gain}


def tables(rows: Rows) -> list[Table]:
    """The three tables."""
    makers = {"guarantees": _guarantees_table, "balance": _balance_table, "sizes": _sizes_table}
    return [make(found) for name, make in makers.items() if (found := select(rows, table=name))]


def _names(row: Row) -> tuple[str, str]:
    return MODEL_NAMES.get(row["model"], row["model"]), language_of(row["language"]).name


def _guarantees_table(rows: Rows) -> Table:
    texts = [name for name in (ENGLISH, "python") if any(row.get(f"changed_{name}") is not None for row in rows)]
    lines = [
        (
            *_names(row),
            row["way"],
            f"{row['learned']:,}",
            "–" if row["refused"] is None else f"{row['refused']:,}",
            percent(row["gain"], signed=True),
            *(percent(row[f"changed_{name}"], 3) for name in texts),
        )
        for row in rows
    ]
    heads = (
        "tokenizer",
        "language",
        "guarantee",
        "new tokens",
        "refused pairs",
        "gain",
        *(f"{name} changed" for name in texts),
    )
    note = (
        "Gain: bytes per token on FLORES against the base. Changed: share of the pretokens of the text whose "
        "segmentation changes. `preserve`: that text must not change. `scripts`: only tokens of the script of the "
        "language."
    )
    return Table("Guarantees", heads, lines, note)


def _balance_table(rows: Rows) -> Table:
    lines = [
        (
            MODEL_NAMES.get(row["model"], row["model"]),
            row["way"],
            *(percent(row[f"gain_{language}"], signed=True) for language in BALANCED),
            f"{row['spread']:.2f}",
        )
        for row in rows
    ]
    heads = ("tokenizer", "balance", *(f"gain, {language}" for language in BALANCED), "spread of gains")
    return Table("Languages in balance, learned together", heads, lines)


def _sizes_table(rows: Rows) -> Table:
    lines = []
    for row in rows:
        knee = "not reached" if row["knee"] is None else f"{row['knee']:,}"
        numbers = (f"{row['learned']:,}", knee, f"{row['supported']:,}", f"{row['chosen']:,}")
        lines.append((*_names(row), round(row["text_bytes"] / 1e6), *numbers, percent(row["gain"], signed=True)))
    heads = ("tokenizer", "language", "text, MB", "learned", "knee", "supported", "chosen", "gain")
    note = (
        f"What `choose_size` takes of at most {MOST:,} tokens: at most 25 % of the new tokens may occur fewer than 100 "
        "times in the training text. The knee and the gain are those of FLORES."
    )
    return Table("How many tokens", heads, lines, note)


def panels(rows: Rows) -> list[Panel]:
    """The gain of each guarantee, by language."""
    found = select(rows, table="guarantees")
    languages = distinct(found, "language")
    panels = []
    for model in distinct(found, "model"):
        series = []
        for way in distinct(found, "way"):
            mine = [only(found, model=model, way=way, language=language) for language in languages]
            series.append(Series(way, range(len(languages)), [100 * row["gain"] if row else None for row in mine]))
        panels.append(Panel(MODEL_NAMES.get(model, model), ", ".join(languages), "gain, percent", series))
    return panels or [Panel("Guarantees", "", "", [])]


EXPERIMENT = Experiment(
    name="guarantees",
    title="Guarantees, languages in balance, and sizes",
    source="not in the paper",
    about="What it costs to preserve English, to allow one script, and to balance languages.",
    measure=lambda setup, cell: [*measure(setup, cell)],
    tables=tables,
    panels=panels,
    models=("llama3", "llama2"),
    languages=BALANCED,
    parts=("guarantees", "balance", "sizes"),
    sizes=(8_000,),
    caveat="",
)
