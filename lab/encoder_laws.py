"""The laws of Unigram and WordPiece on real tokenizers, after pruning and after extending.

    python lab/encoder_laws.py TEXT FLORES OUT.csv FOLDERS...

Text: 12 lines of every language of FLORES-200 and hostile lines. Every encoding is compared with `tokenizers`, and with
`sentencepiece` by score where there is a model. 90 % of the tokens that may go are removed; 500 are added.
"""

import csv
import math
import sys
import tempfile
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer as Upstream

import tokengraft as tg

HOSTILE = [
    "",
    " ",
    "  a  b ",
    "\n\t",
    "áe",
    "x" * 300,
    "\u200b",
    "▁a ▁",
    "##a ##",
    "[UNK] <unk> <s>",
    "ﬁ½①",
    "İs",
    "a\x00b",
]
COLUMNS = (
    *("tokenizer", "algorithm", "tokens", "lines", "differ", "bytes_equal"),
    *("removed", "unaffected", "changed", "pruned_differ"),
    *("added", "extended_differ", "new_unreachable", "prefix_equal", "sentencepiece_worse", "refused"),
)


def main(text: str, flores: str, out: str, *folders: str) -> None:
    """Writes a row for each folder."""
    files = sorted(Path(flores).iterdir())
    lines = [line for file in files for line in file.read_text().splitlines()[:12] if line] + HOSTILE
    with Path(out).open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        for folder in sorted(map(Path, folders)):
            row: dict[str, object] = {"tokenizer": folder.name}
            try:
                fill(row, folder, text, lines)
            except tg.errors.TokengraftError as error:
                row["refused"] = error.message
            writer.writerow(row)
            file.flush()


def fill(row: dict[str, object], folder: Path, text: str, lines: list[str]) -> None:
    """Adds the results of one tokenizer."""
    base = tg.load(folder)
    ids, counts = base.encode_batch(lines), tg.count(base, text)
    row |= {"algorithm": base.algorithm, "tokens": len(base), "lines": len(lines), "differ": differ(base, lines)}
    with tempfile.TemporaryDirectory() as work:
        saved = tg.save(base, Path(work) / "same", verify=False)
        row["bytes_equal"] = all(path.read_bytes() == (folder / path.name).read_bytes() for path in saved.iterdir())
        order = tg.prune_order(base, counts)
        order = order[: len(order) * 9 // 10]
        small = tg.load(tg.save(order.apply(base), Path(work) / "small", base=base))
        gone = {base.ids[token] for token in order.tokens}
        kept = [(line, one) for line, one in zip(lines, ids, strict=True) if gone.isdisjoint(one)]
        strings = [[base.strings[i] for i in one] for _, one in kept]
        after = [[small.strings[i] for i in small.encode(line)] for line, _ in kept]
        row |= {"removed": len(order), "unaffected": len(kept), "pruned_differ": differ(small, lines)}
        row["changed"] = sum(one != other for one, other in zip(strings, after, strict=True))
        extension = tg.extend(base, counts, 500)
        large = tg.load(tg.save(extension.apply(base), Path(work) / "large", base=base))
        row |= {"added": len(extension), "extended_differ": differ(large, lines)}
        row["new_unreachable"] = len({*large.structure.unreachable} - {*base.structure.unreachable})
        row["prefix_equal"] = extension[:100] == tg.extend(base, counts, 100)
        if large.piece_file:
            before = worse(base, folder / large.piece_file, lines)
            row["sentencepiece_worse"] = len(worse(large, Path(work) / "large" / large.piece_file, lines) - before)


def differ(tokenizer: tg.Tokenizer, lines: list[str]) -> int:
    """How many lines `tokenizers` encodes differently."""
    upstream: Upstream = tokenizer.to_tokenizers()
    upstream.no_truncation()
    upstream.no_padding()
    theirs = [one.ids for one in upstream.encode_batch(lines, add_special_tokens=False)]
    return sum(one != other for one, other in zip(tokenizer.encode_batch(lines), theirs, strict=True))


def worse(tokenizer: tg.Tokenizer, path: Path, lines: list[str]) -> set[str]:
    """The lines with a path of another score in `sentencepiece`, of those that both normalise to the same text.

    It does not look for added tokens in text. The converters of XLNet and ALBERT change the scores of some numbers.
    """
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    found = set[str]()
    for line in lines:
        theirs = [processor.id_to_piece(i) for i in processor.encode(line)]
        ours = [tokenizer.strings[i] for i in tokenizer.encode(line)]
        if "".join(theirs) == "".join(ours) and not any(token.content in line for token in tokenizer.added):
            scores = [sum(tokenizer.scores.get(token, 0.0) for token in one) for one in (theirs, ours)]
            found |= set() if math.isclose(*scores, rel_tol=1e-5) else {line}
    return found


if __name__ == "__main__":
    main(*sys.argv[1:])
