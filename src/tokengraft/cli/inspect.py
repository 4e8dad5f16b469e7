"""`tokengraft inspect`."""

import argparse
import json

from tokengraft.cli.display import describe, print_table
from tokengraft.cli.options import Commands, add_json, add_source
from tokengraft.formats import load
from tokengraft.tokenizer.inspect import inspect


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "inspect",
        help="show what is in a tokenizer",
        description="Show the kind, sizes and id layout of a tokenizer, its unreachable tokens, and known problems.",
    )
    add_source(command)
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    inspection = inspect(load(options.source))
    if options.json:
        print(json.dumps(inspection.as_dict(), ensure_ascii=False, indent=2))
    else:
        print_table(describe(inspection))
    return 0
