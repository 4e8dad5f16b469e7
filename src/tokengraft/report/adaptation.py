"""`adaptation_page`: the report of an adaptation."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tokengraft.adapt.result import Adaptation
from tokengraft.counts.count import HeldOutCounts
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.segments import Text
from tokengraft.report.content import Content, ReportText, Role
from tokengraft.report.page import report_page


@dataclass(frozen=True)
class AdaptationTexts:
    """The texts of an adaptation."""

    parts: Mapping[str, HeldOutCounts]
    """The counts and the held-out documents of every text that was counted."""
    tests: Mapping[str, Text | PretokenCounts] = field(default_factory=dict)
    weights: Mapping[str, str] = field(default_factory=dict)
    """Of the targets. Texts without a weight are kept."""

    def role(self, name: str) -> Role:
        """Whether a text is a target or kept."""
        return "target" if name in self.weights else "keep"


def adaptation_page(result: Adaptation, texts: AdaptationTexts, *, title: str) -> str:
    """The report of an adaptation as HTML that needs no network. What was asked is that of ``result.request``."""
    return report_page(adaptation_content(result, texts, title=title))


def adaptation_content(result: Adaptation, texts: AdaptationTexts, *, title: str) -> Content:
    """What the report of an adaptation shows."""
    extension, record = result.extension, dict(result.request)
    return Content(
        title=title,
        base=result.base,
        new=result.tokenizer,
        plan=result.plan,
        texts=(*_held_out(texts), *_tests(texts)),
        evaluation=_evaluation(result),
        check=result.check,
        pruned=result.order.apply(result.base) if result.order and extension else None,
        extension=extension,
        size_reason=result.choice.reason if result.choice else None,
        transplant=result.transplant,
        warnings=result.warnings,
        record=record | {"inputs": _inputs(texts, record.get("inputs", ()))},
    )


def _held_out(texts: AdaptationTexts) -> Iterable[ReportText]:
    return (
        ReportText(name, "held-out documents", texts.role(name), part.held_out, part.counts)
        for name, part in texts.parts.items()
    )


def _tests(texts: AdaptationTexts) -> Iterable[ReportText]:
    for name, text in texts.tests.items():
        given: tuple[tuple[str, ...], PretokenCounts | None]
        given = ((), text) if isinstance(text, PretokenCounts) else (text.documents, None)
        yield ReportText(name_of_test(name), "text given with --test", "text", *given)


def name_of_test(name: str) -> str:
    """What the page calls a test text. A target may have the same name."""
    return f"{name} (test)"


def _evaluation(result: Adaptation) -> Evaluation:
    """The scores on held-out documents and on test texts."""
    if not result.test:
        return result.evaluation
    tests = (replace(score, text=name_of_test(score.text)) for score in result.test.scores)
    both = result.evaluation
    return replace(
        both,
        scores=(*both.scores, *tests),
        notes=tuple(dict.fromkeys((*both.notes, *result.test.notes))),
        warnings=(*both.warnings, *result.test.warnings),
    )


def _inputs(texts: AdaptationTexts, given: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The inputs of the request with what is known of each text.

    `bytes` are those of the text without held-out documents, and `file_bytes` those of the files, as recorded.
    """
    known = {(entry["role"], entry["name"]): entry for entry in (*_counted(texts), *_tested(texts))}
    listed = []
    for entry in given:
        of_file = {**entry, "bytes": None, "file_bytes": entry.get("bytes") or None}
        listed.append(of_file | known.pop((entry.get("role"), entry.get("name")), {}))
    return [*listed, *known.values()]


def _counted(texts: AdaptationTexts) -> Iterable[dict[str, Any]]:
    for name, part in texts.parts.items():
        yield {
            "role": texts.role(name),
            "name": name,
            "bytes": part.counts.totals.bytes,
            "documents": part.counts.totals.documents,
            "held_out": len(part.held_out),
        } | ({"weight": texts.weights[name]} if name in texts.weights else {})


def _tested(texts: AdaptationTexts) -> Iterable[dict[str, Any]]:
    for name, text in texts.tests.items():
        yield {"role": "test", "name": name, "bytes": text.totals.bytes, "documents": text.totals.documents}
