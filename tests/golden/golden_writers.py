"""What is written to golden files: a table of functions, each of which writes some files to a folder.

They run in a folder with the inputs of `golden_inputs`, so that paths in the outputs are relative.
"""

import shutil
from pathlib import Path

import tokengraft as tg
from tokengraft.counts.count import HeldOutCounts
from tokengraft.pipeline import adapt as cache


def save(tokenizer, out):
    tg.save(tokenizer, out, verify=False)


def extended(name, n=3):
    base = tg.load(name)
    return tg.extend(base, tg.count(base, ["et.txt"]), n).apply(base)


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


def write_blend(out):
    tg.transplant("model", extended("model"), "adapted")
    shutil.copytree("adapted", "trained")
    path = min(Path("trained").glob("*.safetensors"))
    path.write_bytes(path.read_bytes()[:-64] + bytes(64))  # numbers that the training changed
    tg.blend("trained", "adapted", share=0.2, out=out / "blended")


def write_adapters(out):
    base = tg.load("model")
    counts = tg.count(base, ["et.txt"])
    pruned = tg.prune_order(base, counts)[:3].apply(base)
    swapped = tg.extend(pruned, tg.count(pruned, ["et.txt"]), 3).apply(pruned)
    tg.transplant("model", swapped, out / "new-rows", as_adapter=True)
    smaller = tg.prune_order(swapped, tg.count(swapped, ["et.txt"]))[:2].apply(swapped).compact()
    tg.transplant("model", smaller, "smaller")
    tg.transplant(out / "new-rows", "smaller", out / "for-another-vocabulary")


def write_draft(out):
    from checkpoints import eagle

    base = tg.load("model")
    counts = tg.count(base, ["et.txt"])
    eagle(Path("draft"), base.n_rows)
    tg.draft("model", counts, out / "map", size=len(base) - 10, held_out={"en": tg.count(base, ["en.txt"])})
    tg.draft("model", None, out / "draft", ids=out / "map", cut="draft")
    tg.transplant(out / "draft", extended("model"), out / "transplanted", base=base)


def write_gguf(out):
    from ggufs import write_gguf as write

    base = tg.load("model")
    write(Path("model.gguf"), base)
    tg.transplant("model.gguf", extended("model"), out / "model.gguf", base=base)


def write_adaptation(out):
    tg.adapt("model", target="et.txt", keep="en.txt", swap=3, out=out / "adapted")


def write_tokenizer_adaptation(out):
    tg.adapt("compact", target="et.txt", add=2, out=out / "adapted", options=tg.AdaptOptions(report=False))


def write_cache(out):
    counts = tg.count(tg.load("model"), ["et.txt"])
    cache._save(HeldOutCounts(counts, ("õ", "b"), 3), out / "counts.parquet", out / "held-out.json")


def write_report(out):
    tg.report("model", extended("model"), {"et": ["en.txt"]}, out=out / "report.html", title="golden")


GOLDEN = {
    "adapters": write_adapters,
    "blend": write_blend,
    "adaptation": write_adaptation,
    "adaptation-of-a-tokenizer": write_tokenizer_adaptation,
    "cache": write_cache,
    "converted": write_converted,
    "counts": write_counts,
    "draft": write_draft,
    "extended": write_extended,
    "gguf": write_gguf,
    "pruned": write_pruned,
    "report": write_report,
    "results": write_results,
    "transplant": write_transplant,
    "unchanged": write_unchanged,
}
