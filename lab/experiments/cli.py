"""The command: `python -m lab.experiments NAME --data DIR --out DIR`."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import tokengraft as tg
from lab.experiments.data import BUDGET, MissingDataError, open_data
from lab.experiments.docs import write_docs
from lab.experiments.experiment import Experiment, Row, Setup
from lab.experiments.registry import MODULES, experiment_of
from lab.experiments.run import Request, run_experiment
from lab.experiments.tables import to_csv

RESULTS = Path(__file__).parent / "results"
"""The committed results, which docs/reproduce.md shows."""
OUT = Path("build/experiments")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command and returns its exit status."""
    options = parser().parse_args(arguments)
    try:
        return _run(options)
    except tg.TokengraftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The options."""
    parser = argparse.ArgumentParser(prog="python -m lab.experiments", description=__doc__)
    parser.add_argument("name", nargs="?", help="an experiment; `all` that need no GPU and no model; or `docs`")
    parser.add_argument("--list", action="store_true", help="name all experiments, and end")
    parser.add_argument("--data", help="a folder; its layout is in lab/experiments/README.md")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, default=OUT, help=f"folder of results ({OUT})")
    update = "replace the committed results, lab/experiments/results"
    where.add_argument("--update", action="store_const", dest="out", const=RESULTS, help=update)
    parser.add_argument("--flores", help="folder of FLORES-200 devtest, if it is not in DATA")
    parser.add_argument("--tokenizers", help="folder of tokenizer folders, if they are not in DATA")
    parser.add_argument("--models", nargs="+", metavar="NAME", help="tokenizers, instead of those of the experiment")
    parser.add_argument("--languages", nargs="+", metavar="LANG", help="languages, instead of those of the experiment")
    parser.add_argument(
        "--parts", nargs="+", metavar="PART", default=(), help="parts of an experiment, such as methods"
    )
    parser.add_argument("--sizes", nargs="+", type=int, help="numbers of tokens, instead of those of the experiment")
    parser.add_argument("--budget", type=int, default=BUDGET, help="characters of text of each language (100 million)")
    parser.add_argument("--model", type=Path, help="a model folder, for experiments that run one")
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.list:
        for name in MODULES:
            experiment = experiment_of(name)
            needs = [*experiment.needs, *(["--model"] if experiment.needs_model else []), *["GPU"] * experiment.gpu]
            print(f"{name:24}{experiment.title}" + (f" (needs {', '.join(needs)})" if needs else ""))
        return 0
    if options.name is None:
        raise tg.TokengraftError("no experiment was named", hint="`python -m lab.experiments --list` shows all")
    if options.name == "docs":
        for path in write_docs(RESULTS):
            print(f"wrote {path.name}")
        return 0
    names = [*MODULES] if options.name == "all" else [options.name]
    for name in names:
        experiment = experiment_of(name)
        if options.name == "all" and (lacking := _lacking(experiment, options)):
            print(f"{name}: left out, it needs {lacking}")
            continue
        try:
            run_experiment(experiment, request(options))
        except MissingDataError as error:
            if options.name != "all":
                raise
            print(f"{name}: skipped, {error.message}")
    return 0


def _lacking(experiment: Experiment, options: argparse.Namespace) -> str | None:
    """Why `all` leaves an experiment out; None if it is run."""
    if experiment.gpu:
        return "a GPU"
    if experiment.needs_model and options.model is None:
        return "--model FOLDER"
    return next((name for name in experiment.needs if find_spec(name) is None), None)


def request(options: argparse.Namespace) -> Request:
    """What the options ask for."""
    if options.data is None:
        raise tg.TokengraftError(
            "no data was given", hint="pass --data DIR; the layout is in lab/experiments/README.md"
        )
    if options.budget < 1 or any(size < 1 for size in options.sizes or ()):
        raise tg.TokengraftError("--budget or a size is below 1", hint="pass numbers from 1")
    setup = Setup(
        open_data(options.data, options.flores, options.tokenizers),
        tuple(sorted(set(options.sizes or ()))),
        options.budget,
        options.model,
    )
    asked = (options.models, options.languages, options.parts)
    return Request(setup, options.out, *asked, _command(options), skip_missing=options.name == "all")


def write_rows(files: Mapping[str, Callable[[Setup], Iterable[Row]]], arguments: Sequence[str] | None = None) -> None:
    """Writes the rows that functions give, for modules beside the experiments: below `--out`, by path."""
    asked = request(parser().parse_args(arguments))
    for name, measured in files.items():
        (asked.out / name).parent.mkdir(parents=True, exist_ok=True)
        (asked.out / name).write_text(to_csv([*measured(asked.setup)]), encoding="utf-8")


def _command(options: argparse.Namespace) -> str:
    """The command without the paths of the machine."""
    parts = ["python -m lab.experiments NAME --data DATA"]
    parts += [f"--{name} {name.upper()}" for name in ("flores", "tokenizers", "model") if getattr(options, name)]
    for name in ("models", "languages", "parts", "sizes"):
        if getattr(options, name):
            parts.append(f"--{name} {' '.join(map(str, getattr(options, name)))}")
    if options.budget != BUDGET:
        parts.append(f"--budget {options.budget}")
    return " ".join(parts)
