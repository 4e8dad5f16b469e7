"""`tokengraft check`."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tokengraft import _core
from tokengraft.checkpoint.draft import is_draft
from tokengraft.checkpoint.table import require_absent
from tokengraft.cli.commands import given, options_in, print_result
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import counts_of
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.counts.threads import CountOptions
from tokengraft.formats import load
from tokengraft.learn.preserve import preserved_text, split_by_joining
from tokengraft.tokenizer.marks import joined_like
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import preserved
from tokengraft.verify.check import check
from tokengraft.verify.check_serving import check_serving
from tokengraft.verify.finding import Check, Finding
from tokengraft.verify.joined_marks import joined_preserved
from tokengraft.verify.model import check_draft, model_damage
from tokengraft.verify.transformers_loader import transformers_started

SHORT = 40
"""The longest example of a note, in characters, that shares a line with others."""


def run_check(options: argparse.Namespace) -> int:
    """Runs the command."""
    chosen = given("check", options)
    if is_draft(Path(options.source)):
        refused = {"--preserve": options.preserve, "--for": options.stacks}
        require_absent(refused, "a draft")
        return _show(check_draft(Path(options.source), Path(options.base) if options.base else None), options)
    with transformers_started():  # it is imported while the other checks run
        base = load(options.base) if options.base else None
        new = load(options.source)
        if base and options.preserve:
            how = options_in(ReadOptions, chosen), options_in(CountOptions, chosen)
            pipeline = joined_like(base, new)  # counts of both are of one pipeline
            counts = counts_of(pipeline, options.preserve, read_options=how[0], count_options=how[1])
            text = preserved_text([counts], None, exactly=options.preserve_exactly)
            if text and pipeline is not base and not options.preserve_exactly:
                kept, joined = split_by_joining(text.counts, new)
                text = replace(text, counts=kept, joined=joined)
            result = check(new, base, preserve=text.counts if text else None)
            if text and text.joined:
                result = Check((*result.findings, *joined_preserved(text.joined, "note")))
            if text and text.left_out:
                result = Check((*result.findings, _rare_scripts(new, pipeline, text.left_out, text.scripts)))
        else:
            result = check(new, base)
        damage = model_damage(options.source)
        if options.stacks:
            known = {"embedding rows", "special ids"}  # every stack has these
            damage = tuple(each for each in damage if each.name not in known)
        result = Check(result.findings + damage)
        if options.stacks:
            result = Check(result.findings + check_serving(options.source, *options.stacks, base=base).findings)
    return _show(result, options)


def _show(result: Check, options: argparse.Namespace) -> int:
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
