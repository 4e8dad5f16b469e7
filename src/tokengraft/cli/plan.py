"""`tokengraft plan`."""

import argparse
import json
from pathlib import Path

from tokengraft.cli.display import print_table
from tokengraft.cli.options import Commands, add_json, input_paths, number, require, say
from tokengraft.errors import require_positive
from tokengraft.formats import load
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.plan import PlanSummary, plan

BYTES = {"bf16": 2, "f16": 2, "f32": 4}


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "plan",
        help="show where the rows of a new vocabulary come from",
        description="Compare two tokenizers: which embedding rows are kept, moved, added and removed, and how that "
        "changes the size of the model.",
    )
    for name in ("old", "new"):
        command.add_argument(name, metavar=name.upper(), help="a tokenizer: folder, file, or hub name")
    command.add_argument("--hidden-size", type=number, metavar="N", help="embedding width, to show sizes")
    command.add_argument("--dtype", choices=tuple(BYTES), help="type of the weights (default: bf16)")
    command.add_argument("--untied", action="store_true", help="the model has an untied output table")
    command.add_argument("--out", type=Path, metavar="FILE", help="also write the complete plan as JSON")
    command.add_argument("--force", action="store_true", help="replace the output if it exists")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if options.out:
        require_new(options.out, force=options.force)
        require_distinct(input_paths([options.old, options.new]), options.out)
    require_positive("hidden_size", options.hidden_size)
    require(
        options.hidden_size is not None or not (options.untied or options.dtype),
        "--untied and --dtype only change the sizes shown, and --hidden-size was not given",
        hint="pass --hidden-size N",
    )
    require(
        options.out is not None or not options.force,
        "--force only applies to --out, which was not given",
        hint="pass --out FILE",
    )
    changes = plan(load(options.old), load(options.new))
    summary = changes.summary
    if options.out:
        changes.save(options.out, force=options.force)
    sizes = _sizes(summary, options) if options.hidden_size else {}
    if options.json:
        print(json.dumps(summary._asdict() | sizes))
        return 0
    rows = [
        ("kept", f"{summary.kept:,} tokens with the same id"),
        ("moved", f"{summary.moved:,} tokens with a new id"),
        ("added", f"{summary.added:,} tokens"),
        ("removed", f"{summary.removed:,} tokens"),
        ("rows", f"{summary.rows_before:,} → {summary.rows_after:,}, {summary.unused:,} of them without a token"),
    ]
    if sizes:
        rows.append(("parameters", _difference(sizes["parameters_saved"], sizes["megabytes_saved"])))
    print_table(rows)
    if options.out:
        say(f"wrote `{options.out}`", options)
    return 0


def _difference(parameters: float, megabytes: float) -> str:
    """The change of a table as text. Positive numbers are saved, negative ones added.

    >>> _difference(-4608000, -9.216)
    '4,608,000 added, 9.2 MB'
    """
    return f"{abs(parameters):,} {'added' if parameters < 0 else 'saved'}, {abs(megabytes):,.1f} MB"


def _sizes(summary: PlanSummary, options: argparse.Namespace) -> dict[str, float]:
    rows = summary.rows_before - summary.rows_after
    parameters = rows * options.hidden_size * (2 if options.untied else 1)
    return {"parameters_saved": parameters, "megabytes_saved": parameters * BYTES[options.dtype or "bf16"] / 1e6}
