"""What `tokengraft adapt` shows: the result, how it was measured, what to do next, and the estimate of a dry run."""

import argparse
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from tokengraft.adapt.estimate import Estimate
from tokengraft.adapt.result import Adaptation
from tokengraft.check.finding import Check
from tokengraft.cli.display import print_columns, print_table, print_warnings
from tokengraft.cli.extended import guarantees
from tokengraft.cli.options import say


def show_result(result: Adaptation, options: argparse.Namespace) -> None:
    """Prints the result to stdout, and warnings, notes and next steps to stderr."""
    if options.json:
        print(json.dumps(result.as_dict(), ensure_ascii=False))
    else:
        print_table(_rows(result, options))
        _print_scores(result, wide=options.wide)
    print_warnings(result.warnings)
    for note in dict.fromkeys((*result.evaluation.notes, *(result.test.notes if result.test else ()))):
        say(f"note: {note}", options)
    say(f"\nwrote `{options.out}`", options)
    for step in _next_steps(result, Path(options.out)):
        say(f"  {step}", options)


def _rows(result: Adaptation, options: argparse.Namespace) -> Iterator[tuple[str, str]]:
    yield "tokens", _tokens(result)
    yield "rows", _embedding_rows(result)
    yield "checks", _checks(result.check)
    if result.transplant and result.transplant.compared:
        compared = result.transplant.compared
        yield "weights", f"{compared.kept_rows:,} kept rows and {compared.untouched_tensors:,} tensors unchanged"
    if result.extension:
        yield from guarantees(result.extension, result.choice)
        if result.extension.refused:
            asked = options.preserve or options.preserve_keep
            text = "the preserved text" if asked else "the check text of llama.cpp's converter, which keeps its ids"
            yield "refused", f"{len(result.extension.refused):,} candidates that occur in {text}"


def _tokens(result: Adaptation) -> str:
    """The numbers of tokens. A token that is learned again after it was pruned is not new."""
    summary = result.plan.summary
    numbers = f"{summary.added:,} new, {summary.removed:,} removed, {summary.kept + summary.moved:,} kept"
    learned = len(result.extension) if result.extension else 0
    if learned == summary.added:
        return numbers
    back = f"of which {learned - summary.added:,} had been pruned and got their ids back"
    return f"{numbers}; {learned:,} learned, {back}"


def _embedding_rows(result: Adaptation) -> str:
    needed = (result.plan.rows_before, result.plan.rows_after)
    padding = f", of which tokens need {needed[0]:,} → {needed[1]:,}" if result.rows != needed else ""
    return f"{result.rows[0]:,} → {result.rows[1]:,}{padding}"


def _checks(result: Check) -> str:
    """The number of checks that passed, and the names of those that are notes. A result has no failures."""
    notes = [finding.name for finding in result.findings if finding.outcome == "note"]
    if not notes:
        return f"all {len(result.findings)} passed"
    return f"{len(result.findings) - len(notes)} passed, {len(notes)} note{'s' * (len(notes) > 1)}: {', '.join(notes)}"


def _print_scores(result: Adaptation, *, wide: bool) -> None:
    more = "" if result.test else "; other text usually gains less: measure it with --test NAME=FILES"
    print(f"\nOn held-out documents of the corpora{more}")
    print_columns(*result.evaluation.table(wide=wide))
    if result.test:
        print("\nOn test text")
        print_columns(*result.test.table(wide=wide))
    if len(result.targets) > 1:
        print()
        cells = [[name, f"{target.gain or 0:+.1%}", f"{target.tokens:,}"] for name, target in result.targets.items()]
        print_columns(["target", "gain on held-out text", "new tokens most frequent here"], cells)


def _next_steps(result: Adaptation, out: Path) -> Iterator[str]:
    """What to do with the result."""
    report, training = out / "report.html", out / "training.json"
    if report.exists():
        yield f"open `{report}` in a browser"
    if not result.transplant:
        yield f"load the tokenizer: `AutoTokenizer.from_pretrained({str(out)!r})`"
        yield f"give a checkpoint its rows: `tokengraft transplant MODEL {shlex.quote(str(out))} --out NEW_MODEL`"
        return
    if result.plan.summary.added:
        settings = f"; `{training}` has the ids of the new rows and settings to start from" if training.exists() else ""
        yield f"train the model before you use it: new rows are only initialised{settings}"
    yield f"load it: `AutoModelForCausalLM.from_pretrained({str(out)!r})`, and `AutoTokenizer` in the same way"


def show_estimate(estimated: Estimate, options: argparse.Namespace) -> None:
    """Prints the estimate of a dry run."""
    if options.json:
        print(json.dumps(asdict(estimated), ensure_ascii=False))
    else:
        weights = (
            f"{estimated.weights_bytes / 1e6:,.1f} MB"
            if estimated.weights_bytes
            else "none: only the tokenizer is adapted"
        )
        rows = [
            ("rows", f"{estimated.rows_before:,} → {estimated.rows_after:,}"),
            ("text", f"{estimated.text_bytes / 1e6:,.1f} MB on disk"),
            ("weights", weights),
            ("parameters", f"{estimated.parameters_added:+,}"),
            ("memory", f"about {estimated.memory_bytes / 1e9:,.1f} GB"),
            ("time", f"about {estimated.seconds:,.0f} s"),
            ("would write", options.out),
        ]
        print_table(rows)
    print_warnings(estimated.warnings)
