"""`training_page`: one HTML file about a training run: every held-out text before, adapted, trained and blended."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from tokengraft import _core
from tokengraft.page.page import filled, page_file


@dataclass(frozen=True)
class Stage:
    """A model on a held-out text."""

    name: str
    bits_per_byte: float
    tokens: int


@dataclass(frozen=True)
class TrainingContent:
    """What the page shows."""

    title: str
    stages: Mapping[str, Sequence[Stage]]
    """By text, the first stage first and the result last."""
    kept: Sequence[str]
    """The texts that must not get worse."""
    curves: str
    """An SVG."""
    facts: Mapping[str, str]
    notes: Sequence[str]
    warnings: Sequence[str]


def training_page(content: TrainingContent) -> str:
    """The page, which needs no network and has no scripts."""
    parts = {
        "TITLE": escape(content.title),
        "STYLE": page_file("style.css"),
        "LEAD": "".join(f'<p class="headline">{_headline(name, rows)}</p>' for name, rows in content.stages.items()),
        "TABLES": "\n".join(_table(name, rows, name in content.kept) for name, rows in content.stages.items()),
        "NOTES": "".join(f'<p class="note">{escape(note)}</p>' for note in content.notes),
        "WARNINGS": "".join(f"<li>{escape(warning)}</li>" for warning in content.warnings),
        "CURVES": content.curves,
        "FACTS": "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in content.facts.items()),
        "VERSION": _core.__version__,
    }
    return filled(page_file("training.html"), parts).encode(errors="replace").decode()


def _headline(name: str, rows: Sequence[Stage]) -> str:
    """What became of a text: the result against the first stage.

    >>> _headline("et", [Stage("before", 2.0, 100), Stage("blended", 1.5, 60)])
    'et: 2.000 → 1.500 bits per byte (<span class="good">−25.0 %</span>), 40 % fewer tokens'
    """
    first, last = rows[0], rows[-1]
    change = _change(last.bits_per_byte, first.bits_per_byte)
    saved = 1 - last.tokens / max(1, first.tokens)
    tokens = f", {100 * abs(saved):.0f} % {'fewer' if saved > 0 else 'more'} tokens" if abs(saved) >= 0.005 else ""
    rates = f"{first.bits_per_byte:.3f} → {last.bits_per_byte:.3f}"
    return f"{escape(name)}: {rates} bits per byte ({change}){tokens}"


def _table(name: str, rows: Sequence[Stage], kept: bool) -> str:
    first = rows[0]
    lines = [
        _row("th", (("", "model"), *(("number", head) for head in ("bits per byte", "change", "tokens", "change"))))
    ]
    for at, stage in enumerate(rows):
        changes = [
            _change(value, before) if at else ""
            for value, before in ((stage.bits_per_byte, first.bits_per_byte), (stage.tokens, first.tokens))
        ]
        cells = f"{stage.bits_per_byte:.4f}", changes[0], f"{stage.tokens:,}", changes[1]
        lines.append(_row("td", (("name", escape(stage.name)), *(("number", cell) for cell in cells))))
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
