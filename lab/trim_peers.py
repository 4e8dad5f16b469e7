"""Trims encoder tokenizers with tokengraft and with skeletoken: the same text, the same number of rows.

    python lab/trim_peers.py TEXT FLORES_FOLDER ROWS TOKENIZER_FOLDER ... > lab/trim_peers.csv

skeletoken (`pip install skeletoken`) removes tokens that it is given and chooses none, so it is given all but the added
tokens and those that are most frequent in the text, which is what people do with it. Every arm runs in a process of its
own. FLORES_FOLDER has `LANGUAGE.devtest` files; those of the languages of the text and all others are scored apart.
"""

import csv
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from functools import partial
from pathlib import Path

from tokenizers import Tokenizer

LANGUAGES = ("est_Latn", "eng_Latn")
COLUMNS = (
    "tokenizer",
    "arm",
    "rows",
    "seconds",
    "megabytes",
    "tokens_percent",
    "new_unknown",
    "unaffected_lines",
    "changed_lines",
)


def upstream(path: Path) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def by_tokengraft(source: Path, text: Path, rows: int, out: Path, *, defaults: bool = True) -> None:
    import tokengraft as tg

    tokenizer, protection = tg.load(source), tg.Protection(defaults=defaults)
    counts = tg.count(tokenizer, text, read_options=tg.ReadOptions(documents="lines"))
    order = tg.prune_order(tokenizer, counts, protection=protection)
    small = order[: len(tokenizer) - rows].apply(tokenizer).compact()
    tg.save(small, out, base=tokenizer)


def by_skeletoken(source: Path, text: Path, rows: int, out: Path) -> None:
    from skeletoken import TokenizerModel

    base, counts = upstream(source / "tokenizer.json"), Counter[str]()
    lines = text.read_text(encoding="utf-8").split("\n")
    for at in range(0, len(lines), 1000):
        for encoding in base.encode_batch(lines[at : at + 1000], add_special_tokens=False):
            counts.update(encoding.tokens)
    added = {token.content for token in base.get_added_tokens_decoder().values()}
    vocab = base.get_vocab()
    ranked = sorted(vocab, key=lambda token: (token not in added, -counts[token], vocab[token]))
    model = TokenizerModel.from_pretrained(str(source)).remove_tokens_from_vocabulary(ranked[rows:])
    out.mkdir()
    model.to_tokenizer().save(str(out / "tokenizer.json"))


def score(source: Path, out: Path, flores: Path) -> dict[str, float]:
    """How the trimmed tokenizer splits FLORES: more tokens and unknown ones, and lines that lost no token."""
    base, small = upstream(source / "tokenizer.json"), upstream(out / "tokenizer.json")
    document = json.loads((source / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    unknown = document.get("unk_token") or document["vocab"][document["unk_id"]][0]
    kept, before, after, new_unknown, unaffected, changed = small.get_vocab(), 0, 0, 0, 0, 0
    for path in sorted(flores.iterdir()):
        lines = path.read_text(encoding="utf-8").split("\n")
        sides = [tokenizer.encode_batch(lines, add_special_tokens=False) for tokenizer in (base, small)]
        for old, new in zip(*sides, strict=True):
            if path.name.split(".")[0] in LANGUAGES:
                before, after = before + len(old), after + len(new)
                new_unknown += new.tokens.count(unknown) - old.tokens.count(unknown)
            if all(token in kept for token in old.tokens):
                unaffected, changed = unaffected + 1, changed + (old.tokens != new.tokens)
    return {
        "rows": small.get_vocab_size(),
        "tokens_percent": round(100 * (after / before - 1), 3),
        "new_unknown": new_unknown,
        "unaffected_lines": unaffected,
        "changed_lines": changed,
    }


ARMS = {
    "tokengraft": by_tokengraft,
    "tokengraft --no-protect-defaults": partial(by_tokengraft, defaults=False),
    "skeletoken": by_skeletoken,
}


def main(text: Path, flores: Path, rows: int, sources: list[Path]) -> None:
    writer = csv.DictWriter(sys.stdout, COLUMNS)
    writer.writeheader()
    for source in sources:
        for arm in ARMS:
            with tempfile.TemporaryDirectory() as folder:
                out, started = Path(folder, "out"), time.perf_counter()
                arguments = [str(part) for part in (source, text, rows, out)]
                subprocess.run([sys.executable, __file__, "--arm", arm, *arguments], check=True)
                seconds = round(time.perf_counter() - started, 1)
                memory = int(Path(f"{out}.memory").read_text())
                measured = {"seconds": seconds, "megabytes": memory} | score(source, out, flores)
                writer.writerow({"tokenizer": source.name, "arm": arm} | measured)
                sys.stdout.flush()


if __name__ == "__main__":
    if sys.argv[1] == "--arm":
        arm, source, text, rows, out = sys.argv[2:]
        ARMS[arm](Path(source), Path(text), int(rows), Path(out))
        Path(f"{out}.memory").write_text(str(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024))
    else:
        main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), [Path(source) for source in sys.argv[4:]])
