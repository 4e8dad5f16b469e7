"""`tokengraft count` and `tokengraft counts merge`."""

import argparse
import os
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from threading import Thread

from tokengraft.cli.commands import given, options_in, print_result, print_warnings, require_output, say
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count, count_to_file, merge_counts, reading_warnings
from tokengraft.counts.fingerprint import may_be_cut, piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.counts.threads import CountJob, CountOptions
from tokengraft.errors import OptionError
from tokengraft.formats import load
from tokengraft.progress import one_stage
from tokengraft.tokenizer.marks import join_marks


def run_count(options: argparse.Namespace) -> int:
    """Runs the command."""
    require_output(options, [options.source], options.corpus)
    # pyarrow, which writes the counts, is imported while text is counted: the core does not need the interpreter.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy comes with it, and starts threads that nothing uses
    Thread(target=import_module, args=["pyarrow.parquet"], daemon=True).start()
    tokenizer = load(options.source)
    if options.join_marks:
        tokenizer = join_marks(tokenizer, options.join_marks)
    out, chosen = Path(options.out), given("count", options, corpus=options.corpus)
    read_options, count_options = options_in(ReadOptions, chosen), options_in(CountOptions, chosen)
    if options.rule:
        if not may_be_cut(tokenizer):
            message = f"--rule has no effect here: this {tokenizer.kind} tokenizer has no piece rules"
            raise OptionError(message, hint="drop --rule")
        read_options = replace(read_options, rules=replace(piece_rules(tokenizer), **dict(options.rule)))
    with one_stage("counting", quiet=options.quiet) as progress:
        if options.weight:
            counts = count(
                tokenizer,
                options.corpus,
                weights=options.weight,
                read_options=read_options,
                count_options=count_options,
                progress=progress,
            )
            counts.save(out, force=options.force)
        else:
            job = CountJob.of(tokenizer, read_options, count_options)
            counts = count_to_file(job, options.corpus, out, force=options.force, progress=progress)
    return _report(counts, out, options)


def run_merge(options: argparse.Namespace) -> int:
    """Runs the command."""
    out = Path(options.out)
    require_output(options, options.counts, [options.tokenizer])
    count_options = options_in(CountOptions, given("merge", options))
    if options.tokenizer:
        from tokengraft.distributed import sum_partials_to_file

        tokenizer = load(options.tokenizer)
        merged = sum_partials_to_file(options.counts, tokenizer, out, count_options=count_options, force=options.force)
    else:
        paths = [*map(Path, options.counts)]
        merged = merge_counts(paths, out, count_options=count_options, force=options.force)
    return _report(merged, out, options)


def _report(counts: PretokenCounts, out: Path, options: argparse.Namespace) -> int:
    totals = counts.totals
    warnings = [*reading_warnings(totals), *(["the corpus has no documents"] if not totals.documents else [])]
    one = totals.documents == 1 and getattr(options, "documents", "") is None
    rows = [
        ("documents", f"{totals.documents:,}{': a text file is one; --documents lines: each line' * one}"),
        ("text", f"{totals.bytes:,} bytes, {totals.characters:,} characters"),
        ("pretokens", f"{totals.pretokens:,}"),
        ("added tokens", f"{sum(counts.added.values()):,} in the text"),
    ]
    summary = {"out": str(out), **asdict(totals), "added_tokens": dict(counts.added), "warnings": warnings}
    print_result(options, summary, rows)
    if not options.json:
        say(f"wrote `{out}`", options)
    print_warnings(warnings)
    return 0
