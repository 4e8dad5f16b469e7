"""Writes a model with the shape and the tokenizer of Gemma-3-270M, and random weights.

    python lab/gemma_shape.py TOKENIZER OUT

TOKENIZER is a folder with Gemma-3's tokenizer.json and tokenizer_config.json. A tokenizer.model is made from it, as
Gemma-3's folders have one: runs of white space are defined by the user, and `<image_soft_token>` is missing.
"""

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

import tokengraft as tg
from tokengraft.tokenizer.piece_model import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, new_model

ROWS = 262_144
SHAPE = {
    "vocab_size": ROWS,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "num_hidden_layers": 18,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "sliding_window": 512,
    "max_position_embeddings": 32_768,
    "query_pre_attn_scalar": 256,
}


def pieces(tokenizer: tg.Tokenizer) -> Iterator[tuple[str, float, int]]:
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(tokenizer.merge_strings()):
        ranks.setdefault("".join(pair), rank)
    added = {token.id for token in tokenizer.added}
    first = {0: CONTROL, 1: CONTROL, 2: CONTROL, 3: UNKNOWN}
    for token_id in range(ROWS):
        string = tokenizer.strings[token_id]
        is_byte = string.startswith("<0x") and len(string) == len("<0x00>")
        kind = first.get(token_id) or (BYTE if is_byte else USER_DEFINED if token_id in added else NORMAL)
        yield string, -float(ranks.get(string, len(ranks) + token_id)) if kind == NORMAL else 0.0, kind


if __name__ == "__main__":
    source, out = map(Path, sys.argv[1:])
    torch.manual_seed(0)
    Gemma3ForCausalLM(Gemma3TextConfig(**SHAPE)).to(torch.bfloat16).save_pretrained(out)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(source / name, out / name)
    model = new_model([*pieces(tg.load(source))], byte_fallback=True, add_dummy_prefix=False)
    (out / "tokenizer.model").write_bytes(model.write())
    tg.load(out)  # refuses forms that disagree
