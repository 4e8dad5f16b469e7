"""The command line: parse, call, print. Data goes to stdout, everything else to stderr."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from tokengraft import __version__
from tokengraft.errors import TokengraftError
from tokengraft.formats import load
from tokengraft.inspection import inspect
from tokengraft.show import describe, print_table

_DESCRIPTION = "Teach the BPE tokenizer of a finished language model new words, and its checkpoint with it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status: 0, or 2 where the input is at fault."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show `▁` is no reason to fail
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except TokengraftError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `tokengraft inspect ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokengraft", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"tokengraft {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_inspect(commands)
    return parser


def _add_inspect(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "inspect",
        help="show what is in a tokenizer",
        description="Show what is in a tokenizer: kind, sizes, layout of the ids, and what is odd about it.",
    )
    command.add_argument(
        "source", metavar="SOURCE", help="a model folder, a tokenizer.json, or the name of a model on the hub"
    )
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    found = inspect(load(options.source))
    if options.json:
        print(json.dumps(found.as_dict(), ensure_ascii=False, indent=2))
    else:
        print_table(describe(found))
    return 0
