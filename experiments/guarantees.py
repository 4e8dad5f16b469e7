"""What guarantees cost: text that must not change, scripts, languages in balance, and sizes chosen by support.

    python experiments/guarantees.py llama3 llama2 --train et=et.parquet ar=ar.parquet hi=hi.parquet \
        --test et=est_Latn.devtest ar=arb_Arab.devtest hi=hin_Deva.devtest \
        --scripts et=Latin ar=Arabic hi=Devanagari --preserve en=en.parquet python='lib/**/*.py'

Three tables, in Markdown. All gains are on the test text, which nothing is learned from.

guarantees  for each tokenizer, language and guarantee: the tokens that were learned, the pairs that were refused, the
            gain, and the share of the pretokens of each preserved text (occurrences, not distinct ones) whose
            segmentation changes
balance     tokens learned for all languages together: the gain of each, and the largest ratio of bytes per token to
            those of the base divided by the smallest
sizes       what `choose_size` takes, with the test text as held-out text
"""

import argparse
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

import tokengraft as tg

LINES = tg.ReadOptions(documents="lines")
TABLES = ("guarantees", "balance", "sizes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", help="tokenizer folders")
    for name, what in (("train", "text to learn from"), ("test", "other text, one document per line")):
        parser.add_argument(f"--{name}", nargs="+", required=True, metavar="LANGUAGE=FILE", help=what)
    parser.add_argument("--preserve", nargs="+", required=True, metavar="NAME=FILES", help="text that must not change")
    parser.add_argument("--scripts", nargs="+", required=True, metavar="LANGUAGE=SCRIPT")
    parser.add_argument("--add", type=int, default=8_000, help="number of new tokens (8000)")
    parser.add_argument("--max-add", type=int, default=64_000, help="the most tokens that are chosen from (64000)")
    parser.add_argument("--max-bytes", type=int, default=20_000_000, help="of each text (20 MB)")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    options = parser.parse_args()
    for folder in options.tokenizers:
        base, name = tg.load(folder), Path(folder).name
        train = counted(base, options.train, options.max_bytes)
        test = {language: tg.count(base, path, read_options=LINES) for language, path in pairs(options.test)}
        if "guarantees" in options.tables:
            preserved = counted(base, options.preserve, options.max_bytes)
            guarantees(name, base, train, test, preserved, dict(pairs(options.scripts)), options.add)
        if "balance" in options.tables:
            balance(name, base, train, test, options.add)
        if "sizes" in options.tables:
            sizes(name, base, train, test, options.max_add)


def pairs(named: list[str]) -> Iterator[tuple[str, str]]:
    for text in named:
        name, _, value = text.partition("=")
        yield name, value


def counted(base: tg.Tokenizer, named: list[str], max_bytes: int) -> dict[str, tg.PretokenCounts]:
    limit = tg.CountOptions(max_bytes=max_bytes)
    return {name: tg.count(base, path, count_options=limit) for name, path in pairs(named)}


def row(*cells: object) -> None:
    print("|", " | ".join(map(str, cells)), "|", flush=True)


def heads(*cells: str) -> None:
    print()
    row(*cells)
    print("|" + "---|" * len(cells))


def guarantees(
    name: str,
    base: tg.Tokenizer,
    train: Mapping[str, tg.PretokenCounts],
    test: Mapping[str, tg.PretokenCounts],
    preserved: Mapping[str, tg.PretokenCounts],
    scripts: Mapping[str, str],
    n: int,
) -> None:
    heads("tokenizer", "language", "guarantee", "new tokens", "refused", "gain", *(f"{k} changed" for k in preserved))
    first, *others = preserved.values()
    everything = sum(others, first)
    for language, counts in train.items():
        limits = tg.Limits(scripts=[scripts[language]])
        made = {
            "none": lambda counts=counts: tg.extend(base, counts, n),
            "preserve": lambda counts=counts: tg.extend(base, counts, n, preserve=everything),
            "scripts": lambda counts=counts, limits=limits: tg.extend(base, counts, n, limits=limits),
        }
        for guarantee, learn in made.items():
            extension = learn()
            extended = extension.apply(base)
            gain = tg.curves(base, extension, {language: test[language]}, [n]).points[-1].gain[language]
            changed = [f"{changed_share(base, extended, counts):.3%}" for counts in preserved.values()]
            refused = f"{len(extension.refused):,}" if guarantee == "preserve" else "-"
            row(name, language, guarantee, f"{len(extension):,}", refused, f"{gain:+.1%}", *changed)


def changed_share(base: tg.Tokenizer, extended: tg.Tokenizer, counts: tg.PretokenCounts) -> float:
    """The share of occurrences that have other tokens."""
    return counts.changed(base, extended).table.total() / counts.table.total()


def balance(
    name: str,
    base: tg.Tokenizer,
    train: Mapping[str, tg.PretokenCounts],
    test: Mapping[str, tg.PretokenCounts],
    n: int,
) -> None:
    heads("tokenizer", "balance", *(f"{language} gain" for language in train), "spread of gains")
    largest = max(counts.totals.bytes for counts in train.values())
    equal = [counts.scale(Fraction(largest, counts.totals.bytes)) for counts in train.values()]
    made = {
        "all text": sum([*train.values()][1:], next(iter(train.values()))),
        "equal weights": sum(equal[1:], equal[0]),
        "parity": tg.Parity(dict(train)),
        "parity, at most 50 % for one": tg.Parity(dict(train), max_share=0.5),
    }
    for way, counts in made.items():
        point = tg.curves(base, tg.extend(base, counts, n), test, [n]).points[-1]
        row(name, way, *(f"{point.gain[language]:+.1%}" for language in train), f"{point.gain_spread:.2f}")


def sizes(
    name: str,
    base: tg.Tokenizer,
    train: Mapping[str, tg.PretokenCounts],
    test: Mapping[str, tg.PretokenCounts],
    n: int,
) -> None:
    heads("tokenizer", "language", "text, MB", "learned", "knee", "supported", "chosen", "gain")
    for language, counts in train.items():
        extension = tg.extend(base, counts, n)
        choice = tg.choose_size(base, extension, counts, test[language])
        gain = tg.curves(base, extension, {language: test[language]}, [choice.size]).points[-1].gain[language]
        knee = f"{choice.knee:,}" if choice.knee is not None else "not reached"
        found = (f"{len(extension):,}", knee, f"{choice.supported:,}", f"{choice.size:,}", f"{gain:+.1%}")
        row(name, language, round(counts.totals.bytes / 1e6), *found)


if __name__ == "__main__":
    main()
