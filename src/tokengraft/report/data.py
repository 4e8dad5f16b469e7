"""`page_data`: everything that the report shows, as JSON-ready data and columns. Only `page` knows HTML."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import isfinite
from typing import Any

from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.evaluate.curve import CurvePoint, knee_of
from tokengraft.evaluate.curves import curves
from tokengraft.report.content import BASE, NEW, Content, ReportText
from tokengraft.report.examples import examples
from tokengraft.report.pack import packed_tokenizers, tokenizer_settings, varints
from tokengraft.report.samples import changes, samples
from tokengraft.tokenizer.tokenizer import Tokenizer

CURVE_POINTS = 7


def page_data(content: Content) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Everything that the page shows: JSON-ready data, and columns of numbers and tokens by name."""
    columns = packed_tokenizers(content.base, content.new, content.plan)
    columns |= _frequency_columns(content)
    own = _own_tokens(content)
    snippets = {}
    for side, (column, side_snippets) in _examples(content).items():
        columns[f"{side}.examples"], snippets[side] = column, side_snippets
    data = {
        "title": content.title,
        "summary": content.plan.summary._asdict() | {"rows": _rows(content), "parameters": _parameters(content)},
        "texts": [_text(content, text) | {"ownTokens": own[text.name]} for text in content.texts],
        "curve": _curve(content),
        "size": content.size_reason,
        "checks": [asdict(finding) for finding in content.check.findings] if content.check else None,
        "warnings": [*dict.fromkeys((*content.warnings, *content.evaluation.warnings, *content.evaluation.notes))],
        "record": json_ready(dict(content.record)),
        "probe": json_ready(dict(content.probe)) if content.probe else None,
        "settings": _settings(content),
        "samples": [sample for text in content.texts for sample in samples(content, text)],
        "snippets": snippets,
    }
    return data, columns


def json_ready(value: Any) -> Any:
    """A value as JSON can have it: what is not a number is None, and other objects are text.

    >>> json_ready({"rate": float("nan"), "sizes": (1, 2), 3: b"a"})
    {'rate': None, 'sizes': [1, 2], '3': "b'a'"}
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): json_ready(one) for name, one in value.items()}
    return [json_ready(one) for one in value] if isinstance(value, list | tuple) else str(value)


def _settings(content: Content) -> dict[str, Any]:
    """The settings of both tokenizers. What is the same is not repeated."""
    base, new = tokenizer_settings(content.base), tokenizer_settings(content.new)
    return {BASE: base, NEW: new | {name: None for name in ("pipeline", "added") if new[name] == base[name]}}


def _rows(content: Content) -> list[int]:
    done = content.transplant
    return [done.rows_before, done.rows_after] if done else [content.plan.rows_before, content.plan.rows_after]


def _parameters(content: Content) -> int | None:
    """Parameters that the model has more than before; None without weights."""
    if not content.transplant:
        return None
    tensors = content.transplant.tensors
    return sum((after - before) // ITEM_BYTES[dtype] for _, _, dtype, before, after in tensors if dtype in ITEM_BYTES)


def _text(content: Content, text: ReportText) -> dict[str, Any]:
    """A text with the scores of both tokenizers."""
    found = changes(content, text)
    before, after = (asdict(content.evaluation[side, text.name]) for side in (BASE, NEW))
    n_bytes, n_documents = _counted(content, text)
    return {
        "name": text.name,
        "role": text.role,
        "measuredOn": text.measured_on,
        "countedBytes": n_bytes,
        "countedDocuments": n_documents,
        "hasDocuments": bool(found),
        "shorter": sum(change.ratio < 1 for change in found),
        "longer": sum(change.ratio > 1 for change in found),
        BASE: before,
        NEW: after,
    }


def _frequency_columns(content: Content) -> dict[str, bytes]:
    """How often each token occurs in each text: all tokens of the new tokenizer, and the removed ones."""
    columns = {}
    ids = {BASE: content.plan.removed, NEW: [token.id for token in content.new.tokens]}
    for place, text in enumerate(content.texts):
        for side in (BASE, NEW):
            found = content.frequencies[side, text.name]
            columns[f"{side}.frequency.{place}"] = varints(found.get(token_id, 0) for token_id in ids[side])
    return columns


def _own_tokens(content: Content) -> dict[str, int]:
    """For each text, how many of the new tokens are more frequent in it than in any other, relative to its bytes."""
    sizes = {text.name: _counted(content, text)[0] or 1 for text in content.texts}
    own = dict.fromkeys(sizes, 0)
    for token_id, source in enumerate(content.plan.sources):
        if isinstance(source, tuple):
            rates = {name: content.frequencies[NEW, name].get(token_id, 0) / size for name, size in sizes.items()}
            best = max(rates, key=rates.__getitem__, default="")
            if best and rates[best]:
                own[best] += 1
    return own


def _counted(content: Content, text: ReportText) -> tuple[int, int]:
    """Bytes and documents of the text that frequencies are from."""
    if text.counts is not None:
        return text.counts.totals.bytes, text.counts.totals.documents
    score = content.evaluation[BASE, text.name]
    return score.bytes, score.documents


def _examples(content: Content) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Examples of the tokens that only one tokenizer has: a column, and the snippets."""
    removed = set(content.plan.removed)
    added = {i for i, source in enumerate(content.plan.sources) if isinstance(source, tuple)}
    sides: tuple[tuple[str, Tokenizer, set[int]], ...] = ((BASE, content.base, removed), (NEW, content.new, added))
    found = {}
    for side, tokenizer, wanted in sides:
        texts = [text for text in content.texts if text.documents]
        occurring = {i for text in texts for i in content.token_totals[side, text.name].counted}
        shown = examples(tokenizer, wanted & occurring, [text.documents for text in texts])
        order = (token.id for token in tokenizer.tokens if token.id in wanted)
        found[side] = (shown.columns(order), shown.snippets)
    return found


def _curve(content: Content) -> dict[str, Any] | None:
    """Bytes per token of each text by number of new tokens; None if there are none or nothing was learned."""
    extension = content.extension
    if not extension or not len(extension):
        return None
    base = {text.name: content.evaluation[BASE, text.name].bytes_per_token for text in content.texts}
    texts = {text.name: text.source for text in content.texts if base[text.name]}
    if not texts:
        return None
    points = curves(content.pruned or content.base, extension, texts, curve_sizes(len(extension))).points
    rates = [{"tokens": point.tokens, "rates": dict(point.bytes_per_token)} for point in points]
    targets = [text.name for text in content.texts if text.role == "target" and text.name in texts] or [*texts]
    return {"base": base, "points": rates, "targets": targets, "knee": _knee(rates, base, targets)}


def curve_sizes(largest: int) -> list[int]:
    """Numbers of tokens, each half of the next.

    >>> curve_sizes(16_000)
    [250, 500, 1000, 2000, 4000, 8000, 16000]
    >>> curve_sizes(3)
    [1, 3]
    """
    return sorted({largest >> step for step in range(CURVE_POINTS)} - {0})


def _knee(rates: Sequence[Mapping[str, Any]], base: Mapping[str, float | None], targets: Sequence[str]) -> int | None:
    """The knee of the mean gain of the targets."""

    def gain(point: Mapping[str, Any]) -> float:
        rates: Mapping[str, float] = point["rates"]
        return sum(rates[name] / (base[name] or 1) for name in targets) / len(targets)

    return knee_of([CurvePoint(point["tokens"], gain(point), 0.0, None) for point in rates])
