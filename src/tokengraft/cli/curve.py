"""`tokengraft curve`."""

import argparse
import json

from tokengraft.cli.display import print_columns, print_warnings
from tokengraft.cli.options import Commands, add_json, add_source, named, number, require
from tokengraft.cli.reading import add_counts, add_read_options, counts_of, text_read_options_of, without_text_reading
from tokengraft.cli.texts import one_text
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.curve import Curve, CurvePoint, curve, default_sizes
from tokengraft.evaluate.segments import open_text
from tokengraft.formats import load

MAX_SIZE = 32_000


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "curve",
        help="show the gain by number of new tokens",
        description="Show bytes per token of held-out text by number of new tokens, from one training run, and the "
        "knee: the size after which 1,000 more tokens gain less than 1 %. Beside the gain it shows the support: the "
        "share of the new tokens that occur fewer than 10, 100 and 1,000 times in the text that they were learned "
        "from, as the tokenizer of that size encodes it.",
    )
    add_source(command)
    add_counts(command)
    command.add_argument(
        "--text",
        action="extend",
        nargs="+",
        required=True,
        metavar="NAME=FILES",
        help="held-out text: everything that `tokengraft count` reads, or counts; several files are one text",
    )
    command.add_argument(
        "--sizes",
        action="extend",
        nargs="+",
        type=number,
        metavar="N",
        help="numbers of new tokens (default: 1000 2000 4000 ...)",
    )
    command.add_argument(
        "--max-size", type=number, metavar="N", help="largest number of new tokens, without --sizes (default: 32000)"
    )
    command.add_argument("--hidden-size", type=number, metavar="N", help="embedding width, to show parameters")
    command.add_argument("--untied", action="store_true", help="the model has an untied output table")
    add_json(command)
    add_read_options(command)
    # Options that also apply to --text have no default: text files given to --text have one document per line.
    command.set_defaults(run=_run, documents=None, text_field=None)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    name, source = one_text(options.text, "--text")
    read_options = text_read_options_of(options)
    text = open_text(name, source, read_options)
    require(
        read_options is None or bool(options.corpus) or not isinstance(text, PretokenCounts),
        "options for reading text were given, but both --counts and --text are counts",
        hint="leave them out, or pass text",
    )
    counts = counts_of(tokenizer, without_text_reading(options) if options.counts else options)
    width = options.hidden_size * (2 if options.untied else 1) if options.hidden_size else None
    result = curve(
        tokenizer, counts, text, options.sizes or default_sizes(options.max_size or MAX_SIZE), rows_width=width
    )
    warnings = [*reading_warnings(counts.totals), *result.warnings]
    if options.weight:
        warnings.append("the shares below 10, 100 and 1,000 are of occurrences multiplied by --weight")
    print_warnings(warnings)
    if options.json:
        points = [point._asdict() for point in result.points]
        print(json.dumps({"text": result.text, "knee": result.knee, "points": points, "warnings": warnings}))
        return 0
    _show(result)
    return 0


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    width, largest = options.hidden_size, options.max_size
    require(
        width is None or width > 0,
        f"--hidden-size is {width}; it must be at least 1",
        hint="pass the embedding width: --hidden-size 4096",
    )
    require(
        not options.untied or width is not None,
        "--untied only changes the number of parameters, and --hidden-size was not given",
        hint="pass --hidden-size too, or drop --untied",
    )
    require(
        largest is None or largest > 0,
        f"--max-size is {largest}; it must be at least 1",
        hint="pass a number of tokens: --max-size 32000",
    )
    require(
        not (options.sizes and largest is not None),
        "both --sizes and --max-size were given",
        hint="pass one of them",
    )
    require(
        not (any(named(text)[1] == "-" for text in options.text) and "-" in (options.corpus or ())),
        "both --corpus and --text are standard input, which can be read only once",
        hint="name a file for one of them",
    )


def _show(result: Curve) -> None:
    heads = ["new tokens", "bytes/token", "gain", "parameters", "below 10", "below 100", "below 1,000"]
    rows = [_row(point) for point in result.points]
    shown = [at for at in range(len(heads)) if any(row[at] for row in rows)]
    print_columns([heads[at] for at in shown], [[row[at] for at in shown] for row in rows])
    knee = result.knee
    text = f"{knee:,} tokens (1,000 more gain less than 1 %)" if knee is not None else "not reached"
    print(f"knee: {text}")
    if len(result.extension) < result.extension.asked:
        print(f"note: {result.extension.stopped}")


def _row(point: CurvePoint) -> list[str]:
    parameters = f"{point.parameters:,}" if point.parameters else ""
    rare = ("" if share is None else f"{share:.1%}" for share in (point.below_10, point.below_100, point.below_1000))
    return [f"{point.tokens:,}", f"{point.bytes_per_token:.3f}", f"{point.gain:+.1%}", parameters, *rare]
