"""The command line: parse, call, print. Data goes to stdout, everything else to stderr."""

import argparse
import gc
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

from tokengraft import __version__
from tokengraft.cli.interrupt import Stopped
from tokengraft.cli.streams import checked_streams
from tokengraft.corpus.remote import input_without_credentials
from tokengraft.errors import OutputError, TokengraftError, escaped, without_credentials

COMMANDS = (
    "adapt",
    "inspect",
    "count",
    "prune",
    "extend",
    "check",
    "evaluate",
    "compare",
    "curve",
    "report",
    "plan",
    "transplant",
    "distill",
    "probe",
    "convert",
    "completion",
)
"""The commands, in the order of `--help`. Each has a module of its name."""
_DESCRIPTION = "Extend and prune the BPE tokenizer of a pre-trained language model, and its checkpoint with it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    - 0: success
    - 1: `check` found a failure
    - 2: the input is wrong, or the output cannot be written
    - 128 + n: signal n stopped the process; unfinished output has been removed
    """
    with checked_streams() as has_stdout:
        try:
            with _signals_as_exceptions(), _rare_collection():
                return _run(arguments, has_stdout=has_stdout)
        except TokengraftError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print("stopped; unfinished output was removed", file=sys.stderr)
            return 128 + signal.SIGINT
        except Stopped as stopped:
            print(f"stopped by {stopped.signal.name}; unfinished output was removed", file=sys.stderr)
            return 128 + stopped.signal
        except BrokenPipeError:  # `tokengraft inspect ... | head`
            return 141


def _run(arguments: Sequence[str] | None, *, has_stdout: bool) -> int:
    if not has_stdout:  # checked before any work is done
        raise OutputError("stdout is closed, and results are printed there", hint="redirect it: `> /dev/null`")
    try:
        given = sys.argv[1:] if arguments is None else arguments
        # Only the command that runs is imported. The parser of all is for `--help` and for wrong names.
        options = build_parser(given[:1] if given and given[0] in COMMANDS else COMMANDS).parse_args(given)
        options.arguments = [*given]
        from tokengraft.corpus.strings import only_paths

        with only_paths():
            status: int = options.run(options)
        return status
    finally:  # A full disk can be reported here, not at exit. `--help` raises, so `finally` is needed.
        sys.stdout.flush()


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP raise an exception, as SIGINT does, unless they already have a handler."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [getattr(signal, name) for name in names]
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in numbers if is_main and signal.getsignal(number) == signal.SIG_DFL]

    def stop(number: int, _: FrameType | None) -> None:
        raise Stopped(number)

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Collects garbage a hundredth as often: a command makes many objects that live to its end, and few cycles."""
    before = gc.get_threshold()
    gc.set_threshold(100 * before[0], *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


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


class _Parser(argparse.ArgumentParser):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **options})
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parses, and refuses unknown options of a command with the usage of that command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and self._subparsers is None:
            self.error(f"unknown: {' '.join(map(input_without_credentials, unknown))}{self._meant(unknown)}")
        return found, unknown

    def error(self, message: str) -> NoReturn:
        """Prints the usage and what is wrong, and exits. Arguments may have control characters and credentials."""
        super().error(escaped(without_credentials(message)))

    def _meant(self, unknown: list[str]) -> str:
        """A question with the options that look like the first unknown one."""
        from difflib import get_close_matches

        flags = [flag for action in self._actions for flag in action.option_strings]
        close = get_close_matches(unknown[0].partition("=")[0], flags, n=2)
        return f" (did you mean {' or '.join(close)}?)" if close else ""


def build_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of some commands; by default of all."""
    parser = _Parser(prog="tokengraft", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"tokengraft {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        import_module(f"tokengraft.cli.{name}").add(commands)
    return parser
