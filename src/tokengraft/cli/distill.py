"""`tokengraft distill`."""

import argparse
import json
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tokengraft.cli.display import print_table
from tokengraft.cli.hardware import add_hardware
from tokengraft.cli.interrupt import resumable
from tokengraft.cli.options import Commands, add_json, input_paths, number, require, say, size
from tokengraft.cli.progress import one_stage
from tokengraft.cli.reading import add_text_read_options, text_read_options_of
from tokengraft.errors import escaped
from tokengraft.output.atomic import require_distinct
from tokengraft.train.distill import DistillOptions, distill
from tokengraft.train.distill_result import Distillation


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    defaults = DistillOptions()
    command = commands.add_parser(
        "distill",
        help="learn the rows of new tokens from what the model makes of their pieces (needs torch)",
        description="Learn the embedding rows of new tokens so that the hidden states of the model after a new token "
        "are those after its pieces (Token Distillation), on snippets of text. The model is frozen: only rows of new "
        "tokens change. An interrupted run goes on when the same command is called again.",
    )
    command.add_argument("model", type=Path, metavar="MODEL", help="model before its vocabulary was changed")
    command.add_argument("adapted", type=Path, metavar="ADAPTED", help="model after it, not trained yet")
    command.add_argument(
        "--corpus",
        action="extend",
        nargs="+",
        required=True,
        metavar="CORPUS",
        help="text to find snippets in, as for `tokengraft count`",
    )
    command.add_argument("--out", type=Path, metavar="PATH", help="output folder; must not exist")
    _add_numbers(command, defaults)
    add_hardware(command)
    command.add_argument("--dry-run", action="store_true", help="find snippets, show memory and time, write nothing")
    command.add_argument("--force", action="store_true", help="replace a folder that tokengraft wrote")
    add_json(command)
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _add_numbers(command: argparse.ArgumentParser, defaults: DistillOptions) -> None:
    for flag, kind, text in (
        ("--snippets", number, "snippets to find for each new token"),
        ("--min-snippets", number, "tokens with fewer snippets keep their rows"),
        ("--snippet-bytes", size, "length of a snippet"),
        ("--max-bytes", size, "text to search for snippets at most"),
        ("--passes", number, "how often the snippets are read"),
        ("--step-snippets", number, "snippets of one step, if their logits fit into memory"),
        ("--learning-rate", float, "highest, in units of the root mean square of the embedding"),
        ("--next-token-weight", float, "weight of the loss of the next token; at 1 both gradients are equally large"),
        ("--layer", int, "layer whose hidden states are compared; -1 is the last"),
        ("--seed", int, "order of the snippets"),
    ):
        default = getattr(defaults, flag[2:].replace("-", "_"))
        command.add_argument(flag, type=kind, default=default, metavar="N", help=f"{text} (default: {default})")


def _run(options: argparse.Namespace) -> int:
    require(options.dry_run or options.out is not None, "no output was given", hint="pass --out PATH, or --dry-run")
    require_distinct(input_paths([options.model, options.adapted], options.corpus), options.out)
    chosen = DistillOptions(**{name: getattr(options, name) for name in DistillOptions.__dataclass_fields__})
    with _resumable(options), one_stage("distilling", quiet=options.quiet, unit="share") as progress:
        done = distill(
            options.model,
            options.adapted,
            options.corpus,
            None if options.dry_run else options.out,
            options=chosen,
            read_options=text_read_options_of(options),
            force=options.force,
            on_plan=None if options.quiet else _announce,
            progress=progress,
        )
    if options.json:
        print(json.dumps(done.as_dict()))
    else:
        print_table(_rows(done))
    if not options.dry_run:
        say(f"wrote `{options.out}`", options)
    return 0


def _resumable(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Says what an interrupted run keeps."""
    if options.out is None:
        return nullcontext()
    whole = options.out.resolve()
    return resumable(whole.with_name(whole.name + ".work"), options.arguments, "the state of the last saved step")


def _announce(planned: Distillation) -> None:
    for label, text in _rows(planned):
        print(escaped(f"{label}: {text}"), file=sys.stderr)


def _rows(done: Distillation) -> list[tuple[str, str]]:
    rows = [
        ("rows", f"{done.learned:,} learned, {done.rare:,} with too few snippets keep theirs"),
        ("snippets", f"{done.snippets:,}: {done.new_tokens:,} new tokens for {done.old_tokens:,} old ones"),
        ("steps", f"{done.steps:,} on {done.device}, about {done.seconds:,.0f} s and {done.memory / 1e9:,.1f} GB"),
    ]
    if done.hidden_before is not None and done.hidden_after is not None:
        rows.append(("hidden states", f"{done.hidden_before:.3f} → {done.hidden_after:.3f} of the variance is missed"))
        rows.append(("next token", f"{done.next_token_before:.3f} → {done.next_token_after:.3f} nats per token"))
    return rows
