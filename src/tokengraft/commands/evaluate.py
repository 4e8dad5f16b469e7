"""`tokengraft evaluate`."""

import argparse
import sys
from pathlib import Path

from tokengraft.commands.options import Commands, add_json, named, require, warn_of_spelling
from tokengraft.counts import PretokenCounts
from tokengraft.evaluate import Evaluation, evaluate
from tokengraft.formats import load
from tokengraft.show import print_columns


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "evaluate",
        help="measure what tokenizers make of texts",
        description="Bytes per token and everything else that can be said of a segmentation, for every tokenizer on "
        "every text, and against a base: the first tokenizer, unless --base names another.",
    )
    command.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="folder, file or hub name; NAME=SOURCE")
    command.add_argument(
        "--text", nargs="+", required=True, metavar="NAME=FILE", help="text, a document a line; or counts, a .parquet"
    )
    command.add_argument("--base", metavar="NAME", help="the tokenizer that the others are measured against")
    command.add_argument("--csv", action="store_true", help="print the scores as CSV")
    add_json(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(not (options.csv and options.json), "both --csv and --json were asked for", hint="pass one of them")
    tokenizers = dict(named(text) for text in options.tokenizers)
    texts = {name: _text(path) for name, path in map(named, options.text)}
    require(len(tokenizers) == len(options.tokenizers), "two tokenizers have one name", hint="name them: NAME=SOURCE")
    require(len(texts) == len(options.text), "two texts have one name", hint="name them: NAME=FILE")
    loaded = {name: load(source) for name, source in tokenizers.items()}
    for name, tokenizer in loaded.items():
        warn_of_spelling(tokenizer, name)
    found: Evaluation = evaluate(loaded, texts, base=options.base)
    if options.json:
        print(found.to_json())
    elif options.csv:
        print(found.to_csv(), end="")
    else:
        print_columns(*found.table())
        for note in found.notes:
            print(f"note: {note}", file=sys.stderr)
    return 0


def _text(path: str) -> PretokenCounts | str:
    return PretokenCounts.load(path) if Path(path).suffix == ".parquet" else path
