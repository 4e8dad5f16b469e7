"""`Extension`: new tokens and merges in the order they were learned. It can be cut, applied, saved and loaded."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from math import isfinite
from typing import Any, NamedTuple, TypeVar

from tokengraft.representation import FrozenDict, Table, shown
from tokengraft.tokenizer.edit import EditResult, add_tokens
from tokengraft.tokenizer.kind import CONTINUATION, readable
from tokengraft.tokenizer.tokenizer import Tokenizer

SHOWN = 3
"""Tokens that a `repr` has."""


@shown
class LearnedMerge(NamedTuple):
    """A merge, as the strings of its two tokens."""

    left: str
    right: str
    frequency: int
    """How often the pair occurred when it was learned."""
    new: bool
    """Whether it makes a new token. If not, the token that it makes existed already."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"left": readable(self.left), "right": readable(self.right)}


@shown
class IncludedWord(NamedTuple):
    """A form of a word of a word list: at the start of a text, after a space, or literal."""

    word: str
    """The word as it is listed."""
    token: str | None
    """Its token, as the vocabulary spells it, new or not; None if it could not become one."""
    reason: str | None
    """Why it is no token; None if it is one."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"token": None if self.token is None else readable(self.token)}


@shown
class RefusedPair(NamedTuple):
    """A pair that would have been merged, and was not because it occurs in the preserved text."""

    left: str
    right: str
    frequency: int
    """How often the pair occurred when it was refused."""
    place: int
    """How many merges were learned before."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"left": readable(self.left), "right": readable(self.right)}


@shown
@dataclass(frozen=True)
class Extension(EditResult):
    """The new tokens and merges that continued training learned.

    ``extension[:k]`` has the first k tokens and is what training for k would have given. If k is less than a word list
    needs, the words that do not fit are listed as cut.

    Examples:
        >>> tok = tg.load("model")
        >>> counts = tg.count(tok, "et.txt")
        >>> extension = tg.extend(tok, counts, 16)
        >>> extension.tokens[:6]
        ('ad', 'pÃµ', 'rad', 'ĠÃµu', 'drad', 'erad')
        >>> extension[:4] == tg.extend(tok, counts, 4)
        True
        >>> len(extension[:4].apply(tok).tokens) - len(tok.tokens)
        4
    """

    _what = "an extension"
    _command = "tokengraft extend --extension FILE"
    _in_a_file = (
        *("asked", "min_count", "base_hash", "provenance", "characters", "scores"),
        *("merges", "included", "list_merges", "refused", "languages"),
    )
    merges: tuple[LearnedMerge, ...]
    """In order. A new token is the concatenation of the two tokens of its merge. Unigram and WordPiece have no merges:
    here are the two neighbours that became a token, the right one without ``##``."""
    asked: int
    """How many new tokens were asked for."""
    min_count: int
    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was learned for; `apply` refuses any other."""
    provenance: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Version, and totals and settings of the counted text."""
    characters: tuple[str, ...] = ()
    """Characters that the vocabulary lacked, which are added before all merges. Byte-level types lack none."""
    scores: tuple[float, ...] = ()
    """Unigram: the score of every new token. Otherwise empty."""
    included: tuple[IncludedWord, ...] = ()
    """The words of a word list, in its order, with their tokens. A word has an entry for each form that it has."""
    list_merges: int = 0
    """How many of the first merges are those of the word list. Their frequencies are how often each merge applies in
    the training text; 0 if never."""
    refused: tuple[RefusedPair, ...] = ()
    """The candidates that were refused because they occur in the preserved text, in order."""
    languages: tuple[str, ...] = ()
    """With `Parity`: for every merge, the language it was learned for, or an empty name if it is one of a word list.
    Otherwise empty."""

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """The new tokens, as the vocabulary spells them."""
        return self.characters + tuple(merge.left + merge.right for merge in self.merges if merge.new)

    @property
    def n_listed(self) -> int:
        """How many of the first new tokens the word list needs: its words, tokens in between and all characters."""
        return len(self.characters) + sum(merge.new for merge in self.merges[: self.list_merges])

    @property
    def intermediates(self) -> tuple[str, ...]:
        """New tokens that the words of the word list are merged from, and that are no words of it themselves."""
        words = {word.token for word in self.included}
        made = (merge.left + merge.right for merge in self.merges[: self.list_merges] if merge.new)
        return tuple(token for token in made if token not in words)

    @property
    def stopped(self) -> str:
        """How many tokens were learned, and why not more if more were asked for, in words."""
        learned = len(self.tokens)
        if learned >= self.asked:
            return f"{learned:,} new tokens"
        ran_out = f"{learned:,} new tokens, {self.asked:,} asked: pairs seen at least {self.min_count:,} times ran out"
        if self.refused:
            return f"{ran_out}, and {len(self.refused):,} were refused because they occur in the preserved text"
        return ran_out

    def __len__(self) -> int:
        """The number of new tokens."""
        return len(self.tokens)

    def _first(self, n: int) -> "Extension":
        """The extension of the first n new tokens, ending at the merge that makes the last of them."""
        size = len(range(*slice(n).indices(len(self))))
        made = list(accumulate((merge.new for merge in self.merges), initial=len(self.characters)))
        # Later merges make no new token: training for n tokens would have stopped before them.
        end = (made.index(size) if size in made else 0) if n <= len(self) else len(self.merges)
        asked = min(self.asked, n) if n >= 0 else size
        gone = {merge.left + merge.right for merge in self.merges[end : self.list_merges]} | {*self.characters[size:]}
        cut = "the extension was cut before it"
        return replace(
            self,
            merges=self.merges[:end],
            asked=asked,
            characters=self.characters[:size],
            scores=self.scores[:size],
            # A pair that was refused after the last merge would not have been tried.
            refused=tuple(pair for pair in self.refused if pair.place < end or n > len(self)),
            languages=self.languages[:end],
            list_merges=min(end, self.list_merges),
            included=tuple(
                IncludedWord(word.word, None, cut) if word.token in gone else word for word in self.included
            ),
        )

    def _shown(self) -> dict[str, Any]:
        first = tuple(map(readable, self.tokens[:SHOWN]))
        return {"tokens": len(self), "first": first, "result": self.stopped, "base_hash": self.base_hash[:12]}

    def _facts(self) -> dict[str, Any]:
        return {"tokens": len(self), "result": self.stopped, "min_count": self.min_count, "base": self.base_hash[:12]}

    def _tables(self) -> Iterator[Table]:
        new = [merge for merge in self.merges if merge.new]
        rows = (
            (readable(merge.left + merge.right), f"{readable(merge.left)} {readable(merge.right)}", merge.frequency)
            for merge in new
        )
        yield Table("new tokens", ("token", "merge", "frequency"), rows, len(new))

    def _edited(self, tokenizer: Tokenizer) -> Tokenizer:
        merges = [(merge.left, merge.right) for merge in self.merges]
        return add_tokens(tokenizer, self.tokens, merges, scores=self.scores)

    @classmethod
    def _parsed(cls, document: Any, base_hash: str) -> "Extension":
        languages, n_merges = document["languages"], len(document["merges"])
        if len(languages) not in (0, n_merges) or not all(isinstance(name, str) for name in languages):
            raise TypeError(f"there are {n_merges:,} merges, and `languages` does not name the language of each")
        for string in document["characters"]:
            if not isinstance(string, str) or len(string.removeprefix(CONTINUATION)) != 1:
                raise TypeError(f"{string!r} is no character")
        if not all(type(score) is float and isfinite(score) for score in document["scores"]):
            raise TypeError("a score is no number")
        extension = cls(
            merges=_rows(LearnedMerge, document["merges"]),
            asked=int(document["asked"]),
            min_count=int(document["min_count"]),
            base_hash=base_hash,
            provenance=FrozenDict(document["provenance"]),
            characters=tuple(document["characters"]),
            included=_rows(IncludedWord, document["included"]),
            list_merges=int(document["list_merges"]),
            refused=_rows(RefusedPair, document["refused"]),
            languages=tuple(languages),
            scores=tuple(document["scores"]),
        )
        if len(extension.scores) not in (0, len(extension)):
            raise TypeError(f"there are {len(extension):,} tokens and {len(extension.scores):,} scores")
        return extension


_Row = TypeVar("_Row", LearnedMerge, IncludedWord, RefusedPair)


def _rows(kind: type[_Row], rows: Any) -> tuple[_Row, ...]:
    """The rows of a file as named tuples, if all values are of the types of the fields."""
    types = tuple(kind.__annotations__.values())
    for row in rows:
        if len(row) != len(types) or not all(map(isinstance, row, types)):
            raise TypeError(f"{row!r} is not a {kind.__name__}")
    return tuple(kind(*row) for row in rows)
