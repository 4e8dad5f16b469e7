"""The errors a user can cause, each with what was found, what was expected and what to do; and `Progress`.

Any other exception that tokengraft raises is a bug in it. Messages name options with `option`: as arguments of Python,
or as flags while a command runs (`on_command_line`).
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from numbers import Integral, Real
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called with (the input or step, units done since the last call, units in total). Shared by all steps.

Units are bytes on disk, so that compressed files add up to their size; of text in memory they are bytes of text; where
tokens are learned they are new tokens. The total is that of the files; it is 0 if it is not known, as for an iterator
or standard input.
"""
MAX_CHARACTERS = 1000
_LONGEST = 4 * MAX_CHARACTERS
"""Characters of a message that are looked at: a URL is not cut inside its password."""


_ARGUMENTS = {
    "force": "force=True",
    "protect": "Protection.tokens",
    "protect_pattern": "Protection.pattern",
    "prune_characters": "Protection.characters",
    "no_protect_defaults": "Protection.defaults=False",
    "rule": "rules",
    "for": "stacks",
}
"""Arguments that are not called as their options."""
_command_runs = False


def option(name: str, value: object = None) -> str:
    """An option in a message, with a value if one is given: a flag while a command runs, otherwise an argument.

    A value in small letters is a string; others stand for themselves, such as 2, N and PATH.

    >>> option("min_count", 2), option("swap", "auto"), option("out", "PATH"), option("force")
    ('`min_count=2`', "`swap='auto'`", '`out=PATH`', '`force=True`')
    >>> with on_command_line():
    ...     option("min_count", 2)
    '--min-count 2'
    """
    if _command_runs:
        return f"--{name.replace('_', '-')}" + ("" if value is None else f" {value}")
    shown = repr(value) if isinstance(value, str) and value.islower() else value
    return f"`{_ARGUMENTS.get(name, name)}" + ("`" if value is None else f"={shown}`")


@contextmanager
def on_command_line(runs: bool = True) -> Iterator[None]:
    """While the block runs, messages are for the command line; with False, for Python."""
    global _command_runs  # not a context variable: errors are made in threads too
    before, _command_runs = _command_runs, runs
    try:
        yield
    finally:
        _command_runs = before


def command_runs() -> bool:
    """Whether messages are for the command line."""
    return _command_runs


class TokengraftError(Exception):
    """Something in the input, not in tokengraft, is wrong.

    The message says what was found and what was expected; ``hint`` says what to do.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        self.message, self.hint = (printable(without_credentials(text[:_LONGEST])) for text in (message, hint))
        super().__init__(self.message, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return partial(type(self), hint=self.hint), (self.message,)

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


def escaped(text: str) -> str:
    """Text that is safe for a terminal: control characters other than line breaks are escaped, those of direction too.

    >>> escaped("a\\n\\x1b[31mb\\u202e")
    'a\\n\\\\x1b[31mb\\\\u202e'
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def without_credentials(text: str) -> str:
    """Text with every URL in it without its user, password and query.

    A URL may have spaces if it is quoted, and one slash instead of two, as in a path.

    >>> without_credentials("https://me:secret@host/a.txt?signature=secret")
    'https://host/a.txt'
    >>> without_credentials("no file `https:/me:secret@host/a b.txt?signature=secret`")
    'no file `https:/host/a b.txt`'
    """
    if ":/" not in text:
        return text
    text = re.sub(r"([a-z][a-z0-9+.-]+:/{1,2})[^/\s'\"`]*@", r"\1", text, flags=re.IGNORECASE)
    text = re.sub(r"(https?:/{1,2}[^\s?'\"`]*)\?[^\s'\"`]*", r"\1", text)
    text = re.sub(r"(:/{1,2}[^\s?'\"`]*)\?[^\s'\"`]*=[^\s'\"`]*", r"\1", text)
    return re.sub(r"([`'\"])([^`'\"?]*:/[^`'\"?]*)\?[^`'\"]*=[^`'\"]*(?=\1)", r"\1\2", text)


def printable(message: str) -> str:
    """Text that quotes tokens, safe for a terminal: no control characters, and cut where very long."""
    shown = escaped(message)
    return shown if len(shown) <= MAX_CHARACTERS else shown[:MAX_CHARACTERS] + " …"


class SourceNotFoundError(TokengraftError):
    """There is no tokenizer at the given path or name."""


class UnreadableFileError(TokengraftError):
    """A file exists but cannot be read: it is not JSON, not UTF-8, or truncated."""


class UnsupportedTokenizerError(TokengraftError):
    """The tokenizer is valid, but not of a type that tokengraft edits."""


class InvalidTokenizerError(TokengraftError):
    """The tokenizer is inconsistent: a merge makes no token, or two tokens have one id."""


class CorpusError(TokengraftError):
    """A corpus, or a document of it, cannot be read."""


class CountsError(TokengraftError):
    """Counts are damaged, or were made for another pipeline."""


class CheckpointError(TokengraftError):
    """A checkpoint is damaged, or of a kind whose vocabulary cannot be changed."""


class OptionError(TokengraftError):
    """An option has an invalid value, or does not apply."""


class ArgumentError(OptionError, TypeError):
    """An argument of a function is of the wrong type."""


class OutputError(TokengraftError):
    """The result cannot be written where the caller asked."""


_WORDS = {"Mapping": "a mapping", "NoneType": "None", "PathLike": "a path", "bool": "True or False", "str": "a string"}
_MADE_BY = {
    "Comparison": "tg.compare(before, after, text)",
    "Extension": "tg.extend(tokenizer, counts, n)",
    "PretokenCounts": "tg.count(tokenizer, corpus)",
    "PruneOrder": "tg.prune_order(tokenizer, counts)",
    "Tokenizer": "tg.load(source)",
    "VocabPlan": "tg.plan(old, new)",
}


def require_type(name: str, value: object, *kinds: type, hint: str | None = None) -> None:
    """Refuses an argument of another type. `NoneType` among the types allows None."""
    if not isinstance(value, kinds):
        words = [_WORDS.get(kind.__name__, _with_article(kind.__name__)) for kind in kinds]
        raise wrong_type(f"`{name}`", value, words, hint)


def require_list(name: str, value: object, of: str = "strings") -> None:
    """Refuses one string or bytes where several values are expected: its characters are hardly ever meant."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong_type(f"`{name}`", value, [f"a list of {of}"])


def whole_number(name: str, value: Any, *others: str) -> int:
    """A whole number as an `int`, which JSON can have: those of numpy are converted. True is no number.

    ``others`` are what else the argument may be, in words.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise wrong_type(f"`{name}`", value, ["a whole number", *others])
    return int(value)


def number(name: str, value: Any) -> float:
    """A number as an `int` or `float`, as `whole_number`."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise wrong_type(f"`{name}`", value, ["a number"])
    return int(value) if isinstance(value, Integral) else float(value)


def positive(name: str, value: Any) -> int:
    """A whole number that is at least 1 and below 2^63."""
    n = whole_number(name, value)
    if not 1 <= n < 2**63:
        raise OptionError(
            f"{option(name)} is {n}; it must be at least 1 and below 2^63", hint=f"pass {option(name, 1)} or more"
        )
    return n


def seed(name: str, value: Any) -> int:
    """A whole number that is 0 or more."""
    n = whole_number(name, value)
    require(n >= 0, f"{option(name)} is {n}; it must be 0 or more", f"pass {option(name, 0)}")
    return n


def require(condition: bool, message: str, hint: str) -> None:
    """Raises an `OptionError` unless the condition holds."""
    if not condition:
        raise OptionError(message, hint=hint)


def wrong_type(what: str, value: object, expected: Collection[str], hint: str | None = None) -> ArgumentError:
    """The error of an argument of the wrong type. ``expected`` is what is allowed, in words."""
    allowed = " or ".join(dict.fromkeys(expected))
    made_by = [f"`{_MADE_BY[word]}`" for one in expected if (word := one.split()[-1]) in _MADE_BY]
    if "a path" in expected and type(value).__name__ == "Tokenizer":
        hint = "save it, and pass the path of the folder: `tg.save(tokenizer, folder)`"
    hint = hint or f"pass {allowed}" + (f", such as the result of {made_by[0]}" if made_by else "")
    return ArgumentError(f"{what} is {described(value)}; it must be {allowed}", hint=hint)


def described(value: object) -> str:
    """A value in an error: itself if it is short, and its type.

    >>> described("et.txt"), described(None), described([1, 2])
    ("'et.txt', a str", 'None', 'a list with 2 items')
    """
    kind = _with_article(type(value).__name__)
    if value is None:
        return "None"
    if isinstance(value, str | bytes | int | float) and len(text := repr(value)) <= 60:
        return f"{text}, {kind}"
    if isinstance(value, list | tuple | dict | set | frozenset):
        return f"{kind} with {len(value):,} item{'s' if len(value) != 1 else ''}"
    return kind


def _with_article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'AEIOaeio' else 'a'} {noun}"
