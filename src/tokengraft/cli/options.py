"""Options shared by several commands, and their values. `cli/reading.py` has those for text and counts."""

import argparse
import glob
import os
import re
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from tokengraft.corpus.options import COMPRESSIONS, FORMATS
from tokengraft.corpus.remote import input_without_credentials, local_name
from tokengraft.errors import OptionError, escaped

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object

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


def add_source(command: argparse.ArgumentParser) -> None:
    """Adds SOURCE."""
    command.add_argument("source", metavar="SOURCE", help="model folder, tokenizer.json, tokenizer.model or hub name")


def add_json(command: argparse.ArgumentParser) -> None:
    """Adds --json and --quiet, which every command has."""
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument(
        "--quiet", action="store_true", help="print only the result, warnings and errors: no progress, no notes"
    )


def add_wide(command: argparse.ArgumentParser) -> None:
    """Adds --wide."""
    command.add_argument("--wide", action="store_true", help="show all measures, not only the five that matter most")


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a message to stderr, unless --quiet was given."""
    if not options.quiet:
        print(escaped(text), file=sys.stderr)


def add_output(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --out and --force."""
    command.add_argument("--out", required=True, metavar="PATH", help=f"output: {what}; must not exist")
    command.add_argument("--force", action="store_true", help="replace an existing output")


def require(condition: bool, message: str, *, hint: str) -> None:
    """Raises an `OptionError` unless the condition holds."""
    if not condition:
        raise OptionError(message, hint=hint)


def input_paths(*groups: Iterable[str | os.PathLike[str] | None] | None) -> list[str]:
    """All input paths given by options, with globs expanded, for `require_distinct`."""
    items = [local_name(os.fspath(item)) for group in groups for item in group or () if item is not None]
    matches = ([item] if os.path.lexists(item) else glob.glob(item, recursive=True) for item in items)  # noqa: PTH207
    return [*(path for paths in matches for path in paths), *(["/dev/stdin"] if "-" in items else [])]


def lines_of(path: Path | None, option: str) -> list[str]:
    """The lines of the file given by an option; none without a file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint=f"check {option}") from error
