"""What pruning costs, by order: bytes per token on held-out text and unreachable tokens as a tokenizer shrinks.

    python experiments/pruning.py llama3 --counts mix.parquet --held-out et=est_Latn.devtest en=eng_Latn.devtest
    python experiments/pruning.py llama3 --counts mix.parquet --held-out et=est_Latn.devtest --by-merges

A row for each order and size: the kept tokens that became unreachable, how many more tokens the text needs that decided
the order (`seen`, which flatters), and bytes per token of each held-out text, with merge skipping as the tokenizer has
it. With --by-merges, tokens are counted with merge skipping off, as in the paper. Bytes are those of the lines without
their newlines. Bytes per token say how long a text becomes, not how well a model predicts it.
"""

import argparse
from pathlib import Path

import tokengraft as tg
from tokengraft.prune.methods import COUNTED

METHODS = ("leaf-frequency", "merge", "frequency", "last-id-leaf", "last-id")
SIZES = (1_000, 4_000, 16_000, 32_000, 64_000, 80_000, 96_000, 112_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a tokenizer folder")
    parser.add_argument("--counts", nargs="+", required=True, help="counts of the text whose tokens are to be kept")
    parser.add_argument("--held-out", nargs="+", required=True, metavar="NAME=FILE")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--by-merges", action="store_true", help="for the methods that count tokens")
    options = parser.parse_args()
    base = tg.load(options.tokenizer)
    counts = load_counts(options.counts)
    texts = {name: held_out(base, path) for name, _, path in (text.partition("=") for text in options.held_out)}
    print("method", "removed", "newly_unreachable", "seen", *texts, sep="\t")
    print("-", 0, 0, "-", *(f"{rate(base, text):.3f}" for text in texts.values()), sep="\t")
    for method in options.methods:
        order = tg.prune_order(base, counts, method, by_merges=options.by_merges and method in COUNTED)
        for size in options.sizes:
            pruned = order[:size].apply(base)
            broken = len(set(pruned.structure.unreachable) - set(base.structure.unreachable))
            rates = (f"{rate(pruned, text):.3f}" for text in texts.values())
            seen = f"{rate(base, counts) / rate(pruned, counts) - 1:+.3%}"
            print(method, size, broken, seen, *rates, sep="\t", flush=True)


def load_counts(paths: list[str]) -> tg.PretokenCounts:
    first, *others = map(tg.PretokenCounts.load, paths)
    return sum(others, first)


def held_out(base: tg.Tokenizer, path: str) -> tg.PretokenCounts:
    """A text counted once: every pruned tokenizer keeps the pipeline."""
    return tg.count(base, iter(Path(path).read_text(encoding="utf-8").splitlines()))


def rate(tokenizer: tg.Tokenizer, text: tg.PretokenCounts) -> float:
    return text.totals.bytes / sum(text.tokens(tokenizer).values())


if __name__ == "__main__":
    main()
