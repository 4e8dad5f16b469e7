"""`tokengraft adapt`."""

import argparse
import json
import re
import sys
from pathlib import Path

from tokengraft.adapt import KEEP, Outlook, Target, Wish, adapt, outlook
from tokengraft.adaptation import Adaptation
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.commands.options import Commands, add_json, add_output, add_reading, effort_of, reading_of, require
from tokengraft.counting import Progress
from tokengraft.formats import load
from tokengraft.inspection import spelling_warning
from tokengraft.progress import bytes_read
from tokengraft.show import print_columns, print_table


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "adapt",
        help="adapt a model to text: prune, extend, check, measure, transplant",
        description="The whole road: count, prune by what the text does not need, learn new tokens, check, measure on "
        "held-out documents, and give the checkpoint its new rows. A run that was interrupted goes on where it was.",
    )
    command.add_argument("model", metavar="MODEL", help="a model folder with weights, or a tokenizer alone")
    command.add_argument(
        "--target", action="append", required=True, metavar="TEXT", help="text to learn: FILES, or NAME=FILES:WEIGHT"
    )
    command.add_argument("--keep", nargs="+", metavar="TEXT", help="text whose tokens are to stay")
    command.add_argument("--swap", type=int, default=0, metavar="N", help="so many tokens go and as many come")
    command.add_argument("--add", type=int, default=0, metavar="N", help="so many tokens come")
    command.add_argument("--remove", type=int, default=0, metavar="N", help="so many tokens go")
    command.add_argument("--init", choices=tuple(INITIALISERS), default="fvt", help="how new rows come about (fvt)")
    command.add_argument("--dry-run", action="store_true", help="show what would be done and what it would cost")
    add_output(command, "the adapted model, a folder")
    add_json(command)
    add_reading(command)
    command.set_defaults(run=_run)


def targets_of(texts: list[str]) -> dict[str, Target]:
    """The targets that options name: ``et=et/*.parquet:2 -> {"et": Target("et/*.parquet", "2")}``."""
    found: dict[str, Target] = {}
    for at, text in enumerate(texts, start=1):
        name, equals, rest = text.partition("=")
        if not equals or "/" in name:
            name, rest = ("target" if len(texts) == 1 else f"target-{at}"), text
        weighted = re.fullmatch(r"(.+):(\d+(?:/\d+|\.\d+)?)", rest)
        corpus, weight = (weighted[1], weighted[2]) if weighted else (rest, "1")
        require(name not in found, f"two targets are called {name!r}", hint="give each a name of its own: NAME=FILES")
        found[name] = Target(corpus, weight)
    return found


def _run(options: argparse.Namespace) -> int:
    targets = targets_of(options.target)
    if options.dry_run:
        corpora = {name: target.corpus for name, target in targets.items()}
        corpora |= {KEEP: options.keep} if options.keep else {}
        asked = Wish(options.add or options.swap, options.remove or options.swap)
        return _show_outlook(outlook(options.model, corpora, asked), options)
    with bytes_read("counting", quiet=options.quiet) as progress:
        found = _adapt(targets, progress, options)
    if options.json:
        print(json.dumps(found.as_dict(), ensure_ascii=False))
    else:
        _show(found)
    page = Path(options.out) / "report.html"
    print(f"wrote `{options.out}`" + (f"; open `{page}`" if page.exists() else ""), file=sys.stderr)
    notes = [*found.evaluation.notes]
    if not page.exists():
        notes.append("there is no report, for plotly is not installed: pip install 'tokengraft[report]'")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return 0


def _adapt(targets: dict[str, Target], progress: Progress | None, options: argparse.Namespace) -> Adaptation:
    return adapt(
        options.model,
        target=targets,
        keep=options.keep,
        out=options.out,
        init=options.init,
        reading=reading_of(options, load(options.model) if options.rule else None),
        effort=effort_of(options, min_count=1),
        force=options.force,
        stage=None if options.quiet else lambda what: print(what, file=sys.stderr),
        progress=progress,
        swap=options.swap,
        add=options.add,
        remove=options.remove,
    )


def _show(found: Adaptation) -> None:
    summary = found.plan.summary
    rows = [
        ("tokens", f"{summary.added:,} new, {summary.removed:,} gone, {summary.kept + summary.moved:,} kept"),
        ("rows", f"{summary.rows_before:,} → {summary.rows_after:,}"),
        ("checks", f"all {len(found.check.findings)} passed"),
    ]
    if warning := spelling_warning(found.base):
        rows.append(("warning", warning))
    if found.extension and len(found.extension) < found.extension.asked:
        rows.append(("warning", found.extension.stopped))
    if found.transplant and found.transplant.proof:
        proof = found.transplant.proof
        rows.append(("weights", f"{proof.kept_rows:,} kept rows and {proof.untouched_tensors:,} tensors as they were"))
    print_table(rows)
    print()
    print_columns(*found.evaluation.table())
    if len(found.served) > 1:
        print()
        served = [[name, f"{s.gain or 0:+.1%}", f"{s.tokens:,}"] for name, s in found.served.items()]
        print_columns(["target", "gain", "new tokens of its own"], served)


def _show_outlook(found: Outlook, options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps(vars(found)))
        return 0
    rows = [
        ("rows", f"{found.rows_before:,} → {found.rows_after:,}"),
        ("text", f"{found.text_bytes / 1e6:,.1f} MB on disk"),
        ("weights", f"{found.weights_bytes / 1e6:,.1f} MB" if found.weights_bytes else "none: the tokenizer alone"),
        ("parameters", f"{found.parameters_added:+,}"),
        ("memory", f"about {found.memory_bytes / 1e9:,.1f} GB"),
        ("time", f"about {found.seconds:,.0f} s"),
        ("would write", str(Path(options.out))),
    ]
    print_table(rows)
    return 0
