"""Values of options: sizes, numbers, shards, rules, and texts: ``FILES``, ``NAME=FILES`` or ``NAME=FILES:WEIGHT``.

In a recipe, texts may also be given as a table of names and files.
"""

import argparse
import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.corpus.files import input_without_credentials, is_url
from tokengraft.corpus.options import COMPRESSIONS, FORMATS
from tokengraft.errors import OptionError, option, require
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


Files = str | list[str]
"""One path, glob or URL, or several."""


def lines_of(path: Path | None, given_by: str) -> list[str]:
    """The lines of the file given by an option; none without a file."""
    try:
        text = path.read_text(encoding="utf-8-sig").removesuffix("\n") if path else ""
        return text.split("\n") if text else []  # `splitlines` would also end lines at U+2028 and others
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint=f"check {option(given_by)}") from error


def special_texts(items: Iterable[str]) -> Iterator[str]:
    """The special tokens of --special: each item is one, or a file with one per line."""
    for item in items:
        if os.path.isfile(item):  # noqa: PTH113 - a token may be too long for a name
            yield from lines_of(Path(item), "special")
            continue
        message = f"there is no file `{item}`, and as a special token it would be found in text"
        require(not item.endswith((".txt", ".tsv")), message, f"check the path of {option('special')}")
        yield item


def _exists(path: str) -> bool:
    """Whether a path exists. A name that is too long is none, and not an error as for `Path.exists`."""
    return os.path.exists(path)  # noqa: PTH110


def has_name(text: str) -> bool:
    """Whether a text is ``NAME=FILES``. A file whose name has ``=`` is no name, and neither is part of a path."""
    name, equals, _ = text.partition("=")
    return bool(name and equals) and "/" not in name and not _exists(text)


def texts_by_name(items: Iterable[str], given_by: str) -> dict[str, str]:
    """The texts of an option by name. Without a name, it is that of the file. Two texts of one name are refused.

    >>> texts_by_name(["et=a.txt", "data/en.txt"], "text")
    {'et': 'a.txt', 'en': 'data/en.txt'}
    """
    texts: dict[str, str] = {}
    for item in items:
        name, file = named(item) if has_name(item) or not _exists(item) else (named(f"./{item}")[0], item)
        _require_new_name(name, texts, given_by)
        texts[name] = file
    return texts


def _require_new_name(name: str, others: Collection[str | None], given_by: str) -> None:
    require(
        name not in others,
        f"two texts of {option(given_by)} are called {name!r}",
        hint="give each a different name: NAME=FILES, where several files are a folder or a glob in quotes",
    )


def named_texts(items: Iterable[str], given_by: str) -> dict[str, str]:
    """As `texts_by_name`, in the order of the names."""
    return dict(sorted(texts_by_name(items, given_by).items()))


def _one_or_all(files: list[str]) -> Files:
    return files[0] if len(files) == 1 else files


def one_text(items: Sequence[str], given_by: str) -> tuple[str, Files]:
    """The name and the files of an option that is one text: ``FILES`` or ``NAME=FILES``."""
    groups = _groups([[*items]], given_by)
    names = [group.name or named(group.files[0])[0] for group in groups]
    require(
        len(groups) == 1,
        f"{option(given_by)} is one text, and {len(groups)} were given: {', '.join(map(repr, names))}",
        hint="give one name, before all files, or none",
    )
    return names[0], _one_or_all(groups[0].files)


class _Group(NamedTuple):
    name: str | None
    files: list[str]


def _groups(occurrences: Iterable[Sequence[str]], given_by: str) -> list[_Group]:
    """The files of an option by name. Those without a name belong to the name before them in the same occurrence."""
    groups: list[_Group] = []
    for items in occurrences:
        begins = True
        for item in items:
            name, file = named(item) if has_name(item) else (None, item)
            if name:
                _require_new_name(name, [group.name for group in groups], given_by)
            if name or begins:
                groups.append(_Group(name, []))
            groups[-1].files.append(file)
            begins = False
    return groups


def kept_texts(items: Sequence[str] | None, name: str) -> dict[str, Files] | None:
    """The texts of --keep by name. All files without a name are one text, which gets the name given here."""
    texts: dict[str, Files] = {}
    for group in _groups([items] if items else [], "keep"):
        _require_new_name(group.name or name, texts, "keep")
        texts[group.name or name] = _one_or_all(group.files)
    return texts or None


def weighted_texts(occurrences: Sequence[Sequence[str]]) -> dict[str, tuple[Files, str]]:
    """The files and the weight of every --target, by name.

    >>> weighted_texts([["et=et.txt:2", "more.txt"], ["lv=lv.txt"]])
    {'et': (['et.txt', 'more.txt'], '2'), 'lv': ('lv.txt', '1')}
    """
    groups, targets = _groups(occurrences, "target"), dict[str, tuple[Files, str]]()
    for at, group in enumerate(groups, start=1):
        name = group.name or ("target" if len(groups) == 1 else f"target-{at}")
        _require_new_name(name, targets, "target")
        pairs = [_weighted(file) for file in group.files]
        weights = {weight for _, weight in pairs if weight is not None}
        require(
            len(weights) <= 1,
            f"the files of the target {name!r} have the weights {', '.join(sorted(weights))}",
            hint="a target has one weight: give files with different weights different names",
        )
        targets[name] = (_one_or_all([file for file, _ in pairs]), next(iter(weights), "1"))
    return targets


def _weighted(text: str) -> tuple[str, str | None]:
    """The files and the weight of ``FILES:WEIGHT``; None without a weight."""
    # In a URL, a number after the name of the host is a port.
    source = ".*?://[^/]*/.*" if is_url(text) else ".+"
    match = None if _exists(text) else re.fullmatch(rf"({source}):([-+]?[\d.]+(?:/[-+]?[\d.]+)?)", text)
    return (match[1], match[2]) if match else (text, None)
