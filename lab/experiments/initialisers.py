"""`initialisers`: the same training from each initialiser, with a short probe beside it."""

import json
import lzma
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.experiments.continued_pretraining import data_folder, models_of
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.rows import init_for
from lab.experiments.tables import Table, distinct, number, select

INITIALISERS = (
    "fvt-rare",
    "fvt",
    "length-weighted",
    "weighted",
    "fvt-norm",
    "fvt-script-norm",
    "first-piece",
    "last-piece",
    "mean",
    "mean-cov",
    "random",
)
RECIPE = {"lr": 2.4e-3, "step_bytes": 89e3, "row_lr": 4}
PROBE = {"steps": 50, "step_bytes": 89_000, "learning_rate": 1.2e-3}
COLUMNS = {"before": "before training", "probe": "after 50 steps", "held_out": "held out", "flores": "FLORES"}


def measure(setup: Setup, cell: Cell) -> Iterator[Row]:
    """One row; the part of the cell is the initialiser."""
    from lab.experiments.training.text import Data, Run
    from lab.experiments.training.train import train

    (size,) = setup.sizes
    models, folder = models_of(setup.model_folder), data_folder(setup, cell.language)
    data = Data(folder, models.separator)
    arm = f"swap-{size}"
    result = train(Run(cell.part, cell.language, arm, init=cell.part, passes=1, **RECIPE), models, data)
    yield row_of(result, cell.language, _probe(setup, folder, arm, cell))


def row_of(result: dict[str, Any], language: str, probe: float | None) -> Row:
    """The scores of a run beside that of a probe."""
    scores = result["scores"]
    return {
        "init": result["init"],
        "before": result["curve"][0][1],
        "probe": probe,
        "held_out": scores[f"{language}_held"],
        "flores": scores[f"{language}_flores"],
        "kept_held_out": scores[f"{ENGLISH}_held"],
    }


def _probe(setup: Setup, folder: Path, arm: str, cell: Cell) -> float:
    """Bits per byte of the target after a short training, by `tg.train`."""
    with lzma.open(folder / "train.json.xz", "rt", encoding="utf-8") as file:
        train = json.load(file)
    held_out = json.loads((folder / f"{cell.language}_held.json").read_text(encoding="utf-8"))
    init = init_for(setup.model_folder, folder / "arms" / arm, cell.part)
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "model"
        tg.transplant(setup.model_folder, folder / "arms" / arm, out, init=init)
        step_bytes = min(PROBE["step_bytes"], _bytes(train) // 60)
        options = tg.training.TrainOptions(
            max_bytes=PROBE["steps"] * step_bytes,
            step_bytes=step_bytes,
            learning_rate=PROBE["learning_rate"],
            new_rows_factor=1,
            blend=0,
        )
        trained = Path(scratch) / "trained"
        texts, scored = {cell.language: iter(train)}, {cell.language: iter(held_out)}
        done = tg.train(out, texts, out=trained, held_out=scored, options=options)
    return done.after[cell.language]


def _bytes(texts: list[str]) -> int:
    return sum(len(text.encode()) for text in texts)


def tables(rows: Rows) -> list[Table]:
    """A row for each initialiser, best first, and the agreement of ranks."""
    found = []
    for language in distinct(rows, "language"):
        mine = sorted(select(rows, language=language), key=lambda row: row["held_out"])
        lines = [(f"`{row['init']}`", *(number(row[name]) for name in COLUMNS)) for row in mine]
        title = f"{language_of(language).name}: bits per byte by initialiser"
        found.append(Table(title, ("", *COLUMNS.values()), lines, _agreement(mine)))
    return found


def _agreement(rows: Rows) -> str:
    probed = select_known(rows, "probe")
    if len(probed) < 3:
        return ""
    parts = [f"{rank_correlation(probed, name):+.2f} for {COLUMNS[name]}" for name in ("before", "probe")]
    return f"Rank correlation of those with a probe and the last score on held-out text: {', '.join(parts)}."


def select_known(rows: Rows, name: str) -> list[Row]:
    """The rows that have a score."""
    return [row for row in rows if row[name] is not None]


def rank_correlation(rows: Rows, name: str) -> float:
    """Spearman's, between a score and the last one. Ties are not expected.

    >>> rank_correlation([{"probe": 1.0, "held_out": 3.0}, {"probe": 2.0, "held_out": 5.0}], "probe")
    1.0
    """
    known = select_known(rows, name)
    ranks = [
        {place: rank for rank, place in enumerate(sorted(range(len(known)), key=lambda at: known[at][column]))}
        for column in (name, "held_out")
    ]
    apart = sum((ranks[0][place] - ranks[1][place]) ** 2 for place in range(len(known)))
    return 1 - 6 * apart / (len(known) * (len(known) ** 2 - 1))


def panels(rows: Rows) -> list[Panel]:
    """The last score by the score of the probe."""
    found = []
    for language in distinct(rows, "language"):
        mine = sorted(select_known(select(rows, language=language), "probe"), key=lambda row: row["probe"])
        series = [Series(row["init"], [row["probe"]], [row["held_out"]]) for row in mine]
        title = f"{language_of(language).name}: does a probe predict?"
        found.append(Panel(title, "bits per byte after 50 steps", "bits per byte after training", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """A question of our own: do scores before training, or after 50 steps, predict the order at the end?"""
    found = []
    for language in distinct(rows, "language"):
        mine = select_known(select(rows, language=language), "probe")
        if len(mine) > 2:
            before, probe = (rank_correlation(mine, name) for name in ("before", "probe"))
            found.append(
                Claim(
                    f"{language_of(language).name}: scores before training do not predict the order of initialisers, "
                    "50 steps do (not a claim of the paper)",
                    probe > 0.8 and before < 0.5,
                    f"rank correlation {before:+.2f} before, {probe:+.2f} after 50 steps",
                )
            )
    return found


EXPERIMENT = Experiment(
    name="initialisers",
    title="Initialisers, before and after training",
    source="none; the paper uses `fvt`",
    about=(
        "The training of `continued-pretraining` with one pass, from each initialiser. `lab/experiments/rows.py` has "
        "those that `tokengraft transplant` does not offer. The "
        "column of 50 steps is a short training of 50 steps with a learning rate of 0.0012 on the same text."
    ),
    models=("smollm2",),
    languages=("ar",),
    parts=INITIALISERS,
    sizes=(8_000,),
    needs=("torch", "transformers", "tokenizers"),
    needs_model=True,
    gpu=True,
    caveat="One model, one seed: differences below 1 % mean nothing.",
)
