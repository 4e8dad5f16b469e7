"""Runs targets in worker processes for some time, or for some cases each, and adds up what became of the cases."""

import json
import os
import selectors
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.cases import FINDING, open_cases, write_seeds
from fuzz.worker import keep, signature

ROOT = Path(__file__).parents[2]
BATCH = 50
MAX_SILENCE = 60.0
"""Seconds after which a worker that does not start another case is killed. Its time on a processor is what counts, so
this is more than the ten seconds that a case may take."""
CASES_PER_WORKER = 20_000
"""A new worker then takes over, so that what the caches of libraries hold does not add up."""


@dataclass(frozen=True)
class Plan:
    """What is run."""

    targets: tuple[str, ...]
    seed: int = 0
    jobs: int = 1
    seconds: float | None = None
    cases: int | None = None
    """Cases of each target; None to go on until the time is over."""
    findings: Path = ROOT / "build" / "fuzz"


@dataclass
class Tally:
    """What became of the cases of a target."""

    kinds: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    slowest: tuple[float, int] = (0.0, -1)
    largest: tuple[int, int] = (0, -1)
    findings: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0
    next_index: int = 0

    def add(self, answer: dict[str, object], seconds: float) -> None:
        """Adds the answer of a worker."""
        self.kinds.update(answer["kinds"])
        self.reasons.update(answer["reasons"])
        self.slowest = max(self.slowest, tuple(answer["slowest"]))
        self.largest = max(self.largest, tuple(answer["largest"]))
        self.findings += [(folder, cause) for folder, cause in answer["findings"]]
        self.seconds += seconds


class Worker:
    """A process that runs batches of cases."""

    def __init__(self, plan: Plan, folder: Path, number: int) -> None:
        self.plan, self.folder = plan, folder
        self.progress = folder / f"progress-{number}"
        self.batch: tuple[str, int, int] | None = None
        self.started = 0.0
        self.seen = (-1, 0.0)
        self.n_cases = 0
        self._start()

    def _start(self) -> None:
        self.progress.write_bytes(struct.pack("<q", -1))
        arguments = [str(self.plan.seed), str(self.folder / "seeds"), str(self.progress), str(self.plan.findings)]
        self.log = (self.folder / f"{self.progress.name}.log").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fuzz.worker", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RUST_BACKTRACE": "0"},
            text=True,
        )
        self.n_cases = 0

    def give(self, name: str, start: int, count: int) -> None:
        """Gives the process a batch."""
        if self.n_cases > CASES_PER_WORKER:
            self.restart()
        self.batch, self.started = (name, start, count), time.monotonic()
        self.progress.write_bytes(struct.pack("<q", start))
        self.seen = (start, self.started)
        self.n_cases += count
        with suppress(BrokenPipeError):
            self.process.stdin.write(f"{name} {start} {count}\n")
            self.process.stdin.flush()

    def current(self) -> int:
        """The index of the case that it runs."""
        return int(struct.unpack("<q", self.progress.read_bytes())[0])

    def hangs(self) -> bool:
        """Whether it has been running one case for too long."""
        index = self.current()
        if index != self.seen[0]:
            self.seen = (index, time.monotonic())
        return self.batch is not None and time.monotonic() - self.seen[1] > MAX_SILENCE

    def end_of_log(self) -> str:
        """What it wrote to standard error, at the end."""
        self.log.seek(0)
        return self.log.read()[-2000:].decode(errors="replace")

    def stop(self) -> int:
        """Ends the process."""
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with suppress(BrokenPipeError):
                stream.close()
        return self.process.wait()

    def restart(self) -> None:
        """Starts a new process in its place."""
        self.close()
        self._start()

    def close(self) -> None:
        """Ends the process, and forgets what it wrote."""
        self.stop()
        self.log.close()


def run(plan: Plan) -> dict[str, Tally]:
    """Runs the targets of a plan, each for about the same time."""
    tallies = {name: Tally() for name in plan.targets}
    plan.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tokengraft-fuzz-") as name:
        write_seeds([*plan.targets], Path(name, "seeds"))
        with _workers(plan, Path(name)) as workers:
            _loop(plan, workers, tallies)
    return tallies


@contextmanager
def _workers(plan: Plan, folder: Path) -> Iterator[list[Worker]]:
    workers: list[Worker] = []
    try:
        workers += [Worker(plan, folder, number) for number in range(plan.jobs)]
        yield workers
    finally:
        for worker in workers:
            worker.close()


def _loop(plan: Plan, workers: list[Worker], tallies: dict[str, Tally]) -> None:
    end = time.monotonic() + (plan.seconds if plan.seconds is not None else float("inf"))
    last = time.monotonic()
    while True:
        for worker in workers:
            if worker.batch is None and time.monotonic() < end:
                _give(plan, worker, tallies)
        if all(worker.batch is None for worker in workers):
            return
        _wait(workers)
        for worker in workers:
            _collect(worker, tallies)
        if time.monotonic() - last > 60:
            last = time.monotonic()
            cases = sum(sum(tally.kinds.values()) for tally in tallies.values())
            found = sum(len(tally.findings) for tally in tallies.values())
            print(f"{cases:,} cases, {found:,} findings", file=sys.stderr, flush=True)


def _give(plan: Plan, worker: Worker, tallies: dict[str, Tally]) -> None:
    """The next cases of the target that had the least time so far."""
    open_targets = [name for name in tallies if plan.cases is None or tallies[name].next_index < plan.cases]
    if not open_targets:
        return
    name = min(open_targets, key=lambda name: tallies[name].seconds)
    tally = tallies[name]
    count = BATCH if plan.cases is None else min(BATCH, plan.cases - tally.next_index)
    worker.give(name, tally.next_index, count)
    tally.next_index += count
    tally.seconds += 1e-3  # so that two workers do not take the same target at the start


def _wait(workers: list[Worker]) -> None:
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.batch is not None:
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
        for key, _ in selector.select(timeout=1.0):
            key.data.answer = key.fileobj.readline()


def _collect(worker: Worker, tallies: dict[str, Tally]) -> None:
    """Adds what a worker answered; if it died or hangs, the case is a finding and the rest of its batch is run."""
    if worker.batch is None:
        return
    name, start, count = worker.batch
    answer = vars(worker).pop("answer", None)
    if answer:
        tallies[name].add(json.loads(answer), time.monotonic() - worker.started)
        worker.batch = None
    elif answer == "" or worker.hangs():
        _record_end(worker, tallies[name], hung=answer is None)
        index = worker.current()
        worker.restart()
        worker.batch = None
        # What the process knew of the cases before it is lost; they are run again.
        tallies[name].add(
            {"kinds": {FINDING: 1}, "reasons": {}, "slowest": (0, -1), "largest": (0, -1), "findings": []}, 0
        )
        for first, n in ((start, index - start), (index + 1, start + count - index - 1)):
            if n > 0:
                _finish(worker, tallies[name], name, first, n)


def _finish(worker: Worker, tally: Tally, name: str, start: int, count: int) -> None:
    """Runs the cases of a batch beside the one that ended a process, which may end the process again."""
    worker.give(name, start, count)
    while True:
        _wait([worker])
        answer = vars(worker).pop("answer", None)
        if answer:
            tally.add(json.loads(answer), time.monotonic() - worker.started)
            worker.batch = None
            return
        if answer == "" or worker.hangs():
            _record_end(worker, tally, hung=answer is None)
            index = worker.current()
            tally.kinds[FINDING] += 1
            worker.restart()
            worker.batch = None
            if index + 1 < start + count:
                _finish(worker, tally, name, index + 1, start + count - index - 1)
            return


def _record_end(worker: Worker, tally: Tally, *, hung: bool) -> None:
    """Keeps the case that a process died of."""
    name, _, _ = worker.batch
    index = worker.current()
    status = worker.stop()
    reason = f"no end after {MAX_SILENCE:.0f} seconds" if hung else f"the process died with the status {status}"
    files, _ = open_cases(name, worker.plan.seed, worker.folder / "seeds").files(index)
    report = f"{worker.end_of_log()}\n{reason}"
    folder, _ = keep(worker.plan.findings, name, worker.plan.seed, index, files, report)
    tally.findings.append((folder, signature(report)))
