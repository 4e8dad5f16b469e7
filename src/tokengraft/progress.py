"""`logger`: what long operations are doing, for `logging`, under the name `tokengraft`. By default nothing is shown.

Progress on stderr: one line for each stage. On a terminal it has a bar; otherwise a long stage adds plain lines.
"""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from tokengraft.errors import Progress, escaped

if TYPE_CHECKING:
    from rich.progress import Task, TaskID

logger = logging.getLogger("tokengraft")
logger.addHandler(logging.NullHandler())


@contextmanager
def stage(what: str) -> Iterator[None]:
    """Logs the start of a long operation and how long it took, at the level INFO. Also a decorator."""
    logger.info("%s", what)
    start = time.monotonic()
    yield
    logger.info("%s: done in %.1f s", what, time.monotonic() - start)


SECONDS = 5.0
"""Between two lines about one stage, if stderr is no terminal."""
ENOUGH_SHARE, ENOUGH_BYTES = 0.05, 16_000_000
"""A rate and the time left are shown once so much is done, the smaller of the two: the first blocks and small files say
little about the speed of the rest."""
Unit = Literal["bytes", "tokens", "share"]


class Stages:
    """What a command or `adapt` reports to: the start of each stage, and how much of it is done. Shows nothing."""

    def start(self, name: str, unit: Unit = "bytes") -> None:
        """Ends the last stage, and starts one."""

    def update(self, part: str, more: int, total: int) -> None:
        """Reports units of the stage that are done since the last call, and their total; 0 if it is unknown."""

    def note(self, text: str) -> None:
        """Shows a line about the stage: above the bar, and in it."""


@contextmanager
def stages(*, quiet: bool) -> Iterator[Stages]:
    """Shows the stages of a command or of `adapt`; nothing if ``quiet``."""
    if quiet or sys.stderr is None:  # a program without a console has no stderr
        yield Stages()
    elif sys.stderr.isatty():
        shown = _Bars()
        with shown.bars:
            yield shown
            shown.end()
    else:
        yield _Lines()


@contextmanager
def one_stage(what: str, *, quiet: bool) -> Iterator[Progress | None]:
    """A callback that shows how much of one stage is done; None if ``quiet``."""
    with stages(quiet=quiet) as shown:
        shown.start(what)
        yield None if quiet else shown.update


def amount(done: float, total: float, unit: Unit) -> str:
    """How much is done.

    >>> amount(1_250_000, 22_600_000, "bytes"), amount(800, 16_000, "tokens"), amount(1, 4, "share")
    ('1.2/22.6 MB', '800/16,000 tokens', '25%')
    """
    if unit == "share":
        return f"{done / total:.0%}" if total else ""
    scale, form, name = (1e6, ",.1f", "MB") if unit == "bytes" else (1, ",.0f", "tokens")
    return f"{done / scale:{form}}{f'/{total / scale:{form}}' if total else ''} {name}"


def estimate(done: float, total: float, per_second: float, unit: Unit) -> tuple[str, str]:
    """The rate and the time left; both empty before enough is done to estimate them.

    >>> estimate(6_000_000, 24_000_000, 2_000_000, "bytes"), estimate(100_000, 12_000_000, 10_000, "bytes")
    (('2.0 MB/s', '9 s left'), ('', ''))
    >>> estimate(5_000, 10_000, 1234.5, "tokens")
    ('1,234/s', '4 s left')
    """
    enough = ENOUGH_SHARE * total if total else ENOUGH_BYTES
    if not per_second or done < (min(enough, ENOUGH_BYTES) if unit == "bytes" else enough):
        return "", ""
    left = f"{duration((total - done) / per_second)} left" if total > done else ""
    rates = {"bytes": f"{per_second / 1e6:,.1f} MB/s", "tokens": f"{per_second:,.0f}/s", "share": ""}
    return rates[unit], left


def duration(seconds: float) -> str:
    """A duration: seconds, minutes or hours.

    >>> duration(7.3), duration(75), duration(3700)
    ('7 s', '1:15', '1:01:40')
    """
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    if hours:
        return f"{hours}:{minutes:02}:{whole % 60:02}"
    return f"{minutes}:{whole % 60:02}" if minutes else f"{whole} s"


class _Lines(Stages):
    """A line when a stage starts, and one every five seconds with what is done, the rate, and the time left."""

    def start(self, name: str, unit: Unit = "bytes") -> None:
        print(escaped(name), file=sys.stderr)
        self.name, self.unit, self.done, self.total = name, unit, 0, 0
        self.last = time.monotonic()
        self.first: tuple[float, int] | None = None
        """When the first report came, and what was done then. Files are opened and libraries imported before it."""

    def update(self, part: str, more: int, total: int) -> None:
        self.done += more
        self.total = total = total or self.total
        now = time.monotonic()
        self.first = self.first or (now, self.done)
        if now - self.last < SECONDS:
            return
        self.last = now
        seconds = now - self.first[0]
        speed = (self.done - self.first[1]) / seconds if seconds else 0.0
        facts = (amount(self.done, total, self.unit), *estimate(self.done, total, speed, self.unit), part)
        print(escaped(f"{self.name}: {', '.join(filter(None, facts))}"), file=sys.stderr)

    def note(self, text: str) -> None:
        print(escaped(f"{self.name}: {text}"), file=sys.stderr)


class _Bars(Stages):
    """A bar for each stage. Those of finished stages stay, with the time that they took."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, ProgressColumn, TextColumn
        from rich.progress import Progress as Bars
        from rich.text import Text

        class Facts(ProgressColumn):
            """What is done of a stage, the rate and the time left; of a finished one, the time that it took."""

            max_refresh = 0.5

            def render(self, task: "Task") -> Text:
                unit, done, total = task.fields["unit"], task.completed, task.total or 0
                facts: tuple[str, ...] = (duration(task.elapsed or 0.0),)
                if task.fields["ended"]:
                    facts = (amount(done, 0, unit) if done and unit != "share" else "", *facts)
                elif done:
                    facts = (amount(done, total, unit), *estimate(done, total, task.speed or 0.0, unit))
                return Text(", ".join(filter(None, facts)), no_wrap=True)

        columns = (TextColumn("{task.description}", markup=False, table_column=None), BarColumn(bar_width=16), Facts())
        self.bars = Bars(*columns, console=Console(stderr=True))
        self.task: TaskID | None = None

    def start(self, name: str, unit: Unit = "bytes") -> None:
        self.end()
        self.task = self.bars.add_task(escaped(name), total=None, unit=unit, ended=False)

    def update(self, part: str, more: int, total: int) -> None:  # noqa: ARG002 (part: a bar has no room for it)
        if self.task is not None:
            self.bars.update(self.task, advance=more, total=total or None)

    def note(self, text: str) -> None:
        from rich.text import Text

        self.bars.console.print(Text(escaped(text)))
        if self.task is not None:
            name = self.bars.tasks[-1].description.partition(": ")[0]
            self.bars.update(self.task, description=f"{name}: {escaped(text).rpartition(': ')[2]}")

    def end(self) -> None:
        """Fills the bar of the last stage."""
        if self.task is not None:
            self.bars.update(self.task, total=self.bars.tasks[-1].completed, ended=True)
            self.bars.stop_task(self.task)
            self.task = None
