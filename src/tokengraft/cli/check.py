"""`tokengraft check`."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace

from tokengraft import _core
from tokengraft.cli.display import print_result
from tokengraft.cli.options import Commands, add_json, add_source, refuse
from tokengraft.cli.reading import add_read_options, counts_of_files, require_unread
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats import load
from tokengraft.learn.preserve import preserved_text
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import preserved
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, Finding
from tokengraft.verify.serving.check_serving import check_serving
from tokengraft.verify.serving.stacks import STACKS
from tokengraft.verify.transformers_loader import transformers_started

SHORT = 40
"""The longest example of a note, in characters, that shares a line with others."""


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "check",
        help="verify a tokenizer, alone or against its base",
        description="Verify any tokenizer, including one that another tool made. With --base, also verify the edit: "
        "kept ids, merges and added tokens, and everything else in the files that the edit does not explain. What can "
        "change ids, segmentation or decoding is a failure, other changes are notes. Exits with 1 if a check fails.",
    )
    add_source(command)
    command.add_argument("--base", metavar="SOURCE", help="tokenizer that SOURCE was made from")
    command.add_argument(
        "--preserve",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="with --base: text, or counts of it, that must have the same tokens as with the base; other ids after "
        "renumbering are a note, and so are other tokens of words in scripts with less than 1 %% of its letters",
    )
    command.add_argument(
        "--preserve-exactly", action="store_true", help="with --preserve: other tokens of any word are a failure"
    )
    add_stacks(command, "also check what a serving stack needs, with fixes")
    add_json(command)
    add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if not options.base:
        refuse(options, "compares with the base, and none was given", "preserve", instead="pass --base SOURCE")
    if not options.preserve:
        refuse(options, "has no effect without --preserve", "preserve_exactly", instead="pass --preserve TEXT")
        require_unread(options, "--preserve was not given", instead="--preserve")
    with transformers_started():  # it is imported while the other checks run
        base = load(options.base) if options.base else None
        new = load(options.source)
        if base and options.preserve:
            counts = counts_of_files(base, options.preserve, options)
            text = preserved_text([counts], None, exactly=options.preserve_exactly)
            result = check(new, base, preserve=text.counts if text else None)
            if text and text.left_out:
                result = Check((*result.findings, _rare_scripts(new, base, text.left_out, text.scripts)))
        else:
            result = check(new, base)
        if options.stacks:
            result = Check(result.findings + check_serving(options.source, *options.stacks, base=base).findings)
    data = {"passed": result.passed, "findings": [asdict(finding) for finding in result.findings]}
    print_result(options, data, _rows(result))
    return 0 if result.passed else 1


def _rare_scripts(new: Tokenizer, base: Tokenizer, words: PretokenCounts, scripts: Sequence[str]) -> Finding:
    """The finding for words in scripts that the preserved text hardly has: other tokens are a note."""
    finding, changed = preserved(new, base, words), words.changed(base, new)
    finding = replace(finding, name=f"{finding.name}, rare scripts")
    if finding.outcome != "fail":
        return finding
    texts = [pretoken.decode(errors="replace") for pretoken, _ in changed.top(len(changed))]
    named = sorted({*scripts} & {name for names in _core.scripts(texts) for name in names})
    detail = f"{finding.detail}; they are in {', '.join(named)}, each with less than 1 % of the letters of the text"
    return replace(finding, outcome="note", detail=detail)


def _rows(result: Check) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for finding in result.findings:
        rows.append((finding.outcome, f"{finding.name}: {finding.detail}"))
        if finding.outcome == "fail" or max(map(len, finding.evidence), default=0) > SHORT:
            rows += [("", f"  {case}") for case in finding.evidence]
        elif finding.evidence:
            rows.append(("", f"  such as {', '.join(finding.evidence[:4])}"))
        if finding.fix:
            rows.append(("", f"  fix: {finding.fix}"))
    return rows


def add_stacks(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --for."""
    command.add_argument(
        "--for",
        dest="stacks",
        action="append",
        choices=STACKS,
        default=[],
        metavar="STACK",
        help=f"{what}: {', '.join(STACKS)}; may be repeated",
    )
