"""Tiny tiktoken and tekken files, and how their own libraries read them."""

import json
import random
from base64 import b64decode

import builders
import tiktoken
from checkpoints import ENGLISH, ESTONIAN
from mistral_common.tokens.tokenizers.tekken import Tekkenizer

import tokengraft as tg
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.tokenizer.rank_file import CL100K, ENCODING, TEKKEN

SPECIALS = ["<s>", "</s>", "<|x|>"]
TEXTS = [
    *builders.TEXT[:4],
    "",
    " ",
    "a\nb\r\n\tc  ",
    "猫 🙂 e\u0301",
    "x" * 300,
    "1234567890",
    "don't WE'LL",
    "\0\x7f",
]


def learned_tokens():
    """The learned tokens of the tiny byte-level tokenizer as bytes, in order, without the single bytes."""
    ranks = builders.ranks_of(builders.byte_level())
    return [token for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]


def tiny_ranks():
    return {token: rank for rank, token in enumerate([*(bytes([byte]) for byte in range(256)), *learned_tokens()])}


def encoding_file(special_tokens, pattern=CL100K):
    return json.dumps({"pat_str": pattern, "special_tokens": special_tokens}).encode()


def write_tiktoken(folder, special_tokens, name="tokenizer.model"):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(builders.tiktoken_file(tiny_ranks()))
    (folder / ENCODING).write_bytes(encoding_file(special_tokens))
    return folder


def write_tekken(folder, **config):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tekken.json").write_bytes(builders.tekken_file(learned_tokens(), SPECIALS, TEKKEN, **config))
    return folder


def explicit(folder):
    """Special tokens with ids of their own, one of them far away."""
    return write_tiktoken(folder, {"<s>": 1000, "</s>": 600, "<|x|>": 601})


def following(folder):
    """Special tokens after the ranks, as in Llama-3."""
    return write_tiktoken(folder, SPECIALS)


def library(path, tokenizer):
    """How tiktoken or mistral-common encodes text with a written folder."""
    if (path / "tekken.json").exists():
        loaded = Tekkenizer.from_file(path / "tekken.json")
        assert loaded.n_words == tokenizer.n_rows
        return lambda text: loaded.encode(text, bos=False, eos=False)
    (file,) = (p for p in path.iterdir() if p.name.endswith((".tiktoken", ".model")))
    ranks = {b64decode(a): int(b) for a, b in (line.split() for line in file.read_bytes().splitlines())}
    given = json.loads((path / ENCODING).read_bytes())
    specials = given["special_tokens"]
    if isinstance(specials, list):
        specials = {text: len(ranks) + place for place, text in enumerate(specials)}
    assert specials == {token.content: token.id for token in tokenizer.added}
    encoding = tiktoken.Encoding("x", pat_str=given["pat_str"], mergeable_ranks=ranks, special_tokens=specials)
    return lambda text: encoding.encode(text, allowed_special="all")


def drawn(tokenizer, n=400, seed=0):
    """Text drawn from the vocabulary, and of random bytes."""
    generator = random.Random(seed)
    special = {token.content for token in tokenizer.added}
    tokens = [token.bytes for token in tokenizer.tokens if token.string not in special]
    texts = [b"".join(generator.choices(tokens, k=generator.randint(1, 9))) for _ in range(n)]
    texts += [generator.randbytes(generator.randint(1, 20)) for _ in range(n)]
    return [text for text in (raw.decode(errors="replace") for raw in texts) if not any(s in text for s in special)]


def assert_library_agrees(path, tokenizer, texts=TEXTS):
    encode = library(path, tokenizer)
    for text in [*texts, *drawn(tokenizer)]:
        assert encode(text) == tokenizer.encode(text), text


def counts_of(tokenizer):
    return tg.count(tokenizer, iter([*builders.TEXT, *ESTONIAN, *ENGLISH]))


def both(folder, make):
    """A folder with a rank file and the tokenizer.json that is made of it."""
    make(folder)
    document = json.loads(write_tokenizer_json(tg.load(folder)))
    (folder / ENCODING).unlink(missing_ok=True)
    return builders.write(folder, document)


def isolated(document, pattern):
    """A tokenizer.json that splits text by a pattern, as Llama-3 does."""
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return document | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, step]}}


def plain_file(folder, **more):
    """A tiktoken file without a pattern, with more tokens."""
    path = folder / "x.tiktoken"
    path.write_bytes(builders.tiktoken_file(tiny_ranks() | {token.encode(): rank for token, rank in more.items()}))
    return path
