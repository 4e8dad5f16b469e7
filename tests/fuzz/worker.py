"""The process that runs cases: a panic, an abort or a hang ends it and not the run.

It prints a line of JSON with target and index before each case, so that the parent knows which case it died of, and
another one with the outcome after it.
"""

import json
import os
import re
import resource
import sys
import time
from pathlib import Path
from typing import Any

BATCH = 50
CASES_PER_WORKER = 20_000
"""A new worker then takes over, so that what the caches of libraries hold does not add up."""
VALUE = re.compile(r"[\[{`'\"]|\d")
"""Where the values in a message begin."""
MAX_MEMORY = 8 << 30
"""The address space of the process. Threads and pools of libraries reserve some gigabytes that they never use."""


def main(plan: dict[str, Any]) -> None:
    """Runs the next cases of the target that had the least time so far, until cases or time are over."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what libraries print is no answer
    from fuzz.cases import FINDING, open_cases  # imported here, so that a limit holds for all that the import does

    following, seconds = ({name: part[at] for name, part in plan["state"].items()} for at in (0, 1))
    most, end, seeds = plan["cases"] or float("inf"), plan["end"] or float("inf"), Path(plan["seeds"])
    cases = {name: open_cases(name, plan["seed"], seeds) for name in following}
    left = CASES_PER_WORKER
    while left > 0 and time.time() < end and min(following.values()) < most:
        name = min((name for name in following if following[name] < most), key=seconds.__getitem__)
        for _ in range(BATCH):
            index = following[name]
            if index >= most:
                break
            print(json.dumps([name, index]), file=answers)
            outcome, files = cases[name].run(index)
            found = None
            if outcome.kind == FINDING:
                found = keep(Path(plan["findings"]), name, plan["seed"], index, files, outcome.reason)
            result = [outcome.kind, outcome.reason, outcome.seconds, outcome.growth, found]
            print(json.dumps([name, index, *result]), file=answers)
            following[name] += plan["step"]
            seconds[name] += outcome.seconds
            left -= 1


def keep(findings: Path, name: str, seed: int, index: int, files: dict[str, bytes], report: str) -> list[str]:
    """Writes the files of a finding, and returns its folder and the last line of its report."""
    from fuzz.seeds import write_files

    folder = findings / f"{name}-{seed}-{index}"
    write_files(folder / "files", files)
    (folder / "report.txt").write_text(f"python -m fuzz --target {name} --seed {seed} --case {index}\n\n{report}\n")
    return [str(folder), signature(report)]


def signature(report: str) -> str:
    """What findings of one cause share: the last line, and the last line of code that is shown."""
    lines = [line.strip() for line in report.strip().splitlines()] or [""]
    places = [line for line in lines if line.startswith("File ")] or [""]
    return f"{re.split(VALUE, lines[-1])[0][:90]} ({places[-1].rpartition('/')[2]})"


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
