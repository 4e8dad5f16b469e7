"""Texts on the command line and in recipes: ``FILES``, ``NAME=FILES`` or ``NAME=FILES:WEIGHT``.

In a recipe, texts may also be given as a table of names and files.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tokengraft.corpus.files import is_url
from tokengraft.errors import OptionError, require
from tokengraft.options.values import named

Files = str | list[str]
"""One path, glob or URL, or several."""


def lines_of(path: Path | None, option: str) -> list[str]:
    """The lines of the file given by an option; none without a file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint=f"check {option}") from error


def _exists(path: str) -> bool:
    """Whether a path exists. A name that is too long is none, and not an error as for `Path.exists`."""
    return os.path.exists(path)  # noqa: PTH110


def has_name(text: str) -> bool:
    """Whether a text is ``NAME=FILES``. A file whose name has ``=`` is no name, and neither is part of a path."""
    name, equals, _ = text.partition("=")
    return bool(name and equals) and "/" not in name and not _exists(text)


def texts_by_name(items: Iterable[str], option: str) -> dict[str, Files]:
    """The texts of an option by name. Files of one name add up; without a name, each file is a text of its own.

    >>> texts_by_name(["et=a.txt", "et=b.txt", "data/en.txt"], "--text")
    {'et': ['a.txt', 'b.txt'], 'en': 'data/en.txt'}

    Two files that are called alike and have no name are refused.
    """
    texts: dict[str, list[str]] = {}
    with_name: set[str] = set()
    for item in items:
        name, file = named(item) if has_name(item) or not _exists(item) else (named(f"./{item}")[0], item)
        require(
            name not in texts or (has_name(item) and name in with_name),
            f"two texts of {option} are called {name!r}",
            hint="give each a different name: NAME=FILES",
        )
        with_name |= {name} if has_name(item) else set()
        texts.setdefault(name, []).append(file)
    return {name: _one_or_all(files) for name, files in texts.items()}


def named_texts(items: Iterable[str], option: str) -> dict[str, Files]:
    """As `texts_by_name`, in the order of the names."""
    return dict(sorted(texts_by_name(items, option).items()))


def _one_or_all(files: list[str]) -> Files:
    return files[0] if len(files) == 1 else files


def files_of(texts: Mapping[str, Files]) -> list[str]:
    """All files of texts.

    >>> files_of({"et": ["a.txt", "b.txt"], "en": "c.txt"})
    ['a.txt', 'b.txt', 'c.txt']
    """
    return [file for files in texts.values() for file in ([files] if isinstance(files, str) else files)]


def one_text(items: Sequence[str], option: str) -> tuple[str, Files]:
    """The name and the files of an option that is one text: ``FILES`` or ``NAME=FILES``."""
    groups = _groups([[*items]])
    names = [group.name or named(group.files[0])[0] for group in groups]
    require(
        len(groups) == 1,
        f"{option} is one text, and {len(groups)} were given: {', '.join(map(repr, names))}",
        hint="give all files the same name, or none",
    )
    return names[0], _one_or_all(groups[0].files)


class _Group(NamedTuple):
    name: str | None
    files: list[str]


def _groups(occurrences: Iterable[Sequence[str]]) -> list[_Group]:
    """The files of an option by name. Those without a name belong to the name before them in the same occurrence."""
    groups: list[_Group] = []
    for items in occurrences:
        current: _Group | None = None
        for item in items:
            name, file = named(item) if has_name(item) else (None, item)
            if name or current is None:
                current = next((group for group in groups if name and group.name == name), None)
            if current is None:
                current = _Group(name, [])
                groups.append(current)
            current.files.append(file)
    return groups


def kept_texts(items: Sequence[str] | None, name: str) -> dict[str, Files] | None:
    """The texts of --keep by name. All files without a name are one text, which gets the name given here."""
    if not items:
        return None
    texts: dict[str, list[str]] = {}
    for group in _groups([items]):
        texts.setdefault(group.name or name, []).extend(group.files)
    return {key: _one_or_all(files) for key, files in texts.items()}


def weighted_texts(occurrences: Sequence[Sequence[str]]) -> dict[str, tuple[Files, str]]:
    """The files and the weight of every --target, by name.

    >>> weighted_texts([["et=et.txt:2", "more.txt"], ["lv=lv.txt"]])
    {'et': (['et.txt', 'more.txt'], '2'), 'lv': ('lv.txt', '1')}
    """
    groups, targets = _groups(occurrences), dict[str, tuple[Files, str]]()
    for at, group in enumerate(groups, start=1):
        name = group.name or ("target" if len(groups) == 1 else f"target-{at}")
        require(name not in targets, f"two targets are called {name!r}", hint="give each a different name: NAME=FILES")
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
