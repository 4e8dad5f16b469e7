"""`Extension`: new tokens and merges in the order they were learned. Plain data; cut it anywhere, apply it, save it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.errors import OptionError
from tokengraft.frozen import FrozenDict
from tokengraft.output.result_file import as_hash, read_result, write_result_file
from tokengraft.tokenizer.edit import add_tokens, require_base
from tokengraft.tokenizer.tokenizer import Tokenizer


class LearnedMerge(NamedTuple):
    """A merge, as the strings of its two tokens."""

    left: str
    right: str
    frequency: int
    """How often the pair occurred when it was learned."""
    new: bool
    """Whether it made a new token; the product of any other existed already."""


@dataclass(frozen=True)
class Extension:
    """What continued training learned.

    ``extension[:k]`` has the first k tokens and is what training for k would have given.

    Examples:
        >>> extension = extend(tok, counts, 16_000)  # doctest: +SKIP
        >>> small = extension[:4_000].apply(tok)  # doctest: +SKIP
    """

    merges: tuple[LearnedMerge, ...]
    """In order; a new token is the join of the two tokens of its merge."""
    asked: int
    """How many new tokens were asked for."""
    min_count: int
    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was learned for; `apply` refuses any other."""
    provenance: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Version, and what the counts it was learned from came from."""
    characters: tuple[str, ...] = ()
    """SentencePiece types: characters that the vocabulary lacked, which come before all merges."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The new tokens, as the vocabulary spells them."""
        return self.characters + tuple(merge.left + merge.right for merge in self.merges if merge.new)

    @property
    def stopped(self) -> str:
        """Why training ended, in words."""
        found = len(self.tokens)
        if found >= self.asked:
            return f"{found:,} new tokens, as asked"
        return f"{found:,} new tokens, {self.asked:,} asked: pairs seen at least {self.min_count:,} times ran out"

    def __len__(self) -> int:
        """The number of new tokens."""
        return len(self.characters) + sum(merge.new for merge in self.merges)

    def __getitem__(self, cut: slice) -> "Extension":
        """The extension of the first k new tokens, ending at the merge that makes the last of them."""
        whole = isinstance(cut, slice) and cut.start in (None, 0) and cut.step in (None, 1)
        if not whole or not isinstance(cut.stop, int | None):
            raise OptionError(f"an extension can only be cut as [:k], not [{cut}]", hint="write extension[:4000]")
        size = len(range(*cut.indices(len(self))))
        made = list(accumulate((merge.new for merge in self.merges), initial=len(self.characters)))
        # Merges after the last token asked for make none, and training for so many would have stopped before them.
        within = cut.stop is not None and cut.stop <= len(self)
        end = (made.index(size) if size in made else 0) if within else len(self.merges)
        asked = min(self.asked, cut.stop) if cut.stop is not None and cut.stop >= 0 else size
        return replace(
            self,
            merges=self.merges[:end],
            asked=asked if cut.stop is not None else self.asked,
            characters=self.characters[:size],
        )

    def apply(self, tokenizer: Tokenizer) -> Tokenizer:
        """The tokenizer with the new tokens. Kept ids do not move; holes among the ids are filled first.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the extension was learned for.
        """
        require_base(tokenizer, self.base_hash, what="extension")
        return add_tokens(tokenizer, self.tokens, [(merge.left, merge.right) for merge in self.merges])

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the extension as JSON and returns the path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        document = {
            "asked": self.asked,
            "min_count": self.min_count,
            "base_hash": self.base_hash,
            "provenance": dict(self.provenance),
            "characters": self.characters,
            "merges": self.merges,
        }
        return write_result_file(document, out, force=force)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Extension":
        """The extension in a file.

        Raises:
            CountsError: It is not a file of an extension.
        """
        return read_result(path, _parse, what="an extension", command="tokengraft extend --extension FILE")


def _parse(document: Any) -> Extension:
    merges = tuple(_learned_merge(*merge) for merge in document["merges"])
    characters = tuple(_character(string) for string in document["characters"])
    numbers = int(document["asked"]), int(document["min_count"])
    return Extension(merges, *numbers, as_hash(document["base_hash"]), FrozenDict(document["provenance"]), characters)


def _learned_merge(left: str, right: str, frequency: int, new: bool) -> LearnedMerge:
    """A merge out of a file, if it is one."""
    if not (isinstance(left, str) and isinstance(right, str) and isinstance(new, bool) and isinstance(frequency, int)):
        raise TypeError(f"{(left, right, frequency, new)!r} is no merge")
    return LearnedMerge(left, right, frequency, new)


def _character(string: str) -> str:
    if not isinstance(string, str) or len(string) != 1:
        raise TypeError(f"{string!r} is no character")
    return string
