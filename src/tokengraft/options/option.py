"""`Option`: one row of the table of options. `require_effect`: refuses options that would have no effect.

The parser, the help, `docs/cli.md`, the command line in a record and the keys of a recipe come from these rows.
"""

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple

from tokengraft.corpus.files import input_without_credentials
from tokengraft.errors import OptionError
from tokengraft.errors import option as spelled

Given = Mapping[str, Any]
"""The options that were given, by name."""


class Kind(NamedTuple):
    """What an option takes."""

    metavar: str | None = None
    parse: Callable[[str], Any] = str
    action: str = "store"
    """`append`: one value for each use. `extend`: several, which add up. `groups`: several, those of each use are kept
    apart. `flag`: no value. `switch`: `--name` and `--no-name`."""
    choices: Sequence[str] | str | None = None
    """The allowed values, or where they are: `module:NAME`."""


@dataclass(frozen=True)
class Option:
    """An option of one or more commands."""

    name: str
    """The key of a recipe. `max_share` is `--max-share` on the command line."""
    commands: str
    """The commands that have it, separated by spaces."""
    kind: Kind
    help: str
    default: Any = None
    """Shown in the help, and what `needs` of other options compare with. The parser does not know it, so that an
    option that was given with the value of its default is known to be given."""
    field: str = ""
    """Where `AdaptOptions` has the value, such as `limits.min_count`; empty if it is converted by hand."""
    needs: str = ""
    """Options without which it has no effect: `--add or --swap; --balance parity`. All parts must hold."""
    excludes: str = ""
    """Options that it does not go with: `--out --force`."""
    required: bool = False
    group: str = ""

    @property
    def flag(self) -> str:
        """How the command line spells it."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def key(self) -> str:
        """Its name in the parsed options. `--for` is a word of Python."""
        return "stacks" if self.name == "for" else self.name

    @property
    def choices(self) -> Sequence[str] | None:
        """The allowed values; None if there are others."""
        choices = self.kind.choices
        if isinstance(choices, str):
            module, _, name = choices.partition(":")
            return tuple(getattr(import_module(f"tokengraft.{module}"), name))
        return choices

    def add_to(self, parser: "argparse._ActionsContainer") -> None:
        """Adds the option to a parser."""
        metavar, parse, action, _ = self.kind
        choices = self.choices
        text = self.help.replace("{choices}", ", ".join(choices or ())).replace("%", "%%")
        more: dict[str, Any] = {"dest": self.key, "default": None}
        more["help"] = text if self.default is None else f"{text} (default: {self.default})"
        if action == "flag":
            more |= {"action": "store_true", "default": False}
        elif action == "switch":
            more |= {"action": argparse.BooleanOptionalAction}
        else:
            more |= {"type": parse, "choices": choices, "metavar": metavar, "required": self.required}
            more |= {"action": "append" if action == "groups" else action}
            more |= {"nargs": "+"} if action in ("extend", "groups") else {}
        parser.add_argument(self.flag, **more)

    def parsed(self, value: Any) -> Any:
        """The value that a recipe has, as the command line gives it. Tables of texts are NAME=FILES."""
        action = self.kind.action
        if isinstance(value, Mapping):
            groups = [[f"{name}={one}", *more] for name, (one, *more) in ((k, _listed(v)) for k, v in value.items())]
            value = groups if action == "groups" else [word for group in groups for word in group]
        if action in ("flag", "switch"):
            return bool(value)
        if action == "groups":
            return [[self._one(one) for one in _listed(group)] for group in _listed(value)]
        return [self._one(one) for one in _listed(value)] if action in ("append", "extend") else self._one(value)

    def _one(self, value: Any) -> Any:
        try:
            parsed = self.kind.parse(str(value))
        except (argparse.ArgumentTypeError, ValueError) as error:
            raise OptionError(f"`{self.name}` is {value!r}: {error}", hint=f"write another {self.name}") from error
        choices = self.choices
        if choices and parsed not in choices:
            raise OptionError(f"`{self.name}` is {value!r}", hint=f"choose one of {', '.join(choices)}")
        return parsed

    def words(self, value: Any) -> Iterator[str]:
        """The words of the command line that give the option this value."""
        action = self.kind.action
        if action in ("flag", "switch"):
            yield self.flag if value else self.flag.replace("--", "".join(("--", "no-")), 1)
            return
        groups = {"groups": value, "append": [[one] for one in value] if action == "append" else None}
        for group in groups.get(action) or [value if action == "extend" else [value]]:
            yield self.flag
            yield from map(_word, group)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _word(value: Any) -> str:
    """A parsed value as it would be given: a shard is I/N, a rule is NAME=VALUE."""
    if isinstance(value, tuple):
        return f"{value[0]}/{value[1]}" if isinstance(value[0], int) else f"{value[0]}={str(value[1]).lower()}"
    return input_without_credentials(str(value))


def given_options(options: Sequence[Option], parsed: argparse.Namespace) -> dict[str, Any]:
    """The options that were given, by name. A switch that is off was given too."""
    values = {option: getattr(parsed, option.key, None) for option in options}
    return {
        option.name: value
        for option, value in values.items()
        if value is not None and (value or option.kind.action != "flag")
    }


def require_effect(options: Sequence[Option], given: Given, facts: Sequence[str] = ()) -> None:
    """Refuses options that were given without what they need, or with what they exclude.

    Args:
        options: Those of the command.
        given: Those that were given.
        facts: What `needs` may name besides options, such as `weights`.
    """
    known = {option.name: given.get(option.name, option.default) for option in options}
    known |= {name: value for name, value in given.items() if name not in known}

    def holds(condition: str) -> bool:
        name, _, value = condition.removeprefix("--").partition(" ")
        if not condition.startswith("--"):
            return condition in facts
        found = known.get(name.replace("-", "_"))
        return found is not None if not value else str(found) in value.split("|")

    def shown(condition: str) -> str:
        name, _, value = condition.removeprefix("--").partition(" ")
        return spelled(name.replace("-", "_"), value or None) if condition.startswith("--") else condition

    for option in (option for option in options if option.name in given):
        this = spelled(option.name)
        for need in filter(None, option.needs.split("; ")):
            if not any(map(holds, need.split(" or "))):
                known_here = {one.flag for one in options}
                ways = [way for way in need.split(" or ") if way[:2] != "--" or way.split()[0] in known_here]
                needed = " or ".join(map(shown, ways))
                raise OptionError(f"{this} has no effect without {needed}", hint=f"pass {needed} too, or drop {this}")
        for other in option.excludes.split("; "):
            if other and holds(other):
                message = f"{this} and {shown(other)} do not go together"
                raise OptionError(message, hint=f"drop {this} or {shown(other.split()[0])}")


def command_line(command: str, positional: Sequence[str], options: Sequence[Option], given: Given) -> str:
    """A command with options, in the order of the table. Passwords in URLs are left out."""
    words = [word for option in options if option.name in given for word in option.words(given[option.name])]
    return shlex.join(["tokengraft", command, *map(input_without_credentials, positional), *words])
