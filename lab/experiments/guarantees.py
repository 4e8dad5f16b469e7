"""`guarantees`: what guarantees cost, languages in balance, and sizes chosen by support. Not in the paper."""

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path

import tokengraft as tg
from lab.experiments.experiment import Cell, Experiment, Row, Rows, Setup, model_name
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import Table, distinct, only, percent, select

BALANCED = ("et", "ar", "hi")
"""Learned together in the table of languages in balance."""
SCRIPTS = {"Latn": "Latin", "Cyrl": "Cyrillic", "Arab": "Arabic", "Jpan": "Han", "Hani": "Han", "Other": "Devanagari"}
OTHER_TEXTS = ("medical_en",)
"""English of another domain: never preserved, measured if the data has it."""
TEXTS = {
    "preserved": "preserved English",
    "held_out": "held-out English",
    "medical_en": "medical English",
    "python": "Python's library",
}
"""The texts in which changes are counted."""
MOST = 64_000
"""The tokens that a size is chosen from."""


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """Rows of the part: `guarantees`, `balance` (for the first language only) or `sizes`."""
    yield from {"guarantees": _guarantees, "balance": _balance, "sizes": _sizes}[cell.part](setup, cell)


def _guarantees(setup: Setup, cell: Cell) -> Iterator[Row]:
    """How many tokens each guarantee leaves, what they gain, and what changes in English and in source code."""
    base, n = setup.tokenizer(cell.model), max(setup.sizes)
    counts, preserved = (setup.train_counts(cell.model, language) for language in (cell.language, ENGLISH))
    test = setup.flores_counts(cell.model, cell.language)
    texts = {"preserved": preserved, "held_out": setup.held_out_counts(cell.model, ENGLISH)}
    texts |= {
        name: setup.train_counts(cell.model, name) for name in OTHER_TEXTS if name in setup.data.source.languages()
    }
    texts["python"] = tg.count(base, iter(python_library()))
    limits = tg.Limits(scripts=[SCRIPTS[language_of(cell.language).script]])
    ways: dict[str, Callable[[], tuple[tg.Tokenizer, int, int | None]]] = {
        "none": lambda: _learned(base, tg.extend(base, counts, n)),
        "preserve": lambda: _by_command(setup.data.tokenizer_folder(cell.model), counts, preserved, n),
        "preserve exactly": lambda: _learned(base, tg.extend(base, counts, n, preserve=preserved)),
        "scripts": lambda: _learned(base, tg.extend(base, counts, n, limits=limits)),
    }
    for way, learn in ways.items():
        extended, learned, refused = learn()
        changed = {f"changed_{name}": _changed(base, extended, text) for name, text in texts.items()}
        found = {"learned": learned, "refused": refused if "preserve" in way else None}
        yield {"table": "guarantees", "way": way, **found, "gain": _gain(base, extended, test), **changed}


def _learned(base: tg.Tokenizer, extension: tg.Extension) -> tuple[tg.Tokenizer, int, int]:
    """The extended tokenizer, and how many tokens were learned and pairs refused."""
    return extension.apply(base), len(extension), len(extension.refused)


def _by_command(
    folder: Path, counts: tg.PretokenCounts, preserved: tg.PretokenCounts, n: int
) -> tuple[tg.Tokenizer, int, int]:
    """`tokengraft extend --preserve`, which leaves out words of the new language in the preserved text."""
    with tempfile.TemporaryDirectory() as work:
        files = [Path(work) / name for name in ("new.counts", "preserved.counts", "extension.json", "extended")]
        counts.save(files[0])
        preserved.save(files[1])
        options = ["--counts", files[0], "--add", n, "--preserve", files[1], "--extension", files[2], "--out", files[3]]
        command = [sys.executable, "-m", "tokengraft", "extend", folder, *options, "--quiet"]
        subprocess.run([str(part) for part in command], check=True)
        extension = tg.Extension.load(files[2])
        return tg.load(files[3]), len(extension), len(extension.refused)


@cache
def python_library() -> list[str]:
    """The modules of Python's own library: source code that no corpus has."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = [path.relative_to(folder) for path in folder.rglob("*.py")]
    own = [path for path in paths if not {"test", "tests", "site-packages", "dist-packages"} & {*path.parts}]
    return [(folder / path).read_text(encoding="utf-8", errors="replace") for path in sorted(own)]


def _changed(base: tg.Tokenizer, extended: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    """The share of the occurrences of pretokens that have other tokens."""
    return text.changed(base, extended).table.total() / text.table.total()


def _gain(base: tg.Tokenizer, extended: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    """How many more bytes a token has."""
    before, after = (sum(text.tokens(tokenizer).values()) for tokenizer in (base, extended))
    return before / after - 1


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
        extended = tg.extend(base, counts, n).apply(base)
        gains = {f"gain_{language}": _gain(base, extended, test[language]) for language in BALANCED}
        ratios = [1 + gain for gain in gains.values()]
        yield {"table": "balance", "way": way, **gains, "spread": max(ratios) / min(ratios)}


def _sizes(setup: Setup, cell: Cell) -> Iterator[Row]:
    """What `choose_size` takes on held-out documents, and what it gains there and on FLORES."""
    base, counts = setup.tokenizer(cell.model), setup.train_counts(cell.model, cell.language)
    held_out = setup.held_out_counts(cell.model, cell.language)
    extension = tg.extend(base, counts, MOST)
    choice = tg.measure.choose_size(base, extension, counts, held_out)
    extended = extension[: choice.size].apply(base)
    found = {"learned": len(extension), "knee": choice.knee, "supported": choice.supported, "chosen": choice.size}
    gains = {"gain_held_out": _gain(base, extended, held_out)}
    gains["gain"] = _gain(base, extended, setup.flores_counts(cell.model, cell.language))
    yield {"table": "sizes", "text_bytes": counts.totals.bytes, **found, **gains}


def tables(rows: Rows) -> list[Table]:
    """The three tables."""
    makers = {"guarantees": _guarantees_table, "balance": _balance_table, "sizes": _sizes_table}
    return [make(found) for name, make in makers.items() if (found := select(rows, table=name))]


def _names(row: Row) -> tuple[str, str]:
    return model_name(row["model"]), language_of(row["language"]).name


def _guarantees_table(rows: Rows) -> Table:
    texts = {name: head for name, head in TEXTS.items() if any(row.get(f"changed_{name}") is not None for row in rows)}
    lines = [
        (
            *_names(row),
            row["way"],
            f"{row['learned']:,}",
            None if row["refused"] is None else f"{row['refused']:,}",
            percent(row["gain"], signed=True),
            *(percent(row[f"changed_{name}"], 3) for name in texts),
        )
        for row in rows
    ]
    heads = ("tokenizer", "language", "guarantee", "new tokens", "refused pairs", "gain", *texts.values())
    note = (
        "Gain: bytes per token on FLORES against the base. Then the share of the pretokens of a text that have other "
        "tokens than before. With `preserve exactly`, the preserved English is proved not to change; the other texts "
        "were not preserved. `preserve` leaves out words of the new language in English. `scripts`: only tokens of the "
        "script of the language."
    )
    return Table("Guarantees", heads, lines, note)


def _balance_table(rows: Rows) -> Table:
    lines = [
        (
            model_name(row["model"]),
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
        gains = (percent(row[name], signed=True) for name in ("gain_held_out", "gain"))
        lines.append((*_names(row), round(row["text_bytes"] / 1e6), *numbers, *gains))
    heads = ("tokenizer", "language", "text, MB", "learned", "knee", "supported", "chosen", "held-out", "FLORES")
    note = (
        f"What `choose_size` takes of at most {MOST:,} tokens: at most 25 % of the new tokens may occur fewer than 100 "
        "times in the training text. Sizes are chosen on held-out documents. Gain in bytes per token there, and on "
        "FLORES, which chose nothing."
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
        panels.append(Panel(model_name(model), ", ".join(languages), "gain, percent", series))
    return panels or [Panel("Guarantees", "", "", [])]


EXPERIMENT = Experiment(
    name="guarantees",
    title="Guarantees, languages in balance, and sizes",
    source="not in the paper",
    about="What it costs to preserve English, to allow one script, and to balance languages.",
    models=("llama3", "llama2"),
    languages=BALANCED,
    parts=("guarantees", "balance", "sizes"),
    sizes=(8_000,),
    other_texts=OTHER_TEXTS,
    caveat="",
)
