"""The parser of the command line, out of the tables of commands and options. It imports only the command that runs."""

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import Any, NoReturn

from tokengraft import __version__
from tokengraft.errors import escaped, without_credentials
from tokengraft.options.commands import COMMANDS

_DESCRIPTION = "Extend and prune the tokenizer of a pre-trained language model, and its checkpoint with it."


class _StoreOnce(argparse.Action):
    """Stores one value. A second value is an error: it would silently replace the first."""

    def __call__(
        self, _: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        given = vars(namespace).setdefault("given", set())
        if option and self.dest in given:
            raise argparse.ArgumentError(self, "given twice")
        given.add(self.dest)
        setattr(namespace, self.dest, values)


class _ShowAll(argparse.Action):
    """Prints the help with all options."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(argparse.ArgumentParser.format_help(parser), end="")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose `--help` shows the options named by ``first``; `--help-all` shows all of them, in groups."""

    def __init__(self, *arguments: Any, first: str = "", **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)
        self._first = {*first.split(), "--help", "--help-all"} if first else None
        if first:
            self.add_argument("--help-all", action=_ShowAll, nargs=0, dest="help", help="show all options")

    def format_help(self) -> str:
        """The help of `--help`."""
        if self._first is None:
            return super().format_help()
        named = [action for action in self._actions if not action.option_strings]
        shown = [action for action in self._actions if self._first & {*action.option_strings}]
        formatter = self._get_formatter()
        formatter.add_usage(f"%(prog)s {' '.join(str(action.metavar) for action in named)} [options]", [], [])
        formatter.add_text(self.description)
        for title, actions in (("positional arguments", named), ("options", shown)):
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(f"{len(self._actions) - len(named) - len(shown)} more options: {self.prog} --help-all")
        return formatter.format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses, and refuses unknown options of a command in the name of that command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            from tokengraft.corpus.files import input_without_credentials
            from tokengraft.options.table import TABLE

            flag = unknown[0].partition("=")[0]
            meant = _meant(flag, [flag for action in self._actions for flag in action.option_strings])
            if owners := [name for option in TABLE if option.flag == flag for name in option.commands.split()]:
                meant = f" (an option of {', '.join(name for name in owners if name != 'recipe')})"
            if self.prog.endswith(" adapt") and "recipe" in owners:
                meant = " (an option of recipes: write it to a file, and pass --recipe FILE)"
            self.error(f"unknown: {' '.join(map(input_without_credentials, unknown))}{meant}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Prints what is wrong, and exits. Arguments may have control characters and credentials."""
        self.exit(2, f"error: {escaped(without_credentials(message))}\nhint: see `{self.prog} --help`\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            self.error(f"there is no command {value!r}{_meant(value, action.choices)}")
        super()._check_value(action, value)


def _meant(unknown: str, known: Iterable[str]) -> str:
    """A question with the names that look like an unknown one."""
    from difflib import get_close_matches

    close = get_close_matches(unknown, known, n=2)
    return f" (did you mean {' or '.join(close)}?)" if close else ""


def build_parser(names: Iterable[str] = tuple(COMMANDS)) -> argparse.ArgumentParser:
    """The parser of some commands; by default of all. The others are listed in its help."""
    parser = Parser(prog="tokengraft", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"tokengraft {__version__}")
    groups = {"": parser.add_subparsers(title="commands", metavar="COMMAND", required=True)}
    for name, command in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if name.split()[0] not in names:
            if not group:
                groups[""].add_parser(word, help=command.help)
            continue
        from tokengraft.options.table import options_of  # not for the list of commands

        one = groups[group].add_parser(word, help=command.help, description=command.description, first=command.first)
        if not command.module:
            groups[name] = one.add_subparsers(title="commands", metavar="COMMAND", required=True)
            continue
        for each in command.positional:
            one.add_argument(each.name, metavar=each.metavar, help=each.help, nargs=each.nargs, type=each.type)
        sections: dict[str, argparse._ActionsContainer] = {"": one}
        for option in options_of(word):
            if option.group not in sections:
                sections[option.group] = one.add_argument_group(option.group)
            option.add_to(sections[option.group])
        one.set_defaults(run=getattr(import_module(f"tokengraft.cli.{command.module}"), f"run_{word}"))
    return parser
