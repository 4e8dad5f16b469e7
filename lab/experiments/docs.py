"""Writes docs/reproduce.md: the text of `pages/reproduce.md`, with a part of every experiment's results."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lab.experiments.experiment import Claim, Experiment, Rows
from lab.experiments.registry import MODULES, experiment_of
from lab.experiments.results import render
from lab.experiments.tables import Table, from_csv

TEMPLATE = Path(__file__).parent / "pages" / "reproduce.md"
DOCS = Path(__file__).parents[2] / "docs"
PLOTS = "reproduce"
"""The folder of plots beside the page."""
PLACE = re.compile(r"^<!-- (experiment|failed-claims)(?:: ([a-z-]+))?(?: tables ([\d,]+))?(?: rows (.+))? -->$", re.M)
"""`<!-- experiment: NAME tables 1,2 rows PATTERN -->`: the first table if none is named; rows that have the pattern."""


def write_docs(results: Path, docs: Path = DOCS) -> list[Path]:
    """Renders all results again, their plots beside the page, and writes it. Returns the written files of the docs."""
    written = [docs / "reproduce.md"]
    (docs / PLOTS).mkdir(exist_ok=True)
    for experiment in finished(results):
        written.append(docs / PLOTS / f"{experiment.name}.svg")
        render(experiment, results / experiment.name, written[-1])
    written[0].write_text(docs_page(results), encoding="utf-8")
    return written


def finished(results: Path) -> list[Experiment]:
    """The experiments that have results."""
    return [experiment_of(name) for name in MODULES if (results / name / "results.csv").is_file()]


def rows_of(results: Path, name: str) -> Rows:
    """The rows of a finished experiment."""
    return from_csv((results / name / "results.csv").read_text(encoding="utf-8"))


def docs_page(results: Path) -> str:
    """The page, as it should be."""

    def part(place: re.Match[str]) -> str:
        if place[1] == "failed-claims":
            return _failed(results)
        experiment = experiment_of(place[2])
        numbers = [int(number) for number in (place[3] or "1").split(",")]
        return "\n".join(_section(experiment, results, numbers, place[4] or "")).strip()

    return PLACE.sub(part, TEMPLATE.read_text(encoding="utf-8"))


def _section(experiment: Experiment, results: Path, numbers: list[int], pattern: str) -> Iterator[str]:
    """The command, some tables, the plot, and where everything else is."""
    record = json.loads((results / experiment.name / "run.json").read_text(encoding="utf-8"))
    rows = rows_of(results, experiment.name)
    yield f"```sh\n{record['command']}\n```\n"
    tables = experiment.tables(rows)
    yield from (_with_pattern(tables[number - 1], pattern).markdown() for number in numbers)
    yield f"![{experiment.title}]({PLOTS}/{experiment.name}.svg)\n"
    claims = experiment.claims(rows)
    holding = f" Claims that hold: {sum(claim.holds for claim in claims)} of {len(claims)}." if claims else ""
    yield f"In the paper: {experiment.source}.{holding} Complete: `lab/experiments/results/{experiment.name}/table.md`."


def _with_pattern(table: Table, pattern: str) -> Table:
    """The table with those of its rows that have the pattern in their line."""
    return replace(table, rows=[row for row in table.rows if re.search(pattern, f"| {' | '.join(map(str, row))} |")])


def _failed(results: Path) -> str:
    """The claims that do not hold, of all experiments."""
    failed: list[tuple[Experiment, Claim]] = []
    for experiment in finished(results):
        claims = experiment.claims(rows_of(results, experiment.name))
        failed += [(experiment, claim) for claim in claims if not claim.holds]
    if not failed:
        return "All claims that were checked hold on this data."
    lines = [(f"`{experiment.name}`", claim.text, claim.here) for experiment, claim in failed]
    heads = ("experiment", "claim", "measured")
    return Table("Claims that do not hold on this data", heads, lines).markdown().strip()
