"""How two tokenizers differ: `compare` on a text, with examples; `sample_changes` on built-in sample texts.

The built-in sample texts are source code, Markdown, JSON, a chat and the like, which corpora of cleaned text lack. They
are measured when the vocabulary changes, so that damage to such text is seen. Nothing else uses them: they decide
neither what is removed nor what is protected.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import require_type
from tokengraft.measure.metrics import new_tokens
from tokengraft.measure.segments import (
    Segmenter,
    Text,
    TokenTotals,
    lost_bytes,
    read_text,
    text_warnings,
    token_totals,
)
from tokengraft.progress import stage
from tokengraft.representation import Table, sentences, shown
from tokengraft.tokenizer.kind import readable
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.vocab_plan import plan

SHOWN = 5


@shown
class Document(NamedTuple):
    """A document and its tokens with two tokenizers."""

    text: str
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]
    """The bytes of each token."""


@shown
class TokenSaving(NamedTuple):
    """A new token, and how many tokens it saves."""

    token: str
    occurrences: int
    saved: int
    """The number of tokens that the first tokenizer needs for the same bytes, minus one, over all occurrences."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"token": readable(self.token)}


@shown
@dataclass(frozen=True)
class Comparison:
    """The differences between two tokenizers on one text."""

    documents: int
    tokens_before: int
    tokens_after: int
    shorter: int
    """Documents with fewer tokens."""
    longer: int
    gained: tuple[Document, ...]
    """Documents with the largest relative decrease in tokens."""
    lost: tuple[Document, ...]
    """Documents with the largest relative increase in tokens."""
    added: int
    """New tokens: those that the first tokenizer lacks."""
    savings: tuple[TokenSaving, ...]
    """The new tokens that save most."""
    unused: tuple[str, ...]
    """The new tokens that do not occur, by id."""
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the text was read, and what a tokenizer drops."""

    def _shown(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)} | {
            "unused": tuple(map(readable, self.unused))
        }

    def _facts(self) -> dict[str, int]:
        names = ("documents", "tokens_before", "tokens_after", "shorter", "longer", "added")
        return {name: getattr(self, name) for name in names} | {"unused": len(self.unused)}

    def _tables(self) -> Iterator[Table]:
        rows = (tuple(saving._shown().values()) for saving in self.savings)
        yield Table("new tokens that save most", ("token", "occurrences", "saved"), rows)
        for caption, documents in (("largest decreases", self.gained), ("largest increases", self.lost)):
            rows = ((document.text, len(document.before), len(document.after)) for document in documents)
            yield Table(caption, ("document", "tokens before", "tokens after"), rows)
        yield from sentences("warnings", self.warnings)


@stage("comparing tokenizers")
def compare(
    before: Tokenizer, after: Tokenizer, text: Text | Corpus, *, read_options: ReadOptions | None = None
) -> Comparison:
    """The differences between two tokenizers on a text.

    Args:
        before: The first tokenizer.
        after: The second tokenizer.
        text: Whatever `count` reads, or a `Text`.
        read_options: How to read the text; by default text files have one document per line.

    Raises:
        CorpusError: The text cannot be read, is empty, or is a file of counts.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> changed = tg.compare(tok, new, "et.txt")
        >>> changed.tokens_before, changed.tokens_after
        (18127, 9327)
    """
    require_type("before", before, Tokenizer)
    require_type("after", after, Tokenizer)
    text = text if isinstance(text, Text) else read_text("text", text, read_options)
    old, new = token_totals(before, text.documents), token_totals(after, text.documents)
    lengths = zip(old.lengths.tolist(), new.lengths.tolist(), strict=True)
    ratios = [b / a if a else 1.0 for a, b in lengths]
    by_ratio = sorted(range(len(ratios)), key=lambda at: (ratios[at], at))
    added, counted = new_tokens(after, before), new.counted
    spelled = [(Segmenter(tok), {token.id: token.bytes for token in tok.tokens}) for tok in (before, after)]

    def document(at: int) -> Document:
        ids = [(segmenter.segment([text.documents[at]]).ids.tolist(), table) for segmenter, table in spelled]
        sides = [tuple(table[token_id] for token_id in found) for found, table in ids]
        return Document(text.documents[at], sides[0], sides[1])

    return Comparison(
        documents=len(text.documents),
        tokens_before=int(old.lengths.sum()),
        tokens_after=int(new.lengths.sum()),
        shorter=sum(ratio < 1 for ratio in ratios),
        longer=sum(ratio > 1 for ratio in ratios),
        gained=tuple(document(at) for at in by_ratio[:SHOWN] if ratios[at] < 1),
        lost=tuple(document(at) for at in by_ratio[::-1][:SHOWN] if ratios[at] > 1),
        added=len(added),
        savings=tuple(_savings(before, after, added, counted)[:20]),
        unused=tuple(after.strings[i] for i in sorted(added) if not counted[i]),
        warnings=(*text_warnings(text.name, text), *_dropped("first", old), *_dropped("second", new)),
    )


def _dropped(which: str, segments: TokenTotals) -> Iterator[str]:
    if segments.lost:
        yield (
            f"the {which} tokenizer drops {lost_bytes(segments.lost):,} bytes of the text or replaces them by its "
            "unknown token: fewer tokens are no gain there"
        )


def _savings(before: Tokenizer, after: Tokenizer, added: list[int], counted: Counter[int]) -> list[TokenSaving]:
    sources = plan(before, after).sources
    pieces = {token_id: sources[token_id] for token_id in added if counted[token_id]}
    savings = [
        TokenSaving(after.strings[token_id], counted[token_id], counted[token_id] * (len(parts) - 1))
        for token_id, parts in pieces.items()
        if isinstance(parts, tuple)
    ]
    return sorted(savings, key=lambda saving: (-saving.saved, saving.token))


MOST = 0.01
"""A sample that needs a larger share of tokens more than before gets a warning."""

NAMED = 5
"""How many samples a message names."""
REMOVED = "add some to {}, protect its tokens with --protect FILE, or remove fewer tokens"
"""What helps if tokens were removed, with a place for the option that takes text whose tokens are kept."""
ADDED = "preserve some with --preserve FILES, or add fewer tokens"
"""What helps if tokens were only added."""


class SampleChange(NamedTuple):
    """The tokens of a sample text, before and after."""

    name: str
    before: int
    after: int

    @property
    def change(self) -> float:
        """The change of the number of tokens, relative to that before."""
        return self.after / self.before - 1 if self.before else 0.0

    @property
    def is_worse(self) -> bool:
        """Whether it needs clearly more tokens, by the figure that is shown: in tenths of a percent."""
        return round(self.change, 3) > MOST


@cache
def built_in_texts() -> dict[str, str]:
    """The sample texts by name."""
    content = resources.files("tokengraft.measure").joinpath("sample_texts.txt").read_text(encoding="utf-8")
    _, *parts = re.split(r"^=== (.+) ===\n", content, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def sample_changes(base: Tokenizer, new: Tokenizer) -> tuple[SampleChange, ...]:
    """The tokens that two tokenizers need for each sample text, the largest increase first."""
    texts = built_in_texts()
    before, after = (tokenizer.encode_batch([*texts.values()]) for tokenizer in (base, new))
    lengths = zip(texts, map(len, before), map(len, after), strict=True)
    return tuple(sorted((SampleChange(*each) for each in lengths), key=lambda each: -each.change))


def sample_warnings(changes: Sequence[SampleChange], remedy: str) -> tuple[str, ...]:
    """A warning that names the samples that need clearly more tokens than before, if there are any, and what helps."""
    worse = [f"{each.name} {each.change:+.1%}" for each in changes if each.is_worse]
    if not worse:
        return ()
    more = f" and {len(worse) - NAMED} more" if len(worse) > NAMED else ""
    return (
        f"built-in sample texts need more tokens than before: {', '.join(worse[:NAMED])}{more}; if the model must "
        f"handle such text, {remedy}",
    )
