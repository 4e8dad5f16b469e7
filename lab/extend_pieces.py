"""New tokens for Unigram and WordPiece: `extend`, and adding the most frequent words, on the same text.

    python lab/extend_pieces.py TEXT FLORES N OUT.csv FOLDERS...

FLORES is a folder with `est_Latn.devtest` and `eng_Latn.devtest`. The words are the most frequent pretokens that are no
tokens, given to `extend` as a word list. Every encoding is compared with the `tokenizers` library.
"""

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import tokengraft as tg


def main(text: str, flores: str, n: str, out: str, *folders: str) -> None:
    """Writes the rows."""
    sentences = {name: (Path(flores) / f"{name}.devtest").read_text().splitlines() for name in ("est_Latn", "eng_Latn")}
    with Path(out).open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tokenizer", "algorithm", "method", "new", "et_tokens", "et_change", "en_change", "seconds"])
        for folder in folders:
            for row in rows_of(Path(folder), text, int(n), sentences):
                writer.writerow(row)
                file.flush()


def rows_of(folder: Path, text: str, n: int, sentences: dict[str, list[str]]) -> Iterator[list[object]]:
    """The rows of one tokenizer."""
    base = tg.load(folder)
    counts = tg.count(base, text)
    words = [word.decode() for word, _ in counts.table.top(len(counts))]
    words = [word for word in words if word not in base.ids and len(base.encode_pretoken(word)) > 1][:n]
    before = {name: tokens_of(base, lines) for name, lines in sentences.items()}
    for method in ("extend", "words"):
        start = perf_counter()
        options = {"include": tg.learn.WordList(tuple(words), exact=True), "character_coverage": 0}
        extension = tg.extend(base, counts, n, **(options if method == "words" else {}))
        new, seconds = extension.apply(base), perf_counter() - start
        after = {name: tokens_of(new, lines) for name, lines in sentences.items()}
        change = [f"{after[name] / before[name] - 1:+.4f}" for name in sentences]
        listed = extension.n_listed if method == "words" else len(extension)
        yield [folder.name, base.algorithm, method, listed, before["est_Latn"], *change, f"{seconds:.1f}"]


def tokens_of(tokenizer: tg.Tokenizer, lines: list[str]) -> int:
    """The number of tokens of some lines, as both libraries give them."""
    ids, upstream = tokenizer.encode_batch(lines), tokenizer.to_tokenizers()
    upstream.no_truncation()
    upstream.no_padding()
    assert ids == [one.ids for one in upstream.encode_batch(lines, add_special_tokens=False)]
    return sum(map(len, ids))


if __name__ == "__main__":
    main(*sys.argv[1:])
