"""`tokengraft completion`."""

import argparse
import json
from collections.abc import Iterator
from importlib.util import find_spec

from tokengraft.cli.main import build_parser
from tokengraft.cli.options import Commands, add_json, require

SHELLS = ("bash", "zsh", "fish", "tcsh")
FILES = frozenset(
    ("A", "ADAPTED", "B", "CORPUS", "COUNTS", "DIR", "FILE", "FILES", "MODEL", "NAME=FILES", "NEW", "NEW_TOKENIZER")
) | frozenset(("OLD", "PATH", "SOURCE", "TEXT", "TOKENIZER"))
"""The metavars of arguments that are files or folders."""


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell (needs shtab)",
        description="Print a script that completes commands, options, their values and file names in a shell. It is "
        "does not start Python. Write it to a file once; for bash: "
        "tokengraft completion bash > ~/.local/share/bash-completion/completions/tokengraft",
    )
    command.add_argument("shell", choices=SHELLS, help="the shell")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(
        find_spec("shtab") is not None,
        "completion needs shtab, which is not installed",
        hint="pip install 'tokengraft[completion]'",
    )
    import shtab

    parser = build_parser()
    for action in _actions(parser):
        if action.metavar in FILES and action.choices is None:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    script = shtab.complete(parser, options.shell)
    print(json.dumps({"shell": options.shell, "script": script}) if options.json else script)
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The actions of a parser and of all its commands."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                yield from _actions(command)
        else:
            yield action
