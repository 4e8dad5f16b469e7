"""`adaptation_page`: the report of an adaptation."""

from collections.abc import Iterable, Mapping
from typing import Any

from tokengraft import _core
from tokengraft.adapt.options import KEEP
from tokengraft.adapt.result import Adaptation
from tokengraft.counts.count import HeldOutCounts
from tokengraft.report.content import Content, ReportText, Role
from tokengraft.report.page import report_page


def adaptation_page(
    result: Adaptation,
    parts: Mapping[str, HeldOutCounts],
    *,
    title: str,
    weights: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
) -> str:
    """The report of an adaptation as HTML that needs no network.

    Args:
        result: The adaptation.
        parts: The counts and the held-out documents of every text.
        title: The title of the page.
        weights: The weight of each target.
        record: What was asked: `command`, `date`, `versions`, `options`, and `inputs` as a list of mappings. The page
            shows whichever are there.
    """
    return report_page(adaptation_content(result, parts, title=title, weights=weights, record=record))


def adaptation_content(
    result: Adaptation,
    parts: Mapping[str, HeldOutCounts],
    *,
    title: str,
    weights: Mapping[str, Any] | None = None,
    record: Mapping[str, Any] | None = None,
) -> Content:
    """What the report of an adaptation shows."""
    extension, given = result.extension, dict(record or {})
    inputs = _inputs(parts, weights or {}, given.pop("inputs", ()))
    return Content(
        title=title,
        base=result.base,
        new=result.tokenizer,
        plan=result.plan,
        texts=tuple(_text(name, part) for name, part in parts.items()),
        evaluation=result.evaluation,
        check=result.check,
        pruned=result.order.apply(result.base) if result.order and extension else None,
        extension=extension,
        size_reason=result.choice.reason if result.choice else None,
        transplant=result.transplant,
        warnings=result.warnings,
        record={"versions": {"tokengraft": _core.__version__}} | given | {"inputs": inputs},
    )


def _text(name: str, part: HeldOutCounts) -> ReportText:
    role: Role = "keep" if name == KEEP else "target"
    return ReportText(name, "held-out documents", role, part.held_out, part.counts)


def _inputs(
    parts: Mapping[str, HeldOutCounts], weights: Mapping[str, Any], given: Iterable[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The inputs that are given and those of the texts, with what is known of each. Sizes are without held-out text."""
    known = {
        name: {
            "role": "keep" if name == KEEP else "target",
            "name": name,
            "bytes": part.counts.totals.bytes,
            "documents": part.counts.totals.documents,
            "held_out": len(part.held_out),
        }
        | ({"weight": str(weights[name])} if name in weights else {})
        for name, part in parts.items()
    }
    return [*({**known.pop(str(entry.get("name")), {}), **entry} for entry in given), *known.values()]
