"""Tokenizers out of GGUF files: tokens and merges as they are there, with the pipeline that was published."""

import json
import re
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from gguf import GGUFReader

from lab.compatibility.pipelines import PRE_TOKENIZERS, byte_level

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
_FILLER = re.compile(r"\[PAD\d+\]")
"""What llama.cpp's converter fills the rows of a padded table with. No tokenizer has these tokens."""


class Listed(NamedTuple):
    """A token of a GGUF file; its place is its id."""

    string: str
    kind: int
    score: float


def read_gguf(raw: bytes) -> tuple[list[Listed], list[str]]:
    """The tokens and the merges of a GGUF file. Fillers at the end are left out, others are made unused."""
    with tempfile.NamedTemporaryFile(suffix=".gguf") as file:
        Path(file.name).write_bytes(raw)
        fields = GGUFReader(file.name).fields
        tokens, kinds, scores, merges = (_contents(fields, n) for n in ("tokens", "token_type", "scores", "merges"))
    listed = [Listed(*each) for each in zip(tokens, kinds, scores or [0.0] * len(tokens), strict=True)]
    while _FILLER.fullmatch(listed[-1].string):
        listed.pop()
    return listed, merges


def _contents(fields: Any, name: str) -> list[Any]:
    field = fields.get(f"tokenizer.ggml.{name}")
    return field.contents() if field else []


def tokenizer_json(raw: bytes, pipeline: str) -> dict[str, bytes]:
    """A folder with the `tokenizer.json` of a GGUF file that has merges."""
    tokens, merges = read_gguf(raw)
    kept = {token.string: place for place, token in enumerate(tokens) if not _FILLER.fullmatch(token.string)}
    added = [
        {"id": place, "content": token.string, "single_word": False, "lstrip": False, "rstrip": False}
        | {"normalized": False, "special": token.kind == CONTROL}
        for place, token in enumerate(tokens)
        if token.kind in (CONTROL, USER_DEFINED) and token.string in kept
    ]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False}
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added}
    document |= _gemma_steps() if pipeline == "gemma-4" else _byte_level_steps(pipeline)
    model |= {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True} if pipeline == "gemma-4" else {}
    model |= {"ignore_merges": True} if pipeline == "llama-bpe" else {}
    document["model"] = model | {"vocab": kept, "merges": [merge.split(" ") for merge in merges]}
    return {"tokenizer.json": json.dumps(document, ensure_ascii=False, indent=2).encode()}


def _byte_level_steps(pipeline: str) -> dict[str, Any]:
    normalizer, pre_tokenizer = PRE_TOKENIZERS[pipeline]
    steps = {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None}
    return steps | {"decoder": byte_level(regex=True)}


def _gemma_steps() -> dict[str, Any]:
    space = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    written = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    read = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
    decoder = {"type": "Sequence", "decoders": [read, {"type": "ByteFallback"}, {"type": "Fuse"}]}
    return {"normalizer": written, "pre_tokenizer": space, "post_processor": None, "decoder": decoder}


def piece_model(raw: bytes) -> dict[str, bytes]:
    """A folder with the SentencePiece model of a GGUF file that has scores, with the normalizer of Llama-2."""
    from sentencepiece import sentencepiece_model_pb2 as messages

    model = messages.ModelProto()
    for place, token in enumerate(read_gguf(raw)[0]):
        # Converters give `<unk>` and the fillers of padded tables each other's types.
        kind = UNKNOWN if place == 0 else UNUSED if token.kind == UNKNOWN else token.kind
        model.pieces.add(piece=token.string, score=token.score, type=kind)
    trainer = {"model_type": 2, "split_digits": True, "allow_whitespace_only_pieces": True, "byte_fallback": True}
    normalizer = {"name": "identity", "add_dummy_prefix": True, "remove_extra_whitespaces": False}
    for spec, values in ((model.trainer_spec, trainer), (model.normalizer_spec, normalizer)):
        for name, value in values.items():
            setattr(spec, name, value)
    return {"tokenizer.model": model.SerializeToString()}
