"""`tokengraft evaluate` and `tokengraft report`."""

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokengraft.cli.commands import (
    given,
    input_paths,
    print_scores,
    print_table,
    print_warnings,
    require_output,
    say,
    text_read_options_of,
)
from tokengraft.corpus.files import input_without_credentials
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import require
from tokengraft.formats import load
from tokengraft.measure.compare import Comparison, Document, compare
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import open_text
from tokengraft.options.values import named, texts_by_name
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.progress import one_stage
from tokengraft.representation import visible
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.kind import Kind, readable
from tokengraft.tokenizer.tokenizer import Tokenizer

COLOURS = ("black on cyan", "black on yellow")
MAX_TOKENS = 2000
"""Tokens of a document that are printed."""


def run_evaluate(options: argparse.Namespace) -> int:
    """Runs the command."""
    tokenizers = dict(named(text) for text in options.tokenizers)
    chosen = given("evaluate", options, *(["two tokenizers"] if len(tokenizers) == 2 else []))
    texts = texts_by_name(options.text, "text")
    require(
        len(tokenizers) == len(options.tokenizers), "two tokenizers have the same name", hint="name them: NAME=SOURCE"
    )
    if options.report:  # refused before any work is done
        require_new(options.report, force=None)
        require_distinct(input_paths(tokenizers.values(), texts.values()), options.report)
    loaded = {name: load(source) for name, source in tokenizers.items()}
    _warn_of_spelling(loaded)
    read_options = text_read_options_of(chosen)
    opened: dict[str, Any] = dict(texts)
    if options.report or options.examples:  # they show documents, so the text stays in memory
        opened = {name: open_text(name, source, read_options) for name, source in texts.items()}
    with one_stage("scoring models", quiet=options.quiet or not options.bits) as progress:
        evaluation: Evaluation = evaluate(
            tokenizers if options.bits else loaded,
            opened,
            base=options.base,
            bits=options.bits,
            edits=bool(options.wide or options.json or options.csv or options.report),
            read_options=read_options,
            progress=progress,
        )
    base, *others = sorted(loaded, key=lambda name: name != options.base)  # by default, the base is the first
    comparisons: dict[str, Comparison] = {}
    if options.examples:
        counts = [name for name, text in opened.items() if isinstance(text, PretokenCounts)]
        require(not counts, f"--examples shows documents, and {counts} is counts", hint="pass text")
        comparisons = {name: compare(loaded[base], loaded[others[0]], text) for name, text in opened.items()}
    if options.json and options.examples:
        examples = {name: _examples_data(comparison) for name, comparison in comparisons.items()}
        print(json.dumps(json.loads(evaluation.to_json()) | {"examples": examples}, ensure_ascii=False))
    elif options.json:
        print(evaluation.to_json())
    elif options.csv:
        print(evaluation.to_csv(), end="")
    else:
        print_scores(evaluation, wide=options.wide)
        for note in evaluation.notes:
            say(f"note: {note}", options)
        for name, comparison in comparisons.items():
            print(f"\n{visible(name)}")
            _print_examples(comparison, loaded[others[0]].kind)
    compared = (warning for comparison in comparisons.values() for warning in comparison.warnings)
    print_warnings([*dict.fromkeys((*evaluation.warnings, *compared))])
    if options.report:
        from tokengraft.page.report import report  # a page needs most of the package

        report(
            loaded[base],
            loaded[others[0]],
            opened,
            out=options.report,
            title=f"{others[0]} compared with {base}",
            record=_record(options),
            bits=evaluation if options.bits else None,
        )
        say(f"wrote `{options.report}`", options)
    return 0


def _print_examples(comparison: Comparison, kind: Kind) -> None:
    """Prints a comparison: a table of numbers, then the documents that changed most."""
    change = f" ({comparison.tokens_after / comparison.tokens_before - 1:+.1%})" if comparison.tokens_before else ""
    savings = ", ".join(f"{readable(e.token, kind)} {e.saved:,}" for e in comparison.savings[:12])
    unused = " ".join(readable(token, kind) for token in comparison.unused[:12])
    rows = [
        ("tokens", f"{comparison.tokens_before:,} → {comparison.tokens_after:,}{change}"),
        ("documents", f"{comparison.documents:,}: {comparison.shorter:,} shorter, {comparison.longer:,} longer"),
        ("new tokens", f"{comparison.added:,}, {len(comparison.unused):,} of them unused in this text"),
        ("largest savings", savings or "none"),
        ("unused", unused or "none"),
    ]
    print_table(rows)
    for title, documents in (
        ("largest decrease in tokens", comparison.gained),
        ("largest increase in tokens", comparison.lost),
    ):
        if documents:
            print(f"\n{title}")
            for document in documents:
                _show(document)


def _show(document: Document) -> None:
    """Prints the two segmentations of a document: tokens separated by `|`, on a terminal also in alternating colours.

    Bytes that are not text by themselves are shown as in ``\\xe6``.
    """
    for label, tokens in (("before", document.before), ("after", document.after)):
        texts = [visible(token.decode(errors="backslashreplace")) for token in tokens[:MAX_TOKENS]]
        texts += ["…"] * (len(tokens) > MAX_TOKENS)
        head = f"  {label:<6} {len(tokens):>4}  "
        if not sys.stdout.isatty():
            print(head + "|".join(texts))
            continue
        from rich.console import Console
        from rich.text import Text

        line = Text(head)
        for at, text in enumerate(texts):
            line.append("|" * bool(at)).append(text, COLOURS[at % 2])
        Console().print(line, soft_wrap=True)


def _examples_data(comparison: Comparison) -> dict[str, object]:
    """A comparison as JSON-ready data."""

    def readable_document(document: Document) -> dict[str, object]:
        sides = {"before": document.before, "after": document.after}
        return {"text": document.text} | {
            name: [token.decode(errors="replace") for token in tokens] for name, tokens in sides.items()
        }

    return asdict(comparison) | {
        "gained": [readable_document(document) for document in comparison.gained],
        "lost": [readable_document(document) for document in comparison.lost],
        "savings": [saving._asdict() for saving in comparison.savings],
    }


def run_report(options: argparse.Namespace) -> int:
    """Runs the command."""
    from tokengraft.page.report import report  # a page needs most of the package

    chosen = given("report", options)
    texts = texts_by_name(options.text, "text")
    require_output(options, [options.base, options.new], texts.values())
    base, new = load(options.base), load(options.new)
    _warn_of_spelling({options.base: base, options.new: new})
    names = [Path(source).name or source for source in (options.base, options.new)]
    page = report(
        base,
        new,
        texts,
        out=options.out,
        title=options.title or f"{names[1]} compared with {names[0]}",
        record=_record(options),
        read_options=text_read_options_of(chosen),
        force=options.force,
    )
    if options.json:
        print(json.dumps({"out": options.out, "bytes": page.stat().st_size}, ensure_ascii=False))
    say(f"wrote `{options.out}`", options)
    return 0


def _record(options: argparse.Namespace) -> dict[str, Any]:
    """What a page shows as asked for: the command as given, without passwords in URLs, and the date."""
    from tokengraft.page.report import page_date

    return {
        "command": shlex.join(["tokengraft", *map(input_without_credentials, options.arguments)]),
        "date": page_date(),
    }


def _warn_of_spelling(tokenizers: Mapping[str, Tokenizer]) -> None:
    """Prints a warning if a vocabulary cannot spell all text: once for all tokenizers, by name, that lack the same."""
    warnings = {name: spelling_warning(tokenizer) for name, tokenizer in tokenizers.items()}
    for warning in dict.fromkeys(filter(None, warnings.values())):
        names = ", ".join(name for name, other in warnings.items() if other == warning)
        print_warnings([f"{names}: {warning}"])
