"""What default protection costs and saves: Llama-3 without 64,000 tokens, by text of Estonian and English.

    python lab/prune_protection.py llama3 --corpora DIR --flores DIR --out lab/prune_protection.csv

White space: removed tokens of ASCII white space alone, and all of them. Then the tokens of two texts before and after:
Python's own library, and the English lines of FLORES-200.
"""

import argparse
import csv
import sysconfig
from pathlib import Path

import tokengraft as tg

REMOVED = 64_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path)
    parser.add_argument("--corpora", type=Path, required=True)
    parser.add_argument("--flores", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    base = tg.load(options.tokenizer)
    counts = tg.count(base, [options.corpora / "et.parquet", options.corpora / "en.parquet"])
    python = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    texts = {"python": tg.count(base, python), "flores": tg.count(base, options.flores / "eng_Latn.devtest")}
    spaces = {token.string for token in base.tokens if token.bytes.isspace()}
    with options.out.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["defaults", "white_space_removed", "white_space", "text", "before", "after"])
        for defaults in (True, False):
            order = tg.prune_order(base, counts, protection=tg.Protection(defaults=defaults))[:REMOVED]
            pruned = order.apply(base)
            for name, text in texts.items():
                tokens = [sum(text.tokens(tokenizer).values()) for tokenizer in (base, pruned)]
                rows.writerow([int(defaults), len(spaces & {*order.tokens}), len(spaces), name, *tokens])


if __name__ == "__main__":
    main()
