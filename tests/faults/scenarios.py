"""Every command that writes, on tiny inputs: its arguments, and what it writes."""

from dataclasses import dataclass

from checkpoints import ENGLISH, ESTONIAN, checkpoint
from injection import ALL

import tokengraft as tg


@dataclass(frozen=True)
class Scenario:
    """A command, as it is run in a folder that has `inputs`."""

    arguments: tuple[str, ...]
    outputs: tuple[str, ...] = ("out",)
    old: tuple[str, ...] = ()
    """The arguments that make an older result, which `--force` replaces."""
    kept: tuple[str, ...] = ()
    """What a stopped run leaves for the next one."""


COUNTS = "inputs/et.parquet"
GGUF = ("transplant", "inputs/model.gguf", "inputs/extended", "--base", "inputs/model")
SCENARIOS = {
    "count": Scenario(
        ("count", "inputs/model", "inputs/et.txt", "--out", "out"),
        old=("count", "inputs/model", "inputs/en.txt", "--out", "out"),
    ),
    "count-spill": Scenario(
        ("count", "inputs/model", "inputs/many.txt", "--memory", "64k", "--workers", "1", "--out", "out"),
        old=("count", "inputs/model", "inputs/en.txt", "--out", "out"),
    ),
    "counts-merge": Scenario(
        ("counts", "merge", COUNTS, "inputs/en.parquet", "--out", "out"),
        old=("counts", "merge", COUNTS, COUNTS, "--out", "out"),
    ),
    "extend": Scenario(
        ("extend", "inputs/model", "--counts", COUNTS, "--add", "9", "--out", "out"),
        old=("extend", "inputs/model", "--counts", COUNTS, "--add", "3", "--out", "out"),
    ),
    "extend-all-outputs": Scenario(
        (
            *("extend", "inputs/model", "--corpus", "inputs/et.txt", "--add", "9", "--out", "out"),
            *("--extension", "extension.json", "--report", "report.html"),
        ),
        outputs=("out", "extension.json", "report.html"),
    ),
    "prune": Scenario(
        ("prune", "inputs/model", "--counts", COUNTS, "--remove", "9", "--out", "out", "--order", "order.json"),
        outputs=("out", "order.json"),
        old=("prune", "inputs/model", "--counts", COUNTS, "--remove", "3", "--out", "out", "--order", "order.json"),
    ),
    "refill": Scenario(
        ("extend", "inputs/holes", "--counts", COUNTS, "--add", "5", "--out", "out"),
        old=("extend", "inputs/holes", "--counts", COUNTS, "--add", "3", "--out", "out"),
    ),
    "convert": Scenario(
        ("convert", "inputs/ranks", "--to", "huggingface", "--out", "out"),
        old=("convert", "inputs/ranks", "--to", "tekken", "--renumber", "--out", "out"),
    ),
    "plan": Scenario(
        ("plan", "inputs/model", "inputs/extended", "--out", "out"),
        old=("plan", "inputs/extended", "inputs/model", "--out", "out"),
    ),
    "report": Scenario(
        ("report", "inputs/model", "inputs/extended", "--text", "et=inputs/short.txt", "--out", "out"),
        old=("report", "inputs/extended", "inputs/model", "--text", "et=inputs/short.txt", "--out", "out"),
    ),
    "transplant": Scenario(
        ("transplant", "inputs/model", "inputs/extended", "--out", "out"),
        old=("transplant", "inputs/model", "inputs/extended", "--init", "mean", "--out", "out"),
    ),
    "transplant-linked": Scenario(
        ("transplant", "inputs/model", "inputs/extended", "--hard-link", "--out", "out"),
        old=("transplant", "inputs/model", "inputs/extended", "--init", "mean", "--out", "out"),
    ),
    "transplant-gguf": Scenario(
        (*GGUF, "--out", "out"),
        old=(*GGUF, "--init", "mean", "--out", "out"),
    ),
    "adapt": Scenario(
        (
            *("adapt", "inputs/model", "--target", "inputs/et.txt", "--keep", "inputs/en.txt", "--swap", "5"),
            *("--out", "out", "--keep-work", "work"),
        ),
        outputs=("out", "work"),
        kept=("out.work",),
        old=(
            *("adapt", "inputs/model", "--target", "inputs/et.txt", "--keep", "inputs/en.txt", "--swap", "3"),
            *("--out", "out", "--keep-work", "work"),
        ),
    ),
}

EVERY = sorted(SCENARIOS)
FEW = [name for name in EVERY if SCENARIOS[name].old] if ALL else ["adapt", "count-spill", "transplant"]
"""The scenarios with an older result that are tried with most faults: all of them, or one of each kind."""
FAST = FEW if ALL else ["count-spill", "transplant"]


def write_inputs(folder):
    """Writes the inputs of all scenarios."""
    folder.mkdir()
    base = checkpoint(folder / "model", shards=2)
    (folder / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    (folder / "short.txt").write_text("\n".join(ESTONIAN[:20]), encoding="utf-8")
    (folder / "many.txt").write_text(" ".join(f"w{n}x{n * 7919 % 1000}" for n in range(20_000)), encoding="utf-8")
    counts = tg.count(base, [folder / "et.txt"])
    counts.save(folder / "et.parquet")
    tg.count(base, [folder / "en.txt"]).save(folder / "en.parquet")
    tg.save(tg.extend(base, counts, 7).apply(base), folder / "extended", verify=False)
    tg.save(tg.prune_order(base, counts)[:7].apply(base), folder / "holes", verify=False)
    write_rank_file(folder / "ranks")
    write_gguf(folder / "model.gguf", base)


def write_rank_file(folder):
    """A tiktoken file of the tiny tokenizer, with its pattern and special tokens."""
    from rank_files import explicit

    explicit(folder)


def write_gguf(path, base):
    """A GGUF file of the tiny tokenizer."""
    from ggufs import write_gguf as write

    write(path, base)
