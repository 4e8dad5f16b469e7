"""The command line: parse, call, print. Data goes to stdout, everything else to stderr.

Signals that stop a command are exceptions, with a message about what was kept and how to go on. A failed write to
stdout is an error, a failed write to stderr is ignored.
"""

import gc
import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, cast

from tokengraft.cli.parser import build_parser
from tokengraft.errors import OutputError, TokengraftError, escaped, on_command_line

START = """\
Extends and prunes the tokenizer of a language model, and its checkpoint with it
  tokengraft adapt MODEL --target TEXT --add auto --out DIR   adapt it to TEXT
  tokengraft train DIR --text TEXT --out TRAINED              train the model
  tokengraft evaluate MODEL DIR --text OTHER_TEXT             what was gained
MODEL: a folder with weights, or a tokenizer. More: tokengraft --help"""
"""What is shown without a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns its exit status.

    - 0: success
    - 1: `check` found a failure
    - 2: the input is wrong, or the output cannot be written
    - 128 + n: signal n stopped the process; unfinished output has been removed
    """
    with checked_streams() as has_stdout, on_command_line():
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
        if not given:
            print(START)
            return 0
        with _loading_back(given):
            options = build_parser(given[:1]).parse_args(given)  # only the command that runs is imported
            options.arguments = [*given]
            from tokengraft.corpus.options import only_paths

            with only_paths():
                status: int = options.run(options)
        return status
    finally:  # A full disk can be reported here, not at exit. `--help` raises, so `finally` is needed.
        sys.stdout.flush()


_LOAD_BACK = {"adapt", "check", "convert", "extend", "prune"}
_NO_RESULT = {"-h", "--help", "--help-all", "--curve", "--dry-run"}


def _loading_back(given: Sequence[str]) -> AbstractContextManager[None]:
    """Lets another process import transformers while this one imports the command, if that loads its result back."""
    if given[0] not in _LOAD_BACK or not _NO_RESULT.isdisjoint(given):
        return nullcontext()
    from tokengraft.verify.transformers_loader import transformers_started

    return transformers_started()


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


class Stopped(BaseException):
    """A signal asked the process to stop. Raised as an exception, so that all cleanup code runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def resumable(work: Path, arguments: Sequence[str], what: str) -> Iterator[None]:
    """If a signal stops the block, says what (in words) was kept in the work folder, and the command to go on."""
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        if work.is_dir() and any(work.iterdir()):
            from tokengraft.corpus.files import input_without_credentials

            shown = [input_without_credentials(argument) for argument in arguments]
            again = "" if shown == [*arguments] else "; credentials in URLs are not shown: add them again"
            print(escaped(f"kept: {what} in `{work}`"), file=sys.stderr)
            command = escaped(shlex.join(["tokengraft", *shown]))
            print(f"go on with the same command: `{command}`{again}", file=sys.stderr)
        else:
            print("nothing was kept: the command starts again from the beginning", file=sys.stderr)
        raise


@contextmanager
def checked_streams() -> Iterator[bool]:
    """Replaces stdout and stderr: a failed write to stdout raises an `OutputError`, a failed write to stderr does not.

    Yields whether stdout is open. A shell can close it (`>&-`).
    """
    before = sys.stdout, sys.stderr
    _open_closed()
    opened = sys.stdout, sys.stderr
    sys.stdout = cast("TextIO", _Checked(opened[0], required=True))
    sys.stderr = cast("TextIO", _Checked(opened[1], required=False))
    try:
        yield before[0] is not None
    finally:
        sys.stdout, sys.stderr = opened


def _open_closed() -> None:
    """Opens the null device for closed standard streams, so that no other file gets the descriptors 0 to 2."""
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    descriptor = 0
    while closed and descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDWR)
    for name in closed:
        setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123 (for as long as the process runs)


class _Checked:
    """A stream whose first failed write is reported if `required`. Later output is discarded."""

    def __init__(self, stream: TextIO, *, required: bool) -> None:
        self._stream, self._required = stream, required
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # not every terminal can show `▁`

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._fail(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        # Python flushes again at exit, and would print a second error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        if self._required and isinstance(error, BrokenPipeError):
            raise error
        if self._required:
            raise OutputError(
                f"cannot write to stdout: {error.strerror}", hint="check the disk that it is redirected to"
            ) from error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
