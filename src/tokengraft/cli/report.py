"""`tokengraft report`, and the page that other commands write with `--report`."""

import argparse
import json
import os
import shlex
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tokengraft.cli.options import (
    Commands,
    add_options,
    given,
    input_paths,
    say,
    text_read_options_of,
    warn_of_spelling,
)
from tokengraft.corpus.files import input_without_credentials
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats import load
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import Text
from tokengraft.options.texts import texts_by_name
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.page.report import report
from tokengraft.tokenizer.tokenizer import Tokenizer


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "report",
        description="Write one HTML page about two tokenizers, whatever made them: what changed, the effect on every "
        "text, all tokens, and a reader in which both tokenizers split any text. The page needs no network.",
    )
    for name, what in (("base", "tokenizer to compare with"), ("new", "the other tokenizer")):
        command.add_argument(name, metavar=name.upper(), help=f"{what}: folder, file, or hub name")
    add_options(command, "report")
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    chosen = given("report", options)
    texts = texts_by_name(options.text, "text")
    require_new(options.out, force=options.force)
    require_distinct(input_paths([options.base, options.new], texts.values()), options.out)
    base, new = load(options.base), load(options.new)
    warn_of_spelling({options.base: base, options.new: new})
    names = [Path(source).name or source for source in (options.base, options.new)]
    page = report(
        base,
        new,
        texts,
        out=options.out,
        title=options.title or f"{names[1]} compared with {names[0]}",
        record=request(options),
        read_options=text_read_options_of(chosen),
        force=options.force,
    )
    if options.json:
        print(json.dumps({"out": options.out, "bytes": page.stat().st_size}, ensure_ascii=False))
    say(f"wrote `{options.out}`", options)
    return 0


def request(options: argparse.Namespace) -> dict[str, Any]:
    """The command as given, without passwords in URLs, and the date: that of `SOURCE_DATE_EPOCH` if it is set."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    moment = time.gmtime(int(seconds) if seconds.isdecimal() else time.time())
    return {
        "command": shlex.join(["tokengraft", *map(input_without_credentials, options.arguments)]),
        "date": time.strftime("%Y-%m-%d", moment),
    }


def base_and_new(options: argparse.Namespace, names: Iterable[str]) -> tuple[str, str]:
    """Of the names of two tokenizers, that of the base and that of the other one."""
    first, second = names
    return (second, first) if options.base == second else (first, second)


def report_evaluation(
    options: argparse.Namespace,
    tokenizers: Mapping[str, Tokenizer],
    texts: Mapping[str, Text | PretokenCounts],
    evaluation: Evaluation,
) -> None:
    """Writes the report of two tokenizers that were evaluated."""
    base, new = base_and_new(options, tokenizers)
    title = f"{new} compared with {base}"
    report(
        tokenizers[base],
        tokenizers[new],
        texts,
        out=options.report,
        title=title,
        record=request(options),
        bits=evaluation if options.bits else None,
    )
    say(f"wrote `{options.report}`", options)
