"""Texts on the command line and in recipes: ``FILES``, ``NAME=FILES`` or ``NAME=FILES:WEIGHT``.

In a recipe, texts may also be given as a table of names and files.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tokengraft.corpus.files import is_url
from tokengraft.errors import OptionError, option, require
from tokengraft.options.values import named

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
