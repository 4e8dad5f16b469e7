"""Options shared by several commands, and their values. `cli/reading.py` has those for text and counts.

`refuse`: options that would have no effect. `command_line`: the command that was given, from its parsed options.
"""

import argparse
import glob
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokengraft.corpus.files import input_without_credentials, local_name
from tokengraft.corpus.options import COMPRESSIONS, FORMATS
from tokengraft.errors import OptionError, escaped
from tokengraft.errors import require as require
from tokengraft.output.atomic import require_distinct, require_new

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object

AUTO = "auto"
"""The value of an option for a number of tokens that is chosen on held-out text."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def size(text: str) -> int:
    """A number of bytes: ``4GB``, ``500 MB``, ``2GiB``, ``1000``.

    >>> size("4GB"), size("1.5KiB"), size("7")
    (4000000000, 1536, 7)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if not match or match[2] == "I":
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; pass one like 4GB, 500MB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def number(text: str) -> int:
    """A whole number, also in thousands or millions: ``16k``, ``1.5M``, ``16000``.

    >>> number("16k"), number("1.5M"), number("16_000"), number("-1")
    (16000, 1500000, 16000, -1)
    """
    match = re.fullmatch(r"\s*([-+]?\d[\d_]*(?:\.\d+)?)\s*([KMG]?)\s*", text.upper())
    value = Fraction(match[1].replace("_", "")) * _UNITS[match[2]] if match else Fraction(1, 2)
    if value.denominator != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; pass one like 16000 or 16k")
    return int(value)


def number_or(*words: str) -> Callable[[str], int | str]:
    """A parser of a number, as `number`, or of one of some words."""

    def parse(text: str) -> int | str:
        try:
            return text if text in words else number(text)
        except argparse.ArgumentTypeError as error:
            raise argparse.ArgumentTypeError(f"{error}, or `{'` or `'.join(words)}`") from error

    return parse


def named(text: str) -> tuple[str, str]:
    """A pair of (name, value) from ``NAME=VALUE``. Without a name, it is the file name without text file suffixes.

    >>> named("et=data/et.txt"), named("data/et.jsonl.gz"), named("Qwen/Qwen2.5-7B")
    (('et', 'data/et.txt'), ('et', 'data/et.jsonl.gz'), ('Qwen2.5-7B', 'Qwen/Qwen2.5-7B'))
    """
    name, equals, value = text.partition("=")
    if name and equals and "/" not in name:
        require(bool(value), f"{text!r} has no value after `=`", hint=f"pass {name}=PATH")
        return name, value
    name = Path(input_without_credentials(text)).name
    for suffixes in (COMPRESSIONS, (*FORMATS, ".model")):
        name = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return name or text, text


def add_source(command: argparse.ArgumentParser) -> None:
    """Adds SOURCE."""
    command.add_argument("source", metavar="SOURCE", help="model folder, tokenizer.json, tokenizer.model or hub name")


def add_json(command: argparse.ArgumentParser) -> None:
    """Adds --json and --quiet, which every command has."""
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument(
        "--quiet", action="store_true", help="print only the result, warnings and errors: no progress, no notes"
    )


def add_wide(command: argparse.ArgumentParser) -> None:
    """Adds --wide."""
    command.add_argument("--wide", action="store_true", help="show all measures, not only the five that matter most")


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a message to stderr, unless --quiet was given."""
    if not options.quiet:
        print(escaped(text), file=sys.stderr)


def add_output(command: argparse.ArgumentParser, what: str, *, required: bool = True) -> None:
    """Adds --out and --force, and what `add_json` adds."""
    command.add_argument("--out", required=required, metavar="PATH", help=f"output: {what}; must not exist")
    command.add_argument("--force", action="store_true", help="replace an existing output")
    add_json(command)


def given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Those of some options that were given. They have no default, so one with the value of the default is known.

    A flag that is False was not given. The False of a `BooleanOptionalAction`, `--no-...`, is not noticed here.
    """
    values = {name: getattr(options, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def refuse(options: argparse.Namespace, why: str, *names: str, instead: str = "") -> None:
    """Refuses options that were given. The message names the first and says why, the hint is to drop it."""
    for name in given(options, *names):
        flag = f"--{name.replace('_', '-')}"
        raise OptionError(f"{flag} {why}", hint=f"drop {flag}{instead and f', or {instead}'}")


def without(options: argparse.Namespace, *names: str) -> argparse.Namespace:
    """The options as if some had not been given."""
    return argparse.Namespace(**vars(options) | dict.fromkeys(names))


def input_paths(*groups: Iterable[str | os.PathLike[str] | None] | None) -> list[str]:
    """All input paths given by options, with globs expanded, for `require_distinct`."""
    items = [local_name(os.fspath(item)) for group in groups for item in group or () if item is not None]
    matches = ([item] if os.path.lexists(item) else glob.glob(item, recursive=True) for item in items)  # noqa: PTH207
    return [*(path for paths in matches for path in paths), *(["/dev/stdin"] if "-" in items else [])]


def lines_of(path: Path | None, option: str) -> list[str]:
    """The lines of the file given by an option; none without a file."""
    try:
        text = path.read_text(encoding="utf-8-sig").removesuffix("\n") if path else ""
        return text.split("\n") if text else []  # `splitlines` would also end lines at U+2028 and others
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint=f"check {option}") from error


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


def add_protection(command: argparse.ArgumentParser) -> None:
    """Adds --protect, --protect-pattern and --no-protect-defaults."""
    command.add_argument("--protect", type=Path, metavar="FILE", help="tokens that are not removed, one per line")
    command.add_argument(
        "--protect-pattern", metavar="REGEX", help="do not remove tokens whose text matches it anywhere"
    )
    command.add_argument(
        "--no-protect-defaults",
        action="store_true",
        help="also remove tokens that cleaned text lacks and that are kept otherwise: white space, digits, "
        "punctuation, names of source code, and text of chat templates",
    )


def add_report(command: argparse.ArgumentParser) -> None:
    """Adds --report, for commands that make or measure a tokenizer."""
    command.add_argument(
        "--report", type=Path, metavar="FILE", help="also write a page about the result, as `tokengraft report` does"
    )


def require_report(options: argparse.Namespace, inputs: Iterable[str], *outputs: str | os.PathLike[str] | None) -> None:
    """Refuses a report that cannot be written, before any work is done."""
    if options.report:
        require_new(options.report, force=getattr(options, "force", False))
        require_distinct(inputs, options.report, *outputs)


def report_if_asked(options: argparse.Namespace, *arguments: Any, **more: Any) -> None:
    """Writes the report of an edited tokenizer if --report was given. The arguments are those of `report_edit`."""
    if options.report:
        from tokengraft.cli.report import report_edit  # and with it most of the package

        report_edit(options, *arguments, **more)
