"""Inputs of the golden files: written here number by number, so that no other library decides a byte of them."""

import json

import builders
import numpy as np
from checkpoints import write_shards

from tokengraft.checkpoint.tensors import narrow
from tokengraft.tokenizer.rank_file import CL100K, ENCODING, TEKKEN

LEARNED = ["th", "the", " t", " the", "at", "c", " c", " cat", "is", "us", " k", "as", " kas", " kass"]
LINES = [f"the cat sat, kass istus {n} the hat õ" for n in range(300)]
OTHER = [f"a dog ran {n} after that cat" for n in range(300)]
WIDTH = 4


def spelled(text):
    """Text in the alphabet of byte-level tokens."""
    values = [*builders.BYTE_CHARACTERS, *(b for b in range(256) if b not in builders.BYTE_CHARACTERS)]
    character = dict(zip(values, builders.byte_alphabet(), strict=True))
    return "".join(character[byte] for byte in text.encode())


def byte_level():
    """A tokenizer.json of 256 bytes, a few merges and two special tokens."""
    vocab = {token: token_id for token_id, token in enumerate(builders.byte_alphabet())}
    merges = []
    for token in map(spelled, LEARNED):
        pairs = [[token[:at], token[at:]] for at in range(1, len(token)) if {token[:at], token[at:]} <= vocab.keys()]
        merges += pairs[-1:] if token not in vocab else []
        vocab.setdefault(token, len(vocab))
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    specials = [builders.added(len(vocab) + at, name) for at, name in enumerate(("<s>", "</s>"))]
    return builders.document({"vocab": vocab, "merges": merges}, specials, pre_tokenizer=step, decoder=step)


def write_tokenizer(folder, document, **layout):
    """Writes a tokenizer.json in a layout of `json.dumps`, and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    layout = {"ensure_ascii": False, "indent": 2} | layout
    (folder / "tokenizer.json").write_text(json.dumps(document, **layout), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def write_model(folder):
    """A checkpoint in two shards, with the byte-level tokenizer as all files that name its tokens."""
    document = byte_level()
    write_tokenizer(folder, document)
    vocab, merges = document["model"]["vocab"], document["model"]["merges"]
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges), "utf-8")
    rows = len(vocab) + 2
    shapes = {
        "model.embed_tokens.weight": (rows, WIDTH),
        "model.norm.weight": (WIDTH,),
        "lm_head.weight": (rows, WIDTH),
    }
    tensors = {name: tensor(shape, place) for place, (name, shape) in enumerate(shapes.items())}
    write_shards(folder, tensors, 2)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "vocab_size": rows}
    config |= {"bos_token_id": rows - 2, "eos_token_id": rows - 1, "tie_word_embeddings": False}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [rows - 1]}, indent=2) + "\n")
    return folder


def tensor(shape, seed):
    """A tensor of small fractions, which 16 bits hold exactly."""
    values = (np.arange(np.prod(shape)) * (37 + seed) % 101 - 50).astype(np.float32) / 64
    return {"dtype": "BF16", "shape": list(shape), "data": narrow(values.reshape(shape[0], -1), "BF16").tobytes()}


def ranks():
    """The tokens of the byte-level tokenizer as bytes, with their ranks."""
    learned = [text.encode() for text in LEARNED if len(text) > 1]
    return {token: rank for rank, token in enumerate([*(bytes([byte]) for byte in range(256)), *learned])}


def write_tiktoken(folder, specials):
    """A tiktoken file with its pattern and special tokens."""
    folder.mkdir(parents=True)
    (folder / "tokenizer.model").write_bytes(builders.tiktoken_file(ranks()))
    (folder / ENCODING).write_text(json.dumps({"pat_str": CL100K, "special_tokens": specials}))
    return folder


def write_tekken(folder):
    """A tekken file."""
    folder.mkdir(parents=True)
    learned = [token for token in ranks() if len(token) > 1]
    (folder / "tekken.json").write_bytes(builders.tekken_file(learned, ["<s>", "</s>"], TEKKEN))
    return folder


def write_pieces(folder):
    """A SentencePiece model."""
    folder.mkdir(parents=True)
    pieces = builders.pieces_of(["▁t", "he", "▁the", "at", "▁c", "▁cat"], "▁thecaskiu,")
    (folder / "tokenizer.model").write_bytes(builders.piece_model(pieces))
    return folder


def write_all(folder):
    """Writes every input into a folder."""
    write_model(folder / "model")
    small = builders.sentencepiece(byte_fallback=False)
    layouts = {"indented": {}, "compact": {"indent": None, "separators": (",", ":")}, "ascii": {"ensure_ascii": True}}
    for name, layout in layouts.items():
        write_tokenizer(folder / name, small, **layout)
    as_text = {**small, "model": {**small["model"], "merges": [" ".join(pair) for pair in small["model"]["merges"]]}}
    write_tokenizer(folder / "merges-as-text", as_text)
    write_tiktoken(folder / "tiktoken", {"<s>": 300, "</s>": 301})
    write_tiktoken(folder / "llama3", ["<s>", "</s>"])
    write_tekken(folder / "tekken")
    write_pieces(folder / "pieces")
    for name, lines in {"et": LINES, "en": OTHER}.items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
