"""`Server.run`: runs a command of tokengraft with a fault at the n-th call that changes a file."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
ALL = os.environ.get("FAULTS") == "all"
"""Whether every call of a command is tried, as `make faults` does, or a selection."""


class Action(IntEnum):
    """What happens at a call."""

    NOTHING, KILL, KILL_HALFWAY, FAIL, SHORT, SIGNAL = range(6)


class Group(IntFlag):
    """Groups of calls."""

    WRITE, CREATE, RENAME, REMOVE, SYNC = 1, 2, 4, 8, 16
    ALL = 31
    NEEDS_SPACE = 3


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th call of some groups, or from there on."""

    action: Action = Action.NOTHING
    value: int = 0
    """An errno for `FAIL`, a signal for `SIGNAL`."""
    at: int = 0
    repeated: bool = False
    groups: Group = Group.ALL
    without_renameat2: bool = False

    def at_call(self, n):
        return replace(self, at=n)


NO_FAULT = Fault()


class Ended(NamedTuple):
    """How a command ended."""

    status: int | str
    calls: int
    last: str
    """The call at which the fault happened."""
    stdout: str
    stderr: str


class Server:
    """A process that has everything imported, and forks for each run."""

    def __init__(self, folder):
        self.folder, self.runs = folder, 0
        library = folder / "injector.so"
        compiler = shutil.which("cc") or shutil.which("gcc")
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, HERE / "injector.c", "-ldl"], check=True)
        paths = os.pathsep.join([str(SOURCE), os.environ.get("PYTHONPATH", "")])
        quiet = {"PYTHONDONTWRITEBYTECODE": "1", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment = {**os.environ, **quiet, "LD_PRELOAD": str(library), "PYTHONPATH": paths}
        pipe = subprocess.PIPE
        command = [sys.executable, HERE / "fork_server.py"]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, encoding="utf-8")

    def run(self, arguments, folder, fault=NO_FAULT):
        """Runs a command in a folder, with a temporary folder `tmp` there."""
        (folder / "tmp").mkdir(exist_ok=True)
        self.runs += 1
        request = {
            "arguments": [*map(str, arguments)],
            "folder": str(folder),
            "environment": {"TMPDIR": str(folder / "tmp"), "SOURCE_DATE_EPOCH": "0"},
            "stdout": str(self.folder / f"stdout-{self.runs % 2}"),
            "stderr": str(self.folder / f"stderr-{self.runs % 2}"),
        }
        request |= {name: getattr(fault, name) for name in ("at", "action", "value", "repeated", "groups")}
        return self._ask(request | {"without_renameat2": fault.without_renameat2})

    def resume(self):
        """Lets the command that a fault stopped (SIGSTOP) go on to its end."""
        return self._ask({"continue": True})

    def _ask(self, request):
        print(json.dumps(request), file=self.process.stdin, flush=True)
        ended = Ended(**json.loads(self.process.stdout.readline()))
        assert ended.status != "hung", f"hung after {ended.last}: {ended.stderr}"
        return ended

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def selected(n_calls):
    """The calls to try: all of them, or one in the middle and the last two."""
    if ALL:
        return range(1, n_calls + 1)
    some = {n_calls // 2, n_calls - 1, n_calls}
    return sorted(n for n in some if n >= 1)
