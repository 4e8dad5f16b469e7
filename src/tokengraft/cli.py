"""The command line: parse, call, print. Data goes to stdout, everything else to stderr."""

import argparse
import os
import sys
from collections.abc import Sequence

from tokengraft import __version__
from tokengraft.commands import (
    adapt,
    check,
    compare,
    count,
    curve,
    evaluate,
    extend,
    inspect,
    plan,
    prune,
    transplant,
)
from tokengraft.errors import TokengraftError

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
    for command in (adapt, inspect, count, prune, extend, check, evaluate, compare, curve, plan, transplant):
        command.add(commands)
    return parser
