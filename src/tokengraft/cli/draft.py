"""`tokengraft draft`."""

import argparse
from typing import Any

from tokengraft.cli.commands import (
    given,
    options_in,
    print_columns,
    print_note,
    print_result,
    print_warnings,
    require_output,
    say,
)
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count, counts_of, reading_warnings
from tokengraft.counts.pretoken_counts import load_weighted
from tokengraft.counts.threads import CountOptions
from tokengraft.formats import load
from tokengraft.options.values import texts_by_name
from tokengraft.pipeline.draft import DraftVocabulary, draft


def run_draft(options: argparse.Namespace) -> int:
    """Runs the command."""
    chosen, held_out = given("draft", options), texts_by_name(options.held_out or (), "held_out")
    sources = [options.source, options.cut, options.ids]
    require_output(options, sources, options.corpus, options.counts, held_out.values())
    tokenizer = load(options.source)
    how: dict[str, Any] = {
        "read_options": options_in(ReadOptions, chosen),
        "count_options": options_in(CountOptions, chosen),
    }
    counts = load_weighted(options.counts, options.weight) if options.counts else None
    if options.corpus:
        counts = count(tokenizer, options.corpus, weights=options.weight, **how)
    texts = {name: counts_of(tokenizer, [files], **how) for name, files in held_out.items()}
    more = {name: chosen[name] for name in ("size", "coverage", "ids", "cut", "pt", "force") if name in chosen}
    made = draft(options.source, counts, options.out, held_out=texts, **more)
    always = f"; always chosen: {made.required:,} special tokens, of chat templates, and bytes" if made.required else ""
    rows = [("ids", f"{len(made.ids):,} of {made.rows:,} rows ({len(made.ids) / made.rows:.1%}){always}")]
    print_result(options, {"out": options.out, **made.as_dict()}, rows)
    if not options.json and made.curve[0].chosen:
        _print_curve(made, counted=not texts)
    read = (warning for text in (counts, *texts.values()) if text for warning in reading_warnings(text.totals))
    print_warnings([*made.warnings, *read])
    say(f"wrote `{options.out}`", options)
    return 0


def _print_curve(made: DraftVocabulary, *, counted: bool) -> None:
    names = [*made.curve[0].chosen]
    heads = ["ids", *(head for name in names for head in (name, f"{name}, first ids")), ""]
    rows = []
    for point in made.curve:
        shares = [share for name in names for share in (point.chosen[name], point.first_ids[name])]
        rows.append(
            [f"{point.size:,}", *(f"{share:.2%}" for share in shares), "chosen" * (point.size == len(made.ids))]
        )
    print()
    print_columns(heads, rows)
    note = "the share of the tokens of each text that are among the ids, and among as many first ids"
    print_note(note + "; other text is covered less than the counted one: measure it with --held-out" * counted)
