"""`Training`: the result of a training run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tokengraft.representation import Table, aligned, sentences, shown


@shown
@dataclass(frozen=True)
class Training:
    """The result of a training run: what was done, and bits per byte before and after."""

    passes: float
    steps: int
    text_bytes: int
    """Of all passes, kept text included."""
    tokens: int
    learning_rate: float
    share: float
    """The share of the weights before training in the result."""
    before: Mapping[str, float]
    """Bits per byte of every held-out text before training."""
    shares: Mapping[float, Mapping[str, float]]
    """Bits per byte after training, by the share of the weights before training."""
    kept: tuple[str, ...]
    """The held-out texts that must not get worse."""
    scored: Mapping[str, int]
    """Bytes of every held-out text that were scored."""
    warnings: tuple[str, ...] = ()

    @property
    def after(self) -> Mapping[str, float]:
        """Bits per byte of the result."""
        return self.shares[self.share]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shares = [{"share": share, "bits_per_byte": dict(scores)} for share, scores in self.shares.items()]
        plain = {"before": dict(self.before), "shares": shares, "kept": list(self.kept), "scored": dict(self.scored)}
        return data | plain | {"after": dict(self.after), "warnings": list(self.warnings)}

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: bits per byte before training, and with every share."""
        heads = ["blend", *(f"{name}{' (kept)' if name in self.kept else ''}" for name in self.before)]
        rows = [["before training", *(f"{score:.4f}" for score in self.before.values())]]
        for share, scores in self.shares.items():
            chosen = " ← chosen" if share == self.share else ""
            cells = [f"{score:.4f} ({score / self.before[name] - 1:+.1%})" for name, score in scores.items()]
            rows.append([f"{share:g}{chosen}", *cells])
        return heads, rows

    def _facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("passes", "steps", "text_bytes", "tokens", "share")}

    def _tables(self) -> Iterator[Table]:
        heads, rows = self.table()
        yield Table("bits per byte", tuple(heads), rows, len(rows))
        yield from sentences("warnings", self.warnings)

    def __str__(self) -> str:
        return "\n".join([*aligned(*self.table()), *(f"warning: {warning}" for warning in self.warnings)])
