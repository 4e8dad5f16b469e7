"""`tokengraft transplant`."""

import argparse
import json
from pathlib import Path

from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.table import TransplantOptions
from tokengraft.checkpoint.transplant import transplant
from tokengraft.cli.commands import given, input_paths, options_in, print_result, print_table, print_warnings, say
from tokengraft.errors import UnsupportedTokenizerError, require
from tokengraft.formats import load
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.progress import one_stage
from tokengraft.tokenizer.marks import JOINER
from tokengraft.tokenizer.rewrite import TOKENIZER_JSON
from tokengraft.vocab_plan import PlanSummary, plan

_HOLE_ROWS = {"zero": "zeros", "lowest": "the mean of kept rows, never the most likely"}


def run_transplant(options: argparse.Namespace) -> int:
    """Runs the command."""
    facts = ["weights", *(["a random initialiser"] if "random" in (options.init, options.output_init) else [])]
    found = given("transplant", options, *facts)
    require(options.dry_run or options.out is not None, "no output was given", hint="pass --out PATH, or --dry-run")
    if options.out is not None:  # also for a dry run, which must fail where the real run would
        require_new(options.out, force=options.force)
        require_distinct(input_paths([options.model, options.tokenizer, options.base]), options.out)
    if options.dry_run:
        model, suffixes = options.model, {".safetensors", ".gguf", ".bin", ".pt", ".pth"}  # supported or not
        if not any(path.suffix in suffixes for path in (model.iterdir() if model.is_dir() else [model])):
            return _show_plan(options)
    _require_marks_loaded(Path(options.model), Path(options.tokenizer))
    with one_stage("writing", quiet=options.quiet or options.dry_run) as progress:
        done = transplant(
            options.model,
            options.tokenizer,
            None if options.dry_run else options.out,
            base=options.base,
            as_adapter=options.as_adapter,
            force=options.force,
            options=options_in(TransplantOptions, found | {"progress": progress}),
        )
    if options.json:
        print(json.dumps(done.as_dict()))
    else:
        print_table(_rows(done, hard_link=options.hard_link))
    if not options.dry_run:
        say(f"wrote `{options.out}`", options)
    return 0


def _require_marks_loaded(model: Path, tokenizer: Path) -> None:
    """Refuses a tokenizer that keeps words with marks whole, if the class of the model's type cuts them."""
    file = tokenizer / TOKENIZER_JSON
    if not file.is_file() or JOINER not in file.read_bytes():  # most are not joined: they are not loaded for this
        return
    from tokengraft.verify.joined_marks import marks_loaded  # the checks need most of the package

    for finding in marks_loaded(load(tokenizer), model):
        if finding.outcome == "fail":
            raise UnsupportedTokenizerError(finding.detail, hint=finding.fix)
        if finding.outcome == "note":
            print_warnings([f"{finding.name}: {finding.detail}"])


def _show_plan(options: argparse.Namespace) -> int:
    """Prints which rows are kept, moved, added and removed, if MODEL is only a tokenizer."""
    summary = plan(load(options.model), load(options.tokenizer)).summary
    unused = f", {summary.unused:,} of them without a token" if summary.unused else ""
    rows = [_token_row(summary), ("embedding rows", f"{summary.rows_before:,} → {summary.rows_after:,}{unused}")]
    print_result(options, summary._asdict(), rows)
    if not options.json:
        say(f"`{options.model}` has no weights: this is the change of the vocabulary", options)
    return 0


def _token_row(summary: PlanSummary) -> tuple[str, str]:
    counts = f"{summary.kept:,} kept, {summary.moved:,} moved, {summary.added:,} new, {summary.removed:,} removed"
    return "tokens", counts


def of_adapter(done: Transplant) -> str:
    """The number of rows that an adapter has, with their tables and size."""
    tables = [table for table in done.tensors if not (done.tied and table[1] == "output")]
    names = " and ".join(name.removesuffix(".weight").rpartition(".")[2] for name, *_ in tables)
    size = len(done.adapter_rows) * sum(table[3] // done.rows_before for table in tables)
    return f"{len(done.adapter_rows):,} rows of {names}, {size / 1e6:,.1f} MB"


def _rows(done: Transplant, *, hard_link: bool) -> list[tuple[str, str]]:
    summary = done.plan.summary
    saved = sum(before - after for *_, before, after in done.tensors)
    rows = [
        _token_row(summary),
        ("embedding rows", f"{done.rows_before:,} → {done.rows_after:,}"),
        ("tables", f"{', '.join(name for name, *_ in done.tensors) or 'none'}; {'tied' if done.tied else 'untied'}"),
        ("tables found by", done.found_by),
        ("new rows", f"{done.init[0]}" if done.tied else f"{done.init[0]} for input, {done.init[1]} for output"),
        ("size", f"{-saved / 1e6:+,.1f} MB"),
    ]
    if done.adapter_rows:
        rows[-1] = ("adapter", of_adapter(done))
    if done.suppressed:
        filled = f"{done.unused:,} rows: {_HOLE_ROWS[done.hole_rows]}; " if done.unused else ""
        rows.append(("without a token", f"{filled}{done.suppressed:,} ids are suppressed"))
    if done.copied:
        rows.append(("unchanged files", f"{len(done.copied):,} other weight files"))
    if done.carried:
        names = ", ".join(f"`{name}`" for name in done.carried)
        rows.append(("kept files", f"{names}: the new tokenizer does not have them"))
    rows += [("left out", f"`{name}`: it belongs to the old vocabulary") for name in done.left_out]
    rows += [("warning", warning) for warning in done.warnings]
    if hard_link:
        rows.append(("warning", "unchanged files are hard links: writing to them in place changes the source too"))
    if done.compared and not done.adapter_rows:
        compared = done.compared
        text = f"{compared.kept_rows:,} kept rows and {compared.untouched_tensors:,} tensors are unchanged"
        rows.append(("files compared", f"{text}, {compared.new_rows:,} rows are new"))
    if behaviour := done.behaviour:
        text = f"logits of kept tokens differ by at most {behaviour.worst:.1e} of the largest logit"
        rows.append(("models compared", text))
        if behaviour.old_text or behaviour.new_text:
            rows += [("old output", behaviour.old_text), ("new output", behaviour.new_text)]
    return rows
