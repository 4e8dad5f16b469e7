"""`tokengraft adapt`."""

import argparse
import json
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tokengraft.adapt import Adaptation, AdaptOptions, Estimate, Target, adapt, estimate
from tokengraft.check.finding import Check
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.cli.display import print_columns, print_table
from tokengraft.cli.extended import guarantees
from tokengraft.cli.learning import (
    AUTO,
    add_learning,
    add_size,
    limits_of,
    max_add_of,
    named_texts,
    number_of_tokens,
    require_no_size,
    size_options,
    word_list_of,
)
from tokengraft.cli.options import (
    Commands,
    add_engine,
    add_hole_rows,
    add_json,
    add_output,
    add_read_options,
    count_options_of,
    lines_of,
    read_options_of,
    require,
)
from tokengraft.cli.progress import bytes_read
from tokengraft.cli.stacks import add_stacks
from tokengraft.corpus import is_url
from tokengraft.evaluate.size import SizeOptions
from tokengraft.formats import load
from tokengraft.prune import Protection


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "adapt",
        help="adapt a model to text: prune, extend, check, measure, transplant",
        description="The complete pipeline: count the text, prune tokens that it rarely uses, learn new ones, check "
        "the result, measure it on held-out documents, and transplant the checkpoint. An interrupted run resumes when "
        "it is started again with the same options.",
    )
    command.add_argument("model", metavar="MODEL", help="model folder with weights, or a tokenizer")
    command.add_argument(
        "--target",
        action="append",
        required=True,
        metavar="TEXT",
        help="text to learn from: FILES, or NAME=FILES:WEIGHT; repeat it for several. Each gets a share of the mix by "
        "its WEIGHT (default: 1), not by its size",
    )
    command.add_argument(
        "--keep",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="text whose tokens should be kept; it has the same weight as all targets together",
    )
    _add_sizes(command)
    add_learning(command)
    command.add_argument(
        "--preserve-keep",
        action="store_true",
        help="preserve the text of --keep: its tokens are not pruned, and it keeps its tokens and ids",
    )
    add_size(command)
    command.add_argument("--protect", type=Path, metavar="FILE", help="tokens, one per line, that are not pruned")
    command.add_argument(
        "--protect-pattern", metavar="REGEX", help="do not prune tokens whose text matches it anywhere"
    )
    command.add_argument(
        "--by-merges", action="store_true", help="prune by the paper's counts, which turn merge skipping off"
    )
    add_stacks(command, "serving stack that should be able to use the result")
    command.add_argument("--init", choices=tuple(INITIALISERS), help="initialiser for new embedding rows (fvt)")
    command.add_argument(
        "--output-init",
        choices=tuple(INITIALISERS),
        help="initialiser for new rows of an untied output (default: as --init, but fvt if that rescales rows)",
    )
    add_hole_rows(command)
    command.add_argument(
        "--no-report",
        dest="report",
        action="store_const",
        const=False,
        help="do not write report.html, a page about the result",
    )
    command.add_argument("--dry-run", action="store_true", help="check everything, show an estimate, write nothing")
    add_output(command, "folder for the adapted model")
    add_json(command)
    add_read_options(command)
    add_engine(command)
    # Held-out documents must be small compared to the text, so one document per line is the default here.
    command.set_defaults(run=_run, documents="lines")


def _add_sizes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--swap",
        type=number_of_tokens,
        default=0,
        metavar="N",
        help="replace N tokens: prune N, learn N new ones, which take their ids; no shape changes",
    )
    command.add_argument(
        "--add",
        type=number_of_tokens,
        default=0,
        metavar="N",
        help=f"learn N tokens; `{AUTO}` for --add or --swap chooses N on held-out documents",
    )
    command.add_argument(
        "--remove",
        type=int,
        default=0,
        metavar="N",
        help="prune N tokens; ids are renumbered without holes if fewer are added",
    )


def targets_of(texts: list[str]) -> dict[str, Target]:
    """The targets given by --target: ``et=et/*.parquet:2 -> {"et": Target("et/*.parquet", "2")}``."""
    targets: dict[str, Target] = {}
    for at, text in enumerate(texts, start=1):
        name, equals, rest = text.partition("=")
        if not equals or "/" in name or Path(text).exists():
            name, rest = ("target" if len(texts) == 1 else f"target-{at}"), text
        # In a URL, a number after the name of the host is a port.
        source = ".*?://[^/]*/.*" if is_url(rest) else ".+"
        weighted = None if Path(rest).exists() else re.fullmatch(rf"({source}):([-+]?[\d.]+(?:/[-+]?[\d.]+)?)", rest)
        corpus, weight = (weighted[1], weighted[2]) if weighted else (rest, "1")
        require(
            name not in targets,
            f"two targets are called {name!r}",
            hint="give each target a different name: NAME=FILES",
        )
        targets[name] = Target(corpus, weight)
    return targets


def _run(options: argparse.Namespace) -> int:
    arguments = {"target": targets_of(options.target), "keep": options.keep, "out": options.out}
    arguments |= {"swap": options.swap, "add": options.add, "remove": options.remove}
    if options.dry_run:
        _show_estimate(estimate(options.model, **arguments, options=_adapt_options(options)), options)
        return 0
    with bytes_read("counting", quiet=options.quiet) as progress:
        chosen = _adapt_options(
            options,
            on_step=None if options.quiet else lambda what: print(what, file=sys.stderr),
            progress=progress,
        )
        result = adapt(options.model, **arguments, options=chosen)
    _show(result, options)
    return 0


def _adapt_options(options: argparse.Namespace, **callbacks: Any) -> AdaptOptions:
    return AdaptOptions(
        init=options.init,
        output_init=options.output_init,
        hole_rows=options.hole_rows,
        read_options=read_options_of(options, load(options.model) if options.rule else None),
        count_options=count_options_of(options, min_count=1),
        protection=Protection(tokens=lines_of(options.protect, "--protect"), pattern=options.protect_pattern),
        by_merges=options.by_merges,
        limits=limits_of(options),
        preserve=options.preserve,
        preserve_keep=options.preserve_keep,
        include=word_list_of(options),
        balance=options.balance or "weights",
        parity_text=named_texts(options.parity_text, "--parity-text") if options.parity_text else None,
        max_share=options.max_share,
        keep_llama_cpp_hash=options.keep_llama_cpp_hash,
        stacks=tuple(options.stacks),
        **_size(options),
        report=options.report,
        force=options.force,
        **callbacks,
    )


def _size(options: argparse.Namespace) -> dict[str, Any]:
    """How to choose the number of tokens, if it is not given."""
    if AUTO not in (options.add, options.swap):
        require_no_size(options)
        return {}
    return {"size": SizeOptions(**size_options(options)), "max_add": max_add_of(options)}


def _show(result: Adaptation, options: argparse.Namespace) -> None:
    if options.json:
        print(json.dumps(result.as_dict(), ensure_ascii=False))
    else:
        _print_result(result)
    page = Path(options.out) / "report.html"
    print(f"wrote `{options.out}`" + (f"; open `{page}`" if page.exists() else ""), file=sys.stderr)
    _print_warnings(result.warnings)
    for note in result.evaluation.notes:
        print(f"note: {note}", file=sys.stderr)


def _print_result(result: Adaptation) -> None:
    summary = result.plan.summary
    rows = [
        ("tokens", f"{summary.added:,} new, {summary.removed:,} removed, {summary.kept + summary.moved:,} kept"),
        ("rows", _rows(result)),
        ("checks", _checks(result.check)),
    ]
    if result.transplant and result.transplant.compared:
        compared = result.transplant.compared
        rows.append(
            ("weights", f"{compared.kept_rows:,} kept rows and {compared.untouched_tensors:,} tensors unchanged")
        )
    if result.extension:
        rows += guarantees(result.extension, result.choice)
        if result.extension.refused:
            rows.append(("refused", f"{len(result.extension.refused):,} candidates that occur in the preserved text"))
    print_table(rows)
    print()
    print_columns(*result.evaluation.table())
    if len(result.targets) > 1:
        print()
        cells = [[name, f"{target.gain or 0:+.1%}", f"{target.tokens:,}"] for name, target in result.targets.items()]
        print_columns(["target", "gain", "new tokens most frequent here"], cells)


def _rows(result: Adaptation) -> str:
    needed = (result.plan.rows_before, result.plan.rows_after)
    padding = f", of which tokens need {needed[0]:,} → {needed[1]:,}" if result.rows != needed else ""
    return f"{result.rows[0]:,} → {result.rows[1]:,}{padding}"


def _checks(result: Check) -> str:
    """The number of checks that passed, and the names of those that are notes. A result has no failures."""
    notes = [finding.name for finding in result.findings if finding.outcome == "note"]
    if not notes:
        return f"all {len(result.findings)} passed"
    return f"{len(result.findings) - len(notes)} passed, {len(notes)} note{'s' * (len(notes) > 1)}: {', '.join(notes)}"


def _show_estimate(estimated: Estimate, options: argparse.Namespace) -> None:
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
    _print_warnings(estimated.warnings)


def _print_warnings(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
