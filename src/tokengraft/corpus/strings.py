"""`paths_of`: whether a corpus is given as paths or as text in memory.

A list of strings may be either. It is never guessed: a list that has signs of both is refused.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tokengraft.corpus.files import is_url
from tokengraft.corpus.options import COMPRESSIONS, FORMATS, UNSUPPORTED
from tokengraft.errors import CorpusError

_only_paths = ContextVar("_only_paths", default=False)
_SUFFIXES = (*FORMATS, *COMPRESSIONS, *UNSUPPORTED)
_MAX_PATH = 1024
"""Longer strings are not looked up as paths."""
_BEGINNINGS = ("/", "./", "../", "~/")
_SPACE_INSIDE = re.compile(r"\S\s+\S")


@contextmanager
def only_paths() -> Iterator[None]:
    """Inside the block, all strings in lists are paths, as on the command line."""
    token = _only_paths.set(True)
    try:
        yield
    finally:
        _only_paths.reset(token)


def paths_of(corpus: Any) -> list[str | os.PathLike[str]] | None:
    """The paths, globs and URLs that a corpus is given as; None if it is something in memory, such as texts.

    A string alone is a path. A list of strings has texts if at least one of them has white space inside, and none
    exists as a file or looks like a path.

    Examples:
        >>> paths_of(["et.txt"]), paths_of(["Kass magab.", "Yes"])
        (['et.txt'], None)
    """
    if isinstance(corpus, str | os.PathLike):
        return [corpus]
    if not isinstance(corpus, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in corpus):
        return None
    if _only_paths.get() or not all(isinstance(item, str) for item in corpus):
        return [*corpus]
    here = _names_here()
    text = next((item for item in corpus if _SPACE_INSIDE.search(item) and not _is_path(item, here)), None)
    if text is None:
        return [*corpus]
    path = next((item for item in corpus if _is_path(item, here)), None)
    if path is not None:
        raise CorpusError(
            f"a list of strings has either paths or texts: {text[:60]!r} can only be a text, and {path[:60]!r} exists "
            "or looks like a path",
            hint="if all are texts, pass an iterator: iter(texts); if all are paths: [Path(name) for name in names]",
        )
    return None


def _names_here() -> frozenset[str]:
    """The names in the working folder. Asking the system for each of a million texts would take seconds."""
    try:
        return frozenset(os.listdir())  # noqa: PTH208 (names, not paths)
    except OSError:
        return frozenset()


def _is_path(name: str, here: frozenset[str]) -> bool:
    if name == "-" or name.startswith(_BEGINNINGS) or is_url(name):
        return True
    if len(name) > _MAX_PATH or "\n" in name:
        return False
    return name.lower().endswith(_SUFFIXES) or name.partition("/")[0] in here
