"""What an experiment writes: finished cells, then `results.csv`, `table.md`, `plot.svg` and `run.json`."""

import hashlib
import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.benchmarks.machine import version_of
from lab.experiments.experiment import Cell, Experiment, Row, Rows
from lab.experiments.plots import to_svg
from lab.experiments.tables import Table, from_csv, to_csv

RECORDED = ("numpy", "pyarrow", "matplotlib", "rapidfuzz")
"""Packages whose versions are recorded, beside those that an experiment needs."""


class FinishedCells:
    """The rows of finished cells, one line of JSON for each. A line is written when its cell is finished.

    A line that was cut off by a crash is dropped, and its cell is run again.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[str, list[Row]] = {}
        if path.exists():
            lines = [line for line in path.read_text(encoding="utf-8").split("\n") if _is_whole(line)]
            self._rows = {entry["key"]: entry["rows"] for entry in map(json.loads, lines)}
            _write(path, "".join(line + "\n" for line in lines).encode())

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __getitem__(self, key: str) -> list[Row]:
        return self._rows[key]

    def add(self, key: str, cell: Cell, rows: Sequence[Row]) -> None:
        """Keeps the rows of a cell."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"key": key, "cell": asdict(cell), "rows": [*rows]}, ensure_ascii=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())
        self._rows[key] = [*rows]


def _is_whole(line: str) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and {"key", "rows"} <= entry.keys()


def cell_key(experiment: Experiment, cell: Cell, inputs: Mapping[str, Any]) -> str:
    """A name for a cell that changes with everything that its rows depend on: inputs, options and the version."""
    data = {"experiment": experiment.name, **asdict(cell), "inputs": inputs, "tokengraft": tg.__version__}
    return f"{cell}:{hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]}"


def write_results(experiment: Experiment, rows: Rows, folder: Path, record: Mapping[str, Any]) -> None:
    """Writes the four files of a finished experiment, each complete or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / "results.csv", to_csv(rows).encode())
    _write(folder / "run.json", (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode())
    render(experiment, folder, folder / "plot.svg")


def render(experiment: Experiment, folder: Path, plot: Path) -> None:
    """Writes `table.md` and the plot from `results.csv`."""
    rows = from_csv((folder / "results.csv").read_text(encoding="utf-8"))
    _write(folder / "table.md", page(experiment, rows).encode())
    _write(plot, to_svg(experiment.panels(rows)))


def page(experiment: Experiment, rows: Rows) -> str:
    """The text, the tables, and which claims of the paper hold."""
    parts = [f"{experiment.about}\n", f"{experiment.caveat}\n" if experiment.caveat else ""]
    parts += [table.markdown() for table in experiment.tables(rows)]
    claims = experiment.claims(rows)
    if claims:
        lines = [(claim.text, "yes" if claim.holds else "**no**", claim.here) for claim in claims]
        parts.append(Table("Claims of the paper on this data", ("claim", "holds here", "measured"), lines).markdown())
    return "\n".join(part for part in parts if part)


def run_record(experiment: Experiment, command: str, data: Mapping[str, Any], options: Mapping[str, Any]) -> dict:
    """What was run: the command without paths of the machine, options, versions and hashes."""
    packages = {name: version_of(name) for name in (*RECORDED, *experiment.needs)}
    return {
        "experiment": experiment.name,
        "command": command,
        "options": dict(options),
        "versions": {"python": platform.python_version(), "tokengraft": tg.__version__, **packages},
        "data": data,
    }


def _write(path: Path, data: bytes) -> None:
    """Writes a file, complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    partial.replace(path)
