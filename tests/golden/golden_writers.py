"""What is written to golden files: a table of functions, each of which writes some files to a folder.

They run in a folder with the inputs of `golden_inputs`, so that paths in the outputs are relative.
"""

import io
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import golden_inputs
import numpy as np

import tokengraft as tg
from tokengraft import cli
from tokengraft.adapt import cache
from tokengraft.checkpoint.layout import find_vocabulary, open_checkpoint
from tokengraft.counts.count import HeldOutCounts
from tokengraft.train.write_rows import write_with_rows


@dataclass(frozen=True)
class Golden:
    """A function that writes to a folder, and the functions of the package whose output this is."""

    write: object
    covers: tuple[str, ...] = ()


def save(tokenizer, out):
    tg.save(tokenizer, out, verify=False)


def extended(name, n=3):
    base = tg.load(name)
    return tg.extend(base, tg.count(base, ["et.txt"]), n).apply(base)


def command(*arguments):
    """What a command prints."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        status = cli.main([*arguments])
    assert status in (0, 1), arguments
    return out.getvalue()


def printed(out, name, *arguments):
    (out / f"{name}.json").write_text(command(*arguments, "--json"), encoding="utf-8")


def write_extended(out):
    for name in ("model", "indented", "compact", "ascii", "merges-as-text", "tiktoken", "tekken", "pieces"):
        save(extended(name), out / name)


def write_pruned(out):
    for name in ("model", "compact", "pieces"):
        base = tg.load(name)
        order = tg.prune_order(base, tg.count(base, ["et.txt"]))[:2]
        save(order.apply(base), out / f"{name}-with-holes")
        save(order.apply(base).compact(), out / name)


def write_unchanged(out):
    for name in ("ascii", "llama3", "pieces"):
        save(tg.load(name), out / name)


def write_converted(out):
    save(tg.convert(tg.load("model"), "tiktoken", renumber=True), out / "tiktoken")
    save(tg.convert(tg.load("model"), "tekken", renumber=True), out / "tekken")
    save(tg.convert(tg.load("tiktoken"), "huggingface"), out / "huggingface")
    save(tg.convert(tg.load("pieces"), "huggingface"), out / "huggingface-of-pieces")


def write_counts(out):
    base = tg.load("model")
    parts = {name: tg.count(base, [f"{name}.txt"]) for name in ("et", "en")}
    parts["et"].save(out / "et.parquet")
    (parts["et"] + parts["en"]).save(out / "sum.parquet")


def write_results(out):
    base = tg.load("model")
    counts = tg.count(base, ["et.txt"])
    tg.extend(base, counts, 3).save(out / "extension.json")
    tg.prune_order(base, counts)[:3].save(out / "order.json")
    tg.plan(base, extended("model")).save(out / "plan.json")


def write_transplant(out):
    tg.transplant("model", extended("model"), out / "model")


def write_gguf(out):
    from ggufs import write_gguf as write

    base = tg.load("model")
    write(Path("model.gguf"), base)
    tg.transplant("model.gguf", extended("model"), out / "model.gguf", base=base)


def write_adaptation(out):
    options = tg.AdaptOptions(keep_work=str(out / "work"))
    tg.adapt("model", target="et.txt", keep="en.txt", swap=3, out=out / "adapted", options=options)


def write_tokenizer_adaptation(out):
    tg.adapt("compact", target="et.txt", add=2, out=out / "adapted", options=tg.AdaptOptions(report=False))


def write_cache(out):
    counts = tg.count(tg.load("model"), ["et.txt"])
    cache._save(HeldOutCounts(counts, ("õ", "b")), out / "counts.parquet", out / "held-out.json")


def write_rows(out):
    vocabulary = find_vocabulary(open_checkpoint(Path("model")))
    rows = [np.full((2, golden_inputs.WIDTH), value, np.float32) for value in (0.5, -0.25)]
    write_with_rows(Path("model"), out / "model", vocabulary, [3, 5], rows, {"steps": 1}, force=False)


def write_report(out):
    tg.report("model", extended("model"), {"et": ["en.txt"]}, out=out / "report.html", title="golden")


def write_printed(out):
    save(extended("model"), Path("new"))
    command("count", "model", "et.txt", "--out", "et.parquet", "--quiet")
    printed(out, "inspect", "inspect", "model")
    printed(out, "count", "count", "model", "et.txt", "--out", "counted")
    printed(out, "counts-merge", "counts", "merge", "et.parquet", "et.parquet", "--out", "merged")
    printed(out, "extend", "extend", "model", "--counts", "et.parquet", "--add", "3", "--out", "extended")
    printed(out, "prune", "prune", "model", "--counts", "et.parquet", "--remove", "2", "--out", "pruned")
    printed(out, "check", "check", "new", "--base", "model")
    printed(out, "evaluate", "evaluate", "model", "new", "--text", "et=en.txt")
    printed(out, "compare", "compare", "model", "new", "--text", "en.txt")
    printed(out, "curve", "curve", "model", "--counts", "et.parquet", "--text", "en.txt", "--sizes", "1", "2", "4")
    printed(out, "plan", "plan", "model", "new")
    printed(out, "transplant", "transplant", "model", "new", "--out", "transplanted")
    printed(out, "convert", "convert", "tiktoken", "--to", "huggingface", "--out", "converted")
    printed(out, "adapt", "adapt", "model", "--target", "et.txt", "--add", "2", "--no-report", "--out", "adapted")


SAVE = "formats.files.save"
GOLDEN = {
    "adaptation": Golden(write_adaptation, ("checkpoint.transplant.transplant", "adapt.work.write_work")),
    "adaptation-of-a-tokenizer": Golden(write_tokenizer_adaptation, ("adapt.write.write_result",)),
    "cache": Golden(write_cache, ("adapt.cache._save",)),
    "converted": Golden(write_converted, (SAVE,)),
    "counts": Golden(write_counts, ("counts.pretoken_counts.write_counts",)),
    "extended": Golden(write_extended, (SAVE,)),
    "gguf": Golden(write_gguf, ("checkpoint.gguf.transplant_gguf",)),
    "printed": Golden(write_printed),
    "pruned": Golden(write_pruned, (SAVE,)),
    "report": Golden(write_report, ("report.report.write_page",)),
    "results": Golden(
        write_results,
        ("plan.VocabPlan.save", "tokenizer.edit_result.EditResult.save", "output.result_file.write_result_file"),
    ),
    "rows": Golden(write_rows, ("train.write_rows.write_with_rows",)),
    "transplant": Golden(write_transplant, ("checkpoint.transplant.transplant",)),
    "unchanged": Golden(write_unchanged, (SAVE,)),
}
