"""`report`: a page about any two tokenizers. `report_page`: one HTML file with its scripts, and all data as columns."""

import json
import os
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from html import escape
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np

from tokengraft import _core
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import require_type
from tokengraft.formats.sources import load
from tokengraft.measure.choose_size import MIN_SUPPORT
from tokengraft.measure.compare import sample_changes
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import Text, open_text
from tokengraft.measure.sizes import CurvePoint, Sizes, knee_of, most_frequent_in, rare_share
from tokengraft.output.atomic import new_file, require_new
from tokengraft.page.content import BASE, NEW, Content, ReportText, changes, examples, samples
from tokengraft.page.pack import compressed, packed_tokenizers, tokenizer_settings, varints
from tokengraft.pruning.cost import removed_summary
from tokengraft.tokenizer.marks import joined_like
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, as_notes
from tokengraft.vocab_plan import VocabPlan, plan

SCRIPTS = ("vocabulary", "tokenizer", "bpe", "charts", "elements", "summary", "explorer", "reader", "page")
"""The scripts of the page, in the order in which they use each other."""
CURVE_POINTS = 7


def report_page(content: Content) -> str:
    """The report as HTML that needs no network."""
    data, columns = page_data(content)
    as_json = json.dumps(data, ensure_ascii=False, allow_nan=False).encode(errors="replace")
    parts = {
        "TITLE": escape(content.title),
        "VERSION": _core.__version__,
        "STYLE": page_file("style.css"),
        "SCRIPT": "\n".join(page_file(f"{name}.js") for name in SCRIPTS),
        "DATA": compressed({"data": as_json} | columns),
    }
    page = filled(page_file("page.html"), parts)
    return page.encode(errors="replace").decode()  # a file name that is not UTF-8 contains unpaired surrogates


def page_file(name: str) -> str:
    """A file that pages are made of."""
    return resources.files("tokengraft.page").joinpath(name).read_text(encoding="utf-8")


def filled(template: str, parts: Mapping[str, Any]) -> str:
    """The template with every `{{NAME}}` replaced, in one pass: inserted text is not searched again.

    >>> filled("{{A}} {{B}}", {"A": "{{B}}", "B": "b"})
    '{{B}} b'
    """
    return re.sub(r"\{\{([A-Z]+)\}\}", lambda match: parts[match[1]], template)


def page_data(content: Content) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Everything that the page shows: JSON-ready data, and columns of numbers and tokens by name."""
    columns = packed_tokenizers(content.base, content.new, content.plan) | _frequency_columns(content)
    # For each target, how many of the new tokens are most frequent in it; without targets, for each text.
    texts = [text for text in content.texts if text.role == "target"] or content.texts
    frequencies = {text.name: content.frequencies[NEW, text.name] for text in texts}
    sizes, snippets = {text.name: _counted(content, text)[0] for text in texts}, {}
    own = most_frequent_in(content.added, frequencies, sizes)
    for side, (column, side_snippets) in _examples(content).items():
        columns[f"{side}.examples"], snippets[side] = column, side_snippets
    done, base, new = content.transplant, tokenizer_settings(content.base), tokenizer_settings(content.new)
    parameters, n_bytes = done.growth if done else (None, None)  # that the model has more than before
    rows = (done or content.plan).rows_before, (done or content.plan).rows_after
    prune_points = [point.as_dict() for point in content.prune_curve]
    frequent = Counter[int]()
    for text in content.texts:
        frequent.update(content.frequencies[BASE, text.name])
    removed = sorted(content.plan.removed, key=lambda token_id: (frequent[token_id], -token_id))
    data = {
        "title": content.title,
        "summary": content.plan.summary._asdict() | {"rows": rows, "parameters": parameters, "bytes": n_bytes},
        "texts": [_text(content, text) | {"ownTokens": own.get(text.name)} for text in content.texts],
        "curve": _curve(content),
        "pruneCurve": {"points": prune_points, "chosen": len(removed)} if prune_points else None,
        "size": content.size_reason,
        "trainingText": content.training_text,
        "checks": [asdict(finding) for finding in content.check.findings] if content.check else None,
        "warnings": [*dict.fromkeys((*content.warnings, *content.evaluation.warnings, *content.evaluation.notes))],
        "next": [content.next_step.what, content.next_step.why, content.next_step.lines] if content.next_step else None,
        "record": json_ready(dict(content.record)),
        "bits": json_ready(dict(content.bits)) if content.bits else None,
        "settings": {BASE: base, NEW: new | {name: None for name in ("pipeline", "added") if new[name] == base[name]}},
        "samples": [sample for text in content.texts for sample in samples(content, text)],
        "snippets": snippets,
        "removed": removed_summary(content.base, removed).as_dict(),
        "sampleTexts": [sample._asdict() for sample in sample_changes(content.base, content.new)],
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


def _text(content: Content, text: ReportText) -> dict[str, Any]:
    """A text with the scores of both tokenizers."""
    found = changes(content, text)
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
        **{side: asdict(content.evaluation[side, text.name]) for side in (BASE, NEW)},
    }


def _frequency_columns(content: Content) -> dict[str, bytes]:
    """How often each token occurs in each text: all tokens of the new tokenizer, and the removed ones."""
    columns = {}
    ids = {BASE: np.array(content.plan.removed, np.int64), NEW: np.array(sorted(content.new.strings), np.int64)}
    for place, text in enumerate(content.texts):
        for side, known in ids.items():
            found = content.frequencies[side, text.name]
            column, tokens = np.zeros(len(known), np.int64), np.fromiter(found, np.int64, len(found))
            is_known = np.isin(tokens, known)
            times = np.fromiter(found.values(), np.int64, len(found))
            column[np.searchsorted(known, tokens[is_known])] = times[is_known]
            columns[f"{side}.frequency.{place}"] = varints(column)
    return columns


def _counted(content: Content, text: ReportText) -> tuple[int, int]:
    """Bytes and documents of the text that frequencies are from."""
    if text.counts is not None:
        return text.counts.totals.bytes, text.counts.totals.documents
    score = content.evaluation[BASE, text.name]
    return score.bytes, score.documents


def _examples(content: Content) -> dict[str, tuple[bytes, tuple[str, ...]]]:
    """Examples of the tokens that only one tokenizer has: a column, and the snippets."""
    texts, found = [text for text in content.texts if text.documents], {}
    for side, tokenizer, ids in ((BASE, content.base, content.plan.removed), (NEW, content.new, content.added)):
        wanted = {*ids}
        occurring = {i for text in texts for i in content.token_totals[side, text.name].counted}
        shown = examples(tokenizer, wanted & occurring, [text.documents for text in texts])
        found[side] = (shown.columns(sorted(wanted)), shown.snippets)
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
    base_of_sizes = content.pruned or joined_like(content.base, content.new)
    every_size = Sizes(base_of_sizes, extension, content.new)
    sizes = (0, *curve_sizes(len(extension)))
    counted = [text.counts for text in content.texts if text.role == "target" and text.counts is not None]
    shares: list[float | None] = [None] * len(sizes)
    if counted:  # the share of new tokens that is rare in the training text
        occurrences = every_size.support(sum(counted[1:], counted[0]), content.training_text)
        shares = [rare_share(occurrences(size), MIN_SUPPORT) for size in sizes]
    targets = [text.name for text in content.texts if text.role == "target" and text.name in texts] or [*texts]
    rates, gains, rate_of = [], [], {name: every_size.bytes_per_token(text) for name, text in texts.items()}
    for size, rare in zip(sizes, shares, strict=True):
        found = {name: rate(size) for name, rate in rate_of.items()}
        rates.append({"tokens": size, "rates": found, "rare": rare})
        gain = sum(found[name] / (base[name] or 1) for name in targets) / len(targets)
        gains.append(CurvePoint(size, gain, 0.0, None))
    return {"base": base, "points": rates, "targets": targets, "knee": knee_of(gains)}


def curve_sizes(largest: int) -> list[int]:
    """Numbers of tokens, each half of the next.

    >>> curve_sizes(16_000)
    [250, 500, 1000, 2000, 4000, 8000, 16000]
    >>> curve_sizes(3)
    [1, 3]
    """
    return sorted({largest >> step for step in range(CURVE_POINTS)} - {0})


Source = Tokenizer | str | os.PathLike[str]
_MEASURED_ON = {Text: "the whole text", PretokenCounts: "counts"}


def report(
    base: Source,
    new: Source,
    texts: Mapping[str, Text | PretokenCounts | Corpus],
    *,
    out: str | os.PathLike[str],
    title: str | None = None,
    record: Mapping[str, Any] | None = None,
    bits: Evaluation | None = None,
    read_options: ReadOptions | None = None,
    force: bool = False,
) -> Path:
    """Writes a report about two tokenizers, whatever made them, as one HTML page that needs no network.

    Args:
        base: The tokenizer to compare with, or its folder, file or hub name.
        new: The other tokenizer.
        texts: Texts to measure both on, by name: whatever `evaluate` accepts.
        out: The file to write.
        title: The title of the page.
        record: What the page shows as asked for: `command`, `date`, `versions`, `options`, and `inputs` as a list of
            mappings with `role`, `name`, `path`, `bytes`, `documents`.
        bits: The result of `evaluate` with ``bits``, to show bits per byte of models too.
        read_options: How to read the texts; by default text files have one document per line.
        force: Replace an existing file.

    Returns:
        The path of the page.

    Raises:
        OptionError: There is no text.
        CorpusError: A text is empty or cannot be read.
        OutputError: The file exists, or cannot be written.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> tg.report(tok, new, {"et": "et.txt", "en": "en.txt"}, out="report.html").name
        'report.html'
    """
    require_type("texts", texts, Mapping, hint="pass texts by name: {'et': 'et.txt'}")
    require_new(out, force=force)
    names = ["" if isinstance(source, Tokenizer) else Path(source).name for source in (base, new)]
    before, after = (source if isinstance(source, Tokenizer) else load(source) for source in (base, new))
    opened = {name: open_text(name, text, read_options) for name, text in texts.items()}
    changes = plan(before, after)
    content = Content(
        title=title or f"{names[1] or 'new tokenizer'} compared with {names[0] or 'its base'}",
        base=before,
        new=after,
        plan=changes,
        texts=tuple(ReportText.of(name, _MEASURED_ON[type(text)], text) for name, text in opened.items()),
        evaluation=evaluate({BASE: before, NEW: after}, opened),
        check=_checked(after, before, changes),
        record={"versions": {"tokengraft": _core.__version__}, "inputs": text_inputs(opened)} | dict(record or {}),
        bits=bits.as_dict() if bits else None,
    )
    return write_page(content, out, force=force)


_OF_AN_EDIT = ("special tokens", "pipeline", "merges", "settings", "chat template", "kept ids", "SentencePiece model")
"""Checks that an edit must pass. Two tokenizers that have nothing to do with each other only differ there."""


def _checked(new: Tokenizer, base: Tokenizer, changes: VocabPlan) -> Check:
    """The check of a tokenizer. If it was not made from the base, differences from it are notes.

    It was not if most tokens of the base are missing, or if the pipeline is another one.
    """
    checked = check(new, base)
    has_pipeline = all(finding.outcome == "pass" for finding in checked.findings if finding.name == "pipeline")
    is_edit = has_pipeline and len(changes.removed) * 2 < len(base.ids)
    return checked if is_edit else as_notes(checked, _OF_AN_EDIT, "differs from the base: {}")


def write_page(content: Content, out: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Writes the page and returns its path."""
    page = report_page(content).encode()
    with new_file(Path(out), force=force) as path:
        path.write_bytes(page)
    return Path(out)


def page_date() -> str:
    """The date that a page shows: that of `SOURCE_DATE_EPOCH` if it is set."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    return time.strftime("%Y-%m-%d", time.gmtime(int(seconds) if seconds.isdecimal() else time.time()))


def text_inputs(texts: Mapping[str, Text | PretokenCounts], role: str = "text") -> list[dict[str, Any]]:
    """Texts with their sizes, as a record lists them."""
    listed = []
    for name, text in texts.items():
        if isinstance(text, PretokenCounts):
            n_bytes, documents = text.totals.bytes, text.totals.documents
        else:
            n_bytes, documents = text.n_bytes, len(text.documents)
        listed.append({"role": role, "name": name, "bytes": n_bytes, "documents": documents})
    return listed
