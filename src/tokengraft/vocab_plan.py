"""`VocabPlan`: where every row of a new embedding table comes from. Plain data, computed from any two tokenizers.

Modules before it in the data flow know no tensors; modules after it know no BPE.
"""

import operator
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

from tokengraft.errors import InvalidTokenizerError, require_type
from tokengraft.output.json_file import read_result, write_result_file
from tokengraft.representation import shown
from tokengraft.tokenizer.content import Token
from tokengraft.tokenizer.kind import Kind, byte_token, spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

Source = int | tuple[int, ...] | None
"""Where a row comes from: one old row, several old rows that an initialiser combines, or none."""
ROWS_PER_TOKEN, ALWAYS_ALLOWED = 16, 1 << 20
"""More than ROWS_PER_TOKEN ids for each token are refused, unless there are at most ALWAYS_ALLOWED ids."""


class PlanSummary(NamedTuple):
    """The number of rows of a plan, by what happens to them."""

    kept: int
    """Tokens that keep their row and their id."""
    moved: int
    """Tokens that keep their row and change their id."""
    added: int
    removed: int
    unused: int
    """Rows that no token has."""
    rows_before: int
    rows_after: int


@shown
@dataclass(frozen=True)
class VocabPlan:
    """The source of the row of every new id, and the old ids that are removed.

    Examples:
        >>> VocabPlan(3, (0, None, (1, 2)), (1, 2)).summary
        PlanSummary(kept=1, moved=0, added=1, removed=2, unused=1, rows_before=3, rows_after=3)
    """

    rows_before: int
    """Rows that the old tokenizer needs: its highest id plus one."""
    sources: tuple[Source, ...]
    """By new id. An int copies that old row. A tuple has the pieces of a new token under the old tokenizer, possibly
    none. None is a hole, an id without a token."""
    removed: tuple[int, ...]
    """Old ids of removed tokens, ascending."""
    lengths: tuple[int, ...] = ()
    """By old id: the length of a token that is a piece of a new one, in quarters of a character; 0 for all others. The
    initialiser `length-weighted` needs them."""

    @property
    def rows_after(self) -> int:
        """Rows that the new tokenizer needs."""
        return len(self.sources)

    @cached_property
    def moved(self) -> dict[int, int]:
        """The new id of every kept token, by its old id."""
        return {source: new for new, source in enumerate(self.sources) if isinstance(source, int)}

    @cached_property
    def summary(self) -> PlanSummary:
        """How many rows are kept, moved, added and removed."""
        kept, types = sum(map(operator.eq, self.sources, count())), Counter(map(type, self.sources))
        return PlanSummary(
            kept=kept,
            moved=types[int] - kept,
            added=types[tuple],
            removed=len(self.removed),
            unused=types[NoneType],
            rows_before=self.rows_before,
            rows_after=self.rows_after,
        )

    def _facts(self) -> dict[str, int]:
        return self.summary._asdict()

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the plan as JSON and returns the path."""
        return write_result_file(self.as_dict(), out, force=force)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data: a source is a number, a list of numbers, or null."""
        rows = {"rows_before": self.rows_before, "sources": list(self.sources), "removed": list(self.removed)}
        return rows | {"lengths": list(self.lengths)}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "VocabPlan":
        """The plan in a file."""
        return read_result(path, _parse, what="a plan", command="tg.plan(old, new).save(path)")


def _parse(document: Any) -> VocabPlan:
    rows = _row(document["rows_before"])
    sources = tuple(_source(source) for source in document["sources"])
    removed = tuple(_row(row) for row in document["removed"])
    named = [row for source in sources for row in ([source] if isinstance(source, int) else source or ())]
    if any(row >= rows for row in (*named, *removed)):
        raise ValueError(f"it names rows beyond {rows:,}")
    lengths = tuple(_row(length) for length in document["lengths"])
    if len(lengths) not in (0, rows):
        raise ValueError(f"it has lengths of {len(lengths):,} tokens and {rows:,} rows")
    return VocabPlan(rows, sources, removed, lengths)


def plan(old: Tokenizer, new: Tokenizer) -> VocabPlan:
    """The source of every embedding row of ``new`` among the rows of ``old``, for any two tokenizers.

    The row of a token that both have is copied. For a new token, the plan lists the tokens that the old model splits
    its string into; for one of `add_special`, those of its description. The string is not normalized or pre-tokenized,
    because a token is not text.

    Args:
        old: The old tokenizer.
        new: The new tokenizer.

    Raises:
        InvalidTokenizerError: The ids of one reach so far beyond its tokens that its table would be almost empty.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> summary = tg.plan(tok, new).summary
        >>> summary.kept, summary.added, summary.removed
        (397, 16, 0)
    """
    require_type("old", old, Tokenizer)
    require_type("new", new, Tokenizer)
    _require_dense(old, "old")
    _require_dense(new, "new")
    same_spelling = old.kind == new.kind
    known: Mapping[Any, int] = old.ids if same_spelling else _ids_by_bytes(old)
    sources: list[Source] = [None] * new.n_rows
    for string, token_id in new.ids.items():
        source = known.get(string if same_spelling else token_bytes(string, new.kind))
        if source is None and string in new.starts:
            sources[token_id] = tuple(old.ids[start] for start in new.starts[string] if start in old.ids)
        else:
            sources[token_id] = _pieces(old, string, new.kind) if source is None else source
    copied = {source for source in sources if isinstance(source, int)}
    removed = tuple(sorted({*old.ids.values()} - copied))
    lengths = [0] * old.n_rows
    for piece in {piece for source in sources if isinstance(source, tuple) for piece in source}:
        lengths[piece] = token_length(token_bytes(old.strings[piece], old.kind))
    return VocabPlan(old.n_rows, tuple(sources), removed, tuple(lengths))


def _ids_by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """The id of the token for some bytes. Of several, an ordinary token before a byte token, then the lowest id.

    Text is encoded as `<0x41>` only if there is no piece `A`. If there is one, the row of `<0x41>` is hardly trained.
    """

    def is_byte(token: Token) -> bool:
        return len(token.bytes) == 1 and token.string == byte_token(token.bytes[0])

    best_last = sorted(tokenizer.tokens, key=lambda token: (not is_byte(token), -token.id))
    return {token.bytes: token.id for token in best_last}


def _require_dense(tokenizer: Tokenizer, which: str) -> None:
    n_tokens = len(tokenizer.ids)
    if tokenizer.n_rows > max(ROWS_PER_TOKEN * n_tokens, ALWAYS_ALLOWED):
        raise InvalidTokenizerError(
            f"the {which} tokenizer has {n_tokens:,} tokens and ids up to {tokenizer.n_rows - 1:,}; an embedding needs "
            f"a row for every id, and more than {ROWS_PER_TOKEN} for each token are refused",
            hint="check the ids in its files, or close the holes: `Tokenizer.compact()`",
        )


def _pieces(old: Tokenizer, string: str, kind: Kind) -> tuple[int, ...]:
    """The ids that the old model splits a new token into."""
    data = token_bytes(string, kind)
    # Byte-level vocabularies may list added tokens as text, which the alphabet does not spell.
    same = old.kind == kind and (kind != "byte-level" or spell(data, kind) == string)
    spelled = string if same else spell(data, old.kind)
    if spelled is not None:
        return tuple(old.core_model.encode_token(spelled))
    # It is not UTF-8, and the old vocabulary spells text.
    return tuple(old.vocab[byte_token(byte)] for byte in data if byte_token(byte) in old.vocab)


def _source(source: Any) -> Source:
    return source if source is None else tuple(map(_row, source)) if isinstance(source, list) else _row(source)


def _row(row: Any) -> int:
    if type(row) is not int or row < 0:
        raise TypeError(f"{row!r} is not a row")
    return row


def token_length(data: bytes) -> int:
    """The length of a token in quarters of a character. A byte of an incomplete character is a quarter.

    >>> token_length(b" \\xc3\\xb5"), token_length(b"\\xc3"), token_length(b"a\\xe2\\x82")
    (8, 1, 6)
    """
    text = data.decode(errors="ignore")
    return 4 * len(text) + len(data) - len(text.encode())
