"""The errors a user can cause, each with what was found, what was expected and what to do; and `Progress`.

Any other exception that tokengraft raises is a bug in it.
"""

import re
from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (the input or step, units done since the last call, units in total). Shared by all steps.

Units are bytes on disk, so that compressed files add up to their size; of text in memory they are bytes of text; where
tokens are learned they are new tokens. The total is that of the files; it is 0 if it is not known, as for an iterator
or standard input.
"""
MAX_CHARACTERS = 1000
_LONGEST = 4 * MAX_CHARACTERS
"""Characters of a message that are looked at: a URL is not cut inside its password."""


class TokengraftError(Exception):
    """Something in the input, not in tokengraft, is wrong.

    The message says what was found and what was expected; ``hint`` says what to do.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        self.message, self.hint = (printable(without_credentials(text[:_LONGEST])) for text in (message, hint))
        super().__init__(self.message, self.hint)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.hint)

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


def _rebuild(error: "type[TokengraftError]", message: str, hint: str) -> "TokengraftError":
    return error(message, hint=hint)


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


def require_positive(name: str, value: int | None) -> None:
    """Refuses an option below 1 or beyond what 63 bits hold; None means that the option was not given.

    Raises:
        OptionError: With the flag of the option.
    """
    if value is not None and not 1 <= value < 2**63:
        flag = f"--{name.replace('_', '-')}"
        raise OptionError(f"{flag} is {value}; it must be at least 1 and below 2^63", hint=f"pass {flag} 1 or more")


class OutputError(TokengraftError):
    """The result cannot be written where the caller asked."""
