"""`python -m fuzz`: fuzzes all parsers, or runs one case or kept files again."""

import argparse
import sys
import tempfile
from pathlib import Path

from fuzz import report
from fuzz.cases import FINDING, open_cases, run_files, write_seeds
from fuzz.run import Plan, run
from fuzz.targets import TARGETS


def main() -> int:
    """Returns 1 if there is a finding."""
    options = _options()
    if options.replay:
        return _replay(options.replay, options.target)
    names = tuple(options.target or TARGETS)
    if options.case is not None:
        return _one_case(names[0], options.seed, options.case)
    plan = Plan(names, options.seed, options.jobs, options.seconds, options.cases, Path(options.findings))
    tallies = run(plan)
    print(report.table(tallies))
    found = any(tally.kinds[FINDING] for tally in tallies.values())
    if found:
        print(f"\nfindings, by cause:\n{report.findings(tallies)}")
    return int(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, help="how long; by default until every target had its cases")
    parser.add_argument("--cases", type=int, help="cases of each target; by default as many as the time allows")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="another seed gives other cases")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--case", type=int, help="run only the case of this index, of one target")
    parser.add_argument("--replay", type=Path, help="run the files of a kept finding again, for one target")
    parser.add_argument("--findings", default="build/fuzz", help="the folder for findings")
    options = parser.parse_args()
    if options.seconds is None and options.cases is None:
        options.seconds = 60.0
    if (options.case is not None or options.replay) and len(options.target or ()) != 1:
        parser.error("--case and --replay need one --target")
    return options


def _one_case(name: str, seed: int, index: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        write_seeds([name], Path(folder, "seeds"))
        outcome, _ = open_cases(name, seed, Path(folder, "seeds")).run(index)
    print(f"{outcome.kind} after {outcome.seconds:.3f} s\n{outcome.reason}")
    return int(outcome.kind == FINDING)


def _replay(folder: Path, names: list[str]) -> int:
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    outcome = run_files(TARGETS[names[0]], files, [], 0)
    print(f"{outcome.kind} after {outcome.seconds:.3f} s\n{outcome.reason}")
    return int(outcome.kind == FINDING)


if __name__ == "__main__":
    sys.exit(main())
