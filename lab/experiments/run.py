"""Runs the cells of an experiment, skips those that are finished, and writes the results."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.experiments.data import file_hash
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


def run_experiment(experiment: Experiment, request: Request) -> Path:
    """Runs what is not finished, writes the results, and returns their folder."""
    _require_possible(experiment, request)
    setup = replace(request.setup, sizes=request.setup.sizes or experiment.sizes)
    models = tuple(dict.fromkeys(request.models or experiment.models))
    languages = tuple(dict.fromkeys(request.languages or experiment.languages or setup.data.source.languages()))
    folder = request.out / experiment.name
    finished = FinishedCells(folder / "cells.jsonl")
    rows: list[Row] = []
    cells = experiment.cells(models, languages, request.parts)
    keys = [cell_key(experiment, cell, _inputs(experiment, setup, cell)) for cell in cells]  # finds missing data first
    for cell, key in zip(cells, keys, strict=True):
        if key in finished:
            print(f"{experiment.name} {cell}: kept", flush=True)
        else:
            finished.add(key, cell, [_with_cell(cell, row) for row in experiment.measure(setup, cell)])
            print(f"{experiment.name} {cell}: {len(finished[key])} rows", flush=True)
        rows += finished[key]
    if not rows:
        raise tg.TokengraftError(
            f"the text is too small for every size of {setup.sizes}", hint="pass smaller --sizes, or give more text"
        )
    data = _described(experiment, setup, languages, models)
    options = {"models": models, "languages": languages, "sizes": setup.sizes, "characters": setup.budget}
    command = request.command.replace("NAME", experiment.name, 1)
    write_results(experiment, rows, folder, run_record(experiment, command, data | _model(setup), options))
    return folder


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
    if not experiment.needs_text:
        return {}
    return setup.data.describe(_read(experiment, languages), models, setup.budget)


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
