"""`tokengraft adapt`."""

import argparse
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from tokengraft import __version__
from tokengraft.checkpoint.model_card import CAUSAL, SENTENCES, model_class
from tokengraft.cli import learning, reading
from tokengraft.cli.check import add_stacks
from tokengraft.cli.display import print_columns, print_note, print_result, print_scores, print_warnings
from tokengraft.cli.extended import guarantees, preserved_rows, print_curve, removed_rows, sample_rows
from tokengraft.cli.main import resumable
from tokengraft.cli.options import (
    AUTO,
    Commands,
    add_output,
    add_protection,
    add_wide,
    command_line,
    given,
    lines_of,
    number_or,
    require,
    say,
)
from tokengraft.cli.transplant import AS_ADAPTER, add_hole_rows, add_initialisers, of_adapter
from tokengraft.formats import load
from tokengraft.measure.choose_size import SizeOptions
from tokengraft.pipeline.adapt import Estimate, adapt, estimate
from tokengraft.pipeline.cache import WITHOUT_EFFECT
from tokengraft.pipeline.options import KEEP, AdaptOptions, Target, new_job, shown_name, work_folder
from tokengraft.pipeline.record import read_record, repeat_of, require_unchanged
from tokengraft.pipeline.result import Adaptation
from tokengraft.pipeline.training import next_step
from tokengraft.pruning.coverage import COVERAGE
from tokengraft.pruning.removable import Protection
from tokengraft.verify.against_base import PRESERVED
from tokengraft.verify.finding import Check

HINT_WIDTH = 98
"""A line about what to do next has at most so many characters. The report has commands that are longer."""
_OF_OUTPUT = ("out", "force", "json", "quiet", "wide", "keep_work", "dry_run", "from_record")
_NOT_RECORDED = (*_OF_OUTPUT, "workers", "memory", "engine", "address")
"""Options that do not change the result."""


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "adapt",
        help="adapt a model to text: prune, extend, check, measure, transplant",
        description="The complete pipeline: count the text, prune tokens that it rarely uses, learn new ones, check "
        "the result, measure it on held-out documents, and transplant the checkpoint. An interrupted run resumes when "
        "it is started again with the same options.",
        first="--target --keep --test --swap --add --remove --preserve-keep --for --text-field --from-record --dry-run "
        "--out --force --json",
    )
    command.add_argument("model", nargs="?", metavar="MODEL", help="model folder with weights, or a tokenizer")
    command.add_argument(
        "--target",
        action="append",
        nargs="+",
        metavar="TEXT",
        help="text to learn from: FILES, or NAME=FILES:WEIGHT; repeat it for several. Each gets a share of the mix by "
        "its WEIGHT (default: 1), not by its size",
    )
    command.add_argument(
        "--keep",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="text whose tokens should be kept: FILES, or NAME=FILES for several; all together have the same weight as "
        "all targets together",
    )
    command.add_argument(
        "--test",
        action="extend",
        nargs="+",
        metavar="NAME=FILES",
        help="text to measure the result on, besides held-out documents of the corpora",
    )
    _add_sizes(command)
    learning.add_learning(command)
    command.add_argument(
        "--preserve-keep",
        action="store_true",
        help="preserve the text of --keep too, as by --preserve. In `adapt`, tokens of preserved text are not pruned; "
        "its ids change if more tokens are removed than added",
    )
    learning.add_size(command)
    add_protection(command)
    command.add_argument(
        "--by-merges", action="store_true", help="prune by the paper's counts, which turn merge skipping off"
    )
    add_stacks(command, "serving stack that should be able to use the result")
    add_initialisers(command)
    command.add_argument("--as-adapter", action="store_true", help=AS_ADAPTER)
    command.add_argument("--seed", type=int, metavar="N", help="seed for random initialisers (default: 0)")
    add_hole_rows(command)
    command.add_argument(
        "--no-report",
        dest="report",
        action="store_const",
        const=False,
        help="do not write report.html, a page about the result",
    )
    command.add_argument(
        "--keep-work",
        metavar="DIR",
        help="also write the results of the single steps: counts, held-out documents, prune order, extension, and the "
        "pruned tokenizer",
    )
    command.add_argument(
        "--from-record",
        metavar="FILE",
        help="repeat the request in an adaptation.json or tokengraft.json, if its inputs are unchanged; only options "
        "for the output can be given besides",
    )
    command.add_argument("--dry-run", action="store_true", help="check everything, show an estimate, write nothing")
    add_wide(command)
    add_output(command, "folder for the adapted model")
    reading.add_read_options(command)
    reading.add_engine(command)
    # Held-out documents must be small compared to the text, so one document per line is the default here.
    command.set_defaults(run=partial(_run, command), documents="lines")


def _add_sizes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--swap",
        type=number_or(AUTO),
        default=0,
        metavar=f"{AUTO}|N",
        help=f"replace N tokens: prune N, learn N new ones, which take their ids; no shape changes. `{AUTO}` chooses "
        "N: as many as the text supports and held-out documents gain from",
    )
    command.add_argument(
        "--add",
        type=number_or(AUTO),
        default=0,
        metavar=f"{AUTO}|N",
        help=f"learn N tokens; `{AUTO}` chooses N as for --swap",
    )
    command.add_argument(
        "--remove",
        type=number_or(AUTO),
        default=0,
        metavar=f"{AUTO}|N",
        help="prune N tokens; ids are renumbered without holes if fewer are added. "
        f"`{AUTO}`: as many as held-out documents can do without",
    )
    command.add_argument(
        "--keep-coverage",
        type=float,
        metavar="SHARE",
        help=f"with --remove {AUTO}: the share of tokens that stay, as for `prune` (default: {COVERAGE})",
    )


def targets_of(occurrences: Sequence[Sequence[str]]) -> dict[str, Target]:
    """The targets given by --target: ``[["et=et/*.parquet:2"]] -> {"et": Target("et/*.parquet", "2")}``."""
    return {name: Target(*pair) for name, pair in reading.weighted_texts(occurrences).items()}


def _run(command: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    arguments = _recorded(command, options) if options.from_record else _given(command, options)
    chosen: AdaptOptions = arguments.pop("options")
    chosen = replace(chosen, force=options.force, quiet=options.quiet, keep_work=options.keep_work)
    if options.dry_run:
        _show_estimate(estimate(**arguments, out=options.out, options=chosen), options)
        return 0
    with resumable(work_folder(Path(options.out)), options.arguments, "counts of text that was read"):
        result = adapt(**arguments, out=options.out, options=chosen)
    _show_result(result, options)
    return 0


def _given(command: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `adapt` that the command line has."""
    if options.model is None or not options.target:
        missing = [name for name, value in (("MODEL", options.model), ("--target", options.target)) if not value]
        command.error(f"required: {', '.join(missing)}; MODEL is before options that take several files")
    sizes = {"swap": options.swap, "add": options.add, "remove": options.remove}
    texts = {"target": targets_of(options.target), "keep": reading.kept_texts(options.keep, KEEP)}
    chosen = replace(_adapt_options(options), command=command_line(command, options, _NOT_RECORDED))
    return {"source": options.model, **texts, **sizes, "options": chosen}


def _recorded(command: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `adapt` that a record has, after refusing other options and inputs that have changed."""
    for action in command._actions:
        name = action.option_strings[0] if action.option_strings else action.metavar
        changed = getattr(options, action.dest, None) != command.get_default(action.dest)
        was_given = changed or (action.option_strings and action.dest in options.given)
        require(
            not was_given or action.dest in (*_NOT_RECORDED, "help"),
            f"{name} was given together with --from-record, which has all options",
            hint=f"drop {name}, or drop --from-record and give all options",
        )
    record = read_record(options.from_record)
    arguments = repeat_of(record)
    sizes = tuple(arguments.get(name, 0) for name in ("add", "remove", "swap"))
    keep, chosen = arguments["keep"] or None, arguments["options"]
    job = new_job(arguments["source"], arguments["target"], keep, options.out, sizes, chosen)
    print_warnings(_not_compared(require_unchanged(job, record["inputs"]), record))
    here = reading.count_options_of(options)
    here = replace(chosen.count_options, **{name: getattr(here, name) for name in WITHOUT_EFFECT})
    return arguments | {"options": replace(chosen, count_options=here)}


def _not_compared(inputs: Sequence[str], record: Mapping[str, Any]) -> Iterator[str]:
    """Warnings if the result may differ from the recorded one."""
    yield from (f"the record has no hash of {name}: it may have changed" for name in inputs)
    made_by = dict(record.get("versions") or {}).get("tokengraft")
    if made_by != __version__:
        yield f"the record was made by tokengraft {made_by}, and this is {__version__}: the result may differ"


def _adapt_options(options: argparse.Namespace) -> AdaptOptions:
    names = (
        "as_adapter",
        "init",
        "output_init",
        "hole_rows",
        "seed",
        "by_merges",
        "preserve",
        "preserve_keep",
        "preserve_exactly",
    )
    return AdaptOptions(
        **given(options, *names, "balance", "max_share", "keep_coverage"),
        read_options=reading.read_options_of(options, load(options.model) if options.rule else None),
        count_options=reading.count_options_of(options),
        protection=Protection(
            tokens=lines_of(options.protect, "--protect"),
            pattern=options.protect_pattern,
            defaults=not options.no_protect_defaults,
        ),
        limits=learning.limits_of(options),
        test=reading.texts_of(options.test, "--test") if options.test else None,
        include=learning.word_list_of(options),
        parity_text=reading.named_texts(options.parity_text, "--parity-text") if options.parity_text else None,
        keep_llama_cpp_hash=options.keep_llama_cpp_hash,
        stacks=tuple(options.stacks),
        **_size(options),
        report=options.report,
    )


def _size(options: argparse.Namespace) -> dict[str, Any]:
    """How to choose the number of tokens, if it is not given."""
    if AUTO not in (options.add, options.swap):
        learning.require_no_size(options, *learning.SIZE)
        return {} if options.training_text is None else {"size": SizeOptions(**learning.size_options(options))}
    return {"size": SizeOptions(**learning.size_options(options)), "max_add": learning.max_add_of(options)}


def _show_result(result: Adaptation, options: argparse.Namespace) -> None:
    """Prints the result to stdout, and warnings, notes and next steps to stderr."""
    print_result(options, result.as_dict(), _rows(result))
    if not options.json:
        _print_scores(result, wide=options.wide)
        if result.prune_curve:
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
    yield "rows", _embedding_rows(result)
    if saved := _saved(result):
        yield "saved", saved
    yield "checks", _checks(result.check)
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
    learned = len(result.extension) if result.extension else 0
    if learned == summary.added:
        return numbers
    back = f"of which {learned - summary.added:,} had been pruned and got their ids back"
    return f"{numbers}; {learned:,} learned, {back}"


def _embedding_rows(result: Adaptation) -> str:
    needed = (result.plan.rows_before, result.plan.rows_after)
    padding = f", of which tokens need {needed[0]:,} → {needed[1]:,}" if result.rows != needed else ""
    return f"{result.rows[0]:,} → {result.rows[1]:,}{padding}"


def _saved(result: Adaptation) -> str:
    """What a smaller vocabulary saves: rows, and with weights, parameters and megabytes; empty if it is not smaller."""
    rows = result.rows[0] - result.rows[1]
    if rows <= 0:
        return ""
    parameters, n_bytes = result.transplant.growth if result.transplant else (0, 0)
    return f"{rows:,} rows" + (f", {-parameters:,} parameters, {-n_bytes / 1e6:,.1f} MB" if result.transplant else "")


def _checks(result: Check) -> str:
    """The number of checks that passed, and the names of those that are notes. A result has no failures."""
    notes = [finding.name for finding in result.findings if finding.outcome == "note"]
    if not notes:
        return f"all {len(result.findings)} passed"
    return f"{len(result.findings) - len(notes)} passed, {len(notes)} note{'s' * (len(notes) > 1)}: {', '.join(notes)}"


def _print_scores(result: Adaptation, *, wide: bool) -> None:
    print()
    print_scores(result.scores, wide=wide)
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
