"""The process that runs cases: a panic, an abort or a hang ends it and not the run.

It reads lines of `TARGET START COUNT`, and answers each with a line of JSON. Before each case, it writes the index to a
file, so that the parent knows which case it died of.
"""

import json
import mmap
import os
import re
import resource
import struct
import sys
from collections import Counter
from pathlib import Path
from typing import Any

VALUE = re.compile(r"[\[{`'\"]|\d")
"""Where the values in a message begin."""
MAX_MEMORY = 8 << 30
"""The address space of the process. Threads and pools of libraries reserve some gigabytes that they never use."""


def main(seed: int, seeds: Path, progress: Path, findings: Path) -> None:
    """Runs cases as the lines of standard input say, until it ends."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    from fuzz.cases import open_cases  # imported here, so that a limit holds for all that the import does

    opened: dict[str, Any] = {}
    with progress.open("r+b") as file, mmap.mmap(file.fileno(), 8) as current:
        for line in sys.stdin:
            name, start, count = line.split()
            cases = opened.setdefault(name, None) or open_cases(name, seed, seeds)
            opened[name] = cases
            answers.write(
                json.dumps(run_batch(cases, range(int(start), int(start) + int(count)), current, findings)) + "\n"
            )
            answers.flush()


def run_batch(cases: Any, indices: range, current: Any, findings: Path) -> dict[str, Any]:
    """What became of some cases: numbers, and the paths of findings."""
    from fuzz.cases import FINDING

    kinds: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    slowest, largest, found = (0.0, -1), (0, -1), []
    for index in indices:
        current[:8] = struct.pack("<q", index)
        outcome, files = cases.run(index)
        kinds[outcome.kind] += 1
        slowest, largest = max(slowest, (outcome.seconds, index)), max(largest, (outcome.growth, index))
        if outcome.kind == FINDING:
            found.append(keep(findings, cases.target.name, cases.seed, index, files, outcome.reason))
        elif outcome.reason:
            reasons[outcome.reason] += 1
    return {"kinds": kinds, "reasons": reasons, "slowest": slowest, "largest": largest, "findings": found}


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
    main(int(sys.argv[1]), *map(Path, sys.argv[2:5]))
