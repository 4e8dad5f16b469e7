"""`command_line`: the command that was given, from its parsed options."""

import argparse
import shlex
from collections.abc import Collection, Iterator
from typing import Any

from tokengraft.corpus.remote import input_without_credentials


def command_line(command: argparse.ArgumentParser, options: argparse.Namespace, without: Collection[str]) -> str:
    """The command with all options that are not the default, in the order of `--help`, without some of them.

    The order in which options were given does not matter, and neither does how numbers were written.
    """
    words = [word for action in command._actions if action.dest not in without for word in _words(action, options)]
    positional = [str(getattr(options, a.dest)) for a in command._actions if not a.option_strings]
    return shlex.join([*command.prog.split(), *positional, *words])


def _words(action: argparse.Action, options: argparse.Namespace) -> Iterator[str]:
    value = getattr(options, action.dest, None)
    if not action.option_strings or action.dest == "help" or value is None or value == action.default:
        return
    if isinstance(value, bool):
        yield action.option_strings[0 if value else -1]
        return
    for group in _groups(value, several=action.nargs is not None):
        yield from (action.option_strings[0], *map(_text, group))


def _groups(value: Any, *, several: bool) -> list[list[Any]]:
    """The values of each use of an option."""
    if not isinstance(value, list):
        return [[value]]
    if not several:
        return [[item] for item in value]
    return value if isinstance(value[0], list) else [value]


def _text(value: Any) -> str:
    """A parsed value as it would be given: a shard is I/N, a rule is NAME=VALUE."""
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}" if isinstance(value[0], int) else f"{value[0]}={str(value[1]).lower()}"
    return input_without_credentials(str(value))
