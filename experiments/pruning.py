"""What pruning costs, by order: bytes per token on held-out text and unreachable tokens as a tokenizer shrinks.

    python experiments/pruning.py llama3 --counts mix.parquet --held-out et=est_Latn.devtest en=eng_Latn.devtest

A row for each order and size: the kept tokens that became unreachable, and bytes per token of each text, with merge
skipping as the tokenizer has it. Bytes are those of the lines without their newlines. Bytes per token say what a text
costs, not what a model makes of it.
"""

import argparse
from pathlib import Path

import tokengraft as tg

METHODS = ("leaf-frequency", "merge", "frequency", "last-id-leaf", "last-id")
SIZES = (1_000, 4_000, 16_000, 32_000, 64_000, 80_000, 96_000, 112_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a tokenizer folder")
    parser.add_argument("--counts", required=True, help="counts of the text whose tokens are to stay")
    parser.add_argument("--held-out", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    options = parser.parse_args()
    base = tg.load(options.tokenizer)
    counts = tg.PretokenCounts.load(options.counts)
    texts = {name: held_out(base, path) for name, _, path in (text.partition("=") for text in options.held_out)}
    print("method", "removed", "newly_unreachable", *texts, sep="\t")
    print("-", 0, 0, *(f"{rate(base, text):.3f}" for text in texts.values()), sep="\t")
    for method in options.methods:
        order = tg.prune_order(base, counts, method)
        for size in options.sizes:
            pruned = order[:size].apply(base)
            broken = len(set(pruned.structure.unreachable) - set(base.structure.unreachable))
            rates = (f"{rate(pruned, text):.3f}" for text in texts.values())
            print(method, size, broken, *rates, sep="\t", flush=True)


def held_out(base: tg.Tokenizer, path: str) -> tg.PretokenCounts:
    """A text counted once: every pruned tokenizer keeps the pipeline."""
    return tg.count(base, iter(Path(path).read_text(encoding="utf-8").splitlines()))


def rate(tokenizer: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    return text.totals.bytes / sum(text.tokens(tokenizer).values())


if __name__ == "__main__":
    main()
