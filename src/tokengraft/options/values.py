"""Values of options: sizes, numbers, shards, rules, and texts with a name."""

import argparse
import json
import re
from collections.abc import Callable
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from tokengraft.corpus.files import input_without_credentials
from tokengraft.corpus.options import COMPRESSIONS, FORMATS
from tokengraft.errors import require
from tokengraft.tokenizer.piece_model import PieceRules

AUTO = "auto"
"""The value of an option for a number of tokens that is chosen on held-out text."""
ALL = "all"
"""The value of --remove for the whole order."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def size(text: str) -> int:
    """A number of bytes: ``4GB``, ``500 MB``, ``2GiB``, ``1000``.

    >>> size("4GB"), size("1.5KiB"), size("7")
    (4000000000, 1536, 7)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if not match or match[2] == "I":
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; pass one like 4GB, 500MB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def number(text: str) -> int:
    """A whole number, also in thousands or millions: ``16k``, ``1.5M``, ``16000``.

    >>> number("16k"), number("1.5M"), number("16_000"), number("-1")
    (16000, 1500000, 16000, -1)
    """
    match = re.fullmatch(r"\s*([-+]?\d[\d_]*(?:\.\d+)?)\s*([KMG]?)\s*", text.upper())
    value = Fraction(match[1].replace("_", "")) * _UNITS[match[2]] if match else Fraction(1, 2)
    if value.denominator != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; pass one like 16000 or 16k")
    return int(value)


def number_or(*words: str) -> Callable[[str], int | str]:
    """A parser of a number, as `number`, or of one of some words."""

    def parse(text: str) -> int | str:
        try:
            return text if text in words else number(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or `{'` or `'.join(words)}`") from error

    return parse


def float_or_auto(text: str) -> float | str:
    """A number, or `auto`."""
    try:
        return text if text == AUTO else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor `{AUTO}`") from error


def setting(text: str) -> tuple[str, Any]:
    """A field of the Trainer: ``report_to=wandb -> ("report_to", "wandb")``. Values are JSON, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as report_to=wandb")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def shard(text: str) -> tuple[int, int]:
    """A shard of the inputs: ``3/64 -> (3, 64)``."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard; pass one like 3/64, counted from 0")
    return int(match[1]), int(match[2])


def rule(text: str) -> tuple[str, int]:
    """A rule for pieces: ``split_digits=false -> ("split_digits", False)``."""
    name, _, value = text.partition("=")
    values = {"true": True, "false": False}
    if name == "max_sentencepiece_length" and value.isdecimal() and 0 < int(value) < 2**31:
        return name, int(value)
    if name not in {field.name for field in fields(PieceRules)} - {"max_sentencepiece_length"} or value not in values:
        names = ", ".join(field.name for field in fields(PieceRules))
        raise argparse.ArgumentTypeError(f"{text!r} is not a rule; pass one like split_digits=false. Rules: {names}")
    return name, values[value]


def named(text: str) -> tuple[str, str]:
    """A pair of (name, value) from ``NAME=VALUE``. Without a name, it is the file name without text file suffixes.

    >>> named("et=data/et.txt"), named("data/et.jsonl.gz"), named("Qwen/Qwen2.5-7B")
    (('et', 'data/et.txt'), ('et', 'data/et.jsonl.gz'), ('Qwen2.5-7B', 'Qwen/Qwen2.5-7B'))
    """
    name, equals, value = text.partition("=")
    if name and equals and "/" not in name:
        require(bool(value), f"{text!r} has no value after `=`", hint=f"pass {name}=PATH")
        return name, value
    name = Path(input_without_credentials(text)).name
    for suffixes in (COMPRESSIONS, (*FORMATS, ".model")):
        name = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return name or text, text
