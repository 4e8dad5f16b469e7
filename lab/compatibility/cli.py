"""The command line of the matrix: collect, run, write the page."""

import argparse
from collections.abc import Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path

from lab.compatibility.collect import Entry, collect, entries_of
from lab.compatibility.matrix import Row, run
from lab.compatibility.page import page
from lab.compatibility.results import read_results, update_results
from lab.compatibility.texts import built_in, flores

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command."""
    parser = argparse.ArgumentParser(prog="python -m lab.compatibility", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("collect", help="download the packages and write their tokenizers as folders")
    command.add_argument("out", type=Path)
    command = commands.add_parser("run", help="take every tokenizer below some folders through all steps")
    command.add_argument("folders", type=Path, nargs="+")
    command.add_argument("--flores", type=Path, help="the folder of FLORES-200 devtest; without it few built-in texts")
    command.add_argument("--only", default="", help="run only tokenizers with this in their name")
    command.add_argument("--workers", type=int, default=1)
    command.add_argument("--out", type=Path, default=RESULTS, help=f"the results as JSON (default: {RESULTS.name})")
    commands.add_parser("page", help="write docs/compatibility.md from the results")
    given = parser.parse_args(arguments)
    if given.command == "collect":
        collect(given.out)
    if given.command == "page":
        PAGE.write_text(page(*read_results(RESULTS)), encoding="utf-8")
    return _run(given) if given.command == "run" else 0


def _run(given: argparse.Namespace) -> int:
    """Runs the matrix, prints every bug as it is found, and writes the results."""
    texts = flores(given.flores) if given.flores else built_in()
    found = [entry for folder in given.folders for entry in entries_of(folder)]
    entries = [entry for entry in found if given.only in entry.name]
    rows = []
    with Pool(given.workers, maxtasksperchild=1) as pool:
        for row in pool.imap_unordered(partial(run, texts=texts), sorted(entries, key=_size)):
            rows.append(row)
            _show(row)
            update_results(given.out, rows, [entry.name for entry in found])
    return 1 if any(row.bugs for row in rows) else 0


def _size(entry: Entry) -> int:
    """The bytes of a tokenizer: small ones are run first."""
    return sum(path.stat().st_size for path in entry.folder.iterdir())


def _show(row: Row) -> None:
    refused = [step for step, result in row.results.items() if result.outcome == "refused"]
    print(f"{row.name}: {'bug' if row.bugs else f'refused: {refused}' if refused else 'equal'}", flush=True)
    for step, result in row.bugs.items():
        print(f"  {step} {result.outcome}: {result.detail}", flush=True)
