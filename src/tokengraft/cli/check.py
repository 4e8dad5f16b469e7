"""`tokengraft check`."""

import argparse
import json
from dataclasses import asdict

from tokengraft.check.check import check
from tokengraft.check.finding import Check
from tokengraft.check.serving.check_serving import check_serving
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.cli.display import print_table
from tokengraft.cli.learning import counts_of_files
from tokengraft.cli.options import Commands, add_json, add_source, require
from tokengraft.cli.reading import add_read_options, require_unread
from tokengraft.cli.stacks import add_stacks
from tokengraft.formats import load


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "check",
        help="verify a tokenizer, alone or against its base",
        description="Verify any tokenizer, including one that another tool made. With --base, also verify the edit: "
        "kept ids, merges and added tokens. Exits with 1 if a check fails.",
    )
    add_source(command)
    command.add_argument("--base", metavar="SOURCE", help="tokenizer that SOURCE was made from")
    command.add_argument(
        "--preserve",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="with --base: text, or counts of it, that must have the same tokens and ids as with the base",
    )
    add_stacks(command, "also check what a serving stack needs, with fixes")
    add_json(command)
    add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    require(
        bool(options.base) or not options.preserve,
        "--preserve compares with the base, and none was given",
        hint="pass --base SOURCE",
    )
    if not options.preserve:
        require_unread(options, "--preserve was not given", instead="--preserve")
    with transformers_started():  # it is imported while the other checks run
        base = load(options.base) if options.base else None
        preserve = counts_of_files(base, options.preserve, options) if base and options.preserve else None
        result = check(load(options.source), base, preserve=preserve)
        if options.stacks:
            result = Check(result.findings + check_serving(options.source, *options.stacks, base=base).findings)
    if options.json:
        print(
            json.dumps({"passed": result.passed, "findings": [asdict(f) for f in result.findings]}, ensure_ascii=False)
        )
    else:
        print_table(_rows(result))
    return 0 if result.passed else 1


def _rows(result: Check) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for finding in result.findings:
        rows.append((finding.outcome, f"{finding.name}: {finding.detail}"))
        if finding.outcome == "fail":
            rows += [("", f"  {case}") for case in finding.evidence]
        elif finding.evidence:
            rows.append(("", f"  such as {', '.join(finding.evidence[:4])}"))
        if finding.fix:
            rows.append(("", f"  fix: {finding.fix}"))
    return rows
