"""`Probe`: bits per byte of models on texts, before and after a short training. Plain data, table and JSON."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tokengraft.arguments import checked
from tokengraft.errors import OptionError
from tokengraft.representation import Table, aligned, sentences, short, shown


@shown
@checked
@dataclass(frozen=True)
class ProbeScore:
    """The bits that one model needs for one text."""

    model: str
    text: str
    steps: int
    """Steps of training before it was scored."""
    bytes: int
    """Of the text: the same for every model."""
    tokens: int
    bits: float
    new_bytes: int
    """Bytes of the tokens that the base lacks."""
    new_tokens: int
    new_bits: float

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of all tokens."""
        return self.bits / self.bytes

    @property
    def new_bits_per_byte(self) -> float | None:
        """Bits per byte of the tokens that the base lacks; None if the text has none."""
        return self.new_bits / self.new_bytes if self.new_bytes else None

    @property
    def kept_bits_per_byte(self) -> float | None:
        """Bits per byte of the tokens that the base has too; None if the text has none."""
        kept = self.bytes - self.new_bytes
        return (self.bits - self.new_bits) / kept if kept > 0 else None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        rates = ("bits_per_byte", "new_bits_per_byte", "kept_bits_per_byte")
        return asdict(self) | {name: getattr(self, name) for name in rates}


@shown
@checked
@dataclass(frozen=True)
class Probe:
    """Scores of every model on every text: the models in the order given, before training and after it.

    ``print`` shows them as a table.
    """

    scores: tuple[ProbeScore, ...]
    base: str
    """The model that the others are compared with: the first."""
    settings: Mapping[str, Any]
    """How the models were scored and trained."""
    warnings: tuple[str, ...] = ()

    @checked
    def __getitem__(self, key: tuple[str, str, int]) -> ProbeScore:
        """The score of (model, text, steps).

        Raises:
            OptionError: There is none.
        """
        known = {(score.model, score.text, score.steps): score for score in self.scores}
        if key not in known:
            raise OptionError(f"there is no score of {key}", hint=f"choose one of {short(list(known), 200)}")
        return known[key]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "base": self.base,
            "settings": dict(self.settings),
            "scores": [score.as_dict() for score in self.scores],
            "warnings": list(self.warnings),
        }

    def to_json(self) -> str:
        """The scores as JSON."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: one row for each model, text and number of steps."""
        heads = ["model", "text", "steps", "bits/byte", "against base", "new tokens", "new", "kept", "bytes/token"]
        return heads, [self._row(score) for score in self.scores]

    def _row(self, score: ProbeScore) -> list[str]:
        base = self[self.base, score.text, score.steps].bits_per_byte
        change = f"{score.bits_per_byte / base - 1:+.1%}" if score.model != self.base and base else ""
        share = f"{score.new_bytes / score.bytes:.1%}" if score.new_bytes else ""
        rates = [score.new_bits_per_byte, score.kept_bits_per_byte]
        shown = ["" if rate is None else f"{rate:.3f}" for rate in rates]
        per_token = f"{score.bytes / score.tokens:.2f}"
        return [
            score.model,
            score.text,
            str(score.steps),
            f"{score.bits_per_byte:.3f}",
            change,
            share,
            *shown,
            per_token,
        ]

    def _facts(self) -> dict[str, Any]:
        return {"base": self.base} | dict(self.settings)

    def _tables(self) -> Iterator[Table]:
        heads, rows = self.table()
        yield Table("scores", tuple(heads), rows, len(rows))
        yield from sentences("warnings", self.warnings)

    def __str__(self) -> str:
        return "\n".join([*aligned(*self.table()), *(f"warning: {warning}" for warning in self.warnings)])
