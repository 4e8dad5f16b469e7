"""Every measured figure of README and docs is computed from a committed file, by a marker beside it.

A marker is a comment that starts a line, in a block of text or on its own before a block:

    <!-- figures: lab/experiments/results/budget/results.csv one(method="base").target -->

After the path is a Python expression for a number or a list of numbers. `rows(column=value, ...)` gives the rows of the
file, `one(...)` the only one, `data` the content of a JSON file, and `paired(ours, theirs)` a change with its interval.
The numbers must be printed in the block, in this order, rounded as they are printed there; of shares, percentages are
printed. A figure without a marker is an error, unless `GIVEN` says why it needs none.
"""

import json
import re
from dataclasses import astuple, dataclass
from functools import cache
from pathlib import Path
from statistics import median

import pytest

from lab.experiments.initialisers import rank_correlation
from lab.experiments.intervals import paired_change
from lab.experiments.tables import from_csv, mean

ROOT = Path(__file__).parents[2]
GENERATED = {"api.md", "cli.md", "compatibility.md", "reproduce.md"}
PAGES = [ROOT / "README.md", *(path for path in (ROOT / "docs").rglob("*.md") if path.name not in GENERATED)]
PAGES.append(ROOT / "lab" / "experiments" / "pages" / "reproduce.md")
MARKER = re.compile(r"^<!-- figures: (\S+)\s+(.*?)\s*-->", re.DOTALL | re.MULTILINE)
HIDDEN = re.compile(
    r"^```.*?^```|^<!-- (?:benchmark|comparison) .*?^<!-- end -->$|<!--.*?-->|`[^`\n]*`|\]\([^)]*\)", re.DOTALL | re.M
)
"""Code, parts that another test compares with their data, comments, and addresses of links."""
MORE = r"(?:\s*(?:to|and|or|,|/|–|→)\s*[+−-]?\d[\d,.]*)*"
NUMBER = re.compile(rf"(?<![\w.,-])([+−-]?)(\d+(?:,\d{{3}})*(?:\.\d+)?)(?![\w.]*\d)(?={MORE}( %)?)")
UNIT = re.compile(rf"{MORE} (?:%|bytes per token|bits per byte|s\b|seconds|minutes|hours|MB/s|GB/s|times\b)|×")

WORD = re.compile(rf"{MORE} %(?: \([^)]*\))?\*?\s+(more|fewer)\b")
"""A word that says the sign. Of others, such as "worse", it depends on what was measured: these are not checked."""

LIMIT, VERSION = "a limit or default of the program", "the version of a requirement"
BASES = (
    "2.6442 | 4.8617",
    "2.6071 | 4.7824",
    "2.9925 | 4.7470",
    "2.4351 | 4.2428",
    "3.1254 | 4.8719",
    "2.4148 | 4.4036",
    "2.3666 | 4.7652",
)
GIVEN = {
    "README.md": {
        "Python 3.10": VERSION,
        "Rust 1.85": VERSION,
        "By 95 % intervals": "how wide they are",
        "in the paper: 3.7 %)": "the paper's figure",
        "are (8.2 %)": "the paper's figure",
    },
    "docs/architecture.md": {"less than 1 % of the letters": LIMIT},
    "docs/benchmarks.md": {"1.2 s for `extend`": "a goal"},
    "docs/comparison.md": {"Python 3.10": VERSION},
    "docs/scale.md": {
        "At the 1 GB/s of a good network": "an assumption",
        "17 minutes on any number of cores": "a terabyte at that rate",
    },
    "docs/serving.md": {"transformers 5.22": VERSION},
    "docs/testing.md": {"5 minutes for each command": LIMIT},
    "docs/guides/guarantees.md": {
        "at least 1 % of the letters": LIMIT,
        "less than 1 % of the preserved letters": LIMIT,
        "less than 1 % of the letters": LIMIT,
        "(0.001 % are words in Hindi": "in the table after it",
    },
    "docs/guides/shrink-a-model.md": {
        "63 % of Gemma-3-270M's parameters": "by the shapes of its tensors",
        "at least 99.95 % of the tokens": LIMIT,
        "0.995` removes": "an option",
        "over 1 % more tokens": LIMIT,
        "536 MB | 350 MB |\n| GGUF | 543 MB | 353 MB": "by the shapes of its tensors, two bytes each",
        "10 MB | 30 MB |": "settings",
    },
    "docs/guides/shrink-an-embedding-model.md": {"69 % of those of XLM-R base": "by the shapes of its tensors"},
    "docs/guides/teach-a-language.md": {"gain less than 1 %": LIMIT, "fewer than 100 times": LIMIT},
    "docs/guides/other-trainers.md": {"as kept text is 3 % worse": LIMIT},
    "docs/guides/train-the-model.md": {
        "| 10 % | `--kept-share`": LIMIT,
        "at most 1 % worse | 0 to 0.5 |": LIMIT,
        "0.8 times the trained one plus 0.2 times": "an example",
        "95 % intervals": "how wide they are",
        "and 20 % English": "a setting",
        "at most 20 % of the text from one source": "a setting",
        "fewer than 100 times": LIMIT,
        "PEFT 0.18": VERSION,
    },
    "lab/experiments/pages/reproduce.md": {
        "The paper has 2.644 and 4.862": "the paper's figures",
        **dict.fromkeys(BASES, "`tests/differential` computes it"),
        "less than 0.1 % of their bytes per token": "a bound of what the table shows",
        "below 1 % mean nothing": "a caution",
        "from 50 % on": "a setting",
        "at 25 %, and the same from 62.5 %": "settings",
    },
}
"""Figures that were not measured, by page: a text with the figure, and what it is."""


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


def blocks(text):
    """Every block with its place and its markers."""
    hidden = HIDDEN.sub(lambda found: re.sub(r"\S", "\0", found[0]), text)
    waiting = []
    for found in re.finditer(r"(?:.+\n?)+", text):
        markers = [marker.groups() for marker in MARKER.finditer(found[0])]
        waiting += markers
        shown = hidden[found.start() : found.end()]
        if shown.strip("\0\n "):
            yield found.start(), shown, waiting
            waiting = []
    assert not waiting, f"no text follows {waiting}"


@cache
def content(path):
    text = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".csv"):
        return [Row(row) for row in from_csv(text)]
    if path.endswith(".jsonl"):
        return [json.loads(line, object_hook=Row) for line in text.splitlines()]
    return json.loads(text, object_hook=Row)


def values(path, expression):
    data = content(path)

    def rows(**wanted):
        return [row for row in data if all(row.get(name) == value for name, value in wanted.items())]

    def one(**wanted):
        (row,) = rows(**wanted)
        return row

    def paired(ours, theirs):
        return astuple(paired_change(*([*map(float, row.units.split())] for row in (ours, theirs))))

    helpers = {"data": data, "rows": rows, "one": one, "mean": mean, "median": median, "paired": paired}
    helpers["rank_correlation"] = rank_correlation
    helpers["change"] = lambda ours, theirs, column: ours[column] / theirs[column] - 1
    found = eval(f"({expression})", helpers)
    return found if isinstance(found, list | tuple) else [found]


def name_of(page):
    return str(page.relative_to(ROOT))


def problems(text, given=()):
    """What is printed and not computed, or computed and not printed."""
    allowed = [found.span() for snippet in given for found in re.finditer(re.escape(snippet), text)]
    for start, block, markers in blocks(text):
        printed, shown, place = [*numbers(block)], set(), 0
        for path, expression in markers:
            for value in values(path, expression):
                found = next((i for i in range(place, len(printed)) if printed[i].shows(value)), None)
                if found is None:
                    yield f"{value:.5g} of `{expression}` is not printed after {[n.text for n in printed[:place]][-3:]}"
                else:
                    shown.add(found)
                    place = found + 1
        for i, number in enumerate(printed):
            at = start + number.place
            if number.figure and i not in shown and not any(low <= at < high for low, high in allowed):
                line = text.count("\n", 0, at) + 1
                yield f"line {line}: {number.sign}{number.text} has no marker: {text[max(at - 30, 0) : at + 30]!r}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_figures_are_those_of_the_committed_files(page):
    found = [*problems(page.read_text(encoding="utf-8"), GIVEN.get(name_of(page), ()))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("page", sorted(GIVEN))
def test_what_needs_no_marker_is_still_printed(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not [snippet for snippet in GIVEN[page] if snippet not in text]


@pytest.mark.parametrize(
    ("text", "n_problems"),
    [
        ("4.18 bytes per token, 35 % unreachable", 2),
        ("`0.5 %` and 16,000 tokens of Llama-3", 0),
        ("```\n4.18 bytes per token\n```", 0),
        ("2.644 → 3.761\n<!-- figures: BUDGET one(size=0).target, rows(characters=10**6)[0].target -->", 0),
        ("<!-- figures: BUDGET one(size=0).target -->\n\n| 2.64 |", 0),
        ("<!-- figures: BUDGET one(size=0).target -->\n\n| 2.65 |", 2),
        ("a tokenizer of 3 letters\n<!-- figures: BUDGET one(size=0).target -->", 1),
        ("+64 to 65 %\n<!-- figures: BUDGET one(size=0).target / 4, 0.65 -->", 2),
        ("+66 to 65 %\n<!-- figures: BUDGET one(size=0).target / 4, 0.65 -->", 0),
        ("66 % fewer\n<!-- figures: BUDGET one(size=0).target / 4 -->", 2),
        ("66 % (of all) more\n<!-- figures: BUDGET one(size=0).target / 4 -->", 0),
        ("−66 %\n<!-- figures: BUDGET one(size=0).target / 4 -->", 2),
    ],
)
def test_a_figure_that_is_not_computed_is_found(text, n_problems):
    path = "lab/experiments/results/budget/results.csv"
    assert len([*problems(text.replace("BUDGET", path))]) == n_problems
