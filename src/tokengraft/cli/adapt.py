"""`tokengraft adapt`."""

import argparse
import shlex
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

from tokengraft.checkpoint.model_card import CAUSAL, SENTENCES, model_class
from tokengraft.cli.commands import print_columns, print_note, print_result, print_scores, print_warnings, say
from tokengraft.cli.edit import (
    guarantees,
    preserved_rows,
    print_curve,
    removed_rows,
    sample_rows,
)
from tokengraft.cli.main import resumable
from tokengraft.cli.transplant import of_adapter
from tokengraft.errors import require
from tokengraft.learn.special import given_rows
from tokengraft.options.option import given_options
from tokengraft.options.table import options_of
from tokengraft.options.values import AUTO
from tokengraft.pipeline.adapt import Estimate, adapt_request, estimate_request
from tokengraft.pipeline.request import OF_A_RUN, Recipe, commanded, read_recipe, shown_name, work_folder
from tokengraft.pipeline.result import Adaptation
from tokengraft.pipeline.write import next_step
from tokengraft.verify.against_base import PRESERVED

HINT_WIDTH = 98
"""A line about what to do next has at most so many characters. The report has commands that are longer."""


def run_adapt(options: argparse.Namespace) -> int:
    """Runs the command."""
    recipe = read_recipe(options.recipe) if options.recipe else Recipe()
    here = given_options(options_of("adapt"), options)
    model, given = options.model or recipe.model, {**recipe.given, **here}
    needed = (("MODEL", model), ("--target", given.keys() & {"target", "include", "special", "eos", "pad"}))
    missing = ", ".join(name for name, value in needed if not value)
    message = f"required: {missing}; MODEL is before options that take several files"
    require(not missing, message, "see `tokengraft adapt --help`")
    request = commanded("adapt", model, given)
    if recipe.command and not options.model and not here.keys() - OF_A_RUN:  # a record is repeated
        request = replace(request, command=recipe.command)
    if options.dry_run:
        _show_estimate(estimate_request(request), options)
        return 0
    with resumable(work_folder(Path(options.out)), options.arguments, "counts of text that was read"):
        result = adapt_request(request)
    _show_result(result, options)
    return 0


def _show_result(result: Adaptation, options: argparse.Namespace) -> None:
    """Prints the result to stdout, and warnings, notes and next steps to stderr."""
    print_result(options, result.as_dict(), _rows(result))
    if not options.json and result.scores.scores:
        _print_scores(result)
    if not options.json and result.prune_curve:
        print_curve(result.prune_curve, len(result.order or ()))
    print_warnings(result.warnings)
    for note in result.scores.notes:
        say(f"note: {note}", options)
    say(f"\nwrote `{options.out}`", options)
    for step in _next_steps(result, Path(options.out)):
        say(f"  {step}", options)


def _rows(result: Adaptation) -> Iterator[tuple[str, str]]:
    yield "tokens", _tokens(result)
    if result.covered:
        yield "size", result.covered
    before, after = result.rows
    needed = (result.plan.rows_before, result.plan.rows_after)
    padding = f", of which tokens need {needed[0]:,} → {needed[1]:,}" if result.rows != needed else ""
    yield "rows", f"{before:,} → {after:,}{padding}"
    yield from given_rows(result.base, result.tokenizer, before if result.transplant else None)
    if after < before:
        parameters, n_bytes = result.transplant.growth if result.transplant else (0, 0)
        more = f", {-parameters:,} parameters, {-n_bytes / 1e6:,.1f} MB" if result.transplant else ""
        yield "saved", f"{before - after:,} rows{more}"
    findings = result.check.findings  # a result has no failures
    notes = [finding.name for finding in findings if finding.outcome == "note"]
    passed = f"{len(findings) - len(notes)} passed, {len(notes)} note{'s' * (len(notes) > 1)}: {', '.join(notes)}"
    yield "checks", passed if notes else f"all {len(findings)} passed"
    if result.transplant and result.transplant.compared:
        compared = result.transplant.compared
        unchanged = f"{compared.kept_rows:,} kept rows and {compared.untouched_tensors:,} tensors unchanged"
        yield ("adapter", of_adapter(result.transplant)) if result.transplant.adapter_rows else ("weights", unchanged)
    if result.extension:
        yield from guarantees(result.extension, result.choice)
        if result.cost:
            moved = any(each.name == PRESERVED and each.outcome == "note" for each in result.check.findings)
            yield from preserved_rows(result.extension, result.cost, "tokens" if moved else "ids")
        elif result.extension.refused:
            text = "the check text of llama.cpp's converter, which keeps its ids"
            yield "refused", f"{len(result.extension.refused):,} candidates that occur in {text}"
    yield from removed_rows(result.removed, result.order.kept if result.order else {})
    if result.kept_cost:
        costs = ", ".join(f"{shown_name(name, 'keep')} {cost:+.2%} tokens" for name, cost in result.kept_cost.items())
        yield "expected cost", f"in other text like the kept: {costs}"
    yield from sample_rows(result.samples)


def _tokens(result: Adaptation) -> str:
    """The numbers of tokens. A token that is learned again after it was pruned is not new."""
    summary = result.plan.summary
    numbers = f"{summary.added:,} new, {summary.removed:,} removed, {summary.kept + summary.moved:,} kept"
    given = [token for token in result.tokenizer.added if token.content not in result.base.ids]
    learned = len(given) + (len(result.extension) if result.extension else 0)
    if learned == summary.added:
        return numbers
    back = f"of which {learned - summary.added:,} had been pruned and got their ids back"
    return f"{numbers}; {learned:,} learned, {back}"


def _print_scores(result: Adaptation) -> None:
    print()
    print_scores(result.scores, wide=False)
    measured = "texts without (test) are" if result.test else "measured on"
    more = "" if result.test else ": measure it with --test NAME=FILES"
    print_note(f"{measured} held-out documents of the corpora; other text usually gains less{more}")
    if len(result.targets) > 1:
        print()
        cells = [[name, f"{target.tokens:,}"] for name, target in result.targets.items()]
        print_columns(["target", "new tokens most frequent here"], cells)


def _next_steps(result: Adaptation, out: Path) -> Iterator[str]:
    """What to do with the result."""
    report = out / "report.html"
    if report.exists():
        yield f"open `{report}` in a browser"
    if result.transplant and result.transplant.adapter_rows:
        yield f"load it: `PeftModel.from_pretrained(base, {str(out)!r})`, with `base` from `{CAUSAL}`"
    elif result.transplant:
        kind = model_class(out)
        if kind == SENTENCES:
            yield f"load it: `{kind}({str(out)!r})`"
        else:
            yield f"load it: `{kind}.from_pretrained({str(out)!r})`; its tokenizer: `AutoTokenizer`"
    else:
        yield f"load the tokenizer: `AutoTokenizer.from_pretrained({str(out)!r})`"
    step = next_step(result, str(out))
    words = [shlex.quote(word) for word in step.command]
    if step.command[0] == "python":  # code in one long line
        yield f"{step.what}: the command is in the report"
        return
    if len(f"{step.what}: `{' '.join(words)}`") > HINT_WIDTH:
        words.append("…")
        while len(words) > 2 and len(f"{step.what}: `{' '.join(words)}`") > HINT_WIDTH:
            del words[-2]
    yield f"{step.what}: `{' '.join(words)}`"
    yield f"  {step.why}"


def _show_estimate(estimated: Estimate, options: argparse.Namespace) -> None:
    """Prints the estimate of a dry run."""
    weights = f"{estimated.weights_bytes / 1e6:,.1f} MB"
    most = f", less what --remove {AUTO} removes" if estimated.removes_auto else ""
    rows = [
        ("rows", f"{estimated.rows_before:,} → {estimated.rows_after:,}{most}"),
        ("text", f"{estimated.text_bytes / 1e6:,.1f} MB on disk"),
        ("weights", weights if estimated.weights_bytes else "none: only the tokenizer is adapted"),
        ("parameters", f"{estimated.parameters_added:+,}{most}"),
        ("memory", f"about {estimated.memory_bytes / 1e9:,.1f} GB"),
        ("time", f"about {estimated.seconds:,.0f} s"),
        ("would write", options.out),
    ]
    print_result(options, asdict(estimated), rows)
    print_warnings(estimated.warnings)
