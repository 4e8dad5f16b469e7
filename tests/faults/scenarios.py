"""Every command that writes, on tiny inputs: its arguments, and what it writes."""

from dataclasses import dataclass

from checkpoints import ENGLISH, ESTONIAN, checkpoint, eagle
from ggufs import write_gguf
from injection import ALL
from rank_files import explicit

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


def scenario(command, new="", old="", **options):
    """A command with one part that is another one for the older result."""
    arguments, older = (tuple(command.format(part).split()) for part in (new, old))
    return Scenario(arguments, old=older if old else (), **options)


MODEL, COUNTS, PAIR = "inputs/model", "inputs/et.parquet", "inputs/model inputs/extended"
SCENARIOS = {
    "count": scenario(f"count {MODEL} inputs/{{}}.txt --out out", "et", "en"),
    "count-spill": scenario(f"count {MODEL} inputs/{{}}.txt --memory 64k --workers 1 --out out", "many", "en"),
    "counts-merge": scenario(f"counts merge {COUNTS} inputs/{{}}.parquet --out out", "en", "et"),
    "extend": scenario(f"extend {MODEL} --counts {COUNTS} --add {{}} --out out", "9", "3"),
    "extend-all-outputs": scenario(
        f"extend {MODEL} --corpus inputs/et.txt --add 9 --out out --extension extension.json --report report.html",
        outputs=("out", "extension.json", "report.html"),
    ),
    "prune": scenario(
        f"prune {MODEL} --counts {COUNTS} --remove {{}} --out out --order order.json",
        *("9", "3"),
        outputs=("out", "order.json"),
    ),
    "convert": scenario("convert inputs/ranks --to {} --out out", "huggingface", "tekken --renumber"),
    "report": scenario(
        "report inputs/{} --text et=inputs/short.txt --out out", "model inputs/extended", "extended inputs/model"
    ),
    "transplant": scenario(f"transplant {PAIR} --init {{}} --out out", "fvt", "mean"),
    "transplant-linked": scenario(f"transplant {PAIR} {{}} --out out", "--hard-link", "--init mean"),
    "transplant-gguf": scenario(
        f"transplant inputs/model.gguf inputs/extended --base {MODEL} --init {{}} --out out", "fvt", "mean"
    ),
    "draft": scenario(f"draft {MODEL} --counts {COUNTS} --size {{}} --cut inputs/draft --out out", "300", "310"),
    "adapt": scenario(
        f"adapt {MODEL} --target inputs/et.txt --keep inputs/en.txt --swap {{}} --out out",
        *("5", "3"),
        outputs=("out",),
        kept=("out.work",),
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
    explicit(folder / "ranks")
    write_gguf(folder / "model.gguf", base)
    eagle(folder / "draft", base.n_rows)
