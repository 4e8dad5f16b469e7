"""`continued-pretraining`: a model trained on the same text with its own tokenizer, a changed one, and a naive one.

Every arm has the same recipes to choose from. The choice is made on one part of the held-out documents, and everything
else is reported: the other part, FLORES, and tasks made from FLORES.
"""

import json
import lzma
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokengraft as tg
from lab.experiments.experiment import Cell, Experiment, Row, Setup
from lab.experiments.languages import ENGLISH
from lab.experiments.tables import from_csv, to_csv
from lab.experiments.training_tables import claims, interval_rows, panels, tables

ARMS = {"unchanged": "base", "adapted": "swap", "naive": "naive"}
RATES = (0.00085, 0.0017, 0.0034)
RECIPES: dict[str, dict[str, float | str]] = {
    "rows": {"row_lr": 4.0, "init": "fvt-rare"},
    "paper": {"init": "fvt", "warm_up": 0.1, "floor": 0.1, "table_decay": 0.1},
}
"""`rows`: new rows learn four times as fast, the rate falls to 0 in a line. `paper`: one rate for all rows, weight
decay for all matrices, the rate falls to a tenth by a cosine."""
SEEDS = (0, 1, 2)
STEP_BYTES = 45e3
TARGET_BYTES = 23_000_000
KEPT_SHARE = 1 / 9
"""Bytes of English for each byte of the target."""
VARIANTS = {"documents": "tokens by documents", "sources": "large sources count less"}
TASKS = ("continuation", "to", "from")


def measure(setup: Setup, cell: Cell) -> list[Row]:
    """The rows of one run; the part of the cell is arm, recipe, rate and seed: `adapted-rows-0.0017-s0`."""
    from lab.experiments.training.text import Data, Run
    from lab.experiments.training.train import train

    arm, recipe, rate, seed = cell.part.split("-")
    (size,) = setup.sizes
    models = models_of(setup.model_folder)
    folder = data_folder(setup, cell.language)
    data = Data(folder, models.separator)
    name = ARMS[arm] if arm == "unchanged" else f"{ARMS[arm]}-{size}"
    fields = {"lr": float(rate), "seed": int(seed[1:]), "passes": 1, "step_bytes": STEP_BYTES, **RECIPES[recipe]}
    if arm == "unchanged":
        fields |= {"row_lr": 1.0, "init": "fvt"}
    result = train(Run(cell.part, cell.language, name, detailed=True, **fields), models, data)
    return [*rows_of(result, int(data.sizes.sum()), cell.language), tokenizer_row(folder, name, cell.language)]


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
    size = min(TARGET_BYTES, sum(len(text.encode()) for text in target.train))
    parts = [
        corpus(name, found.train, found.held_out, setup.data.sentences(name), most, CHOICE_BYTES + HELD_BYTES)
        for name, found, most in ((language, target, size), (ENGLISH, keep, round(size * KEPT_SHARE)))
    ]
    write_data(out, tg.load(setup.model_folder), *parts, Sizes(setup.sizes, (), setup.sizes))
    return out


def rows_of(result: dict[str, Any], text_bytes: int, language: str) -> Iterator[Row]:
    """A row for the finished run, one for each score on the way, and the values of every line."""
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
    scores, choices = result["scores"], result.get("choices") or {}
    reported = "test" if f"{language}_test" in scores else "held"
    alone = result.get("parallel", 1) == 1
    yield {
        "kind": "end",
        **run,
        "read_mb": result["bytes_read"] / 1e6,
        "tokens": result["tokens"],
        "steps": result["steps"],
        "seconds": result["seconds"] if alone else None,
        "held_out": scores[f"{language}_{reported}"],
        "flores": scores[f"{language}_flores"],
        "kept_held_out": scores[f"{ENGLISH}_{reported}"],
        "kept_flores": scores[f"{ENGLISH}_flores"],
        "new": result["new"] or None,
        "choice": scores[f"{language}_held"] if reported == "test" else None,
        **{task: _share(choices.get(f"{task}-{language}")) for task in TASKS},
        "kept_continuation": _share(choices.get(f"continuation-{ENGLISH}")),
    }
    for read, held, kept in [] if result.get("target_bytes") else result["curve"]:
        tokens = result["tokens"] * read / result["bytes_read"]
        yield {"kind": "way", **run, "read_mb": read / 1e6, "tokens": tokens, "held_out": held, "kept_held_out": kept}
    for text, bits in (result.get("bits") or {}).items():
        yield {"kind": "lines", "run": result["name"], "text": text, "values": " ".join(f"{x:.1f}" for x in bits)}
    for task, digits in choices.items():
        yield {"kind": "lines", "run": result["name"], "text": task, "values": " ".join(digits)}
    for name, percentiles in (result.get("moved") or {}).items():
        yield {"kind": "moved", **run, "text": name, "values": " ".join(f"{x:.3f}" for x in percentiles)}


def _share(digits: str | None) -> float | None:
    return digits.count("1") / len(digits) if digits else None


def _recipe(result: dict[str, Any], variant: Sequence[str] = ()) -> str:
    """What a run did beside the usual."""
    parts = [VARIANTS[name] for name in variant]
    if result.get("floor"):
        parts.append("paper")
    if result.get("body_slow"):
        parts.append(f"all but new rows rise for {result['body_slow']:.0%}")
    if result["rows_first"]:
        parts.append(f"new rows alone for {result['rows_first']:.0%}")
    if result["table_lr"] != 1:
        parts.append(f"whole embedding learns {result['table_lr']:g} times as fast")
    return ", ".join(parts)


def tokenizer_row(folder: Path, arm: str, language: str) -> Row:
    """The tokenizer of an arm: its tokens, unreachable ones, bytes per token of FLORES, tokens of the training text."""
    tokenizer = tg.load(folder / "arms" / arm)
    sentences = {name: json.loads((folder / f"{name}_flores.json").read_text()) for name in (language, ENGLISH)}
    scores = tg.evaluate({"": tokenizer}, {name: iter(lines) for name, lines in sentences.items()})
    rates = [scores["", name].bytes_per_token for name in sentences]
    unreachable = len(tokenizer.structure.unreachable)
    with lzma.open(folder / "train.json.xz", "rt", encoding="utf-8") as file:
        texts = json.load(file)
    kept = json.loads((folder / "documents.json").read_text())["train"]
    tokens = [tg.evaluate({"": tokenizer}, {"": iter(part)})["", ""].tokens for part in _split(texts, kept)]
    return {
        "kind": "tokenizer",
        "arm": arm.split("-")[0],
        "size": len(tokenizer.tokens),
        "unreachable": unreachable,
        "flores": rates[0],
        "kept_flores": rates[1],
        "tokens": sum(tokens),
        "target_share": tokens[0] / sum(tokens),
    }


def _split(texts: Sequence[str], kept: Sequence[int]) -> list[list[str]]:
    """Documents of the target, and of the kept language."""
    return [[text for text, place in zip(texts, kept, strict=True) if place == wanted] for wanted in (0, 1)]


EXPERIMENT = Experiment(
    name="continued-pretraining",
    title="Training after an adaptation",
    source="Table 5 (smaller: other tasks, a smaller model), Table 9 (smaller: SmolLM2), Figure 8 (smaller)",
    about=(
        "SmolLM2-135M-Instruct, from 4-bit weights, trained on 23 MB of the target language and 2.6 MB of English, all "
        "weights, the same documents in the same order for every tokenizer, in steps of 45 kB. `adapted` replaces "
        "8,000 tokens by `tokengraft adapt --swap 8000`; `naive` prunes the same tokens and inserts 8,000 of a newly "
        "trained tokenizer. Every arm has the same five recipes; the best on a part of the held-out documents is "
        "reported on the others, on FLORES, and on tasks made from FLORES. Intervals are of lines or documents, and "
        "of seeds."
    ),
    tables=tables,
    panels=panels,
    claims=claims,
    models=("smollm2",),
    languages=("et", "ar"),
    parts=tuple(
        f"{arm}-{recipe}-{rate:g}-s{seed}" for seed in SEEDS for rate in RATES for recipe in RECIPES for arm in ARMS
    ),
    sizes=(8_000,),
    needs=("torch", "transformers", "tokenizers"),
    needs_model=True,
    gpu=True,
    caveat=(
        "Scaled down from the paper: 135 million weights instead of 1 and 3 billion, 23 MB of text instead of 24 "
        "billion characters, a tenth of the text English instead of half, "
        "sequences of 1,024 tokens instead of 4,096, and a larger learning rate with smaller "
        "steps, which suits so little text. The largest rate was run with the recipe `rows` only, so a higher rate may "
        "suit the paper's recipe. Other seeds (two more, one for the paper's recipe) were run only for the recipes "
        "that are shown, and two passes for `adapted` alone, so they are not compared."
    ),
)


def add_runs(paths: Sequence[Path], folder: Path) -> None:
    """Adds raw results of `training.train` to the committed ones. A run that is there already is left out."""
    known = [json.loads(line) for line in (folder / "runs.jsonl").read_text(encoding="utf-8").splitlines()]
    rows = from_csv((folder / "results.csv").read_text(encoding="utf-8"))
    runs = [run for name in ("runs.json", "recipes.json") for run in json.loads((folder / name).read_text())]
    for result in (json.loads(line) for path in paths for line in path.read_text(encoding="utf-8").splitlines()):
        if any(result["name"] == other["name"] for other in known):
            continue
        known.append(result)
        given = ("name", "data", "arm", "init", "lr", "seed", "passes", "target_bytes", "keep_share", "step_bytes")
        special = ("row_lr", "warm_up", "floor", "table_decay", "body_slow", "curve", "detailed")
        runs.append({name: result[name] for name in (*given, *special) if result.get(name)})
        found = rows_of(result, result["bytes_read"] // max(1, result["passes"]), result["data"])
        rows += [{"model": "smollm2", "language": result["data"], **row} for row in found]
    kinds = [_kind(run) for run in known]
    single = {run["name"] for run in known if kinds.count(_kind(run)) == 1}  # no interval is shown of them
    rows = [row for row in rows if row["kind"] != "lines" or row["run"] not in single]
    text = "".join(
        json.dumps(run | {name: None for name in ("bits", "choices") if name in run}) + "\n" for run in known
    )
    (folder / "runs.jsonl").write_text(text, encoding="utf-8")
    for name, detailed in (("runs.json", False), ("recipes.json", True)):
        listed = [json.dumps(run) for run in runs if run.get("detailed", False) == detailed]
        (folder / name).write_text("[\n" + ",\n".join(listed) + "\n]\n", encoding="utf-8")
    (folder / "results.csv").write_text(to_csv(rows), encoding="utf-8")
    (folder / "intervals.csv").write_text(to_csv(interval_rows(rows)), encoding="utf-8")


def _kind(run: dict[str, Any]) -> tuple[Any, ...]:
    """What runs with other seeds have in common."""
    return tuple(run.get(name) for name in ("data", "arm", "lr", "floor", "row_lr", "init", "bytes_read", "step_bytes"))


if __name__ == "__main__":
    add_runs([Path(name) for name in sys.argv[1:]], Path(__file__).parent / "results" / "continued-pretraining")
