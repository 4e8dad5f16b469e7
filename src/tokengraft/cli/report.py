"""`tokengraft report`, and the page that other commands write with `--report`."""

import argparse
import json
import os
import shlex
import time
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.cli.options import Commands, add_output, input_paths, say
from tokengraft.cli.reading import (
    add_text,
    add_text_read_options,
    files_of,
    text_read_options_of,
    texts_of,
    warn_of_spelling,
)
from tokengraft.corpus.files import input_without_credentials
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats import load
from tokengraft.learn.extension import Extension
from tokengraft.measure.evaluate import Evaluation, evaluate
from tokengraft.measure.segments import Text
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.page.content import BASE, NEW, Content, ReportText
from tokengraft.page.report import report, write_page
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.check import check
from tokengraft.vocab_plan import plan


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "report",
        help="write a page that compares two tokenizers",
        description="Write one HTML page about two tokenizers, whatever made them: what changed, the effect on every "
        "text, all tokens, and a reader in which both tokenizers split any text. The page needs no network.",
    )
    for name, what in (("base", "tokenizer to compare with"), ("new", "the other tokenizer")):
        command.add_argument(name, metavar=name.upper(), help=f"{what}: folder, file, or hub name")
    add_text(command, "text to measure both on, as for `tokengraft evaluate`")
    command.add_argument("--title", metavar="TEXT", help="title of the page")
    add_output(command, "HTML file")
    add_text_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    texts = texts_of(options.text, "--text")
    require_new(options.out, force=options.force)
    require_distinct(input_paths([options.base, options.new], files_of(texts)), options.out)
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
        read_options=text_read_options_of(options),
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


def report_edit(
    options: argparse.Namespace,
    tokenizers: tuple[Tokenizer, Tokenizer],
    counts: Mapping[str, PretokenCounts],
    *,
    extension: Extension | None = None,
    warnings: Iterable[str] = (),
    held_out: Mapping[str, PretokenCounts] | None = None,
    **more: Any,
) -> None:
    """Writes the report of an edited tokenizer, given the base and the result. It is measured on the counts.

    ``held_out`` are texts that were only measured, and ``more`` fields of the `Content`.
    """
    base, new = tokenizers
    held_out = {f"{name} (held out)": part for name, part in (held_out or {}).items()}
    counts = {**held_out, **counts}
    measured = {name: part for name, part in counts.items() if part.table.total() == part.totals.pretokens}
    if len(measured) < len(counts):
        warnings = (*warnings, "the counts were weighted or lack rare pretokens: they give no measures of the text")
    what = "the text that the tokens were learned from" if extension else "the text that was counted"
    content = Content(
        title=f"{Path(options.out).name} compared with {Path(options.source).name}",
        base=base,
        new=new,
        plan=plan(base, new),
        texts=tuple(
            ReportText(name, "held-out text", counts=part)
            if name in held_out
            else ReportText(name, what, "target", counts=part)
            for name, part in measured.items()
        ),
        evaluation=evaluate({BASE: base, NEW: new}, measured) if measured else Evaluation(()),
        check=check(new, base),
        extension=extension,
        warnings=tuple(warnings),
        **more,
        record=request(options) | {"versions": {"tokengraft": _core.__version__}, "inputs": _inputs(counts, held_out)},
    )
    write_page(content, options.report, force=options.force)
    say(f"wrote `{options.report}`", options)


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


def _inputs(counts: Mapping[str, PretokenCounts], held_out: Container[str]) -> list[dict[str, Any]]:
    return [
        {
            "role": "held-out text" if name in held_out else "target",
            "name": name,
            "bytes": part.totals.bytes,
            "documents": part.totals.documents,
        }
        for name, part in counts.items()
    ]
