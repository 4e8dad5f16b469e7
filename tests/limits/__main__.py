"""Runs the cases and prints a table of time, memory and result: `python -m limits [NAME ...]`."""

import argparse
import sys
import tempfile
from pathlib import Path

from limits.cases import CASES
from limits.processes import GIGABYTE, Limits, run


def main() -> int:
    """Runs the chosen cases. The status is 1 if a command failed, or ran out of memory or time."""
    parser = argparse.ArgumentParser(prog="python -m limits", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"cases, by default all: {', '.join(CASES)}")
    parser.add_argument("--memory", type=float, default=8, metavar="GB", help="address space of a command")
    parser.add_argument("--seconds", type=float, default=300, help="time of a command")
    parser.add_argument("--scale", type=float, default=1, help="size of the inputs; 1 is the full size")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in CASES]
    if unknown:
        parser.error(f"there is no case {unknown[0]!r}")
    failures = 0
    print(f"{'case':<28} {'command':<52} {'result':<8} {'seconds':>8} {'peak MB':>8}  message")
    for name in options.names or CASES:
        with tempfile.TemporaryDirectory(prefix="limits-") as folder:
            for step in CASES[name](Path(folder), options.scale):
                limits = Limits(int(options.memory * GIGABYTE), options.seconds, step.files)
                done = run(step.arguments, limits, code=step.code, stdin=step.stdin)
                failures += done.result.isupper()
                message = "" if done.result == "done" else done.message[:300]
                row = f"{name:<28} {step.label[:52]:<52} {done.result:<8} {done.seconds:>8.1f} {done.peak / 1e6:>8.0f}"
                print(f"{row}  {message}", flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
