"""Inputs of any size: tokenizers, texts, checkpoints and files of counts."""

import copy
import gzip
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import builders
from builders import Document

O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
THAI = "".join(map(chr, range(0x0E01, 0x0E2F)))
CHINESE = "".join(map(chr, range(0x4E00, 0x4E00 + 3000)))
WORDS = "the cat sat on the mat kass istus matil ja teine õhtu õdus кот сидел на коврике 猫はマットの 12 345, x. "


def split_by(pattern: str) -> Document:
    """A byte-level tokenizer with this pattern."""
    return builders.byte_level() | {"pre_tokenizer": builders.split_by(pattern)}


def normalized_by(document: Document, name: str) -> Document:
    """A tokenizer that normalizes its text first."""
    steps = [{"type": name}, *([document["normalizer"]] if document["normalizer"] else [])]
    return document | {"normalizer": {"type": "Sequence", "normalizers": steps}}


PIPELINES: dict[str, Callable[[], Document]] = {
    "scanner, GPT-2": builders.byte_level,
    "scanner, Llama-3": lambda: split_by(builders.LLAMA3_PATTERN),
    "automata, o200k": lambda: split_by(O200K),
    "automata, NFC": lambda: normalized_by(split_by(O200K), "NFC"),
    "tokenizers crate": lambda: split_by(r"(?<!x)\S+|\s+"),
    "sentencepiece": builders.sentencepiece,
    "sentencepiece, metaspace": lambda: builders.sentencepiece(metaspace=True),
    "sentencepiece, NFKC": lambda: normalized_by(builders.sentencepiece(), "NFKC"),
    "sentencepiece, no bytes": lambda: builders.sentencepiece(byte_fallback=False),
}


def tokenizer(folder: Path, document: Document, **others: str) -> str:
    """A folder with a tokenizer, as the argument of a command."""
    return str(builders.write(folder, document, **others))


def fill(path: Path, pattern: str | Iterator[str], size: int) -> str:
    """A file of this many bytes, or a character less, and its name."""
    pieces = pattern if isinstance(pattern, Iterator) else iter(lambda: pattern * (1 + (1 << 20) // len(pattern)), None)
    with path.open("wb") as file:
        while (left := size - file.tell()) > 0:
            file.write(next(pieces).encode()[:left].decode(errors="ignore").encode() or b" " * left)
    return str(path)


def random_text(alphabet: str) -> Iterator[str]:
    """Random characters without end."""
    chosen = random.Random(1)
    block = "".join(chosen.choices(alphabet, k=1 << 18))
    while True:
        at = chosen.randrange(len(block))
        yield block[at:] + block[:at]


LONG_PRETOKENS: dict[str, Callable[[], str | Iterator[str]]] = {
    "one letter": lambda: "a",
    "random letters": lambda: random_text("abcdefghijklmnopqrstuvwxyz"),
    "Thai": lambda: random_text(THAI),
    "Chinese": lambda: random_text(CHINESE),
    "digits": lambda: random_text("0123456789"),
    "spaces": lambda: " ",
    "signs": lambda: random_text("!#$%&*+-/:;<=>?@"),
}


def with_high_id(token_id: int, **model: Any) -> Document:
    """A tokenizer with one token that has a very high id."""
    document = builders.byte_level(**model)
    document["model"]["vocab"]["zzzz"] = token_id
    return document


def _with_added_in_vocabulary() -> Document:
    """A tokenizer whose added tokens keep their ids when the vocabulary grows."""
    document = copy.deepcopy(builders.byte_level())
    document["model"]["vocab"] |= {entry["content"]: entry["id"] for entry in document["added_tokens"]}
    return document


def many_tokens(n: int, *, merges: bool) -> Document:
    """A tokenizer with this many tokens more, with merges that make them or without."""
    document = _with_added_in_vocabulary()
    vocab, pairs = document["model"]["vocab"], document["model"]["merges"]
    letters = [chr(code) for code in (*range(0x41, 0x5B), *range(0x61, 0x7B), *range(0xC0, 0xFF)) if chr(code) in vocab]
    level, start = [*letters], max(vocab.values(), default=0) + 1000
    made = 0
    while made < n:
        following = []
        for left in level:
            for right in letters:
                if made < n and left + right not in vocab:
                    vocab[left + right] = start + made
                    following.append(left + right)
                    made += 1
                    if merges:
                        pairs.append([left, right])
        level = following
    return document


def many_added(n: int) -> Document:
    """A tokenizer with this many added tokens more."""
    document = builders.byte_level()
    start = 1 + max(entry["id"] for entry in document["added_tokens"])
    document["added_tokens"] += [builders.added(start + at, f"<|added {at}|>") for at in range(n)]
    return document


def long_tokens(n: int, size: int) -> Document:
    """A tokenizer with tokens of this many bytes, that no merge makes."""
    document = _with_added_in_vocabulary()
    start = max(document["model"]["vocab"].values()) + 1000
    document["model"]["vocab"] |= {chr(0x61 + at) * size: start + at for at in range(n)}
    return document


def gzip_of(path: Path, pattern: bytes, size: int) -> str:
    """A compressed file of this many bytes before compression, and its name."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        block = pattern * (1 + (1 << 20) // len(pattern))
        for at in range(0, size, len(block)):
            file.write(block[: size - at])
    return str(path)


def set_json(path: Path, **values: Any) -> None:
    """Changes a JSON file."""
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
