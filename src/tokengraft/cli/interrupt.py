"""Signals that stop a command: as exceptions, and with a message about what was kept and how to go on."""

import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tokengraft.corpus.remote import input_without_credentials
from tokengraft.errors import escaped


class Stopped(BaseException):
    """A signal asked the process to stop. Raised as an exception, so that all cleanup code runs."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def resumable(work: Path, arguments: Sequence[str], what: str) -> Iterator[None]:
    """If a signal stops the block, says what was kept in the work folder, and the command to go on.

    Args:
        work: The folder with what an interrupted run keeps.
        arguments: The arguments of the command.
        what: What is kept there.
    """
    try:
        yield
    except (KeyboardInterrupt, Stopped):
        if work.is_dir() and any(work.iterdir()):
            shown = [input_without_credentials(argument) for argument in arguments]
            again = "" if shown == [*arguments] else "; credentials in URLs are not shown: add them again"
            print(escaped(f"kept: {what} in `{work}`"), file=sys.stderr)
            command = escaped(shlex.join(["tokengraft", *shown]))
            print(f"go on with the same command: `{command}`{again}", file=sys.stderr)
        else:
            print("nothing was kept: the command starts again from the beginning", file=sys.stderr)
        raise
