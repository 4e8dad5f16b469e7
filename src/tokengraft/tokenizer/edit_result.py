"""`EditResult`: what extensions and prune orders share: cut to a size, applied to one tokenizer, saved and loaded."""

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from tokengraft.arguments import checked
from tokengraft.errors import OptionError
from tokengraft.output.result_file import as_hash, read_result, write_result_file
from tokengraft.tokenizer.edit import require_base
from tokengraft.tokenizer.tokenizer import Tokenizer

Result = TypeVar("Result", bound="EditResult")


class EditResult(ABC):
    """Tokens to add or to remove, in order, for one tokenizer. ``result[:n]`` has the first n of them."""

    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was made for; `apply` refuses any other."""
    _what: ClassVar[str]
    """The result in messages, with its article."""
    _command: ClassVar[str]
    """The command that writes a file of it."""

    def __getitem__(self: Result, cut: slice) -> Result:
        """The first n of the order, written ``[:n]``.

        Raises:
            OptionError: The slice does not begin at 0 or has a step, or there are too few.
        """
        begins_at_0 = isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1)
        if not begins_at_0 or not isinstance(cut.stop, int | None):
            raise self._cannot_cut(cut)
        return self if cut.stop is None else self._first(cut.stop)

    @checked
    def apply(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the change. Kept ids do not move.

        New tokens take the ids of removed tokens and other holes first. `Tokenizer.compact` closes the holes that
        removed tokens leave.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the result was made for.
        """
        require_base(tokenizer, self.base_hash, what=self._what.split(" ", 1)[1])
        return self._edited(tokenizer)

    @checked
    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes a JSON file and returns its path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        return write_result_file(self._document(), out, force=force)

    @classmethod
    @checked
    def load(cls: type[Result], path: str | os.PathLike[str]) -> Result:
        """The result in a file that ``save`` wrote.

        Raises:
            CountsError: It is not such a file.
        """

        def parse(document: Any) -> Result:
            return cls._parsed(document, as_hash(document["base_hash"]))

        return read_result(path, parse, what=cls._what, command=cls._command)

    def _cannot_cut(self, cut: object) -> OptionError:
        return OptionError(f"{self._what} can only be cut as [:n], not [{cut}]", hint="write [:4000], for instance")

    @abstractmethod
    def _first(self: Result, n: int) -> Result:
        """The result of the first n tokens."""

    @abstractmethod
    def _edited(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the change; it is the one that the result was made for."""

    @abstractmethod
    def _document(self) -> dict[str, Any]:
        """The result as JSON-ready data."""

    @classmethod
    @abstractmethod
    def _parsed(cls: type[Result], document: Any, base_hash: str) -> Result:
        """The result that a document describes.

        Raises:
            TypeError, ValueError, KeyError, AttributeError: It describes none.
        """
