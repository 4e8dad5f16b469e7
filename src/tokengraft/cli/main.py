"""The command line: parse, call, print. Data goes to stdout, everything else to stderr."""

import argparse
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from tokengraft import __version__
from tokengraft.cli import (
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
from tokengraft.cli.streams import checked_streams
from tokengraft.errors import OutputError, TokengraftError

_DESCRIPTION = "Extend and prune the BPE tokenizer of a pre-trained language model, and its checkpoint with it."


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    0; 1 where `check` finds a fault; 2 where the input is at fault or the output cannot be written; 128 + n after
    signal n, when everything unfinished has been removed.
    """
    with checked_streams() as has_stdout:
        try:
            with _signals_as_exceptions():
                return _run(arguments, has_stdout=has_stdout)
        except TokengraftError as error:
            print(f"error: {error}", file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except _Stopped as stopped:
            print(f"stopped by {stopped.signal.name}", file=sys.stderr)
            return 128 + stopped.signal
        except BrokenPipeError:  # `tokengraft inspect ... | head`
            return 141


def _run(arguments: Sequence[str] | None, *, has_stdout: bool) -> int:
    if not has_stdout:  # better known before the work than after it
        raise OutputError("stdout is closed, and results are printed there", hint="redirect it: `> /dev/null`")
    try:
        options = build_parser().parse_args(arguments)
        status: int = options.run(options)
        return status
    finally:  # here, and not when Python ends, a full disk can be reported; `--help` ends in an exception
        sys.stdout.flush()


class _Stopped(BaseException):
    """A signal asked the process to end. As an exception, so that everything that cleans up does."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """SIGTERM and SIGHUP raise, as SIGINT does, unless somebody else handles or ignores them."""
    names = [name for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    numbers = [getattr(signal, name) for name in names]
    is_main = threading.current_thread() is threading.main_thread()
    ours = [number for number in numbers if is_main and signal.getsignal(number) == signal.SIG_DFL]

    def stop(number: int, _: FrameType | None) -> None:
        raise _Stopped(number)

    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


class _StoreOnce(argparse.Action):
    """Stores one value; a second would silently replace the first, and is refused."""

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
        super().__init__(*arguments, **options)
        self.register("action", None, _StoreOnce)
        self.register("action", "store", _StoreOnce)


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = _Parser(prog="tokengraft", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"tokengraft {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in (adapt, inspect, count, prune, extend, check, evaluate, compare, curve, plan, transplant):
        command.add(commands)
    return parser
