"""Every measured figure of README and docs is computed from a committed file by an entry of `docs/figures.toml`.

A figure without an entry is an error, and so is an entry whose text or whose values the page does not have.
"""

import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from lab.benchmarks import page as benchmarks
from lab.comparison import page as comparison
from lab.experiments.initialisers import rank_correlation
from lab.experiments.tables import from_csv, mean

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

ROOT = Path(__file__).parents[2]
GENERATED = {"api.md", "cli.md", "compatibility.md", "reproduce.md"}
PAGES = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED)]
PAGES.append(ROOT / "lab" / "experiments" / "pages" / "reproduce.md")
ENTRIES = tomllib.loads((ROOT / "docs" / "figures.toml").read_text(encoding="utf-8"))
COMPARED = {
    "docs/benchmarks.md": benchmarks.parts(json.loads(benchmarks.RESULT.read_bytes())),
    "docs/comparison.md": comparison.parts(),
}
"""Parts that another test compares with their data, by page."""
HIDDEN = re.compile(r"^```.*?^```|^<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.M)
"""Code, places of the template of a page, and addresses of links."""
MORE = r"(?:\s*(?:to|and|or|,|/|–|→)\s*[+−-]?\d[\d,.]*)*"
NUMBER = re.compile(rf"(?<![\w.,-])([+−-]?)(\d+(?:,\d{{3}})*(?:\.\d+)?)(?![\w.]*\d)(?={MORE}( %)?)")
UNIT = re.compile(rf"{MORE} (?:%|bytes per token|bits per byte|s\b|seconds|minutes|hours|MB/s|GB/s|times\b)|×")

WORD = re.compile(rf"{MORE} %(?: \([^)]*\))?\*?\s+(more|fewer)\b")
"""A word that says the sign. Of others, such as "worse", it depends on what was measured: these are not checked."""


class Row(dict):
    """A row whose columns are attributes too."""

    __getattr__ = dict.__getitem__


@dataclass(frozen=True)
class Number:
    """A number that a page prints."""

    text: str
    sign: str
    decimals: int
    percent: bool
    figure: bool
    place: int

    def shows(self, value):
        printed, value = float(self.text.replace(",", "")), value * 100 if self.percent else value
        sign = {"+": value > 0, "−": value < 0, "-": value < 0}.get(self.sign, True)
        rounded = self.figure or self.decimals  # other whole numbers are sizes and names
        return sign and abs(abs(value) - printed) <= (0.5000001 * 10**-self.decimals if rounded else 0)


def numbers(text):
    for found in NUMBER.finditer(text):
        decimals = len(found[2].partition(".")[2])
        cell = text[: found.start()].endswith("| ") and re.match(r" [MG]B \|", text[found.end() :])
        figure = bool(cell or UNIT.match(text, found.end())) or decimals > 1
        said = WORD.match(text, found.end())
        sign = found[1] or ({"more": "+", "fewer": "-"}[said[1]] if said else "")
        yield Number(found[2], sign, decimals, bool(found[3]), figure, found.start())


@cache
def content(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".csv"):
        return [Row(row) for row in from_csv(text)]
    if path.endswith(".jsonl"):
        return [json.loads(line, object_hook=Row) for line in text.splitlines()]
    return json.loads(text, object_hook=Row)


@cache
def values(path, expression):
    data = content(path)

    def rows(**wanted):
        return [row for row in data if all(row.get(name) == value for name, value in wanted.items())]

    def one(**wanted):
        (row,) = rows(**wanted)
        return row

    helpers = {"data": data, "rows": rows, "one": one, "mean": mean, "median": median}
    helpers["rank_correlation"] = rank_correlation
    helpers["change"] = lambda ours, theirs, column: ours[column] / theirs[column] - 1
    found = eval(f"({expression})", helpers)
    return found if isinstance(found, list | tuple) else [found]


def name_of(page):
    return str(page.relative_to(ROOT))


def read(page):
    """The text of a page, without what another test compares."""
    text = page.read_text(encoding="utf-8")
    for _, part in COMPARED.get(name_of(page), ()):
        text = text.replace(part, "")
    return text


def entries(kind, page):
    return [entry for entry in ENTRIES[kind] if entry["page"] == name_of(page)]


def problems(text, figures=(), given=()):
    """What is printed and not computed, or computed and not printed."""
    hidden = HIDDEN.sub(lambda found: re.sub(r"[^\n]", "\0", found[0]), text)
    blocks = [found.span() for found in re.finditer(r"(?:.+\n?)+", hidden)]
    printed = [replace(n, place=low + n.place) for low, high in blocks for n in numbers(hidden[low:high])]
    shown = set()
    for figure in figures:
        if text.count(figure["text"]) != 1:
            yield f"{figure['text']!r} is on the page {text.count(figure['text'])} times, not once"
            continue
        start = text.index(figure["text"])
        end = next(high for _, high in blocks if high > start)
        left = [number for number in printed if start <= number.place < end]
        for value in values(figure["file"], figure["expression"]):
            found = next((number for number in left if number.shows(value)), None)
            if found is None:
                yield f"{value:.5g} of `{figure['expression']}` is not printed in order after {figure['text']!r}"
            else:
                shown.add(found)
                left = left[left.index(found) + 1 :]
    for entry in given:
        places = [found.span() for found in re.finditer(re.escape(entry["text"]), text)]
        if not places:
            yield f"{entry['text']!r} is not on the page"
        shown |= {number for number in printed for low, high in places if low <= number.place < high}
    for number in printed:
        if number.figure and number not in shown:
            line = text.count("\n", 0, number.place) + 1
            around = text[max(number.place - 30, 0) : number.place + 30]
            yield f"line {line}: {number.sign}{number.text} has no entry in docs/figures.toml: {around!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_figures_are_those_of_the_committed_files(page):
    found = [*problems(read(page), entries("figure", page), entries("given", page))]
    assert not found, "\n".join(found)


def test_every_entry_is_for_a_page_that_is_checked():
    assert {entry["page"] for kind in ENTRIES.values() for entry in kind} <= {*map(name_of, PAGES)}


def test_no_page_has_a_hidden_comment():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert [name_of(page) for page in pages if "<!--" in page.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize(
    ("page", "start", "end", "least"),
    [
        ("README.md", "## What you get", "## Install", 10),
        ("docs/guides/train-the-model.md", "## What to expect", "## `training.json`", 60),
    ],
)
def test_every_altered_figure_is_found(page, start, end, least):
    path = ROOT / page
    text, figures, given = read(path), entries("figure", path), entries("given", path)
    results = NUMBER.finditer(text, text.index(start), text.index(end))
    places = [found.start(2) for found in results if UNIT.match(text, found.end())]
    assert len(places) >= least
    for at in places:
        altered = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
        assert [*problems(altered, figures, given)], f"{altered[at - 20 : at + 20]!r} is not found"


BUDGET = "lab/experiments/results/budget/results.csv"


@pytest.mark.parametrize(
    ("text", "expression", "n_problems"),
    [
        ("4.18 bytes per token, 35 % unreachable", None, 2),
        ("`0.5 %` and 16,000 tokens of Llama-3", None, 0),
        ("```\n4.18 bytes per token\n```", None, 0),
        ("2.644 → 3.761", "one(size=0).target, rows(characters=10**6)[0].target", 0),
        ("3.761 → 2.644", "one(size=0).target, rows(characters=10**6)[0].target", 2),
        ("| 2.64 |", "one(size=0).target", 0),
        ("| 2.65 |", "one(size=0).target", 2),
        ("a tokenizer of 3 letters", "one(size=0).target", 1),
        ("+64 to 65 %", "one(size=0).target / 4, 0.65", 2),
        ("+66 to 65 %", "one(size=0).target / 4, 0.65", 0),
        ("66 % fewer", "one(size=0).target / 4", 2),
        ("66 % (of all) more", "one(size=0).target / 4", 0),
        ("−66 %", "one(size=0).target / 4", 2),
    ],
)
def test_a_figure_that_is_not_computed_is_found(text, expression, n_problems):
    figures = [{"text": text[:4], "file": BUDGET, "expression": expression}] if expression else []
    assert len([*problems(text, figures)]) == n_problems


def test_an_entry_whose_text_is_not_on_its_page_once_is_found():
    figure = {"text": "is 2.644", "file": BUDGET, "expression": "one(size=0).target"}
    assert [*problems("It is 2.644 now", [figure])] == []
    assert [*problems("It is 3", [figure])] == ["'is 2.644' is on the page 0 times, not once"]
    assert len([*problems("It is 2.644, and is 2.644", [figure])]) == 3
    assert [*problems("It is 3", (), [figure])] == ["'is 2.644' is not on the page"]
