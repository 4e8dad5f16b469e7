"""`tokengraft transplant`."""

import argparse
import json
from contextlib import suppress
from pathlib import Path

from tokengraft.checkpoint.padding import PadMultiple
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.checkpoint.transplant import transplant
from tokengraft.cli.display import print_table
from tokengraft.cli.options import Commands, add_json, input_paths, number, require, say
from tokengraft.cli.progress import one_stage
from tokengraft.cli.rows import add_hole_rows
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.output.atomic import require_distinct, require_new


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "transplant",
        help="give a checkpoint the vocabulary of another tokenizer",
        description="Write a checkpoint whose embeddings and configs fit another tokenizer, without loading the model. "
        "Kept rows are copied bit for bit, new rows are initialised, and ids in configs are rewritten. The result is "
        "compared with the source, then renamed into place.",
    )
    command.add_argument(
        "model", type=Path, metavar="MODEL", help="folder with safetensors and the old tokenizer, or a GGUF file"
    )
    command.add_argument("tokenizer", metavar="NEW_TOKENIZER", help="the new tokenizer: folder, file, or hub name")
    command.add_argument("--out", type=Path, metavar="PATH", help="output folder, or GGUF file; must not exist")
    command.add_argument(
        "--base",
        metavar="TOKENIZER",
        help="for a GGUF file: the tokenizer that it was converted with, to compare with that in the file",
    )
    command.add_argument(
        "--init", choices=tuple(INITIALISERS), default="fvt", help="initialiser for new embedding rows (default: fvt)"
    )
    command.add_argument(
        "--output-init",
        choices=tuple(INITIALISERS),
        help="initialiser for new rows of an untied output (default: as --init, but fvt if that rescales rows)",
    )
    command.add_argument(
        "--counts",
        action="extend",
        nargs="+",
        type=Path,
        metavar="FILE",
        help="for the initialiser context: counts from `tokengraft count`",
    )
    add_hole_rows(command)
    command.add_argument(
        "--pad-multiple",
        type=_multiple,
        default="keep",
        metavar="N",
        help="make the number of rows a multiple of N; keep: keep the current padding (default: keep)",
    )
    command.add_argument("--seed", type=int, default=0, metavar="N", help="seed for random initialisers (default: 0)")
    command.add_argument(
        "--hard-link",
        action="store_true",
        help="hard-link unchanged files to the source; writing to them in place then changes both",
    )
    command.add_argument("--verify", action="store_true", help="also run both models and compare logits (needs torch)")
    command.add_argument("--dry-run", action="store_true", help="show what would be done, write nothing")
    command.add_argument("--force", action="store_true", help="replace the output of an earlier transplant")
    add_json(command)
    command.set_defaults(run=_run)


_HOLE_ROWS = {"zero": "zeros", "lowest": "the mean of kept rows, never the most likely"}


def _counts(paths: list[Path] | None) -> PretokenCounts | None:
    if not paths:
        return None
    parts = [PretokenCounts.load(path) for path in paths]
    return sum(parts[1:], parts[0])


def _multiple(text: str) -> PadMultiple:
    if text == "keep":
        return "keep"
    with suppress(argparse.ArgumentTypeError):
        if 0 < number(text) <= 1 << 20:
            return number(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a valid multiple; pass a number such as 64 or 128, or keep")


def _run(options: argparse.Namespace) -> int:
    require(options.dry_run or options.out is not None, "no output was given", hint="pass --out PATH, or --dry-run")
    if options.out is not None:  # also for a dry run, which must fail where the real run would
        require_new(options.out, force=options.force)
        require_distinct(input_paths([options.model, options.tokenizer, options.base], options.counts), options.out)
    with one_stage("writing", quiet=options.quiet or options.dry_run) as progress:
        done = transplant(
            options.model,
            options.tokenizer,
            None if options.dry_run else options.out,
            base=options.base,
            init=options.init,
            output_init=options.output_init,
            hole_rows=options.hole_rows,
            counts=_counts(options.counts),
            pad_multiple=options.pad_multiple,
            hard_link=options.hard_link,
            seed=options.seed,
            force=options.force,
            verify=options.verify,
            progress=progress,
        )
    if options.json:
        print(json.dumps(done.as_dict()))
    else:
        print_table(_rows(done, hard_link=options.hard_link))
    if not options.dry_run:
        say(f"wrote `{options.out}`", options)
    return 0


def _rows(done: Transplant, *, hard_link: bool) -> list[tuple[str, str]]:
    summary = done.plan.summary
    saved = sum(before - after for *_, before, after in done.tensors)
    rows = [
        (
            "tokens",
            f"{summary.kept:,} kept, {summary.moved:,} moved, {summary.added:,} new, {summary.removed:,} removed",
        ),
        ("embedding rows", f"{done.rows_before:,} → {done.rows_after:,}"),
        ("tables", f"{', '.join(name for name, *_ in done.tensors)}; {'tied' if done.tied else 'untied'}"),
        ("tables found by", done.found_by),
        ("new rows", f"{done.init[0]}" if done.tied else f"{done.init[0]} for input, {done.init[1]} for output"),
        ("size", f"{-saved / 1e6:+,.1f} MB"),
    ]
    if done.unused:
        rows.append(("without a token", f"{done.unused:,} rows: {_HOLE_ROWS[done.hole_rows]}, and suppressed"))
    if done.copied:
        rows.append(("unchanged files", f"{len(done.copied):,} other weight files"))
    if done.carried:
        rows.append(
            ("kept files", f"{', '.join(f'`{name}`' for name in done.carried)}: the new tokenizer does not have them")
        )
    rows += [("left out", f"`{name}`: it belongs to the old vocabulary") for name in done.left_out]
    rows += [("warning", warning) for warning in done.warnings]
    if hard_link:
        rows.append(("warning", "unchanged files are hard links: writing to them in place changes the source too"))
    if done.compared:
        compared = done.compared
        text = f"{compared.kept_rows:,} kept rows and {compared.untouched_tensors:,} tensors are unchanged"
        rows.append(("files compared", f"{text}, {compared.new_rows:,} rows are new"))
    if behaviour := done.behaviour:
        rows.append(
            ("models compared", f"logits of kept tokens differ by at most {behaviour.worst:.1e} of the largest logit")
        )
        rows += [("old output", behaviour.old_text), ("new output", behaviour.new_text)]
    return rows
