"""`tokengraft blend`."""

import argparse
from pathlib import Path

from tokengraft.checkpoint.blend import blend
from tokengraft.cli.display import print_result, print_warnings
from tokengraft.cli.options import Commands, add_options, say
from tokengraft.progress import one_stage


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "blend",
        description="Write the weighted mean of a model after and before training, file by file, without loading it. "
        "It gives back most of what other languages lost in training. Rows of new tokens are the trained ones. "
        "`tokengraft train` does it by itself; this command is for models that were trained elsewhere.",
    )
    command.add_argument("trained", type=Path, metavar="TRAINED", help="folder of the model after training, or a LoRA")
    command.add_argument("adapted", type=Path, metavar="ADAPTED", help="folder of the model before training")
    add_options(command, "blend")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
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
