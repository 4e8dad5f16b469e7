"""`continued-pretraining`: a model trained on the same text with its own tokenizer, a changed one, and a naive one."""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from statistics import mean
from typing import Any

import tokengraft as tg
from lab.experiments.experiment import Cell, Claim, Experiment, Row, Rows, Setup
from lab.experiments.languages import ENGLISH, language_of
from lab.experiments.plots import Panel, Series
from lab.experiments.tables import NOTHING, Table, distinct, from_csv, number, percent, select, to_csv

ARMS = {"unchanged": ("base", 1), "adapted": ("swap", 1), "naive": ("naive", 1), "adapted-twice": ("swap", 2)}
"""Which tokenizer, and how often the text is read."""
SEEDS = (0, 1)
RECIPE = {"lr": 2.4e-3, "step_bytes": 89e3}
ROW_FACTOR = 4
"""New rows learn this much faster than the rest."""
LABELS = {
    ("base", 1): "unchanged",
    ("swap", 1): "adapted",
    ("naive", 1): "naive",
    ("swap", 2): "adapted, text read twice",
    ("base", 2): "unchanged, text read twice",
}
VARIANTS = {"documents": "tokens by documents", "sources": "large sources count less"}
KEPT_SHARE = 1 / 9
"""Bytes of English for each byte of the target."""


def measure(setup: Setup, cell: Cell) -> list[Row]:
    """The rows of one run; the part of the cell is the arm and the seed."""
    from lab.experiments.training.train import Data, Run, train

    arm, _, seed = cell.part.rpartition("-s")
    tokenizer, passes = ARMS[arm]
    (size,) = setup.sizes
    models = models_of(setup.model_folder)
    data = Data(data_folder(setup, cell.language), models.separator)
    name = tokenizer if tokenizer == "base" else f"{tokenizer}-{size}"
    factor = 1 if tokenizer == "base" else ROW_FACTOR
    text = {"bytes": passes * float(data.sizes.sum()), "seed": int(seed), "row_lr": factor}
    result = train(Run(cell.part, cell.language, name, **RECIPE, **text), models, data)
    return [*rows_of(result, int(data.sizes.sum()), cell.language)]


@lru_cache(maxsize=1)
def models_of(folder: Path) -> Any:
    """The models of a folder, kept for the next run."""
    from lab.experiments.training.model import Models

    return Models(folder)


@lru_cache(maxsize=2)
def data_folder(setup: Setup, language: str) -> Path:
    """The text and the tokenizers of a language, made once."""
    from lab.experiments.training.data import CHOICE_BYTES, HELD_BYTES, Sizes, corpus, write_data

    out = Path(tempfile.mkdtemp(prefix="continued-pretraining-")) / language
    target, keep = setup.documents(language), setup.documents(ENGLISH)
    size = sum(len(text.encode()) for text in target.train)
    parts = [
        corpus(name, found.train, found.held_out, setup.data.sentences(name), most, CHOICE_BYTES + HELD_BYTES)
        for name, found, most in ((language, target, size), (ENGLISH, keep, round(size * KEPT_SHARE)))
    ]
    write_data(out, tg.load(setup.model_folder), *parts, Sizes(setup.sizes, (), setup.sizes))
    return out


def rows_of(result: dict[str, Any], text_bytes: int, language: str) -> Iterator[Row]:
    """A row for the finished run, and one for each score on the way."""
    arm, *parts = result["arm"].split("-")  # kind, size, megabytes it was learned on, variant
    run = {
        "run": result["name"],
        "arm": arm,
        "size": int(parts[0]) if parts else 0,
        "init": result["init"],
        "passes": round(result["bytes_read"] / text_bytes, 2),
        "seed": result["seed"],
        "rate": result["lr"],
        "step_kb": result["step_bytes"] / 1e3,
        "row_factor": result["row_lr"],
        "recipe": _recipe(result, parts[2:]),
    }
    if result.get("target_bytes"):
        run |= {"target_mb": result["target_bytes"] / 1e6, "kept_share": result["keep_share"]}
    scores = result["scores"]
    alone = result.get("parallel", 1) == 1
    rare, far = _drift(result.get("drift") or {})
    yield {
        "kind": "end",
        **run,
        "read_mb": result["bytes_read"] / 1e6,
        "tokens": result["tokens"],
        "seconds": result["seconds"] if alone else None,
        "held_out": scores[f"{language}_held"],
        "flores": scores[f"{language}_flores"],
        "kept_held_out": scores[f"{ENGLISH}_held"],
        "kept_flores": scores[f"{ENGLISH}_flores"],
        "new": sum(n for n, _ in (result.get("drift") or {}).values()) or None,
        "rare": rare,
        "drift": far,
    }
    for read, held, kept in [] if result.get("target_bytes") else result["curve"]:
        tokens = result["tokens"] * read / result["bytes_read"]
        yield {"kind": "way", **run, "read_mb": read / 1e6, "tokens": tokens, "held_out": held, "kept_held_out": kept}


def _recipe(result: dict[str, Any], variant: Sequence[str] = ()) -> str:
    """What a run did beside the usual."""
    parts = [VARIANTS[name] for name in variant]
    if result.get("body_slow"):
        parts.append(f"all but new rows rise for {result['body_slow']:.0%}")
    if result.get("old_first"):
        parts.append(f"first {result['old_first']:.0%}: other sources, old tokens")
    if result.get("share"):
        parts.append("rows of parts learn together")
    if result["rows_first"]:
        parts.append(f"new rows alone for {result['rows_first']:.0%}")
    if result["distill"]:
        parts.append(f"distilled for {result['distill']:.0%}")
    if result["table_lr"] != 1:
        parts.append(f"whole embedding learns {result['table_lr']:g} times as fast")
    return ", ".join(parts)


def _drift(parts: dict[str, Sequence[float]]) -> tuple[int | None, float | None]:
    """New tokens that were read fewer than 10 times, and the median change of rows that were read 100 times or more."""
    if not parts:
        return None, None
    often = [(n, far) for name, (n, far) in parts.items() if int(name.rstrip("+")) >= 100]
    total = sum(n for n, _ in often)
    return int(parts.get("0+", (0, 0))[0]), sum(n * far for n, far in often) / total if total else None


def tables(rows: Rows) -> list[Table]:
    """The main arms for each language, then everything else that was tried."""
    named = distinct(rows, "language")
    found = [_main_table(rows, language) for language in named if _main(rows, language, "base", 1)]
    studied = [_study_table(rows, language) for language in named if _studied(rows, language)]
    return [*found, _drift_table(rows), *_other_tables(rows), *studied]


def _ends(rows: Rows, language: str) -> list[Row]:
    return [row for row in select(rows, kind="end", language=language) if not row.get("target_mb")]


def _studied(rows: Rows, language: str) -> list[Row]:
    """Runs that read a part of the text, with several shares of the kept language."""
    return [row for row in select(rows, kind="end", language=language) if row.get("target_mb")]


def _is_main(row: Row, size: int) -> bool:
    """Whether a run is one of the main ones: the usual recipe, and the usual number of new tokens."""
    usual = row["rate"] == RECIPE["lr"] and row["step_kb"] == RECIPE["step_bytes"] / 1e3 and not row["recipe"]
    changed = row["arm"] != "base"
    return (
        usual
        and row["init"] == "fvt"
        and row["row_factor"] == (ROW_FACTOR if changed else 1)
        and row["size"] in (0, size)
    )


def _size(rows: Rows) -> int:
    """The number of new tokens of the main runs: that of the naive ones."""
    return max((row["size"] for row in select(rows, kind="end", arm="naive")), default=0)


def _main(rows: Rows, language: str, arm: str, passes: int) -> list[Row]:
    ends, size = _ends(rows, language), _size(rows)
    return [row for row in ends if _is_main(row, size) and row["arm"] == arm and abs(row["passes"] - passes) < 0.05]


def _shorter(rows: Rows, language: str) -> list[Row]:
    """Runs of the unchanged model that read a part of the text."""
    size = _size(rows)
    ends = [row for row in _ends(rows, language) if _is_main(row, size)]
    return [row for row in ends if row["arm"] == "base" and row["passes"] < 0.95]


def _main_table(rows: Rows, language: str) -> Table:
    heads = ("", "read, MB", "tokens, M", "seconds", "held out", "change", "FLORES", "English held out", "seeds")
    base = _mean(_main(rows, language, "base", 1), "held_out")
    groups = [(label, _main(rows, language, *key)) for key, label in LABELS.items()]
    groups.insert(1, ("unchanged, part of the text", _shorter(rows, language)))
    lines = []
    for label, mine in ((label, mine) for label, mine in groups if mine):
        held = _mean(mine, "held_out")
        lines.append(
            (
                label,
                number(_mean(mine, "read_mb"), 1),
                number(_mean(mine, "tokens") / 1e6, 1),
                number(_mean(mine, "seconds"), 0),
                _each(mine, "held_out"),
                percent(held / base - 1, signed=True) if base else NOTHING,
                _each(mine, "flores"),
                _each(mine, "kept_held_out"),
                len(mine),
            )
        )
    return Table(f"{language_of(language).name}: bits per byte after training", heads, lines)


def _mean(rows: Rows, name: str) -> float | None:
    known = [row[name] for row in rows if row.get(name) is not None]
    return mean(known) if known else None


def _each(rows: Rows, name: str) -> str:
    return " / ".join(number(row[name]) for row in rows)


def _drift_table(rows: Rows) -> Table:
    heads = ("language", "", "new tokens", "read fewer than 10 times", "median change of rows read 100 times or more")
    lines = []
    for language in distinct(rows, "language"):
        for key, label in LABELS.items():
            mine = [row for row in _main(rows, language, *key) if row.get("drift") is not None]
            if mine:
                row = mine[0]
                lines.append(
                    (language_of(language).name, label, f"{row['new']:,}", f"{row['rare']:,}", number(row["drift"], 2))
                )
    return Table(
        "How far rows of new tokens moved",
        heads,
        lines,
        "The distance from the first value, relative to its length. It was not recorded in the first runs.",
    )


def _other_tables(rows: Rows) -> list[Table]:
    heads = ("tokenizer", "step, kB", "rate", "new rows", "passes", "besides", "seed", "held out", "FLORES")
    found = []
    for language in distinct(rows, "language"):
        ends = [row for row in _ends(rows, language) if row["init"] == "fvt"]
        others = [row for row in ends if not _is_main(row, _size(rows))]
        lines = [
            (
                f"{row['arm']} {row['size']:,}" if row["size"] else row["arm"],
                f"{row['step_kb']:g}",
                f"{row['rate']:g}",
                f"× {row['row_factor']:g}",
                f"{row['passes']:g}",
                row["recipe"],
                row["seed"],
                number(row["held_out"]),
                number(row["flores"]),
            )
            for row in sorted(others, key=lambda row: (row["passes"] > 1.5, row["held_out"]))
        ]
        if lines:
            found.append(Table(f"{language_of(language).name}: what else was tried", heads, lines))
    return found


def _study_table(rows: Rows, language: str) -> Table:
    """Every run beside the unchanged model with the same text, rate and seed."""
    mine = _studied(rows, language)
    same = ("target_mb", "kept_share", "rate", "step_kb", "seed")
    bases = {tuple(row[name] for name in (*same, "passes")): row for row in mine if row["arm"] == "base"}
    scores = ("held_out", "flores", "kept_held_out", "kept_flores")
    lines = []
    for row in sorted(mine, key=lambda row: (*(row[name] for name in same[:4]), row["arm"] != "base", row["size"])):
        key = tuple(row[name] for name in same)
        base = bases.get((*key, row["passes"])) or bases.get((*key, 1))
        besides = [f"{row['passes']:g} passes"] if row["passes"] > 1 else []
        besides += [f"steps of {row['step_kb']:g} kB"] if row["step_kb"] != RECIPE["step_bytes"] / 1e3 else []
        besides += [row["recipe"]] if row["recipe"] else []
        besides += [row["init"]] if row["arm"] != "base" else []
        lines.append(
            (
                f"{row['target_mb']:g}",
                percent(row["kept_share"], 0),
                f"{row['rate']:g}",
                f"{row['arm']} {row['size']:,}" if row["size"] else "unchanged",
                ", ".join(besides),
                row["seed"],
                number(base and base["tokens"] / row["tokens"], 2),
                *(
                    f"{number(row[name])} ({percent(row[name] / base[name] - 1, signed=True)})"
                    if base and base is not row
                    else number(row[name])
                    for name in scores
                ),
            )
        )
    heads = ("MB", "English", "rate", "tokenizer", "besides", "seed", "times fewer tokens", "held out", "FLORES")
    return Table(
        f"{language_of(language).name}: number of tokens, share of English and learning rate",
        (*heads, "English held out", "English FLORES"),
        lines,
        "MB of the target, beside which English is read. In brackets: against the unchanged model with the same text, "
        "rate and seed. `add`: `--add N --preserve-keep`; `free`: `--add N`; `swap`: `--swap N`.",
    )


def panels(rows: Rows) -> list[Panel]:
    """Bits per byte on the way, by text and by tokens."""
    found = []
    for language in [name for name in distinct(rows, "language") if _main(rows, name, "base", 1)]:
        for column, label, scale in (("read_mb", "MB of text read", 1.0), ("tokens", "million tokens read", 1e-6)):
            series = []
            for (arm, passes), name in LABELS.items():
                end = next(iter(_main(rows, language, arm, passes)), None)
                way = [] if end is None else select(rows, kind="way", language=language, run=end["run"])[1:]
                if way:
                    series.append(Series(name, [scale * row[column] for row in way], [row["held_out"] for row in way]))
            title = f"{language_of(language).name}, held-out text"
            found.append(Panel(title, label, "bits per byte", series))
    return found


def claims(rows: Rows) -> list[Claim]:
    """The statements of the paper's Section "Continued pre-training" and of its analysis of undertrained tokens."""
    found = []
    for language in distinct(rows, "language"):
        arms = {name: _main(rows, language, name, 1) for name in ("base", "swap", "naive")}
        if not all(arms.values()):
            continue
        name = language_of(language).name
        base, ours, naive = (_mean(mine, "held_out") for mine in arms.values())
        found.append(
            Claim(
                f"{name}: no substantial difference between naive and continued training of the tokenizer",
                abs(naive / ours - 1) < 0.01,
                f"bits per byte of naive {percent(naive / ours - 1, signed=True)}",
            )
        )
        found.append(
            Claim(
                f"{name}: at equal text, the changed tokenizer is about as good as the unchanged one (1B model)",
                ours / base - 1 < 0.01,
                f"bits per byte {percent(ours / base - 1, signed=True)}",
            )
        )
        tokens = [_mean(arms[arm], "tokens") for arm in ("base", "swap")]
        found.append(
            Claim(
                f"{name}: training on the same text is faster (26 % less time in the paper)",
                tokens[1] < tokens[0],
                f"{percent(1 - tokens[1] / tokens[0])} fewer tokens",
            )
        )
        rare = [_mean(arms[arm], "rare") for arm in ("swap", "naive")]
        if None not in rare:
            found.append(
                Claim(
                    f"{name}: the naive method leaves more undertrained tokens",
                    rare[1] > rare[0],
                    f"read fewer than 10 times: {rare[1]:.0f} against {rare[0]:.0f}",
                )
            )
    return found


EXPERIMENT = Experiment(
    name="continued-pretraining",
    title="Training after an adaptation",
    source="Table 5, Figure 8, Section 4.3 (downstream tasks; here bits per byte)",
    about=(
        "SmolLM2-135M trained on text of the target language and a tenth of English, all weights, the same "
        "documents in the same order for every tokenizer. `adapted` replaces 8,000 tokens by `tokengraft adapt "
        "--swap 8000`; `naive` prunes as many and inserts 8,000 tokens of a newly trained tokenizer. New rows begin "
        "as the mean of their pieces and learn four times as fast as the rest. Steps of 89 kB of text; the learning "
        "rate rises to 0.0024 and falls to 0. Held-out documents are not nearly in the training text. Seconds are "
        "those of one H200 with nothing else running; a dash: several runs shared it."
    ),
    measure=measure,
    tables=tables,
    panels=panels,
    claims=claims,
    models=("smollm2",),
    languages=("et", "ar"),
    parts=tuple(f"{arm}-s{seed}" for arm in ARMS for seed in SEEDS),
    sizes=(8_000,),
    needs=("torch", "transformers", "tokenizers"),
    needs_model=True,
    gpu=True,
    caveat=(
        "Scaled down from the paper: 135 million weights instead of 1 and 3 billion, 50 and 25 MB of text instead "
        "of 24 billion characters, sequences of 1,024 tokens instead of 4,096, and a larger learning rate with "
        "smaller steps, which suits so little text. The weights were 4-bit before. Differences below 1 % mean "
        "nothing: two seeds differ by as much."
    ),
)


def add_runs(paths: Sequence[Path], folder: Path) -> None:
    """Adds raw results of `training.train` to the committed ones. A run that is there already is left out."""
    known = [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    rows, listed = from_csv((folder / "results.csv").read_text(encoding="utf-8")), (folder / "runs.json").read_text()
    runs = json.loads(listed)
    for result in (json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()):
        if any(result["name"] == other["name"] for other in known):
            continue
        known.append(result)
        given = ("name", "data", "arm", "init", "lr", "seed", "passes", "target_bytes", "keep_share", "step_bytes")
        special = ("row_lr", "body_slow", "old_first", "curve")
        runs.append({name: result[name] for name in (*given, *special) if result.get(name)})
        found = rows_of(result, result["bytes_read"] // max(1, result["passes"]), result["data"])
        rows += [{"model": "smollm2", "language": result["data"], **row} for row in found]
    (folder / "runs.jsonl").write_text("".join(json.dumps(run) + "\n" for run in known), encoding="utf-8")
    (folder / "runs.json").write_text("[\n" + ",\n".join(map(json.dumps, runs)) + "\n]\n", encoding="utf-8")
    (folder / "results.csv").write_text(to_csv(rows), encoding="utf-8")


if __name__ == "__main__":
    add_runs([Path(name) for name in sys.argv[1:]], Path(__file__).parent / "results" / "continued-pretraining")
