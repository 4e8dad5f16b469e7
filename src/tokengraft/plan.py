"""`VocabPlan`: where every row of a new embedding table comes from. Plain data: the difference of any two tokenizers.

Left of it nothing knows tensors; right of it nothing knows BPE.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.errors import InvalidTokenizerError
from tokengraft.output.result_file import read_result, write_result_file
from tokengraft.tokenizer.alphabet import Kind, byte_token, spell, token_bytes
from tokengraft.tokenizer.tokenizer import Token, Tokenizer

Source = int | tuple[int, ...] | None
"""Where a row comes from: an old row, the mean of old rows, or nowhere."""
ROWS_PER_TOKEN, ALWAYS_ALLOWED = 16, 1 << 20
"""A vocabulary with more rows than so many times its tokens is no vocabulary of a model, unless it is small."""


class PlanSummary(NamedTuple):
    """A plan in numbers."""

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


@dataclass(frozen=True)
class VocabPlan:
    """For every new id the source of its row, and the old ids that are gone.

    Examples:
        >>> VocabPlan(3, (0, None, (1, 2)), (1, 2)).summary
        PlanSummary(kept=1, moved=0, added=1, removed=2, unused=1, rows_before=3, rows_after=3)
    """

    rows_before: int
    """Rows that the old tokenizer needs: its highest id plus one."""
    sources: tuple[Source, ...]
    """By new id. An int copies that old row. A tuple has the pieces of a new token under the old tokenizer, possibly
    none. None is a hole, whose row nothing reads: it keeps the old row of the same number, where there is one."""
    removed: tuple[int, ...]
    """Old ids whose token is gone, ascending."""

    @property
    def rows_after(self) -> int:
        """Rows that the new tokenizer needs."""
        return len(self.sources)

    @cached_property
    def moved(self) -> dict[int, int]:
        """Old ids that are still there, and their new ones."""
        return {source: new for new, source in enumerate(self.sources) if isinstance(source, int)}

    @property
    def summary(self) -> PlanSummary:
        """The plan in numbers."""
        copies = [(new, source) for new, source in enumerate(self.sources) if isinstance(source, int)]
        return PlanSummary(
            kept=sum(new == old for new, old in copies),
            moved=sum(new != old for new, old in copies),
            added=sum(isinstance(source, tuple) for source in self.sources),
            removed=len(self.removed),
            unused=sum(source is None for source in self.sources),
            rows_before=self.rows_before,
            rows_after=self.rows_after,
        )

    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the plan as JSON and returns the path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        return write_result_file(self.as_dict(), out, force=force)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data: a source is a number, a list of numbers, or null."""
        return {"rows_before": self.rows_before, "sources": list(self.sources), "removed": list(self.removed)}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "VocabPlan":
        """The plan in a file.

        Raises:
            CountsError: It is not a file of a plan.
        """
        return read_result(path, _parse, what="a plan", command="tokengraft plan OLD NEW --out FILE")


def _parse(document: Any) -> VocabPlan:
    rows = _row(document["rows_before"])
    sources = tuple(_source(source) for source in document["sources"])
    removed = tuple(_row(row) for row in document["removed"])
    named = [row for source in sources for row in ([source] if isinstance(source, int) else source or ())]
    if any(row >= rows for row in (*named, *removed)):
        raise ValueError(f"it names rows beyond {rows:,}")
    return VocabPlan(rows, sources, removed)


def plan(old: Tokenizer, new: Tokenizer) -> VocabPlan:
    """How the rows of ``new`` come out of those of ``old``. Works for any two tokenizers, whoever made them.

    A token that both have is copied. What is new takes the pieces that the old model splits its raw string into; no
    text is normalized or pre-tokenized on the way, for a token is no text.

    Raises:
        InvalidTokenizerError: The ids of one reach so far beyond its tokens that its table would be almost empty.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> summary = tg.plan(tok, new).summary
        >>> summary.kept, summary.added, summary.removed
        (397, 16, 0)
    """
    _require_dense(old, "old")
    _require_dense(new, "new")
    same_spelling = old.kind == new.kind
    known: Mapping[Any, int] = old.ids if same_spelling else _ids_by_bytes(old)
    sources: list[Source] = [None] * new.n_rows
    for string, token_id in new.ids.items():
        source = known.get(string if same_spelling else token_bytes(string, new.kind))
        sources[token_id] = _pieces(old, string, new.kind) if source is None else source
    copied = {source for source in sources if isinstance(source, int)}
    removed = tuple(sorted(token_id for token_id in old.ids.values() if token_id not in copied))
    return VocabPlan(old.n_rows, tuple(sources), removed)


def _ids_by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """The id of the token with some bytes; of several, a piece before a byte token, and then the lowest.

    Text is encoded as `<0x41>` only where there is no piece `A`: beside one, the row of the byte is hardly trained.
    """
    bytes_first = sorted(tokenizer.tokens, key=lambda token: (not _is_byte_token(token), -token.id))
    return {token.bytes: token.id for token in bytes_first}


def _is_byte_token(token: Token) -> bool:
    return len(token.bytes) == 1 and token.string == byte_token(token.bytes[0])


def _require_dense(tokenizer: Tokenizer, which: str) -> None:
    n_tokens = len(tokenizer.ids)
    if tokenizer.n_rows > max(ROWS_PER_TOKEN * n_tokens, ALWAYS_ALLOWED):
        raise InvalidTokenizerError(
            f"the {which} tokenizer has {n_tokens:,} tokens and ids up to {tokenizer.n_rows - 1:,}; an embedding needs "
            f"a row for every id, and more than {ROWS_PER_TOKEN} for each token are refused",
            hint="check the ids in its files, or close the holes: `Tokenizer.compact()`",
        )


def _pieces(old: Tokenizer, string: str, kind: Kind) -> tuple[int, ...]:
    """The ids under the old model of a token that it does not have."""
    data = token_bytes(string, kind)
    # Byte-level vocabularies may list added tokens as text, which the alphabet does not spell.
    if old.kind == kind and (kind == "sentencepiece" or spell(data, kind) == string):
        return tuple(old.bpe.encode(string))
    return tuple(_piece_ids(old, data))


def _piece_ids(old: Tokenizer, data: bytes) -> Iterator[int]:
    string = spell(data, old.kind)
    if string is not None:
        yield from old.bpe.encode(string)
    else:  # not UTF-8, and the old vocabulary spells text
        yield from (old.vocab[byte_token(byte)] for byte in data if byte_token(byte) in old.vocab)


def _source(source: Any) -> Source:
    return source if source is None else tuple(map(_row, source)) if isinstance(source, list) else _row(source)


def _row(row: Any) -> int:
    if type(row) is not int or row < 0:
        raise TypeError(f"{row!r} is not a row")
    return row
