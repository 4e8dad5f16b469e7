"""The errors a user can cause, each with what was found, what was expected and what to do.

Anything else that escapes from tokengraft is a bug in it.
"""


class TokengraftError(Exception):
    """Something in the input, not in tokengraft, is wrong.

    The message says what was found and what was expected; ``hint`` says what to do.
    """

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class SourceNotFoundError(TokengraftError):
    """There is no tokenizer where the caller pointed."""


class UnreadableFileError(TokengraftError):
    """A file is there, but it is not what its name promises: not JSON, not UTF-8, cut off."""


class UnsupportedTokenizerError(TokengraftError):
    """The tokenizer is sound, but not of a type that tokengraft edits."""


class InvalidTokenizerError(TokengraftError):
    """The tokenizer contradicts itself: a merge without a product, an id given twice."""


class OutputError(TokengraftError):
    """The result cannot be written where the caller asked."""
