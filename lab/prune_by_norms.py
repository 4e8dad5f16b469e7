"""Whether the weights of a model say which unseen tokens to prune first.

    python lab/prune_by_norms.py MODEL --corpora DIR --out lab/prune_by_norms.csv

Frequent tokens have shorter embedding rows in many models. Here the usefulness of a token that does not occur in the
text is multiplied by exp(-k z), where z is the length of its row in standard deviations above the mean. k = 0 is the
order `leaf-expected`. The cost is the growth of the number of tokens, in percent, on 3 MB of held-out documents of the
same corpus. Needs safetensors.
"""

import argparse
import csv
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from prune_orders import SHARES, first
from safetensors.numpy import load_file

import tokengraft as tg
from tokengraft.pruning import methods

POWERS = (0, 0.5, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--languages", nargs="+", default=("en", "et", "de", "fi", "ru"))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    base = tg.load(options.model)
    table = load_file(options.model / "model.safetensors")["model.embed_tokens.weight"].astype(np.float32)
    lengths = np.linalg.norm(table, axis=1)
    z = (lengths - lengths.mean()) / lengths.std()
    with options.out.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["language", "megabytes", "power", "share", "cost"])
        for language in options.languages:
            documents = pq.read_table(options.corpora / f"{language}.parquet", columns=["text"])["text"].to_pylist()
            held_out = tg.count(base, first(documents[::10], 3e6))
            train = [document for at, document in enumerate(documents) if at % 10]
            for megabytes in (1, 10):
                counts = tg.count(base, first(train, megabytes * 1e6))
                for power in POWERS:
                    found = ordered(base, counts, np.exp(-power * z))
                    for share in SHARES:
                        pruned = found[: int(share * len(base.tokens))].apply(base)
                        cost = sum(held_out.tokens(pruned).values()) / sum(held_out.tokens(base).values()) - 1
                        rows.writerow([language, megabytes, power, share, f"{100 * cost:.4f}"])


def ordered(base: tg.Tokenizer, counts: tg.PretokenCounts, factors: np.ndarray) -> tg.PruneOrder:
    """The order `leaf-expected` with the usefulness of each token multiplied by a factor."""

    def usefulness(tokenizer: tg.Tokenizer, frequencies: Mapping[int, int]) -> dict[int, float]:
        return {token: value * float(factors[token]) for token, value in original(tokenizer, frequencies).items()}

    original, methods.usefulness = methods.usefulness, usefulness
    try:
        return tg.prune_order(base, counts)
    finally:
        methods.usefulness = original


if __name__ == "__main__":
    main()
