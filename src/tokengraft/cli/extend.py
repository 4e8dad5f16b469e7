"""`tokengraft extend`."""

import argparse
import json

from tokengraft.cli.display import print_columns, print_warnings
from tokengraft.cli.options import Commands, add_options, add_source, say
from tokengraft.cli.results import request_of, show_edit
from tokengraft.measure.sizes import CurvePoint
from tokengraft.pipeline.edit import edit, extension_curve
from tokengraft.pipeline.request import Request, shown_steps


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "extend",
        description="Learn new tokens by continuing BPE training on new text, so that every new token is reachable. "
        "Kept ids do not move. The written folder is loaded again with other libraries and compared.",
        first="--counts --corpus --add --held-out --curve --scripts --preserve --include --special --text-field "
        "--report --out --force --json",
    )
    add_source(command)
    add_options(command, "extend")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    with shown_steps(request_of("extend", options.source, options)) as request:
        if not request.edit.curve:
            result = edit(request)
        else:
            return _show_curve(request, options)
    show_edit(result, request, options)
    return 0


def _show_curve(request: Request, options: argparse.Namespace) -> int:
    """Prints the gain by number of new tokens, and how often the new tokens occur in the training text."""
    result, curve = extension_curve(request)
    print_warnings(result.warnings)
    if options.json:
        points = [point._asdict() for point in curve.points]
        print(json.dumps({"text": curve.text, "knee": curve.knee, "points": points, "warnings": [*result.warnings]}))
        return 0
    heads = ["new tokens", "bytes/token", "gain", "below 10", "below 100", "below 1,000"]
    print_columns(heads, [_curve_row(point) for point in curve.points])
    knee = f"{curve.knee:,} tokens (1,000 more gain less than 1 %)" if curve.knee is not None else "not reached"
    print(f"knee: {knee}")
    trained = options.training_text
    where = f"{trained:,} bytes of training text" if trained else "the text they were learned from"
    say(f"below N: the share of new tokens that occur fewer than N times in {where}", options)
    if result.extension and len(result.extension) < result.extension.asked:
        say(f"note: {result.extension.stopped}", options)
    return 0


def _curve_row(point: CurvePoint) -> list[str]:
    rare = ("" if share is None else f"{share:.1%}" for share in (point.below_10, point.below_100, point.below_1000))
    return [f"{point.tokens:,}", f"{point.bytes_per_token:.3f}", f"{point.gain:+.1%}", *rare]
