"""`VocabPlan`: where every row of a new embedding table comes from. Plain data, computed from any two tokenizers.

Modules before it in the data flow know no tensors; modules after it know no BPE.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft.arguments import checked
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import InvalidTokenizerError
from tokengraft.frozen import FrozenDict
from tokengraft.output.result_file import read_result, write_result_file
from tokengraft.representation import shown
from tokengraft.similar import similar_tokens
from tokengraft.token_facts import TokenFacts, token_facts
from tokengraft.tokenizer.alphabet import Kind, byte_token, spell, token_bytes
from tokengraft.tokenizer.tokenizer import Token, Tokenizer

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
@checked
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
    make_facts: Callable[[], TokenFacts] | None = field(default=None, compare=False, repr=False)
    """Gives ``facts``. None in plans of earlier versions."""

    @cached_property
    def facts(self) -> TokenFacts | None:
        """Lengths and scripts of tokens, which some initialisers need. Computed on first use."""
        return self.make_facts() if self.make_facts else None

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

    def _facts(self) -> dict[str, int]:
        return self.summary._asdict()

    @checked
    def save(self, out: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Writes the plan as JSON and returns the path.

        Raises:
            OutputError: The file exists or cannot be written.
        """
        return write_result_file(self.as_dict(), out, force=force)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data: a source is a number, a list of numbers, or null."""
        rows = {"rows_before": self.rows_before, "sources": list(self.sources), "removed": list(self.removed)}
        return rows | {"facts": self.facts.as_dict() if self.facts else None}

    @classmethod
    @checked
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
    facts = document.get("facts")
    given = partial(replace, TokenFacts.parse(facts, rows, len(sources))) if facts is not None else None
    return VocabPlan(rows, sources, removed, given)


@checked
def plan(old: Tokenizer, new: Tokenizer, *, counts: PretokenCounts | None = None) -> VocabPlan:
    """The source of every embedding row of ``new`` among the rows of ``old``, for any two tokenizers.

    The row of a token that both have is copied. For a new token, the plan lists the tokens that the old model splits
    its string into. The string is not normalized or pre-tokenized, because a token is not text.

    Args:
        old: The old tokenizer.
        new: The new tokenizer.
        counts: Counted text, only for the initialiser `context`: the plan then has a similar kept token for new tokens.

    Raises:
        InvalidTokenizerError: The ids of one reach so far beyond its tokens that its table would be almost empty.
        CountsError: The counts were made for another pipeline than that of the new tokenizer.

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
    make_facts = partial(token_facts, old, new, [i for i, source in enumerate(sources) if isinstance(source, tuple)])
    if counts is not None:
        make_facts = partial(replace, _with_similar(make_facts(), new, sources, counts))
    return VocabPlan(old.n_rows, tuple(sources), removed, make_facts)


def _with_similar(facts: TokenFacts, new: Tokenizer, sources: list[Source], counts: PretokenCounts) -> TokenFacts:
    """The facts with a kept token with a typical row for each new token that resembles one."""
    kept = {i: source for i, source in enumerate(sources) if isinstance(source, int) and facts.scripts[source]}
    new_ids = [i for i, source in enumerate(sources) if isinstance(source, tuple)]
    return replace(facts, similar=FrozenDict(similar_tokens(new, new_ids, kept, counts)))


def _ids_by_bytes(tokenizer: Tokenizer) -> dict[bytes, int]:
    """The id of the token for some bytes. Of several, an ordinary token before a byte token, then the lowest id.

    Text is encoded as `<0x41>` only if there is no piece `A`. If there is one, the row of `<0x41>` is hardly trained.
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
    """The ids that the old model splits a new token into."""
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
