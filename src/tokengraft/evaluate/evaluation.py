"""`Evaluation`: the scores of tokenizers on texts, as data, table, CSV, JSON and HTML."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from tokengraft.arguments import checked
from tokengraft.errors import OptionError
from tokengraft.representation import Table, aligned, sentences, short, shown

AVERAGE = "average"


@shown
@checked
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
    dropped_bytes: int = 0
    """Bytes of characters that the tokenizer drops or replaces by its unknown token. They are included in
    ``bytes``, but not in any measure by bytes or characters."""


@shown
@checked
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

    @checked
    def __getitem__(self, key: tuple[str, str]) -> Score:
        """The score of (tokenizer, text).

        Raises:
            OptionError: There is none.
        """
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
            "scores": [asdict(score) for score in self.scores],
            "averages": [asdict(score) for score in self.averages()],
        }

    def to_json(self) -> str:
        """The scores as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def to_csv(self) -> str:
        """The scores as CSV, one row for each tokenizer and text."""
        out = io.StringIO()
        writer = csv.DictWriter(out, [field.name for field in fields(Score)])
        writer.writeheader()
        writer.writerows(asdict(score) for score in self.scores)
        return out.getvalue()

    @checked
    def table(self, *, wide: bool = True) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: all measures, or only the five that matter most."""
        chosen = _COLUMNS if wide else [column for column in _COLUMNS if column[1] in (*_LABELS, *_MAIN)]
        columns = [(head, name, form) for head, name, form in chosen if self.base or name not in _AGAINST_BASE]
        rows = [[_shown(getattr(score, name), form) for _, name, form in columns] for score in self._shown_scores()]
        used = [at for at in range(len(columns)) if any(row[at] for row in rows)]
        return [columns[at][0] for at in used], [[row[at] for at in used] for row in rows]

    def _shown_scores(self) -> Iterable[Score]:
        return (*self.scores, *self.averages())

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


_LABELS = ("tokenizer", "text")
_MAIN = ("bytes_per_token", "tokens_per_word", "gain", "exact_match", "added_used")
_AGAINST_BASE = ("gain", "win_rate", "exact_match", "edit_distance", "worst_edit_distance", "added_used")
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
)


def _shown(value: Any, form: str) -> str:
    return "" if value is None else format(value, form)


def _average(scores: Sequence[Score]) -> Score:
    values: dict[str, Any] = {}
    for field in fields(Score):
        column = [getattr(score, field.name) for score in scores]
        if field.name in ("documents", "bytes", "tokens", "dropped_bytes"):
            values[field.name] = sum(column)
        elif field.name == "never_produced":
            values[field.name] = min(column)
        elif field.name not in ("tokenizer", "text"):
            values[field.name] = None if None in column else sum(column) / len(column)
    return Score(tokenizer=scores[0].tokenizer, text=AVERAGE, **values)
