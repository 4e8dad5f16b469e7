"""`tokengraft evaluate`."""

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from tokengraft.cli.display import print_scores, print_table, print_warnings
from tokengraft.cli.options import (
    Commands,
    add_options,
    given,
    input_paths,
    require_report,
    say,
    text_read_options_of,
    warn_of_spelling,
)
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import require
from tokengraft.formats import load
from tokengraft.measure.compare import Comparison, Document, compare
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import open_text
from tokengraft.options.texts import texts_by_name
from tokengraft.options.values import named
from tokengraft.progress import one_stage
from tokengraft.representation import visible
from tokengraft.tokenizer.kind import Kind, readable

COLOURS = ("black on cyan", "black on yellow")
MAX_TOKENS = 2000
"""Tokens of a document that are printed."""


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "evaluate",
        description="Measure every tokenizer on every text: bytes per token, fertility, Rényi efficiency, vocabulary "
        "use, and the differences from a base tokenizer. With --bits also the models: bits per byte.",
    )
    command.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="folder, file or hub name, or NAME=SOURCE")
    add_options(command, "evaluate")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    tokenizers = dict(named(text) for text in options.tokenizers)
    chosen = given("evaluate", options, *(["two tokenizers"] if len(tokenizers) == 2 else []))
    texts = texts_by_name(options.text, "text")
    require(
        len(tokenizers) == len(options.tokenizers), "two tokenizers have the same name", hint="name them: NAME=SOURCE"
    )
    require_report(options, input_paths(tokenizers.values(), texts.values()))
    loaded = {name: load(source) for name, source in tokenizers.items()}
    warn_of_spelling(loaded)
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
    comparisons: dict[str, Comparison] = {}
    if options.examples:
        from tokengraft.cli.report import base_and_new

        counts = [name for name, text in opened.items() if isinstance(text, PretokenCounts)]
        require(not counts, f"--examples shows documents, and {counts} is counts", hint="pass text")
        base, new = (loaded[name] for name in base_and_new(options, loaded))
        comparisons = {name: compare(base, new, text) for name, text in opened.items()}
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
            _print_examples(comparison, new.kind)
    compared = (warning for comparison in comparisons.values() for warning in comparison.warnings)
    print_warnings([*dict.fromkeys((*evaluation.warnings, *compared))])
    if options.report:
        from tokengraft.cli.report import report_evaluation

        report_evaluation(options, loaded, opened, evaluation)
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
