"""The measurements of one size: whole commands, learning, pipelines, Japanese, transplant. Each returns a table."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lab.benchmarks.folders import PIPELINES, Folders
from lab.benchmarks.measure import ROUNDS, Action, Run, command, in_python, in_turn, script, tokengraft, words

Table = dict[str, Any]
Runs = Mapping[str, dict[str, Any]]
ENCODER_TOKENS = 1000
ADAPTED = ("llama3", "qwen2_5", "gemma3")
"""Tokenizers with 128,000, 152,000 and 262,000 tokens."""
LEARN = """
import tokengraft as tg
tok, n, rounds = tg.load(arguments[0]), int(arguments[2]), int(arguments[3])
# Counts keep their tokens, so every round has its own.
loaded = (tg.PretokenCounts.load(arguments[1]) for _ in range(rounds))
runs = [timed(lambda: tg.extend(tok, counts, n))[0] for counts in loaded]
print(json.dumps(min(runs, key=lambda run: run["wall"])))
"""
MEMORY = """
import pyarrow.parquet, tokengraft as tg
tok = tg.load(arguments[0]); tg.count(tok, iter(["warm"]))
forget_peak(); before = peak()
counts = tg.count(tok, arguments[1]); counted = peak() - before
tg.extend(tok, counts, int(arguments[2]))
print(json.dumps({"distinct": len(counts), "counting": counted, "learning": peak() - before}))
"""
PRUNE = """
import tokengraft as tg
tok, counts = tg.load(arguments[0]), tg.PretokenCounts.load(arguments[1])
run, order = timed(lambda: tg.prune_order(tok, counts, protection=tg.Protection(defaults=False)))
print(json.dumps(run | {"tokens": len(order.removals)}))
"""
RATE = """
import tokengraft as tg
tok, lines = tg.load(arguments[0]), tg.ReadOptions(documents="lines")
print(json.dumps(fastest(lambda: tg.count(tok, arguments[1], read_options=lines), int(arguments[2]))))
"""
ENCODER = """
import tokengraft as tg
tok, lines, rounds = tg.load(arguments[0]), tg.ReadOptions(documents="lines"), int(arguments[3])
count = lambda: tg.count(tok, arguments[1], read_options=lines)
n, counted = int(arguments[2]), (count() for _ in range(rounds))
# Counts keep their tokens, so every round has its own.
runs = [timed(lambda: tg.extend(tok, counts, n))[0] for counts in counted]
print(json.dumps({"count": fastest(count, rounds), "learn": min(runs, key=lambda run: run["wall"])}))
"""
LOAD = """
import tokengraft as tg
from pathlib import Path
from tokenizers import Tokenizer
path, rounds = Path(arguments[0]) / "tokenizer.json", int(arguments[1])
result = {"upstream": fastest(lambda: Tokenizer.from_file(str(path)), rounds)}
result["load"] = fastest(lambda: tg.load(path), rounds)
result["structure"] = fastest(lambda: tg.load(path).structure, rounds)
print(json.dumps(result))
"""
IN_PYTHON = """
from collections import Counter
from tokenizers import Tokenizer
upstream = Tokenizer.from_file(arguments[0] + "/tokenizer.json")
with open(arguments[1], encoding="utf-8", errors="replace") as stream:
    text = stream.read(int(arguments[2]))
def count():
    counts = Counter()
    for line in text.splitlines(keepends=True):
        line = upstream.normalizer.normalize_str(line) if upstream.normalizer else line
        counts.update(piece for piece, _ in upstream.pre_tokenizer.pre_tokenize_str(line))
print(json.dumps(timed(count)[0] | {"bytes": len(text.encode())}))
"""


COLUMNS = ("wall", "cpu", "ratio", "peak")
NAMES = {
    "wc": "`wc -w`, UTF-8 locale",
    "count": "`tokengraft count`, Parquet written",
    "inspect": "`tokengraft inspect`",
}


def table(
    key: str, runs: Runs, names: Mapping[str, str], ratio_to: tuple[str, str] | None = None, **more: Any
) -> Table:
    """A table with a row for each run; `ratio_to` has the run that the others are compared with, and its name."""
    rows = [{"key": name, "name": names.get(name, name), **run} for name, run in runs.items()]
    if ratio_to:
        rows = [row | {"ratio": row["wall"] / runs[ratio_to[0]]["wall"]} for row in rows]
        more = {"ratio_to": ratio_to[1]} | more
    return {"key": key, "columns": [*COLUMNS], "rows": rows} | more


@dataclass(frozen=True)
class Setup:
    """What is measured, and where."""

    text: Path
    folders: Folders
    tokens: int
    scratch: Path
    rounds: int = ROUNDS

    @property
    def llama3(self) -> Path:
        """Llama-3's tokenizer folder."""
        return self.folders.folder("llama3")

    @property
    def loaded_back(self) -> str:
        """What `extend` does, where transformers is installed."""
        return f"`tokengraft extend --add {self.tokens}`, loaded back with tokenizers and transformers"

    def count(self, folder: Path, text: Path, out: Path) -> Run:
        """The `count` command, with its counts as Parquet."""
        return tokengraft("count", folder, text, "--out", out, "--force", "--quiet")

    def actions(self, folder: Path, text: Path, counts: Path) -> dict[str, Action]:
        """What every table of commands has."""
        return {
            "wc": lambda _: words(text),
            "count": lambda _: self.count(folder, text, counts),
            "extend": lambda _: self.extend(folder, text),
        }

    def extend(self, folder: Path, text: Path, *, without: str | None = None) -> Run:
        """The `extend` command. It writes to `extended`, in a folder with the name of the tokenizer."""
        out = self.scratch / "extended" / folder.name
        shutil.rmtree(out, ignore_errors=True)
        arguments = ("--corpus", text, "--add", self.tokens, "--out", out, "--quiet")
        return tokengraft("extend", folder, *arguments, without=without)


def commands(setup: Setup) -> Table:
    """Whole commands beside `wc -w` on the same file."""
    actions = setup.actions(setup.llama3, setup.text, setup.scratch / "counts.parquet") | {
        "extend-alone": lambda _: setup.extend(setup.llama3, setup.text, without="transformers"),
        "inspect": lambda _: tokengraft("inspect", setup.llama3, "--json"),
    }
    runs = in_turn(actions, setup.rounds)
    names = NAMES | {"extend": setup.loaded_back, "extend-alone": "the same where transformers is not installed"}
    return table("commands", runs, names, ("wc", "`wc -w`"))


def small(setup: Setup, text: Path, model: Path | None) -> Table:
    """Commands on a small text, where loading, importing and checking take most of the time."""
    out, extended = setup.scratch / "adapted", setup.scratch / "extended" / setup.llama3.name

    def adapt(_: object) -> Run:
        shutil.rmtree(out, ignore_errors=True)
        return tokengraft("adapt", model, "--target", text, "--swap", 2000, "--out", out, "--quiet")

    actions = setup.actions(setup.llama3, text, setup.scratch / "small.parquet") | {
        "evaluate": lambda _: tokengraft("evaluate", f"base={setup.llama3}", f"new={extended}", "--text", text),
        "adapt": adapt,
    }
    if model is None:
        del actions["adapt"]
    names = NAMES | {
        "extend": setup.loaded_back,
        "evaluate": "`tokengraft evaluate` of two tokenizers, one document per line",
        "adapt": f"`tokengraft adapt --swap 2000` of {model.name if model else ''}, with report",
    }
    runs = in_turn(actions, setup.rounds)
    return table("small", runs, names, ("count", "`count`"), bytes=text.stat().st_size)


def adapting(setup: Setup, text: Path, keep: Path) -> Table:
    """The main job and its steps with large vocabularies, beside `extend` of the same text."""
    rows, out, adapted = list[dict[str, Any]](), setup.scratch / "written", setup.scratch / "swapped"
    for model in filter(setup.folders.has, ADAPTED):
        folder = setup.folders.folder(model)
        actions: dict[str, tuple[object, ...]] = {
            "extend": (folder, "--corpus", text, "--add", 4000, "--out", out, "--force"),
            "adapt": (folder, "--target", text, "--keep", keep, "--swap", "auto", "--out", adapted, "--force"),
            "prune": (folder, "--corpus", keep, "--remove", 16_000, "--out", out, "--force"),
            "check": (adapted, "--base", folder),
            "report": (folder, adapted, "--text", text, "--out", setup.scratch / "report.html", "--force"),
            "evaluate": (f"base={folder}", f"new={adapted}", "--text", text),
        }
        runs = in_turn({key: partial(_command, key, *given) for key, given in actions.items()}, setup.rounds)
        found = table("adapting", runs, {key: f"{model}: `{key}`" for key in runs}, ("extend", "`extend`"))
        rows += [row | {"key": f"{model} {row['key']}"} for row in found["rows"]]
    return found | {"rows": rows, "bytes": text.stat().st_size}


def _command(*arguments: Any) -> Run:
    """A command of tokengraft; the last argument is the number of the round."""
    return tokengraft(*arguments[:-1], "--quiet")


def learning(setup: Setup) -> Table:
    """Learning from counts, and its memory."""
    counts = setup.scratch / "counts.parquet"
    own = in_python(LEARN, setup.llama3, counts, setup.tokens, setup.rounds)
    memory = in_python(MEMORY, setup.llama3, setup.text, setup.tokens)
    prune = in_python(PRUNE, setup.llama3, counts)
    rows = [
        {"key": "learn", "name": f"learning {setup.tokens:,} tokens, from counts", **own, "ratio": 1.0},
        {"key": "prune", "name": f"the order to prune {prune['tokens']:,} tokens, from counts", **prune},
    ]
    return {"key": "learning", "columns": [*COLUMNS], "ratio_to": "learning", "rows": rows, "memory": memory}


def loading(setup: Setup) -> Table:
    """Reading a tokenizer beside the tokenizers library."""
    runs = in_python(LOAD, setup.llama3, 5)
    names = {
        "upstream": "`tokenizers.Tokenizer.from_file`",
        "load": "`tokengraft.load`, which also checks every merge",
        "structure": "the same, with the merge that makes each token",
    }
    return table("loading", runs, names, ("upstream", "`from_file`"), columns=["wall", "cpu", "ratio"])


def pipelines(setup: Setup, text: Path) -> Table:
    """Counting with the pipelines of other models, tokenizer loaded."""
    folders = {"Llama-3": setup.llama3} | {name: setup.folders.with_pipeline(name) for name in PIPELINES}
    size, rows = text.stat().st_size, []
    for name, folder in folders.items():
        run = in_python(RATE, folder, text, setup.rounds)
        rows.append({"key": name, "name": name, **run, "rate": size / run["wall"]})
    script("formats", text, setup.scratch)
    for file, name in {"text.parquet": "Parquet (zstd)", "text.jsonl.zst": "`.jsonl.zst`"}.items():
        run = in_python(RATE, setup.llama3, setup.scratch / file, setup.rounds)
        rows.append({"key": file, "name": f"Llama-3, from {name}", **run, "rate": size / run["wall"]})
    slow = in_python(IN_PYTHON, setup.llama3, text, 2_000_000)
    name = "Llama-3, `pre_tokenize_str` and a `Counter` in Python (2 MB)"
    rows.append({"key": "python", "name": name, "cpu": slow["cpu"], "rate": slow["bytes"] / slow["wall"]})
    for row in rows:
        row["ratio"] = rows[0]["rate"] / row["rate"]
    columns = ["wall", "cpu", "rate", "ratio"]
    return {"key": "pipelines", "columns": columns, "ratio_to": "Llama-3's time", "rows": rows, "bytes": size}


def encoders(setup: Setup, text: Path, *folders: Path) -> Table:
    """Counting, and learning from the counts, with vocabularies that have no merges, beside Llama-3's."""
    runs = {
        folder.name: in_python(ENCODER, folder, text, ENCODER_TOKENS, setup.rounds)
        for folder in (setup.llama3, *folders)
    }
    names = {"count": "count", "learn": f"learn {ENCODER_TOKENS:,} tokens"}
    first = runs[setup.llama3.name]
    rows = [
        {"key": f"{folder} {key}", "name": f"{folder}: {name}", **run[key]}
        | {"ratio": run[key]["wall"] / first[key]["wall"]}
        for folder, run in runs.items()
        for key, name in names.items()
    ]
    columns = ["wall", "cpu", "ratio"]
    return {"key": "encoders", "columns": columns, "ratio_to": "Llama-3's", "rows": rows, "bytes": text.stat().st_size}


def japanese(setup: Setup, text: Path) -> Table:
    """A SentencePiece vocabulary and text without spaces."""
    folder, counts = setup.folders.folder("llama2"), setup.scratch / "japanese.parquet"
    runs = in_turn(setup.actions(folder, text, counts), setup.rounds)
    runs["learn"] = in_python(LEARN, folder, counts, setup.tokens, setup.rounds)
    extend, learn = f"`tokengraft extend --add {setup.tokens}`", f"learning {setup.tokens:,} tokens, from counts"
    ordered = {key: runs[key] for key in ("wc", "count", "learn", "extend")}
    more = {"tokenizer": setup.folders.name("llama2"), "bytes": text.stat().st_size}
    names = NAMES | {"learn": learn, "extend": extend}
    return table("japanese", ordered, names, columns=["wall", "cpu", "peak"], **more)


def transplant(setup: Setup, width: int, layers: int) -> Table:
    """Transplanting a checkpoint beside copying its weights. Everything is in the page cache before."""
    model, new = setup.scratch / "model", setup.scratch / "extended" / setup.llama3.name
    script("checkpoint", setup.llama3, model, width, layers)
    if not new.exists():
        setup.extend(setup.llama3, setup.text)
    first, _, last = weights = sorted(model.glob("*.safetensors"))
    sizes = {path: path.stat().st_size for path in weights}
    os.sync()
    runs = in_turn(
        {
            "cp": lambda _: _copy(weights, setup.scratch / "copy"),
            "cp-tables": lambda _: _copy([first, last], setup.scratch / "copy"),
            "transplant": lambda _: _transplant(model, new, setup.scratch / "copy"),
            "linked": lambda _: _transplant(model, new, setup.scratch / "copy", "--hard-link"),
            "fixed": lambda _: _transplant(model, new, None),
        },
        setup.rounds,
    )
    names = {
        "cp": "`cp` of all weights, synced",
        "cp-tables": f"`cp` of the two shards with tables ({(sizes[first] + sizes[last]) / 1e9:.1f} GB), synced",
        "transplant": "`tokengraft transplant`, everything compared and synced",
        "linked": "the same with `--hard-link`: shards that do not change are not copied",
        "fixed": "of it, without weights (`--dry-run`): both tokenizers, plan, configs",
    }
    shutil.rmtree(model)
    shutil.rmtree(setup.scratch / "copy")
    return table("transplant", runs, names, ("cp", "`cp`"), bytes=sum(sizes.values()))


def _copy(paths: list[Path], out: Path) -> Run:
    _clear(out)
    out.mkdir()
    return command("sh", "-c", 'cp --reflink=never "$@" && sync', "sh", *paths, out)


def _transplant(model: Path, new: Path, out: Path | None, *options: str) -> Run:
    if out is None:
        return tokengraft("transplant", model, new, "--dry-run", "--json")
    _clear(out)
    return tokengraft("transplant", model, new, "--out", out, "--quiet", "--json", *options)


def _clear(folder: Path) -> None:
    """Removes what the last run wrote, and waits until the disk is idle."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()
