"""`Score`: what was measured of one tokenizer on one text. `Evaluation`: scores as data, table, CSV, JSON and HTML."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tokengraft.errors import OptionError
from tokengraft.representation import Table, aligned, sentences, short, shown

AVERAGE = "average"


@shown
@dataclass(frozen=True)
class Score:
    """The scores of one tokenizer on one text. None means not available: counts have no documents."""

    tokenizer: str
    text: str
    documents: int
    bytes: int
    tokens: int
    bytes_per_token: float | None
    bytes_per_token_by_merges: float | None
    """With merge skipping off."""
    characters_per_token: float | None
    tokens_per_word: float | None
    """Fertility. Words are separated by white space."""
    renyi_efficiency: float | None
    """Of order 2.5, over the token types that occur."""
    vocabulary_used: float | None
    """Share of the vocabulary that occurs in the text."""
    never_produced: int
    byte_tokens: float | None
    """Share of tokens that are not complete characters: byte fallback, or parts of a character."""
    ceiling: float | None
    """The maximum of bytes per token with this pre-tokenizer: bytes per pretoken."""
    gain: float | None = None
    """Against the base: relative increase of bytes per token."""
    win_rate: float | None = None
    """Against the base: share of documents with fewer tokens. Documents with as many count half."""
    exact_match: float | None = None
    """Against the base: share of documents with unchanged segmentation."""
    edit_distance: float | None = None
    """Against the base: mean number of token edits divided by the length of the longer segmentation."""
    worst_edit_distance: float | None = None
    added_used: float | None = None
    """Against the base: share of the new tokens that occur in the text."""
    bits_per_byte: float | None = None
    """Of the model, if models were scored: fewer is better, whatever the tokenizer."""
    bits_change: float | None = None
    """Against the base: relative change of bits per byte."""
    new_bits_per_byte: float | None = None
    """Bits per byte of the tokens that the base lacks."""
    kept_bits_per_byte: float | None = None
    """Bits per byte of all other tokens."""
    dropped_bytes: int = 0
    """Bytes of characters that the tokenizer drops or replaces by its unknown token. They are included in
    ``bytes``, but not in any measure by bytes or characters."""


@shown
@dataclass(frozen=True)
class Evaluation:
    """Scores of every tokenizer on every text, tokenizers in the order given.

    In a notebook it is displayed as a table. ``print`` shows the same table as text.
    """

    scores: tuple[Score, ...]
    base: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the texts were read."""

    def __getitem__(self, key: tuple[str, str]) -> Score:
        """The score of (tokenizer, text)."""
        known = {(score.tokenizer, score.text): score for score in self.scores}
        if key not in known:
            raise OptionError(f"there is no score of {key}", hint=f"choose one of {short(list(known), 200)}")
        return known[key]

    def averages(self) -> tuple[Score, ...]:
        """For each tokenizer the mean of every measure over all texts; empty if there is only one text."""
        names = list(dict.fromkeys(score.tokenizer for score in self.scores))
        groups = [[score for score in self.scores if score.tokenizer == name] for name in names]
        return tuple(_average(group) for group in groups if len(group) > 1)

    def as_dict(self) -> dict[str, Any]:
        """The scores as JSON-ready data."""
        return {
            "base": self.base,
            "notes": list(self.notes),
            "warnings": list(self.warnings),
            "scores": [self._data(score) for score in self.scores],
            "averages": [self._data(score) for score in self.averages()],
        }

    def _data(self, score: Score) -> dict[str, Any]:
        """A score as data, without the measures of models if only tokenizers were measured."""
        has_bits = any(score.bits_per_byte is not None for score in self.scores)
        return {name: value for name, value in asdict(score).items() if has_bits or name not in BITS}

    def to_json(self) -> str:
        """The scores as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def to_csv(self) -> str:
        """The scores as CSV, one row for each tokenizer and text."""
        out = io.StringIO()
        rows = [self._data(score) for score in self.scores]
        writer = csv.DictWriter(out, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)
        return out.getvalue()

    def table(self, *, wide: bool = True) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: all measures of each tokenizer and text, or those that matter most.

        Of two tokenizers, the short table has one row for each text: before → after, with the change.
        """
        heads, rows = self._changes() if not wide and self._other else self._measures(wide=wide)
        used = [at for at in range(len(heads)) if any(row[at] for row in rows)]
        return [heads[at] for at in used], [[row[at] for at in used] for row in rows]

    @property
    def _other(self) -> str | None:
        """The tokenizer that is compared with the base; None if there is not exactly one."""
        others = {score.tokenizer for score in self.scores} - {self.base}
        return others.pop() if self.base is not None and len(others) == 1 else None

    def _changes(self) -> tuple[list[str], list[list[str]]]:
        rows = []
        for text in dict.fromkeys(score.text for score in self.scores):
            before, after = self[self.base or "", text], self[self._other or "", text]
            rates = f"{_shown(before.bytes_per_token, '.3f')} → {_shown(after.bytes_per_token, '.3f')}"
            more = [_shown(after.exact_match, ".1%"), _shown(after.added_used, ".1%")]
            of_models = ["", ""]
            if before.bits_per_byte is not None:
                of_models = [f"{before.bits_per_byte:.3f} → {_shown(after.bits_per_byte, '.3f')}"]
                of_models.append(_shown(after.bits_change, "+.1%"))
            rows.append([text, rates, changed(before.tokens, after.tokens), *more, *of_models])
        return ["text", "bytes/token", "tokens", "same", "new used", "bits/byte", "bits"], rows

    def _measures(self, *, wide: bool) -> tuple[list[str], list[list[str]]]:
        columns = _COLUMNS if wide else [column for column in _COLUMNS if column[1] in _MAIN]
        rows = [[_shown(getattr(score, name), form) for _, name, form in columns] for score in self.scores]
        return [head for head, _, _ in columns], rows

    def __str__(self) -> str:
        heads, rows = self.table()
        below = [*(f"note: {note}" for note in self.notes), *(f"warning: {warning}" for warning in self.warnings)]
        return "\n".join([*aligned(heads, rows), *below])

    def _facts(self) -> dict[str, Any]:
        return {"base": self.base} if self.base else {}

    def _tables(self) -> Iterator[Table]:
        heads, rows = self.table()
        yield Table("scores", tuple(heads), rows, len(rows))
        yield from sentences("notes", self.notes)
        yield from sentences("warnings", self.warnings)


def changed(before: int, after: int) -> str:
    """The relative change of a number. What rounds to nothing has no sign.

    >>> changed(200, 150), changed(3000, 2999), changed(0, 5)
    ('-25.0%', '0.0%', '')
    """
    if not before:
        return ""
    shown = f"{after / before - 1:+.1%}"
    return shown[1:] if shown[1:] == "0.0%" else shown


LEGEND = {
    "bytes/token": "more is better",
    "tokens/word": "fewer is better",
    "tokens": "change for the same text",
    "gain": "change of bytes/token",
    "same": "documents with unchanged tokens",
    "new used": "new tokens that occur in the text",
    "bits/byte": "of the model, fewer is better",
}
"""What the columns of the short table mean."""


def legend(heads: Sequence[str]) -> str:
    """What some columns mean, in one line."""
    return "; ".join(f"{head}: {LEGEND[head]}" for head in heads if head in LEGEND)


BITS = ("bits_per_byte", "bits_change", "new_bits_per_byte", "kept_bits_per_byte")
"""The measures of models."""
_MAIN = ("tokenizer", "text", "bytes_per_token", "tokens_per_word", "gain", "exact_match", "added_used", *BITS[:2])
_COLUMNS = (
    ("tokenizer", "tokenizer", ""),
    ("text", "text", ""),
    ("bytes/token", "bytes_per_token", ".3f"),
    ("by merges", "bytes_per_token_by_merges", ".3f"),
    ("ceiling", "ceiling", ".2f"),
    ("tokens/word", "tokens_per_word", ".2f"),
    ("rényi", "renyi_efficiency", ".3f"),
    ("used", "vocabulary_used", ".1%"),
    ("bytes", "byte_tokens", ".1%"),
    ("gain", "gain", "+.1%"),
    ("wins", "win_rate", ".0%"),
    ("same", "exact_match", ".1%"),
    ("edits", "edit_distance", ".3f"),
    ("new used", "added_used", ".1%"),
    ("bits/byte", "bits_per_byte", ".3f"),
    ("bits", "bits_change", "+.1%"),
    ("new", "new_bits_per_byte", ".3f"),
    ("kept", "kept_bits_per_byte", ".3f"),
)


def _shown(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _average(scores: Sequence[Score]) -> Score:
    values: dict[str, Any] = {"tokenizer": scores[0].tokenizer, "text": AVERAGE}
    for name in (field.name for field in fields(Score) if field.name not in values):
        column = [getattr(score, name) for score in scores]
        if name in ("documents", "bytes", "tokens", "dropped_bytes"):
            values[name] = sum(column)
        elif name == "never_produced":
            values[name] = min(column)
        else:
            values[name] = None if None in column else sum(column) / len(column)
    return Score(**values)
