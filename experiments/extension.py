"""Continued training against the naive baseline: bytes per token and unreachable tokens, by tokenizer and size.

    python experiments/extension.py llama3 llama2 --train et.txt --target est.devtest --keep eng.devtest

A row for each tokenizer, method and size: bytes per token of the target as the tokenizer works and with merge skipping
off, the share of new tokens that merges never make, and of the lines of the other language that are split as before.
"""

import argparse
from pathlib import Path

import tokengraft as tg
from tokengraft.extend.naive import fresh_tokens, regenerated

SIZES = (1_000, 2_000, 4_000, 8_000, 16_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", help="tokenizer folders")
    parser.add_argument("--train", required=True, help="text to learn from")
    parser.add_argument("--target", required=True, help="held-out text of the same language, one document per line")
    parser.add_argument("--keep", required=True, help="text of a language that must not change")
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--max-bytes", type=int, default=20_000_000, help="of the training text (20 MB)")
    options = parser.parse_args()
    print("tokenizer", "method", "added", "bytes/token", "by merges", "unreachable", "other split alike", sep="\t")
    for folder in options.tokenizers:
        base = tg.load(folder)
        texts = {"target": options.target, "keep": options.keep}
        counts = tg.count(base, options.train, count_options=tg.CountOptions(max_bytes=options.max_bytes))
        before = tg.evaluate({"base": base}, texts)["base", "target"]
        print(Path(folder).name, "base", 0, *_rates(before), "-", "-", sep="\t", flush=True)
        for method, make in (("continued", _continued), ("naive-regen", _naive)):
            for size, extended in make(base, counts, options.sizes):
                found = tg.evaluate({"base": base, "new": extended}, texts)
                failing = set(extended.structure.unreachable)
                new = [i for string, i in extended.ids.items() if string not in base.ids]
                unreachable = sum(i in failing for i in new) / len(new)
                score, kept = found["new", "target"], found["new", "keep"]
                row = (*_rates(score), f"{unreachable:.2%}", f"{kept.exact_match:.2%}")
                print(Path(folder).name, method, size, *row, sep="\t", flush=True)


def _rates(score: tg.Score) -> tuple[str, str]:
    return f"{score.bytes_per_token:.4f}", f"{score.bytes_per_token_by_merges:.4f}"


def _continued(base: tg.Tokenizer, counts: tg.PretokenCounts, sizes):
    extension = tg.extend(base, counts, max(sizes))
    return ((size, extension[:size].apply(base)) for size in sizes)


def _naive(base: tg.Tokenizer, counts: tg.PretokenCounts, sizes):
    """As `tg.extend_naively`, with the fresh tokenizer trained once for all sizes."""
    from tokengraft.tokenizer.edit import add_tokens

    tokens, _ = fresh_tokens(base, counts, max(sizes))
    for size in sizes:
        chosen = tokens[:size]
        yield size, add_tokens(base, chosen, [*regenerated(chosen, {*base.ids, *chosen})])


if __name__ == "__main__":
    main()
