"""Runs commands of tokengraft in forked processes, each with a fault. Started by `injection.Server`, with the injector.

Everything is imported once; a run then takes as long as its work. Requests and answers are lines of JSON. Processes are
forked before this one has a thread, and each has its own standard streams, working folder and temporary folder.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path

import tokengraft as tg
from tokengraft.cli.main import build_parser, main
from tokengraft.output import atomic


class Fault(ctypes.Structure):
    """`struct fault` of the injector."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("calls", "at", "action", "value", "repeated", "groups")),
        ("last", ctypes.c_char * 4096),
    ]


NUMBERS = ("at", "action", "value", "repeated", "groups")
SHARED = mmap.mmap(-1, ctypes.sizeof(Fault))
FAULT = Fault.from_buffer(SHARED)
DEADLINE = 120


def watch(fault):
    """Lets the injector read what happens, or nothing for None."""
    ctypes.CDLL(None).watch(fault)


def import_all():
    """Imports every module of the package that needs no torch, and what they import when they run."""
    sys.modules["transformers"] = None  # as if it were not installed: the process that imports it takes seconds
    for name in ("gguf", "numpy", "pyarrow.parquet", "tokenizers", "tokengraft.page.report"):
        import_module(name)
    for name in tg.__all__:
        getattr(tg, name)
    build_parser()
    import_module("tokengraft.pipeline.adapt").WORTH_KEEPING = 0  # counts of tiny texts are written too


def run(request):
    """The process of a command: never returns."""
    try:
        os.setsid()
        os.chdir(request["folder"])
        os.environ.update(request["environment"])
        tempfile.tempdir = request["environment"]["TMPDIR"]  # else Python writes a file there to try it
        for descriptor, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
        if request["without_renameat2"]:
            atomic.renameat2 = lambda *_: False
        watch(ctypes.byref(FAULT))
        status = status_of(request["arguments"])
        watch(None)
    except BaseException:
        watch(None)
        traceback.print_exc()
        status = 70
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


def status_of(arguments):
    """The exit status of a command; 70 and a traceback for an exception that it does not handle."""
    try:
        return main(arguments)
    except SystemExit as error:
        return error.code


def wait(child):
    """The exit status of a process, negative for a signal; `stopped`, or `hung` if it runs for two minutes."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
        if found:
            return "stopped" if os.WIFSTOPPED(status) else os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "hung"


def start(request):
    """Forks the process of a command."""
    ctypes.memset(ctypes.byref(FAULT), 0, ctypes.sizeof(Fault))
    for name in NUMBERS:
        setattr(FAULT, name, request[name])
    child = os.fork()
    if not child:
        run(request)
    return child


def serve():
    """Answers requests until stdin ends. A command that was stopped goes on when `continue` is requested."""
    import_all()
    stopped = []
    for line in sys.stdin:
        request = json.loads(line)
        if request.get("continue"):
            child, request = stopped.pop()
            os.kill(child, signal.SIGCONT)
        else:
            child = start(request)
        status = wait(child)
        if status == "stopped":
            stopped.append((child, request))
        answer = {
            "status": status,
            "calls": FAULT.calls,
            "last": FAULT.last.decode(errors="replace"),
            "stdout": Path(request["stdout"]).read_text(errors="replace"),
            "stderr": Path(request["stderr"]).read_text(errors="replace"),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve()
