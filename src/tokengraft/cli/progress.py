"""Progress of a long step on stderr: a bar on a terminal, otherwise a line every five seconds."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tokengraft.errors import Progress

SECONDS = 5.0


@contextmanager
def bytes_read(what: str, *, quiet: bool) -> Iterator[Progress | None]:
    """A callback that shows how many bytes have been read; None if ``quiet``."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _bar(what) as update:
            yield update
    else:
        yield _lines(what)


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def update(_: str, more: int, size: int) -> None:
            bar.update(task, advance=more, total=size or None)

        yield update


def _lines(what: str) -> Progress:
    start = last = time.monotonic()
    done = 0

    def update(name: str, more: int, size: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            of = f" of {size / 1e6:,.0f}" if size else ""
            print(f"{what}: {done / 1e6:,.0f}{of} MB, {done / 1e6 / (now - start):,.0f} MB/s, {name}", file=sys.stderr)

    return update


@contextmanager
def share_done(what: str, *, quiet: bool) -> Iterator[Progress | None]:
    """A callback that shows which share of the work is done, and of which part; None if ``quiet``."""
    if quiet:
        yield None
    elif sys.stderr.isatty():
        with _share_bar(what) as update:
            yield update
    else:
        yield _share_lines(what)


@contextmanager
def _share_bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def update(part: str, more: int, total: int) -> None:
            bar.update(task, advance=more, total=total, description=f"{what}: {part}")

        yield update


def _share_lines(what: str) -> Progress:
    start = last = time.monotonic()
    done = 0

    def update(part: str, more: int, total: int) -> None:
        nonlocal done, last
        done += more
        now = time.monotonic()
        if now - last >= SECONDS:
            last = now
            left = (now - start) * (total - done) / max(done, 1)
            print(f"{what}: {done / max(total, 1):.0%}, about {left:,.0f} s left, {part}", file=sys.stderr)

    return update
