"""Runs targets in worker processes for some time, or for some cases each, and adds up what became of the cases."""

import json
import os
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from fuzz.cases import FINDING, open_cases, write_seeds
from fuzz.worker import keep

ROOT = Path(__file__).parents[2]
MAX_SILENCE = 60.0
"""Seconds after which a worker that does not start another case is killed. Its time on a processor is what counts, so
this is more than the ten seconds that a case may take."""


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
    slowest: float = 0.0
    largest: int = 0
    findings: list[tuple[str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: "Tally") -> None:
        """Adds the cases of another process."""
        self.kinds += other.kinds
        self.reasons += other.reasons
        self.slowest, self.largest = max(self.slowest, other.slowest), max(self.largest, other.largest)
        self.findings += other.findings
        self.seconds += other.seconds

    def add_case(self, kind: str, reason: str, seconds: float, growth: int, found: list[str] | None) -> None:
        """Adds what a worker says of a case."""
        reasons = Counter([reason] if reason and not found else [])
        findings = [(found[0], found[1])] if found else []
        self.add(Tally(Counter([kind]), reasons, seconds, growth, findings, seconds))


def run(plan: Plan) -> dict[str, Tally]:
    """Runs the targets of a plan, each for about the same time."""
    tallies = {name: Tally() for name in plan.targets}
    plan.findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tokengraft-fuzz-") as folder, ThreadPoolExecutor(plan.jobs) as pool:
        seeds = Path(folder, "seeds")
        write_seeds([*plan.targets], seeds)
        end = time.time() + plan.seconds if plan.seconds is not None else None
        for found in pool.map(lambda job: _run_job(plan, seeds, job, end), range(plan.jobs)):
            for name, tally in found.items():
                tallies[name].add(tally)
    return tallies


def _run_job(plan: Plan, seeds: Path, job: int, end: float | None) -> dict[str, Tally]:
    """Every case whose index is this job's, one process after another: a case may end the process that runs it."""
    tallies = {name: Tally() for name in plan.targets}
    following = dict.fromkeys(plan.targets, job)
    while True:
        state = {name: (following[name], tallies[name].seconds) for name in plan.targets}
        options = {"seed": plan.seed, "step": plan.jobs, "cases": plan.cases, "end": end}
        places = {"seeds": str(seeds), "findings": str(plan.findings)}
        running = None
        with tempfile.TemporaryFile() as log:
            process = _start(json.dumps(options | places | {"state": state}), log)
            for line in _lines(process):
                name, index, *result = json.loads(line)
                running = None if result else (name, index)
                if result:
                    following[name] = index + plan.jobs
                    tallies[name].add_case(*result)
            status = process.wait()
            process.stdout.close()
            log.seek(0)
            messages = log.read()[-2000:].decode(errors="replace")
        if running is None:
            if status:
                raise RuntimeError(f"a worker ended with the status {status} before its cases: {messages}")
            if all(plan.cases is not None and index >= plan.cases for index in following.values()) or (
                end is not None and time.time() > end
            ):
                return tallies
        else:
            name, index = running
            files, _ = open_cases(name, plan.seed, seeds).files(index)
            report = f"{messages}\nthe process died or hung, with the status {status}"
            tallies[name].add_case(FINDING, "", 0.0, 0, keep(plan.findings, name, plan.seed, index, files, report))
            following[name] = index + plan.jobs


def _start(state: str, log: object) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RUST_BACKTRACE": "0"}
    command = [sys.executable, "-m", "fuzz.worker", state]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT, env=environment)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """The lines that a process prints until it ends. If it is silent for too long, it is killed."""
    rest = b""
    while select.select([process.stdout], [], [], MAX_SILENCE)[0]:
        data = os.read(process.stdout.fileno(), 1 << 16)
        if not data:
            return
        *lines, rest = (rest + data).split(b"\n")
        yield from lines
    process.kill()
