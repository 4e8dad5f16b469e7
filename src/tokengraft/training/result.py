"""`Training`: the result of a training run. `result_page`: a page about it. `chosen_share`: how it is blended."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.model_card import code, size_text, table
from tokengraft.checkpoint.model_files import LOG, PAGE, PLOT
from tokengraft.page.report import filled, page_file
from tokengraft.representation import Table, aligned, sentences, shown
from tokengraft.training.options import KEPT_LIMIT

Stage = tuple[str, float, int]
"""A model on a held-out text: its name, bits per byte, and tokens."""


@shown
@dataclass(frozen=True)
class Training:
    """The result of a training run: what was done, and bits per byte before and after."""

    passes: float
    """How often the text was read; a part of one if `max_bytes` ended the training."""
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
        found = dict[str, list[Stage]]()
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


def chosen_share(
    shares: Mapping[float, Mapping[str, float]], before: Mapping[str, float], kept: Collection[str]
) -> tuple[float, bool]:
    """The smallest share with which all kept text is at most 1 % worse than before, and whether there is one.

    If there is none, the share with which the worst kept text is best.

    >>> chosen_share({0.0: {"en": 1.2}, 0.1: {"en": 1.005}, 0.2: {"en": 1.0}}, {"en": 1.0}, ["en"])
    (0.1, True)
    >>> chosen_share({0.0: {"en": 1.2}, 0.1: {"en": 1.1}}, {"en": 1.0}, ["en"])
    (0.1, False)
    """
    worst = {share: max(scores[name] / before[name] - 1 for name in kept) for share, scores in shares.items()}
    enough = [share for share, loss in worst.items() if loss <= KEPT_LIMIT + 1e-9]
    return (min(enough), True) if enough else (min(worst, key=lambda share: (worst[share], share)), False)


def training_section(result: Training, kept_share: float, command: str) -> str:
    """The section of the model card about a training run."""
    heads, rows = result.table()
    return "\n\n".join(
        [
            "## Training",
            f"Trained on {size_text(result.text_bytes)} of text ({result.tokens:,} tokens, {result.passes:g} passes), "
            f"{kept_share:.0%} of it kept text. Bits per byte of held-out text, less is better, by the share of the "
            f"weights before training, with the change against them ([page]({PAGE}), [curves]({PLOT}), [log]({LOG})):",
            table([*heads], [[code(row[0]), *row[1:]] for row in rows]),
            f"{command}\n\n{code(LOG)} has the settings.",
        ]
    )


def result_page(name: str, result: Training, curves: str) -> str:
    """The page: every held-out text before, adapted, trained and blended. It needs no network and has no scripts.

    ``curves`` is an SVG.
    """
    blended = f"{100 * result.share:g} % of the weights" if result.share else "no weights from"
    before = "Before is the model before its adaptation. " if result.unadapted else ""
    scored = ", ".join(f"{n:,} bytes of {text}" for text, n in result.scored.items())
    notes = [
        f"{before}Blended, which is the result, has {blended} before training. Scored: {scored}. The curves are of a "
        "part of it."
    ]
    if not result.unadapted:
        notes.append("The model before its adaptation was not found, so it was not scored.")
    facts = {
        "text": f"{size_text(result.text_bytes)}, {result.tokens:,} tokens",
        "passes": f"{result.passes:g}",
        "steps": f"{result.steps:,}",
        "learning rate": f"{result.learning_rate:g}",
    }
    stages = result.stages()
    parts = {
        "TITLE": escape(f"{name}, trained"),
        "STYLE": page_file("style.css"),
        "LEAD": "".join(f'<p class="headline">{_headline(text, rows)}</p>' for text, rows in stages.items()),
        "TABLES": "\n".join(_table(text, rows, text in result.kept) for text, rows in stages.items()),
        "NOTES": "".join(f'<p class="note">{escape(note)}</p>' for note in notes),
        "WARNINGS": "".join(f"<li>{escape(warning)}</li>" for warning in result.warnings),
        "CURVES": curves,
        "FACTS": "".join(f"<dt>{escape(label)}</dt><dd>{escape(fact)}</dd>" for label, fact in facts.items()),
        "VERSION": _core.__version__,
    }
    return filled(page_file("training.html"), parts).encode(errors="replace").decode()


def _headline(name: str, rows: Sequence[Stage]) -> str:
    """What became of a text: the result against the first stage.

    >>> _headline("et", [("before", 2.0, 100), ("blended", 1.5, 60)])
    'et: 2.000 → 1.500 bits per byte (<span class="good">−25.0 %</span>), 40 % fewer tokens'
    """
    (_, first, first_tokens), (_, last, last_tokens) = rows[0], rows[-1]
    saved = 1 - last_tokens / max(1, first_tokens)
    tokens = f", {100 * abs(saved):.0f} % {'fewer' if saved > 0 else 'more'} tokens" if abs(saved) >= 0.005 else ""
    return f"{escape(name)}: {first:.3f} → {last:.3f} bits per byte ({_change(last, first)}){tokens}"


def _table(name: str, rows: Sequence[Stage], kept: bool) -> str:
    lines = [
        _row("th", (("", "model"), *(("number", head) for head in ("bits per byte", "change", "tokens", "change"))))
    ]
    for at, stage in enumerate(rows):
        changes = [_change(value, before) if at else "" for value, before in zip(stage[1:], rows[0][1:], strict=True)]
        cells = f"{stage[1]:.4f}", changes[0], f"{stage[2]:,}", changes[1]
        lines.append(_row("td", (("name", escape(stage[0])), *(("number", cell) for cell in cells))))
    title = f"<h2>{escape(name)}{' <span>(kept)</span>' if kept else ''}</h2>"
    return f'<section>{title}<div class="wide"><table>{"".join(lines)}</table></div></section>'


def _row(kind: str, cells: Iterable[tuple[str, str]]) -> str:
    return "<tr>" + "".join(f'<{kind} class="{name}">{text}</{kind}>' for name, text in cells) + "</tr>"


def _change(value: float, before: float) -> str:
    """A change, green if it is less. A minus sign has the width of a plus.

    >>> _change(101, 100), _change(1, 1)
    ('<span class="bad">+1.0 %</span>', '0.0 %')
    """
    change = value / before - 1 if before else 0.0
    if abs(change) < 0.0005:
        return "0.0 %"
    kind = "bad" if change > 0 else "good"
    return f'<span class="{kind}">{100 * change:+.1f} %</span>'.replace("-", "−")
