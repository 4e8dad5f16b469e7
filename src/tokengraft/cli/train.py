"""`tokengraft train` and `tokengraft blend`."""

import argparse
import json
import os

from tokengraft.cli.commands import (
    given,
    options_in,
    print_columns,
    print_result,
    print_warnings,
    say,
    text_read_options_of,
)
from tokengraft.cli.main import resumable
from tokengraft.options.values import kept_texts, texts_by_name
from tokengraft.progress import one_stage
from tokengraft.training.options import TrainOptions


def run_train(options: argparse.Namespace) -> int:
    """Runs the command."""
    chosen = given("train", options)
    settings = options_in(TrainOptions, chosen | {"trainer": dict(options.trainer or ())})
    work = options.out.with_name(f"{options.out.name}.work")
    from tokengraft.training.train import train

    with resumable(work, options.arguments, "the state of the training"):
        done = train(
            options.adapted,
            kept_texts(options.text, "text") or {},
            out=options.out,
            keep=kept_texts(options.keep, "keep") or {},
            held_out=texts_by_name(options.held_out or (), "held_out"),
            options=settings,
            read_options=text_read_options_of(chosen),
            quiet=options.quiet,
        )
    if os.environ.get("RANK", "0") != "0":  # a launcher started several processes, and this is not the first
        return 0
    if options.json:
        print(json.dumps(done.as_dict(), ensure_ascii=False))
    else:
        print_columns(*done.table())
    print_warnings(done.warnings)
    say(f"wrote `{options.out}`; open `{options.out / 'training.html'}`", options)
    return 0


def run_blend(options: argparse.Namespace) -> int:
    """Runs the command."""
    from tokengraft.checkpoint.blend import blend

    with one_stage("writing", quiet=options.quiet) as progress:
        done = blend(
            options.trained,
            options.adapted,
            share=options.share,
            out=options.out,
            force=options.force,
            progress=progress,
        )
    rows = [
        ("blended", f"{1 - done.share:g} × trained + {done.share:g} × before training"),
        ("tensors", f"{done.tensors:,}{' of the adapter' if done.is_adapter else ''}"),
        ("new rows", f"{done.new_rows:,}, as trained"),
    ]
    print_result(options, done.as_dict(), rows)
    print_warnings(done.warnings)
    say(f"wrote `{options.out}`", options)
    return 0
