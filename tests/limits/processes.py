"""Runs a command in a process with limits of memory and time, and measures what it used."""

import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

GIGABYTE = 1 << 30
CHILD = """
import atexit, os, re, sys
def note():
    peak = int(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
    open(os.environ["LIMITS_PEAK"], "w").write(str(peak * 1024))
atexit.register(note)
"""
COMMAND = "from tokengraft.cli.main import main; sys.exit(main(sys.argv[1:]))"


@dataclass(frozen=True)
class Limits:
    """What a process may use."""

    memory: int = 8 * GIGABYTE
    """Bytes of address space, of which most is never used."""
    seconds: float = 120
    files: int | None = None
    """Open files."""


@dataclass(frozen=True)
class Outcome:
    """What became of a process."""

    status: int
    seconds: float
    peak: int
    """Bytes of memory that it held at once."""
    messages: str
    timed_out: bool

    @property
    def result(self) -> str:
        """In a word: done, refused, or a failure in capitals."""
        if self.timed_out:
            return "TIMEOUT"
        if self.status in (0, 1) and "Traceback" not in self.messages:
            return "done"
        has_message = re.search(r"^error: ", self.messages, re.M)
        return "refused" if self.status == 2 and has_message else "FAILED"

    @property
    def message(self) -> str:
        """The error, or the last line."""
        lines = self.messages.strip().splitlines() or [""]
        return next((line for line in lines if line.startswith("error: ")), lines[-1])


def run(arguments: list[str], limits: Limits, *, code: str = COMMAND, stdin: Path | None = None) -> Outcome:
    """Runs a tokengraft command, or Python code with these arguments."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limits.memory, limits.memory))
        if limits.files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limits.files, limits.files))

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as messages:
        peak, start = Path(folder) / "peak", time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD + code, *arguments],
            stdin=stdin.open("rb") if stdin else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=messages,
            env=os.environ | {"LIMITS_PEAK": str(peak)},
            preexec_fn=limit,
        )
        timed_out = False
        try:
            process.wait(limits.seconds)
        except subprocess.TimeoutExpired:
            timed_out = True
            process.kill()
            process.wait()
        seconds = time.perf_counter() - start
        messages.seek(0)
        text = messages.read().decode(errors="replace")
        used = int(peak.read_text()) if peak.exists() else 0
    return Outcome(process.returncode, seconds, used, text, timed_out)
