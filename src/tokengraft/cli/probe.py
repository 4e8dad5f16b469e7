"""`tokengraft probe`."""

import argparse

from tokengraft.cli.display import print_columns, print_warnings
from tokengraft.cli.options import Commands, add_json, given, named, number, refuse, require, size
from tokengraft.cli.reading import add_text, add_text_read_options, text_read_options_of, texts_of
from tokengraft.progress import one_stage
from tokengraft.train.models import DEVICES, DTYPES
from tokengraft.train.probe import ProbeOptions, probe

_TRAINING = ("steps", "step_bytes", "learning_rate", "seed")


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    defaults = ProbeOptions()
    command = commands.add_parser(
        "probe",
        help="bits per byte of models, before and after a short training (needs torch)",
        description="Score every model on every text in bits per byte, in all and split by new and kept tokens, before "
        "training and after a short one. All models read the same bytes. Use it to choose an initialiser or a size.",
    )
    command.add_argument(
        "models", nargs="+", metavar="MODEL", help="folder with weights, or NAME=FOLDER; the first is the base"
    )
    add_text(command, "held-out text, as for `tokengraft count`")
    command.add_argument("--train", action="extend", nargs="+", metavar="FILE", help="text for a short training")
    command.add_argument(
        "--steps", type=number, metavar="N", help=f"steps of the short training (default: {defaults.steps})"
    )
    command.add_argument(
        "--step-bytes",
        type=size,
        metavar="SIZE",
        help=f"text of each step, the same for every model (default: {defaults.step_bytes})",
    )
    command.add_argument(
        "--learning-rate", type=float, metavar="X", help=f"of the short training (default: {defaults.learning_rate})"
    )
    command.add_argument("--seed", type=int, metavar="N", help="order of the training text (default: 0)")
    command.add_argument(
        "--chunk-bytes",
        type=size,
        default=defaults.chunk_bytes,
        metavar="SIZE",
        help=f"documents are cut into chunks of at most this size (default: {defaults.chunk_bytes})",
    )
    command.add_argument(
        "--device", choices=DEVICES, default="auto", help="where to run (default: auto, a GPU if there is one)"
    )
    command.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="type to compute in (default: auto, bfloat16 on a GPU and float32 on a CPU)",
    )
    add_json(command)
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    models = dict(named(text) for text in options.models)
    texts = texts_of(options.text, "--text")
    require(len(models) == len(options.models), "two models have the same name", hint="name them: NAME=FOLDER")
    if not options.train:
        why = "is for the short training, and no text for it was given"
        refuse(options, why, *_TRAINING, instead="pass --train FILE")
    how, read = given(options, "chunk_bytes", "device", "dtype", *_TRAINING), text_read_options_of(options)
    with one_stage("probing", quiet=options.quiet, unit="share") as progress:
        chosen = ProbeOptions(**how)
        found = probe(models, texts, train=options.train, options=chosen, read_options=read, progress=progress)
    if options.json:
        print(found.to_json())
    else:
        print_columns(*found.table())
    print_warnings(found.warnings)
    return 0
