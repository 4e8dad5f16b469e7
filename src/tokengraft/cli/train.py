"""`tokengraft train`."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from tokengraft.cli.display import print_columns, print_warnings
from tokengraft.cli.main import resumable
from tokengraft.cli.options import AUTO, Commands, add_json, given, number, say, size
from tokengraft.cli.reading import add_text_read_options, text_read_options_of, texts_of
from tokengraft.training.options import SHARES, TrainOptions

_OPTIONS = (
    *("passes", "max_bytes", "learning_rate", "blend", "kept_share", "new_rows_factor"),
    *("step_bytes", "length", "batch", "seed"),
)


def _number_or_auto(text: str) -> float | str:
    try:
        return text if text == AUTO else float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor `{AUTO}`") from error


def _setting(text: str) -> tuple[str, Any]:
    """A field of the Trainer: ``report_to=wandb -> ("report_to", "wandb")``. Values are JSON, or text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, such as report_to=wandb")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "train",
        first="--text --keep --held-out --out --passes --max-bytes --learning-rate --blend --trainer",
        help="train an adapted model, and blend it (needs torch)",
        description="Train an adapted model on text of its new language, with a share of text to keep, and blend the "
        "result with the weights before training. `training.json` of the model has the settings. Several GPUs: "
        "`torchrun --nproc-per-node N -m tokengraft train ...`. After an interruption, the same command goes on.",
    )
    command.add_argument("adapted", type=Path, metavar="ADAPTED", help="folder of the model, from `tokengraft adapt`")
    text: dict[str, Any] = {"action": "extend", "nargs": "+"}
    command.add_argument("--text", required=True, metavar="FILES", help="text to learn, or NAME=FILES", **text)
    command.add_argument(
        "--keep", metavar="FILES", help="text in the languages to keep, or NAME=FILES: a tenth of the training", **text
    )
    command.add_argument(
        "--held-out",
        metavar="NAME=FILES",
        help="text to score; with the name of a text of --keep, it must not get worse (default: documents of --text "
        "and --keep are held out)",
        **text,
    )
    command.add_argument("--out", type=Path, required=True, metavar="PATH", help="output: folder; must not exist")
    command.add_argument(
        "--passes",
        type=_number_or_auto,
        metavar="N",
        help="how often the text is read (default: auto, as often as costs the tokens of one pass with the old "
        "tokenizer, at most 3)",
    )
    command.add_argument("--max-bytes", type=size, metavar="SIZE", help="train on this much text: for a short run")
    command.add_argument("--learning-rate", type=float, metavar="X", help="highest rate (default: from training.json)")
    command.add_argument(
        "--blend",
        type=_number_or_auto,
        metavar="X",
        help=f"share of the weights before training in the result (default: auto, the smallest of {SHARES[0]:g} to "
        f"{SHARES[-1]} with which kept text is at most 1 %% worse than before)",
    )
    command.add_argument(
        "--trainer",
        action="extend",
        nargs="+",
        type=_setting,
        metavar="NAME=VALUE",
        help="more arguments of transformers' Trainer, such as report_to=wandb or gradient_checkpointing=true",
    )
    more = command.add_argument_group("more about training")
    more.add_argument("--kept-share", type=float, metavar="X", help="share of kept text (default: from training.json)")
    more.add_argument(
        "--new-rows-factor", type=float, metavar="X", help="new rows learn so much faster (default: from training.json)"
    )
    more.add_argument(
        "--step-bytes", type=size, metavar="SIZE", help="text of each step (default: 89 kB, or less text)"
    )
    more.add_argument("--length", type=number, metavar="N", help="tokens of a sequence (default: up to 1024)")
    more.add_argument("--batch", type=number, metavar="N", help="sequences in memory at once (default: what fits)")
    more.add_argument("--seed", type=int, metavar="N", help="order of the text (default: 0)")
    add_json(command)
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    chosen = TrainOptions(**given(options, *_OPTIONS), trainer=dict(options.trainer or ()))
    work = options.out.with_name(f"{options.out.name}.work")
    from tokengraft.training.train import train

    with resumable(work, options.arguments, "the state of the training"):
        done = train(
            options.adapted,
            texts_of(options.text, "--text"),
            out=options.out,
            keep=texts_of(options.keep or (), "--keep"),
            held_out=texts_of(options.held_out or (), "--held-out"),
            options=chosen,
            read_options=text_read_options_of(options),
            quiet=options.quiet,
        )
    if os.environ.get("RANK", "0") != "0":  # a launcher started several processes, and this is not the first
        return 0
    if options.json:
        print(json.dumps(done.as_dict(), ensure_ascii=False))
    else:
        print_columns(*done.table())
    print_warnings(done.warnings)
    say(f"wrote `{options.out}`", options)
    return 0
