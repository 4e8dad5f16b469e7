"""`Training`: the result of a training run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tokengraft.checkpoint.model_card import size_text
from tokengraft.page.training import Stage, TrainingContent, training_page
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
    unadapted: Mapping[str, float] = field(default_factory=dict)
    """Bits per byte of the model before its adaptation; empty if its folder was not found."""
    text_tokens: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Tokens of every held-out text: of the model before its adaptation, if it was found, and of the adapted one."""

    @property
    def after(self) -> Mapping[str, float]:
        """Bits per byte of the result."""
        return self.shares[self.share]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        shares = [{"share": share, "bits_per_byte": dict(scores)} for share, scores in self.shares.items()]
        plain = {"before": dict(self.before), "shares": shares, "kept": list(self.kept), "scored": dict(self.scored)}
        tokens = {name: list(found) for name, found in self.text_tokens.items()}
        return (
            data
            | plain
            | {"unadapted": dict(self.unadapted), "text_tokens": tokens}
            | {"after": dict(self.after), "warnings": list(self.warnings)}
        )

    def stages(self) -> dict[str, list[tuple[str, float, int]]]:
        """By text, each model with its bits per byte and tokens: before the adaptation, adapted, trained, blended."""
        found = dict[str, list[tuple[str, float, int]]]()
        for name, tokens in self.text_tokens.items():
            first = [("before", self.unadapted[name], tokens[0])] if name in self.unadapted else []
            trained = [("adapted", self.before[name]), ("trained", self.shares[0.0][name])]
            rows = [*trained, ("blended", self.after[name])]
            found[name] = first + [(label, score, tokens[-1]) for label, score in rows]
        return found

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The column heads and rows of the table: bits per byte before training, and with every share."""
        heads = ["blend", *(f"{name}{' (kept)' if name in self.kept else ''}" for name in self.before)]
        given = {"before the adaptation": self.unadapted, "before training (0 %)": self.before}
        rows = [[label, *(f"{scores[name]:.4f}" for name in self.before)] for label, scores in given.items() if scores]
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


def result_page(name: str, result: Training, curves: str) -> str:
    """The page about a training run, as HTML."""
    share = (
        f"{100 * result.share:g} % of the weights before training"
        if result.share
        else "no weights from before training"
    )
    before = "Before is the model before its adaptation. " if result.unadapted else ""
    scored = ", ".join(f"{n:,} bytes of {text}" for text, n in result.scored.items())
    notes = [f"{before}Blended, which is the result, has {share}. Scored: {scored}. The curves are of a part of it."]
    if not result.unadapted:
        notes.append("The model before its adaptation was not found, so it was not scored.")
    facts = {
        "text": f"{size_text(result.text_bytes)}, {result.tokens:,} tokens",
        "passes": f"{result.passes:g}",
        "steps": f"{result.steps:,}",
        "learning rate": f"{result.learning_rate:g}",
    }
    content = TrainingContent(
        title=f"{name}, trained",
        stages={text: [Stage(*row) for row in rows] for text, rows in result.stages().items()},
        kept=result.kept,
        curves=curves,
        facts=facts,
        notes=notes,
        warnings=result.warnings,
    )
    return training_page(content)
