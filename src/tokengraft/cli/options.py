"""Adds the options of the table to a command, and reads what several commands share."""

import argparse
import glob
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tokengraft.cli.display import print_warnings
from tokengraft.corpus.files import local_name
from tokengraft.corpus.options import ReadOptions
from tokengraft.errors import OptionError, escaped
from tokengraft.options.option import given_options, require_effect
from tokengraft.options.table import options_of
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    from tokengraft.counts.threads import CountOptions

    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object


def add_options(command: argparse.ArgumentParser, name: str) -> None:
    """Adds all options that the table has for a command."""
    groups: dict[str, argparse._ActionsContainer] = {"": command}
    for option in options_of(name):
        if option.group not in groups:
            groups[option.group] = command.add_argument_group(option.group)
        option.add_to(groups[option.group])


def add_source(command: argparse.ArgumentParser) -> None:
    """Adds SOURCE."""
    command.add_argument("source", metavar="SOURCE", help="model folder, tokenizer.json, tokenizer.model or hub name")


def given(name: str, options: argparse.Namespace, *facts: str, **positional: Any) -> dict[str, Any]:
    """The options of a command that were given, after refusing those without effect."""
    found = given_options(options_of(name), options)
    require_effect(options_of(name), found | positional, facts)
    return found


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a message to stderr, unless --quiet was given."""
    if not options.quiet:
        print(escaped(text), file=sys.stderr)


def input_paths(*groups: Iterable[str | os.PathLike[str] | None] | None) -> list[str]:
    """All input paths given by options, with globs expanded, for `require_distinct`."""
    items = [local_name(os.fspath(item)) for group in groups for item in group or () if item is not None]
    matches = ([item] if os.path.lexists(item) else glob.glob(item, recursive=True) for item in items)  # noqa: PTH207
    return [*(path for paths in matches for path in paths), *(["/dev/stdin"] if "-" in items else [])]


def read_options_of(given: Mapping[str, Any], tokenizer: Tokenizer, **usual: Any) -> ReadOptions:
    """How to read text. `--rule` changes the piece rules of the tokenizer."""
    chosen = usual | {each.name: given[each.name] for each in fields(ReadOptions) if each.name in given}
    if "rule" in given:
        from tokengraft.counts.fingerprint import may_be_cut, piece_rules

        if not may_be_cut(tokenizer):
            message = f"--rule has no effect here: this {tokenizer.kind} tokenizer has no piece rules"
            raise OptionError(message, hint="drop --rule")
        chosen["rules"] = replace(piece_rules(tokenizer), **dict(given["rule"]))
    return ReadOptions(**chosen)


def text_read_options_of(given: Mapping[str, Any]) -> ReadOptions | None:
    """How to read a text to measure on; None if no option says it."""
    chosen = {each.name: given[each.name] for each in fields(ReadOptions) if each.name in given}
    return ReadOptions(**{"documents": "lines"} | chosen) if chosen else None


def count_options_of(given: Mapping[str, Any]) -> "CountOptions":
    """Workers, memory and limits of counting."""
    from tokengraft.counts.threads import CountOptions  # not every command counts

    return CountOptions(**{each.name: given[each.name] for each in fields(CountOptions) if each.name in given})


def warn_of_spelling(tokenizers: Mapping[str, Tokenizer]) -> None:
    """Prints a warning if a vocabulary cannot spell all text: once for all tokenizers, by name, that lack the same."""
    warnings = {name: spelling_warning(tokenizer) for name, tokenizer in tokenizers.items()}
    for warning in dict.fromkeys(filter(None, warnings.values())):
        names = ", ".join(name for name, other in warnings.items() if other == warning)
        print_warnings([f"{names}: {warning}"])


def require_report(options: argparse.Namespace, inputs: Iterable[str]) -> None:
    """Refuses a report that cannot be written, before any work is done."""
    if options.report:
        require_new(options.report, force=None)
        require_distinct(inputs, options.report)
