"""Runs commands and Python code in processes of their own, and measures them. A failing command ends the benchmark.

The memory of a process is never reported as less than that of the process that started it. Modules that load large
libraries are therefore run as scripts, not imported.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

ROUNDS = 3
Action = Callable[[int], "Run"]
"""Something to measure, given the number of the round."""


@dataclass(frozen=True)
class Run:
    """What a process used."""

    wall: float
    cpu: float
    """User and system seconds of the process and its children."""
    peak: int
    """The largest amount of memory that it held, in bytes."""


def command(*arguments: object, environment: Mapping[str, str] | None = None) -> Run:
    """Runs a command as a user would, from the start of the process to its end."""
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile() as messages:
        start = time.perf_counter()
        env = {**os.environ, **(environment or {})}
        env.pop("PYTHONDONTWRITEBYTECODE", None)  # modules would be compiled in every run, which no user waits for
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=messages, env=env)
        try:
            _, status, used = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            raise
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            messages.seek(0)
            _fail(words, process.returncode, messages.read().decode(errors="replace"))
    return Run(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def tokengraft(*arguments: object, without: str | None = None) -> Run:
    """Runs a tokengraft command. ``without`` names a package that it must not find."""
    # A module that is set to None cannot be imported.
    hide = f"sys.modules[{without!r}] = None; " if without else ""
    return command(
        sys.executable, "-c", f"import sys; {hide}from tokengraft.cli.main import main; sys.exit(main())", *arguments
    )


def script(name: str, *arguments: object) -> Run:
    """Runs a module of this folder."""
    return command(sys.executable, "-m", f"lab.benchmarks.{name}", *arguments)


def in_python(code: str, *arguments: object) -> Any:
    """What Python code prints as JSON, in a fresh process. Its arguments are in `arguments`, as strings."""
    words = [sys.executable, "-c", _PRELUDE + code, *map(str, arguments)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        _fail(words, done.returncode, done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


_PRELUDE = """
import json, resource, sys, time
arguments = sys.argv[1:]

def timed(action):
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    result = action()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": wall, "cpu": cpu}, result

def fastest(action, rounds):
    return min((timed(action)[0] for _ in range(rounds)), key=lambda run: run["wall"])

def peak():
    status = open("/proc/self/status").read().splitlines()
    return int(next(line for line in status if line.startswith("VmHWM")).split()[1]) * 1024

def forget_peak():
    open("/proc/self/clear_refs", "w").write("5")
"""


def _fail(words: list[str], code: int, messages: str) -> NoReturn:
    raise SystemExit(f"benchmark: exit status {code} of: {shlex.join(words)}\n{messages}")


def in_turn(actions: Mapping[str, Action], rounds: int = ROUNDS) -> dict[str, dict[str, Any]]:
    """The fastest run of each action. They take turns, so that a slow minute of the machine is shared by all."""
    runs: dict[str, list[Run]] = {name: [] for name in actions}
    for number in range(rounds):
        for name, action in actions.items():
            runs[name].append(action(number))
    return {name: _fastest(found) for name, found in runs.items()}


def _fastest(runs: list[Run]) -> dict[str, Any]:
    return asdict(min(runs, key=lambda run: run.wall)) | {"runs": [run.wall for run in runs]}


def words(path: Path) -> Run:
    """`wc -w` in a UTF-8 locale: it decodes every character, as counting pretokens must."""
    return command("wc", "-w", path, environment={"LC_ALL": "C.UTF-8"})
