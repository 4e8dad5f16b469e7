"""Rank files (tiktoken and tekken): reading, writing, editing, and a rank file beside a tokenizer.json."""

import json
import random
from base64 import b64decode
from contextlib import suppress
from pathlib import Path

import builders
import pytest
import tiktoken

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.tokenizer.families import CL100K, ENCODING, FAMILIES, GPT2, O200K, PATTERNS
from tokengraft.tokenizer.rank_file import RankFile, bytes_to_token, rank_file, token_to_bytes

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
DATA = Path("/work/data")
