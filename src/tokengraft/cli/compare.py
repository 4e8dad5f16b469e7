"""`tokengraft compare`."""

import argparse
import json
import sys
from dataclasses import asdict

from tokengraft.cli.display import print_table, print_warnings, readable, visible
from tokengraft.cli.options import Commands, add_json
from tokengraft.cli.reading import add_text_read_options, text_read_options_of
from tokengraft.cli.texts import one_text
from tokengraft.evaluate.compare import Comparison, Document, compare
from tokengraft.evaluate.segments import read_text
from tokengraft.formats import load

COLOURS = ("black on cyan", "black on yellow")


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "compare",
        help="show what changed between two tokenizers, in examples",
        description="Show what changed from tokenizer A to tokenizer B on a text: the documents that changed most, "
        "side by side, the new tokens that save the most, and new tokens that are not used.",
    )
    for name in ("a", "b"):
        command.add_argument(name, metavar=name.upper(), help="a tokenizer: folder, file, or hub name")
    command.add_argument(
        "--text",
        action="extend",
        nargs="+",
        required=True,
        metavar="FILES",
        help="text: everything that `tokengraft count` reads; several files are one text",
    )
    add_json(command)
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    before, after = load(options.a), load(options.b)
    comparison = compare(before, after, read_text(*one_text(options.text, "--text"), text_read_options_of(options)))
    print_warnings(comparison.warnings)
    if options.json:
        print(json.dumps(_data(comparison), ensure_ascii=False))
        return 0
    change = f" ({comparison.tokens_after / comparison.tokens_before - 1:+.1%})" if comparison.tokens_before else ""
    savings = ", ".join(f"{readable(e.token, after.kind)} {e.saved:,}" for e in comparison.savings[:12])
    unused = " ".join(readable(token, after.kind) for token in comparison.unused[:12])
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
    return 0


MAX_TOKENS = 2000
"""Tokens of a document that are printed."""


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


def _data(comparison: Comparison) -> dict[str, object]:
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
