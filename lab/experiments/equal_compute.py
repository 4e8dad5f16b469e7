"""Training at equal compute: an unchanged model and one with new tokens, scored in bits per byte over the blend.

    python -m lab.experiments.training.train MODEL DATA --runs lab/experiments/results/equal-compute/runs.json --out F
    python -m lab.experiments.equal_compute F

`runs.json` has the runs, `results.csv` the score of every run, blend and text, and `intervals.csv` the comparison of
the arms by runs with other seeds. `table.md` and the plot of the guide are made from them.
"""

import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lab.experiments.intervals import change_of_runs
from lab.experiments.plots import Panel, Series, to_svg
from lab.experiments.tables import Table, percent, to_csv

FOLDER = Path(__file__).parent / "results" / "equal-compute"
PLOT = Path(__file__).parents[2] / "docs" / "guides" / "equal-compute.svg"
NAMES = {"et": "Estonian", "ar": "Arabic", "ru": "Russian", "hi": "Hindi"}
TEXTS = {"test": "held-out", "flores": "FLORES", "en_test": "English, held-out", "en_flores": "English, FLORES"}
ENGLISH_BEFORE = 1.2336
"""Bits per byte of English of FLORES before training (`results.csv`, the row with blend 1)."""
DAMAGED = 1.15
"""A run is damaged if it needs so many times the bits of the unchanged model before training for English of FLORES."""
SETTINGS = (
    *("name", "data", "arm", "lr", "seed", "bytes", "step_bytes", "table_lr", "row_lr", "row_pull", "rows_first"),
    *("old_share", "decay", "warm_up", "curve", "blend", "detailed"),
)


def main() -> None:
    """Reads results of `training.train`, and writes the folder."""
    runs = {run["name"]: run for path in sys.argv[1:] for run in map(json.loads, Path(path).read_text().splitlines())}
    settings = [{name: run[name] for name in SETTINGS if run.get(name)} for run in runs.values()]
    lines = ",\n".join(json.dumps({**run, "floor": 0.0}) for run in settings)
    (FOLDER / "runs.json").write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    rows = [row for run in runs.values() for row in rows_of(run)]
    (FOLDER / "results.csv").write_text(to_csv(rows), encoding="utf-8")
    (FOLDER / "intervals.csv").write_text(to_csv(compared([*runs.values()])), encoding="utf-8")
    text, plot = page()
    (FOLDER / "table.md").write_text(text, encoding="utf-8")
    PLOT.write_bytes(plot)


def rows_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each blend of a run. `blend` 1 is the model before training, if the arm has no new rows."""
    found = []
    for blend, part in {"0": run, **run.get("blended", {})}.items():
        scores = {name.removeprefix(f"{run['data']}_"): round(x, 4) for name, x in part["scores"].items()}
        given = {"run": run["name"], "language": run["data"], "arm": run["arm"], "rate": run["lr"], "seed": run["seed"]}
        given |= {"passes": round(run["bytes_read"] / 12.2e6, 1), "tokens": run["tokens"], "steps": run["steps"]}
        given |= {"table_rate": run["table_lr"], "blend": float(blend)}
        found.append(given | {text: scores[text] for text in TEXTS})
    return found


def compared(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """New tokens against the unchanged model, at 9e-4 with slow old rows and equal compute, with and without damage."""
    found = []
    for language in NAMES:
        arms = {
            arm: [r for r in runs if "bits" in r and (r["data"], r["arm"], r["table_lr"]) == (language, arm, 0.1)]
            for arm in ("base", "add-2000")
        }
        healthy = [run for run in arms["add-2000"] if run["scores"]["en_flores"] < DAMAGED * ENGLISH_BEFORE]
        for kind, chosen in (("all", arms["add-2000"]), ("not damaged", healthy)):
            for text in TEXTS:
                name = text if text.startswith("en_") else f"{language}_{text}"
                change = change_of_runs(*([run["bits"][name] for run in arm] for arm in (chosen, arms["base"])))
                row = {"language": language, "runs": kind, "n": len(chosen), "n_base": len(arms["base"]), "text": text}
                found.append(row | {"change": change.value, "low": change.low, "high": change.high})
    return found


def page() -> tuple[str, bytes]:
    """The tables and the plot."""
    rows, intervals = read(FOLDER / "results.csv"), read(FOLDER / "intervals.csv")
    return "\n".join(table.markdown() for table in tables(rows, intervals)), to_svg(panels(rows))


def read(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV file, with numbers as numbers."""
    text = {"run", "language", "arm", "runs", "text", "words"}
    with path.open(encoding="utf-8", newline="") as file:
        return [{k: v if k in text else float(v) for k, v in row.items()} for row in csv.DictReader(file)]


def tables(rows: list[dict[str, Any]], intervals: list[dict[str, Any]]) -> list[Table]:
    """The comparison, what slow old rows change, the ideas for Russian, and Russian by words."""

    def scored(run: str, than: str, *texts: str) -> list[str]:
        ours, theirs = (next(row for row in rows if (row["run"], row["blend"]) == (name, 0)) for name in (run, than))
        return [percent(ours[text] / theirs[text] - 1, signed=True) for text in texts or TEXTS]

    changes = []
    for language, kind in ((language, kind) for language in NAMES for kind in ("all", "not damaged")):
        found = [row for row in intervals if (row["language"], row["runs"]) == (language, kind)]
        shown = [f"{percent(r['change'], signed=True)} ({percent(r['low'], signed=True)} to "
                 f"{percent(r['high'], signed=True)})" for r in found]  # fmt: skip
        changes.append([NAMES[language], kind, f"{found[0]['n']:.0f}", *shown])
    slow = [
        ("Estonian, unchanged", "et-base-0.0009-s89-t.1", "et-base-9e-4-p1-s0"),
        ("Arabic, unchanged", "ar-base-0.0009-s89-t.1", "ar-base-9e-4-p1-s0"),
        ("Arabic, 2,000 tokens", "ar-add2000-0.0009-s89-t.1", "ar-add2000-9e-4-p2.5-s0"),
        ("Russian, unchanged", "ru-base-0.0009-s89-t.1", "ru-base-9e-4-p1-s0"),
    ]
    first = "ru-add2000-0.0009-s222"
    ideas = {
        "pull5": "new rows decay towards their first values",
        "row1": "new rows learn as fast as the rest",
        "row10": "new rows learn ten times as fast",
        "first10": "a tenth of the text trains new rows alone",
        "old30": "30 % of the documents in old tokens",
        "table.3": "old rows learn 0.3 times as fast",
        "decay0": "no weight decay",
    }
    tried = [[what, *scored(f"{first}-{name}", first)] for name, what in ideas.items()]
    tried += [["1,000 tokens", *scored("ru-add1000-0.0009-s222", first)]]
    tried += [["tokens by sources of equal weight", *scored("ru-bal2000-0.0009-s222", first)]]
    tried += [["steps of 444 kB", *scored(f"{first.removesuffix('222')}444", first)]]
    tried += [["steps of 89 kB, old rows 0.1 times as fast", *scored("ru-add2000-0.0009-s89-t.1", first)]]
    words = [
        [row["words"], f"{row['n']:,.0f}", f"{row['base']:.1f}", f"{row['adapted']:.1f}",
         percent(row["adapted"] / row["base"] - 1, signed=True)]
        for row in read(FOLDER / "words.csv")
    ]  # fmt: skip
    heads = list(TEXTS.values())
    return [
        Table("2,000 tokens added, against the unchanged model at equal compute", ["", "runs", "n", *heads], changes,
              "Relative change of bits per byte, with 95 % intervals by lines and seeds. Not blended."),
        Table("Old rows that learn a tenth as fast, against as fast as the rest", ["", *heads],
              [[what, *scored(run, than)] for what, run, than in slow], "One seed, rate 9e-4."),
        Table("Russian: what was tried", ["", *heads], tried,
              "Against 2,000 tokens, 2.5 passes, 9e-4, steps of 222 kB. One seed."),
        Table("Russian: bits per word of FLORES", ["in the training text", "words", "unchanged", "adapted", "change"],
              words, "By how often the training text, technical documentation, has the word."),
    ]  # fmt: skip


def panels(rows: list[dict[str, Any]]) -> list[Panel]:
    """Held-out text and FLORES against English, both arms as curves over the blend."""
    found = []
    for language, name in NAMES.items():
        for text, english in (("test", "en_test"), ("flores", "en_flores")):
            series = []
            for arm, label in (("base", "unchanged"), ("add-2000", "2,000 new tokens")):
                kept = [r for r in rows if (r["language"], r["arm"], r["table_rate"]) == (language, arm, 0.1)]
                runs = sorted({r["run"] for r in kept if r["rate"] == 9e-4 and "-s89" not in r["run"]})
                shown = label
                for run in runs:
                    points = sorted((r for r in kept if r["run"] == run), key=lambda r: r["blend"])
                    if points[0]["en_flores"] > DAMAGED * ENGLISH_BEFORE:
                        continue
                    xs, ys = [r[english] for r in points], [r[text] for r in points]
                    colour = 0 if arm == "base" else 1
                    series.append(Series(shown, xs, ys, colour=colour))
                    shown = ""
            title = f"{name}, {TEXTS[text]}"
            found.append(Panel(title, f"{TEXTS[english]}, bits per byte", "bits per byte", series))
    return found


if __name__ == "__main__":
    main()
