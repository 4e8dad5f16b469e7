"""Runs the cells of an experiment, skips those that are finished, and writes the results."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.experiments.data import MissingDataError, file_hash
from lab.experiments.experiment import Cell, Experiment, Row, Setup
from lab.experiments.languages import ENGLISH
from lab.experiments.plots import require_matplotlib
from lab.experiments.results import FinishedCells, cell_key, run_record, write_results


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    setup: Setup
    out: Path
    models: Sequence[str] | None = None
    languages: Sequence[str] | None = None
    parts: Sequence[str] = ()
    command: str = ""
    skip_missing: bool = False
    """Leave out the cells whose data is missing, and say so."""


def run_experiment(experiment: Experiment, request: Request) -> Path:
    """Runs what is not finished, writes the results, and returns their folder."""
    _require_possible(experiment, request)
    setup = replace(request.setup, sizes=request.setup.sizes or experiment.sizes)
    models = tuple(dict.fromkeys(request.models or experiment.models))
    languages = tuple(dict.fromkeys(request.languages or experiment.languages or setup.data.source.languages()))
    folder = request.out / experiment.name
    finished = FinishedCells(folder / "cells.jsonl")
    keys: dict[Cell, str] = {}
    for cell in experiment.cells(models, languages, request.parts):  # finds missing data first
        with _skipped(experiment, cell, request):
            keys[cell] = cell_key(experiment, cell, _inputs(experiment, setup, cell))
    rows: dict[Cell, list[Row]] = {}
    for cell, key in keys.items():
        with _skipped(experiment, cell, request):
            rows[cell] = _run_cell(experiment, setup, cell, key, finished)
    if not any(rows.values()):
        why = f"the text is too small for every size of {setup.sizes}" if rows else "no cell could be run"
        raise MissingDataError(why, hint="pass smaller --sizes, or give more text")
    languages, models = (
        tuple(dict.fromkeys(names)) for names in zip(*((c.language, c.model) for c in rows), strict=True)
    )
    data = _described(experiment, setup, languages, models)
    options = {"models": models, "languages": languages, "sizes": setup.sizes, "characters": setup.budget}
    command = request.command.replace("NAME", experiment.name, 1)
    record = run_record(experiment, command, data | _model(setup), options)
    write_results(experiment, [row for found in rows.values() for row in found], folder, record)
    return folder


def _run_cell(experiment: Experiment, setup: Setup, cell: Cell, key: str, finished: FinishedCells) -> list[Row]:
    if key in finished:
        print(f"{experiment.name} {cell}: kept", flush=True)
    else:
        finished.add(key, cell, [_with_cell(cell, row) for row in experiment.measure(setup, cell)])
        print(f"{experiment.name} {cell}: {len(finished[key])} rows", flush=True)
    return finished[key]


@contextmanager
def _skipped(experiment: Experiment, cell: Cell, request: Request) -> Iterator[None]:
    """Skips a cell whose data is missing, if the user asked for that."""
    try:
        yield
    except MissingDataError as error:
        if not request.skip_missing:
            raise
        print(f"{experiment.name} {cell}: skipped, {error.message}", flush=True)


def _require_possible(experiment: Experiment, request: Request) -> None:
    require_matplotlib()
    if request.out.exists() and not request.out.is_dir():
        raise tg.TokengraftError(f"`{request.out}` is no folder", hint="pass --out with a folder")
    if experiment.needs_model and request.setup.model_folder is None:
        raise tg.TokengraftError(f"{experiment.name} runs a model, and none was named", hint="pass --model FOLDER")
    missing = [name for name in experiment.needs if find_spec(name) is None]
    if missing:
        raise tg.TokengraftError(
            f"{experiment.name} needs {missing[0]}, which is not installed", hint=f"pip install {missing[0]}"
        )


def _with_cell(cell: Cell, row: Row) -> Row:
    return {"model": cell.model, "language": cell.language, **row}


def _read(experiment: Experiment, languages: Sequence[str]) -> list[str]:
    return list(dict.fromkeys([*languages, *([ENGLISH] if experiment.needs_english else [])]))


def _described(experiment: Experiment, setup: Setup, languages: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    others = [name for name in experiment.other_texts if name in setup.data.source.languages()]
    return setup.data.describe(_read(experiment, languages), models, setup.budget, others)


def _inputs(experiment: Experiment, setup: Setup, cell: Cell) -> dict[str, Any]:
    data = _described(experiment, setup, [cell.language], [cell.model])
    return data | {"sizes": setup.sizes} | (_model(setup) if experiment.needs_model else {})


def _model(setup: Setup) -> dict[str, Any]:
    """The hashes of the weights of a model."""
    if setup.model_folder is None:
        return {}
    files = sorted(setup.model_folder.glob("*.safetensors"))
    if not files:
        raise tg.TokengraftError(
            f"there are no weights in `{setup.model_folder}`", hint="pass --model with a folder of safetensors files"
        )
    return {"model": {path.name: file_hash(path) for path in files}}
