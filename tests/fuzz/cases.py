"""A case: the files that a target, a seed and an index give, and what tokengraft makes of them."""

import pickle
import re
import resource
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fuzz.file_mutations import is_well_formed, mutate_file
from fuzz.seeds import Seed, write_files
from fuzz.targets import SELF_TEST, TARGETS, Target
from tokengraft.errors import TokengraftError

MAX_SECONDS = 10
MAX_GROWTH, GROWTH_PER_BYTE = 300 << 20, 100
"""How much memory a case may take: a constant, and so many bytes for each byte of its files."""
ACCEPTED, LATE, EARLY, FINDING = "accepted", "refused late", "refused early", "finding"


ALL = TARGETS | {SELF_TEST.name: SELF_TEST}


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    kind: str
    seconds: float
    growth: int
    """Bytes by which the peak of the memory of the process rose."""
    reason: str = ""
    """The message of an error without its values, or the report of a finding."""


@dataclass
class Cases:
    """The cases of one run: all seeds of a target, and how they are mutated."""

    target: Target
    seed: int
    seeds: list[Seed] = field(default_factory=list)

    def files(self, index: int) -> tuple[Seed, list[str]]:
        """The files of a case, and the names of those that were mutated."""
        random = Random(f"{self.target.name} {self.seed} {index}")
        files = dict(random.choice(self.seeds))
        names = self.target.chosen(files)
        mutated = random.sample(names, min(len(names), random.choice((1, 1, 1, 2))))
        for name in mutated:
            donors = [seed[name] for seed in self.seeds if name in seed]
            files[name] = mutate_file(name, files[name], random, donors)
        return files, mutated

    def run(self, index: int) -> tuple[Outcome, Seed]:
        """Runs a case."""
        files, mutated = self.files(index)
        return run_files(self.target, files, mutated, index), files


def run_files(target: Target, files: Seed, mutated: list[str], index: int) -> Outcome:
    """What a target makes of files, which are written to a folder that is then removed."""
    folder = Path(tempfile.mkdtemp(prefix="tokengraft-fuzz-", dir=_scratch()))
    try:
        write_files(folder, files)
        size = sum(map(len, files.values()))
        return _measured(target, folder, files, mutated, Random(index), size)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _scratch() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _measured(target: Target, folder: Path, files: Seed, mutated: list[str], random: Random, size: int) -> Outcome:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak is then the present size
    start, peak, resident = time.process_time(), _peak(), _resident()
    kind, reason = _checked(target, folder, random)
    seconds = time.process_time() - start
    growth = _peak() - resident if _peak() > peak else 0
    if kind == LATE and not all(is_well_formed(name, files[name]) for name in mutated):
        kind = EARLY
    if seconds > MAX_SECONDS:
        kind, reason = FINDING, f"it took {seconds:.1f} seconds\n{reason}"
    if growth > MAX_GROWTH + GROWTH_PER_BYTE * size:
        kind, reason = FINDING, f"memory grew by {growth >> 20} MiB for {size:,} bytes\n{reason}"
    return Outcome(kind, seconds, growth, reason)


def _checked(target: Target, folder: Path, random: Random) -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            target.check(folder, random)
        except TokengraftError as error:
            return (LATE if error.hint and error.message else FINDING), _general(error, folder)
        except KeyboardInterrupt:
            raise
        except BaseException:  # a panic of the core is no `Exception`
            return FINDING, traceback.format_exc(limit=-12)
    return ACCEPTED, ""


def _general(error: TokengraftError, folder: Path) -> str:
    """The first words of a message, without quoted values and numbers."""
    text = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|[\d,.]+", "_", error.message.replace(str(folder), "_"))
    return f"{type(error).__name__}: {text[:70]}"


def _peak() -> int:
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale


def _resident() -> int:
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    return _peak()


def open_cases(name: str, seed: int, seeds: Path) -> Cases:
    """The cases of a target, with the seeds in a file that `write_seeds` wrote."""
    return Cases(ALL[name], seed, pickle.loads(seeds.read_bytes())[name])


def write_seeds(names: list[str], path: Path) -> None:
    """Builds the seeds of targets and keeps them in a file, so that each process needs not."""
    made: dict[str, Any] = {name: [*ALL[name].seeds()] for name in names}
    path.write_bytes(pickle.dumps(made))
