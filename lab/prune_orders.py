"""What pruning costs other text of the same language: `leaf-expected` against the paper's `leaf-frequency`.

    python lab/prune_orders.py run --tokenizers DIR --corpora DIR --flores DIR --out lab/prune_orders.csv
    python lab/prune_orders.py table lab/prune_orders.csv

Orders are made from 1, 10 and 60 MB of text, or all there is (column `bytes`). Every tenth document is held out. The
cost is the growth of the number of tokens, in percent, on 3 MB of held-out documents and on all sentences of FLORES-200
devtest. Default protection is on.
"""

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from statistics import mean

import pyarrow.parquet as pq

import tokengraft as tg

LANGUAGES = {
    "ar": "arb_Arab",
    "de": "deu_Latn",
    "en": "eng_Latn",
    "et": "est_Latn",
    "hi": "hin_Deva",
    "ja": "jpn_Jpan",
    "ru": "rus_Cyrl",
    "zh": "zho_Hans",
}
TOKENIZERS = ("llama3", "qwen2_5", "gemma3", "smollm2")
MEGABYTES = (1, 10, 60)
SHARES = (0.25, 0.5, 0.625, 0.75)
METHODS = ("leaf-frequency", "leaf-expected")
HELD_OUT = 3e6
FIELDS = ("tokenizer", "language", "megabytes", "bytes", "method", "removed", "share", "text", "before", "after")


def first(documents: Sequence[str], n_bytes: float) -> Iterator[str]:
    read = 0
    for document in documents:
        if read >= n_bytes:
            return
        read += len(document.encode())
        yield document


def cell(options: argparse.Namespace, name: str, language: str, megabytes: int) -> list[dict[str, object]]:
    base = tg.load(options.tokenizers / name)
    documents = pq.read_table(options.corpora / f"{language}.parquet", columns=["text"])["text"].to_pylist()
    train = [document for at, document in enumerate(documents) if at % 10]
    counts = tg.count(base, first(train, megabytes * 1e6), count_options=tg.CountOptions(workers=1))
    sentences = (options.flores / f"{LANGUAGES[language]}.devtest").read_text(encoding="utf-8").splitlines()
    texts = {"held-out": tg.count(base, first(documents[::10], HELD_OUT)), "flores": tg.count(base, iter(sentences))}
    before = {text: sum(given.tokens(base).values()) for text, given in texts.items()}
    rows = []
    for method in METHODS:
        order = tg.prune_order(base, counts, method)
        for share in SHARES:
            n = int(len(base.tokens) * share)
            if n > len(order):
                continue
            pruned = order[:n].apply(base)
            for text, given in texts.items():
                after = sum(given.tokens(pruned).values())
                values = (name, language, megabytes, counts.totals.bytes, method, n, share, text, before[text], after)
                rows.append(dict(zip(FIELDS, values, strict=True)))
    return rows


def run(options: argparse.Namespace) -> None:
    cells = [*product([options], TOKENIZERS, LANGUAGES, MEGABYTES)]
    with options.out.open("w", newline="") as file, ProcessPoolExecutor(options.jobs) as pool:
        writer = csv.DictWriter(file, FIELDS)
        writer.writeheader()
        for rows in pool.map(cell, *zip(*cells, strict=True)):
            writer.writerows(rows)
            file.flush()
            print(*list(rows[0].values())[:3] if rows else ("nothing",), file=sys.stderr)


def table(options: argparse.Namespace) -> None:
    with options.file.open() as file:
        rows = [row | {"cost": 100 * (int(row["after"]) / int(row["before"]) - 1)} for row in csv.DictReader(file)]
    cells: dict[tuple[str, ...], dict[str, float]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("tokenizer", "language", "megabytes", "share", "text"))
        cells.setdefault(key, {})[row["method"]] = row["cost"]
    pairs = {key: (found["leaf-frequency"], found["leaf-expected"]) for key, found in cells.items() if len(found) == 2}
    print("| text | MB | removed | cells | leaf-frequency | leaf-expected | better, worse | most better | most worse |")
    print("|---|---|---|---|---|---|---|---|---|")
    for text, megabytes, share in product(("flores", "held-out"), map(str, MEGABYTES), map(str, SHARES)):
        chosen = [pair for key, pair in pairs.items() if key[2:] == (megabytes, share, text)]
        if not chosen:
            continue
        gains = [old - new for old, new in chosen]
        better, worse = sum(gain > 1e-9 for gain in gains), sum(gain < -1e-9 for gain in gains)
        old, new = (mean(values) for values in zip(*chosen, strict=True))
        figures = f"{old:.3f} % | {new:.3f} % | {better}, {worse} | {max(gains):.3f} | {max(-min(gains), 0):.3f}"
        print(f"| {text} | {megabytes} | {float(share):.1%} | {len(chosen)} | {figures} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    for name in ("tokenizers", "corpora", "flores", "out"):
        command.add_argument(f"--{name}", type=Path, required=True)
    command.add_argument("--jobs", type=int, default=2)
    command.set_defaults(run=run)
    command = commands.add_parser("table")
    command.add_argument("file", type=Path)
    command.set_defaults(run=table)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
