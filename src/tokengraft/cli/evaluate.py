"""`tokengraft evaluate`."""

import argparse
from typing import Any

from tokengraft.cli.display import print_columns, print_warnings
from tokengraft.cli.options import Commands, add_json, add_wide, input_paths, named, require, say
from tokengraft.cli.reading import add_text_read_options, text_read_options_of, warn_of_spelling
from tokengraft.cli.report import report_evaluation
from tokengraft.cli.report_option import add_report, require_report
from tokengraft.cli.texts import files_of, texts_of
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.measure import evaluate
from tokengraft.evaluate.segments import open_text
from tokengraft.formats import load


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "evaluate",
        help="measure tokenizers on texts",
        description="Measure every tokenizer on every text: bytes per token, fertility, Rényi efficiency, vocabulary "
        "use, and the differences from a base tokenizer.",
    )
    command.add_argument("tokenizers", nargs="+", metavar="TOKENIZER", help="folder, file or hub name, or NAME=SOURCE")
    command.add_argument(
        "--text",
        action="extend",
        nargs="+",
        required=True,
        metavar="NAME=FILES",
        help="text: everything that `tokengraft count` reads, or counts; files of one name are one text, and without a "
        "name every file is a text of its own",
    )
    command.add_argument("--base", metavar="NAME", help="tokenizer to compare the others with (default: the first)")
    add_report(command)
    command.add_argument("--csv", action="store_true", help="print the result as CSV")
    add_wide(command)
    add_json(command)
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(not (options.csv and options.json), "both --csv and --json were given", hint="pass one of them")
    tokenizers = dict(named(text) for text in options.tokenizers)
    texts = texts_of(options.text, "--text")
    require(
        len(tokenizers) == len(options.tokenizers), "two tokenizers have the same name", hint="name them: NAME=SOURCE"
    )
    require(
        not options.report or len(tokenizers) == 2,
        f"--report compares two tokenizers, and {len(tokenizers)} were given",
        hint="pass two tokenizers, or drop --report",
    )
    require_report(options, input_paths(tokenizers.values(), files_of(texts)))
    loaded = {name: load(source) for name, source in tokenizers.items()}
    for name, tokenizer in loaded.items():
        warn_of_spelling(tokenizer, name)
    read_options = text_read_options_of(options)
    opened: dict[str, Any] = dict(texts)
    if options.report:  # a report shows documents, so the text stays in memory
        opened = {name: open_text(name, source, read_options) for name, source in texts.items()}
    evaluation: Evaluation = evaluate(loaded, opened, base=options.base, read_options=read_options)
    if options.json:
        print(evaluation.to_json())
    elif options.csv:
        print(evaluation.to_csv(), end="")
    else:
        print_columns(*evaluation.table(wide=options.wide))
        for note in evaluation.notes:
            say(f"note: {note}", options)
    print_warnings(evaluation.warnings)
    if options.report:
        report_evaluation(options, loaded, opened)
    return 0
