"""Writes docs/reproduce.md from the results, between the text of `pages/reproduce.md`."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from experiments.experiment import Claim, Experiment, Rows
from experiments.registry import MODULES, experiment_of
from experiments.results import page, render
from experiments.tables import Table, from_csv

TEMPLATE = Path(__file__).parent / "pages" / "reproduce.md"
DOCS = Path(__file__).parents[1] / "docs"
PLOTS = "reproduce"
"""The folder of plots beside the page."""
PLACE = re.compile(r"^<!-- (experiment|failed-claims):? ?([a-z-]*) -->$", re.MULTILINE)
NOT_RUN = "**Not run, so not reproduced.**"


def write_docs(results: Path, docs: Path = DOCS) -> list[Path]:
    """Renders all results again, copies their plots, and writes the page. Returns the written files of the docs."""
    written = [docs / "reproduce.md"]
    (docs / PLOTS).mkdir(exist_ok=True)
    for experiment in finished(results):
        render(experiment, results / experiment.name)
        plot = docs / PLOTS / f"{experiment.name}.svg"
        plot.write_bytes((results / experiment.name / "plot.svg").read_bytes())
        written.append(plot)
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
        return "\n".join(_section(experiment_of(place[2]), results)).strip()

    return PLACE.sub(part, TEMPLATE.read_text(encoding="utf-8"))


def _section(experiment: Experiment, results: Path) -> Iterator[str]:
    folder = results / experiment.name
    if not (folder / "results.csv").is_file():
        yield f"In the paper: {experiment.source}.\n\n{NOT_RUN} {experiment.about}\n"
        yield from (table.markdown() for table in experiment.paper_tables)
        return
    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    yield f"```sh\n{record['command']}\n```\n"
    yield f"In the paper: {experiment.source}. All rows are in `experiments/results/{experiment.name}/results.csv`.\n"
    yield page(experiment, rows_of(results, experiment.name))
    yield f"![{experiment.title}]({PLOTS}/{experiment.name}.svg)"


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
