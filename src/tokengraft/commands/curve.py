"""`tokengraft curve`."""

import argparse
import json

from tokengraft.commands.options import Commands, add_counts, add_json, add_reading, add_source, counts_of, named
from tokengraft.curve import Curve, curve, default_sizes
from tokengraft.evaluate.segments import read_text
from tokengraft.formats import load
from tokengraft.show import print_columns


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "curve",
        help="show what each thousand of new tokens brings",
        description="Bytes per token of held-out text as tokens are added, from one training run, with the knee: the "
        "size after which a thousand more tokens gain less than 1 %.",
    )
    add_source(command)
    add_counts(command)
    command.add_argument("--text", required=True, metavar="NAME=FILE", help="held-out text, a document a line")
    command.add_argument(
        "--sizes", action="extend", nargs="+", type=int, metavar="N", help="numbers of tokens (1000 2000 4000 ...)"
    )
    command.add_argument("--up-to", type=int, default=32_000, metavar="N", help="the largest of them (32000)")
    command.add_argument("--hidden-size", type=int, metavar="N", help="width of the embedding, for parameters")
    command.add_argument("--untied", action="store_true", help="the model has an output table of its own")
    command.add_argument("--quiet", action="store_true", help="show no progress")
    add_json(command)
    add_reading(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    tokenizer = load(options.source)
    text = read_text(*named(options.text))
    counts = counts_of(tokenizer, options)
    width = options.hidden_size * (2 if options.untied else 1) if options.hidden_size else None
    found = curve(tokenizer, counts, text, options.sizes or default_sizes(options.up_to), rows_width=width)
    if options.json:
        points = [point._asdict() for point in found.points]
        print(json.dumps({"text": found.text, "knee": found.knee, "points": points}))
        return 0
    _show(found)
    return 0


def _show(found: Curve) -> None:
    heads = ["new tokens", "bytes/token", "gain", "parameters"]
    rows = [
        [f"{p.tokens:,}", f"{p.bytes_per_token:.3f}", f"{p.gain:+.1%}", f"{p.parameters:,}" if p.parameters else ""]
        for p in found.points
    ]
    if not any(row[3] for row in rows):
        heads, rows = heads[:3], [row[:3] for row in rows]
    print_columns(heads, rows)
    knee = found.knee
    after = f"after {knee:,} tokens, a thousand more gain less than 1 %" if knee is not None else "not reached yet"
    print(f"knee: {after}")
    if len(found.extension) < found.extension.asked:
        print(f"note: {found.extension.stopped}")
