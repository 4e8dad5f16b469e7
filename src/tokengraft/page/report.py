"""`report`: a page about any two tokenizers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import require_type
from tokengraft.formats.sources import load
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import Text, open_text
from tokengraft.output.atomic import new_file, require_new
from tokengraft.page.content import BASE, NEW, Content, ReportText
from tokengraft.page.page import report_page
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, as_notes
from tokengraft.vocab_plan import VocabPlan, plan

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
        record={"versions": {"tokengraft": _core.__version__}, "inputs": _text_inputs(opened)} | dict(record or {}),
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


def _text_inputs(texts: Mapping[str, Text | PretokenCounts]) -> list[dict[str, Any]]:
    listed = []
    for name, text in texts.items():
        if isinstance(text, PretokenCounts):
            n_bytes, documents = text.totals.bytes, text.totals.documents
        else:
            n_bytes, documents = text.n_bytes, len(text.documents)
        listed.append({"role": "text", "name": name, "bytes": n_bytes, "documents": documents})
    return listed
