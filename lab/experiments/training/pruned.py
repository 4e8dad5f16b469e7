"""Data for `train.py`: one language, with the tokenizer unchanged and pruned to several sizes.

    python -m lab.experiments.training.pruned MODEL --text en=en.parquet --other medical=medical_en.parquet \
        --flores devtest --shares 0.25 0.5 0.625 --out DIR

The text that decides which tokens are removed is used for nothing else. Scored are held-out documents, FLORES, and text
of another domain that is neither trained on nor used for pruning.
"""

import argparse
import json
import lzma
import random
from pathlib import Path

import tokengraft as tg
from lab.experiments.languages import language_of
from lab.experiments.training.data import HELD_BYTES, chunks, corpus, documents, save_arm, up_to, write_json


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="folder of the model, or of its tokenizer")
    parser.add_argument("--text", required=True, metavar="LANGUAGE=PARQUET")
    parser.add_argument("--other", required=True, metavar="NAME=PARQUET", help="text of another domain, only scored")
    parser.add_argument("--flores", type=Path, required=True, help="folder of FLORES-200 devtest")
    parser.add_argument("--train-bytes", type=int, default=30_000_000)
    parser.add_argument("--prune-bytes", type=int, default=20_000_000)
    parser.add_argument("--shares", type=float, nargs="+", default=(0.25, 0.5, 0.625))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    (language, path), (other, other_path) = options.text.split("="), options.other.split("=")
    texts = documents(path)
    lines = (options.flores / f"{language_of(language).flores}.devtest").read_text(encoding="utf-8").splitlines()
    scored, pruning, training = (
        texts[: len(texts) // 20],
        texts[len(texts) // 20 : len(texts) // 2],
        texts[len(texts) // 2 :],
    )
    found = corpus(language, training, scored, lines, options.train_bytes)
    options.out.mkdir(parents=True)
    write_json(options.out / f"{language}_held.json", [part for text in found.held_out for part in chunks(text)])
    write_json(options.out / f"{language}_flores.json", found.sentences)
    domain = up_to(documents(other_path), HELD_BYTES)
    write_json(options.out / f"{other}_held.json", [part for text in domain for part in chunks(text)])
    random.Random(0).shuffle(found.train)
    with lzma.open(options.out / "train.json.xz", "wt", encoding="utf-8") as file:
        json.dump(found.train, file, ensure_ascii=False)
    base = tg.load(options.model)
    order = tg.prune_order(base, tg.count(base, up_to(pruning, options.prune_bytes)))
    (options.out / "arms").mkdir()
    save_arm(base, base, options.out / "arms" / "base")
    for share in options.shares:
        pruned = order[: round(share * len(base.tokens))].apply(base).compact()
        save_arm(base, pruned, options.out / "arms" / f"pruned-{share * 100:g}")


if __name__ == "__main__":
    main()
