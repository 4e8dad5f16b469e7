"""What a tool made of a model: its tokenizer, by the library `tokenizers`, and its rows.

    python -m lab.comparison.score BASE_FOLDER OUT_FOLDER FLORES_FOLDER

Prints JSON. The source code is the top level of Python's standard library; every line of a text is encoded alone.
"""

import json
import sys
import sysconfig
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

import tokengraft as tg

PROBED_LINES = 100


def lines_of(flores: Path, language: str) -> list[str]:
    return (flores / f"{language}.devtest").read_text(encoding="utf-8").splitlines()


def source_code() -> list[str]:
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    lines = (line for path in files for line in path.read_text(encoding="utf-8").splitlines())
    return sorted({line for line in lines if line.strip()})


def ids(tokenizer: Tokenizer, lines: list[str]) -> list[list[int]]:
    return [encoding.ids for encoding in tokenizer.encode_batch(lines, add_special_tokens=False)]


def changed_percent(base: Tokenizer, new: Tokenizer, lines: list[str]) -> float:
    pairs = zip(ids(base, lines), ids(new, lines), strict=True)
    return 100 * sum(before != after for before, after in pairs) / len(lines)


def bytes_per_token(tokenizer: Tokenizer, lines: list[str]) -> float:
    return sum(len(line.encode()) for line in lines) / sum(map(len, ids(tokenizer, lines)))


def decoded_wrong(tokenizer: Tokenizer, lines: list[str]) -> int:
    return sum(tokenizer.decode(row) != line for row, line in zip(ids(tokenizer, lines), lines, strict=True))


def unreachable(out: Path, new: set[str]) -> int:
    """New tokens that no text can give: merges do not produce them, or, if found in the text before, its own text."""
    tokenizer, upstream = tg.load(out), Tokenizer.from_file(str(out / "tokenizer.json"))
    by_merges = {upstream.id_to_token(token_id) for token_id in tokenizer.structure.unreachable}
    added = {token.content: token_id for token_id, token in upstream.get_added_tokens_decoder().items()}
    return sum(ids(upstream, [token]) != [[added[token]]] if token in added else token in by_merges for token in new)


def kept_rows_percent(base: Path, out: Path) -> float:
    """The share of the old tokens that are in the new vocabulary with the same row."""
    vocabs = [Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab() for folder in (base, out)]
    before, after = (load_file(folder / "model.safetensors")["model.embed_tokens.weight"] for folder in (base, out))
    shared = [(row, vocabs[1][token]) for token, row in vocabs[0].items() if token in vocabs[1]]
    old, new = (torch.tensor(side) for side in zip(*shared, strict=True))
    return 100 * int((before[old] == after[new].to(before.dtype)).all(dim=1).sum()) / len(vocabs[0])


def bits_per_byte(out: Path, flores: Path) -> dict[str, float]:
    texts = {"target": lines_of(flores, "est_Latn"), "english": lines_of(flores, "eng_Latn")}
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder, f"{name}.txt") for name in texts}
        for name, lines in texts.items():
            files[name].write_text("\n".join(lines[:PROBED_LINES]), encoding="utf-8")
        scores = tg.evaluate({"out": out}, files, bits=True).scores
    return {f"{score.text}_bits_per_byte": round(score.bits_per_byte, 3) for score in scores}


def score(base: Path, out: Path, flores: Path, language: str = "est_Latn") -> dict[str, float]:
    """All but bits per byte."""
    old, tokenizer = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (base, out))
    target, english = lines_of(flores, language), lines_of(flores, "eng_Latn")
    new = tokenizer.get_vocab().keys() - old.get_vocab().keys()
    return {
        "rows": tokenizer.get_vocab_size(),
        "new_tokens": len(new),
        "target": round(bytes_per_token(tokenizer, target), 3),
        "english": round(bytes_per_token(tokenizer, english), 3),
        "unreachable": unreachable(out, new),
        "changed_english_percent": round(changed_percent(old, tokenizer, english), 1),
        "changed_code_percent": round(changed_percent(old, tokenizer, source_code()), 1),
        "decoded_wrong": decoded_wrong(tokenizer, target + english),
        "kept_rows_percent": round(kept_rows_percent(base, out), 1),
    }


if __name__ == "__main__":
    base, out, flores = map(Path, sys.argv[1:])
    print(json.dumps(score(base, out, flores) | bits_per_byte(out, flores)))
