"""Training at equal compute: an unchanged model and one with new tokens, scored in bits per byte over the blend.

    python -m lab.experiments.training.train MODEL DATA --runs lab/experiments/results/equal-compute/runs.json --out F
    python -m lab.experiments.equal_compute F

`runs.json` has the runs, `results.csv` the score of every run, blend and text, and `intervals.csv` the comparison of
the arms by runs with other seeds; `english.csv` compares English with the model before training. `table.md` and the
plot of the guide are made from them. `earlier` has runs that read the same 1.2 MB of English in every pass, and
sequences that begin anywhere; most of them are of ideas without a gain. Runs of F are added to those that the folder
has; the comparisons of a language are made anew if F has its runs.
"""

import json
import sys
from collections.abc import Collection, Iterator
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

from lab.experiments.intervals import change_of_runs
from lab.experiments.plots import Panel, Series, to_svg
from lab.experiments.tables import Table, from_csv, percent, to_csv

FOLDER = Path(__file__).parent / "results" / "equal-compute"
PLOT = Path(__file__).parents[2] / "docs" / "guides" / "equal-compute.svg"
NAMES = {"et": "Estonian", "ar": "Arabic", "ru": "Russian", "hi": "Hindi", "fi": "Finnish", "ja": "Japanese"}
"""The last two were trained once, when everything was decided."""
ARMS = [*product(("et", "ar", "ru", "hi"), ("add-2000",)), ("hi", "joined-2000"), *product(("fi", "ja"), ("add-2000",))]
"""Arms with new tokens. `joined`: `--join-marks Devanagari`."""
TEXTS = {"test": "held-out", "flores": "FLORES", "en_test": "English, held-out", "en_flores": "English, FLORES"}
TARGET_BYTES = 11e6
BEFORE = {"en_test": 1.1082, "en_flores": 1.2336}
"""Bits per byte of English before training; the first on a CPU in 32 bits, where the second is 1.2348."""
SETTINGS = (
    *("name", "data", "arm", "lr", "seed", "bytes", "target_bytes", "keep_share", "start", "split", "step_bytes"),
    *("table_lr", "row_lr", "warm_up", "floor", "curve", "blend", "detailed"),
)


def main() -> None:
    """Reads results of `training.train`, and writes the folder."""
    runs = {run["name"]: run for path in sys.argv[1:] for run in map(json.loads, Path(path).read_text().splitlines())}
    stored = [run for run in json.loads((FOLDER / "runs.json").read_text("utf-8")) if run["name"] not in runs]
    listed = [*stored, *({name: run[name] for name in SETTINGS} for run in runs.values())]
    (FOLDER / "runs.json").write_text("[\n" + ",\n".join(map(json.dumps, listed)) + "\n]\n", encoding="utf-8")
    rows = [row for row in rows_in("results.csv") if row["run"] not in runs]
    rows += [row for run in runs.values() for row in rows_of(run)]
    (FOLDER / "results.csv").write_text(to_csv(rows), encoding="utf-8")
    key = itemgetter("language", "arm", "read", "text")
    found = {key(row): row for row in rows_in("intervals.csv")}
    known = {(row["language"], row["arm"], row["read"]) for row in found.values()}
    found |= {key(row): row for row in (*compared(runs, rows, known), *at_equal_english(rows))}
    (FOLDER / "intervals.csv").write_text(to_csv([*found.values()]), encoding="utf-8")
    (FOLDER / "english.csv").write_text(to_csv([*english(rows)]), encoding="utf-8")
    text, plot = page()
    (FOLDER / "table.md").write_text(text, encoding="utf-8")
    PLOT.write_bytes(plot)


def rows_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each blend of a run."""
    found = []
    for blend, part in {"0": run, **run.get("blended", {})}.items():
        scores = {name.removeprefix(f"{run['data']}_"): round(x, 4) for name, x in part["scores"].items()}
        given = {"run": run["name"], "language": run["data"], "arm": run["arm"], "rate": run["lr"], "seed": run["seed"]}
        passes = run["bytes_read"] * (1 - run["keep_share"]) / TARGET_BYTES
        given |= {"passes": round(passes, 1), "tokens": run["tokens"], "steps": run["steps"]}
        given |= {"largest_norm": max(run["norms"][len(run["norms"]) // 10 :]), "blend": float(blend)}
        found.append(given | {text: scores[text] for text in TEXTS})
    return found


def run_name(language: str, arm: str, seed: int, more: str = "") -> str:
    return f"{language}_{arm}_9e-4_eq_{seed}{more}"


def compared(
    runs: dict[str, dict[str, Any]], rows: list[dict[str, Any]], known: Collection[tuple[str, ...]]
) -> Iterator[dict[str, Any]]:
    """New tokens against the unchanged model at equal compute: the text again, more text, or twice the compute.

    Comparisons that have a run of ``runs``, or are not ``known``. If not all of their runs are there, the scores of
    lines are missing, and the interval is of the seeds alone.
    """
    scored = {row["run"]: row for row in rows if row["blend"] == 0}
    ways = (("again", "", ""), ("more", "", "_fresh1"), ("twice", "_twice", "_twice"))
    for (language, arm), (read, of_base, more) in product(ARMS, ways):
        names = [
            [name for seed in range(3) if (name := run_name(language, one, seed, part)) in scored]
            for one, part in ((arm, more), ("base", of_base))
        ]
        used = {*names[0], *names[1]}
        if not all(names) or (used.isdisjoint(runs) and (language, arm, read) in known):
            continue
        by_lines = used <= {*runs}
        for text in TEXTS:
            name = text if text.startswith("en_") else f"{language}_{text}"
            sides = [[runs[run]["bits"][name] if by_lines else [scored[run][text]] for run in side] for side in names]
            change = change_of_runs(*sides)
            row = {"language": language, "arm": arm, "read": read, "n": len(names[0]), "n_base": len(names[1])}
            row |= {"text": text, "of": "lines, seeds" if by_lines else "seeds"}
            yield row | {"change": change.value, "low": change.low, "high": change.high}


def at_equal_english(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same, if the model with new tokens is blended until its held-out English is as good. Range of seeds."""
    for (language, arm), (read, more), text in product(ARMS, (("again", ""), ("twice", "_twice")), ("test", "flores")):
        found = []
        for seed in range(3):
            names = [run_name(language, one, seed, more) for one in ("base", arm)]
            arms = [[row for row in rows if row["run"] == name] for name in names]
            points = sorted(arms[1], key=lambda row: row["blend"])
            if not all(arms):
                continue
            base, place = min(arms[0], key=lambda row: row["blend"]), 0
            while points[place + 1]["en_test"] > base["en_test"]:
                place += 1
            first, second = points[place : place + 2]
            way = max(0.0, (first["en_test"] - base["en_test"]) / (first["en_test"] - second["en_test"]))
            found.append((first[text] + way * (second[text] - first[text])) / base[text] - 1)
        if found:
            row = {"language": language, "arm": arm, "read": f"{read}, equal English", "n": len(found)}
            row |= {"n_base": len(found), "text": text, "of": "range of seeds"}
            yield row | {"change": sum(found) / len(found), "low": min(found), "high": max(found)}


def english(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By blend: English against the model before training, and the language against no blending. Range of languages."""
    for blend in (0.0, 0.1, 0.2, 0.3, 0.4):
        found = {text: [] for text in ("en_test", "en_flores", "test")}
        for language, (text, changes) in product(NAMES, found.items()):
            names = [run_name(language, "add-2000", seed) for seed in range(3)]
            here, first = (
                [row[text] for row in rows if row["run"] in names and row["blend"] == share] for share in (blend, 0.0)
            )
            than = BEFORE.get(text) or sum(first) / len(first)
            changes.append(sum(here) / len(here) / than - 1)
        ranges = {
            f"{text}_{name}": pick(x) for text, x in found.items() for name, pick in (("low", min), ("high", max))
        }
        yield {"blend": blend, **ranges}


def page() -> tuple[str, bytes]:
    """The tables and the plot."""
    rows, intervals = rows_in("results.csv"), rows_in("intervals.csv")
    return "\n".join(table.markdown() for table in tables(rows, intervals)), to_svg(panels(rows))


def rows_in(name: str) -> list[dict[str, Any]]:
    return from_csv((FOLDER / name).read_text(encoding="utf-8"))


def tables(rows: list[dict[str, Any]], intervals: list[dict[str, Any]]) -> list[Table]:
    """The comparison, at equal English too, and what was tried."""

    def scored(run: str, than: str) -> list[str]:
        ours, theirs = (next(row for row in rows if (row["run"], row["blend"]) == (name, 0)) for name in (run, than))
        return [percent(ours[text] / theirs[text] - 1, signed=True) for text in TEXTS]

    def changes(how: str) -> list[list[str]]:
        found = []
        for language, arm in ARMS:
            key = language, arm, how
            if kept := [row for row in intervals if (row["language"], row["arm"], row["read"]) == key]:
                shown = [[percent(row[part], signed=True) for part in ("change", "low", "high")] for row in kept]
                cells = [f"{value} ({low} to {high})" for value, low, high in shown]
                name = NAMES[language] + ", marks joined" * (arm == "joined-2000")
                found.append([name, f"{kept[0]['n']:.0f}, {kept[0]['n_base']:.0f}", *cells])
        return found

    default = {language: run_name(language, "add-2000", 0) for language in NAMES}
    tried = [
        (f"{NAMES[language]}: {what}", f"{default[language]}{more}", default[language])
        for language, what, more in (
            *((x, "new rows learn ten times as fast, not four", "_row_lr100") for x in ("ar", "ru", "hi")),
            *((x, "10 % of the new tokens as their two parts", "_split0.1") for x in ("ar", "ru", "hi")),
            ("ar", "sequences begin anywhere", "_startfalse"),
            ("ru", "20 % English", "_keep_share0.2"),
        )
    ]
    tried += [(f"{NAMES[x]}: 6e-4", default[x].replace("9e-4", "6e-4"), default[x]) for x in ("ar", "et")]
    tried += [("Hindi: 1.2e-3", default["hi"].replace("9e-4", "1.2e-3"), default["hi"])]
    once = [(NAMES[x], f"{x}_add-2000_9e-4_1_0", run_name(x, "base", 0)) for x in ("et", "ar", "ru", "hi")]
    heads, seeds = list(TEXTS.values()), "seeds, of the unchanged model"
    tried += [(f"{NAMES[x]}, twice the compute: new rows learn ten times as fast, not four",
               f"{default[x]}_twice_row_lr100", f"{default[x]}_twice") for x in ("et", "hi")]  # fmt: skip
    tried += [(f"Hindi: {n} tokens", default["hi"].replace("add-2000", f"add-{n}"), default["hi"]) for n in (500, 8000)]
    tried += [(f"Hindi: steps of 44 kB, {arm}", f"{name}_step44", name) for arm, name in (
        ("2,000 tokens", default["hi"]), ("unchanged", run_name("hi", "base", 0)))]  # fmt: skip
    return [
        Table("2,000 tokens added, against the unchanged model at equal compute", ["", seeds, *heads], changes("again"),
              "Relative change of bits per byte, with 95 % intervals by lines and seeds. Rate 9e-4, not blended. Marks "
              "joined: `--join-marks Devanagari`; the interval is by seeds alone."),
        Table("The same at equal English", ["", seeds, *heads[:2]], changes("again, equal English"),
              "The model with new tokens is blended until its held-out English is as good. Mean, least and most of the "
              "seeds."),
        Table("English against the model before training", ["blend", *heads[2:], "held-out, against no blending"],
              [[f"{row['blend']:g}", *(f"{percent(row[f'{text}_low'], signed=True)} to "
                f"{percent(row[f'{text}_high'], signed=True)}" for text in ("en_test", "en_flores", "test"))]
               for row in rows_in("english.csv")], "2,000 tokens, the range of six languages."),
        Table("The same compute, and more text instead of the same again", ["", seeds, *heads], changes("more"), ""),
        Table("Twice the compute, all text", ["", seeds, *heads], changes("twice"),
              "17 to 27 MB. The unchanged model reads 22 MB. Intervals by seeds alone."),
        Table("The same at equal English", ["", seeds, *heads[:2]], changes("twice, equal English"), ""),
        Table("One pass for both", ["", *heads], [[what, *scored(run, than)] for what, run, than in once], "One seed."),
        Table("What was tried", ["", *heads], [[what, *scored(run, than)] for what, run, than in tried],
              "Against 2,000 tokens with the recipe above, one seed."),
    ]  # fmt: skip


def panels(rows: list[dict[str, Any]]) -> list[Panel]:
    """Held-out text and FLORES against English, both arms as curves over the blend."""
    found = []
    arms = (("base", "unchanged"), ("add-2000", "2,000 new tokens"), ("joined-2000", "the same, marks joined"))
    for language, name in NAMES.items():
        for text, english in (("test", "en_test"), ("flores", "en_flores")):
            series = []
            for colour, (arm, label) in enumerate(arms):
                for seed in range(3):
                    points = [row for row in rows if row["run"] == run_name(language, arm, seed)]
                    points.sort(key=lambda row: row["blend"])
                    xs, ys = [row[english] for row in points], [row[text] for row in points]
                    series += [Series("" if seed else label, xs, ys, colour=colour)] if points else []
            found.append(Panel(f"{name}, {TEXTS[text]}", f"{TEXTS[english]}, bits per byte", "bits per byte", series))
    return found


if __name__ == "__main__":
    main()
