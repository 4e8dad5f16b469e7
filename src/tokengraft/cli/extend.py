"""`tokengraft extend`."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokengraft.check.save import save, save_verified
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.check.verify import Verification, sample_pretokens
from tokengraft.cli.display import print_table, print_warnings, readable
from tokengraft.cli.options import (
    Commands,
    add_counts,
    add_json,
    add_output,
    add_read_options,
    add_source,
    counts_of,
    input_paths,
    lines_of,
    require,
    require_unread,
    warn_of_spelling,
)
from tokengraft.counts.count import reading_warnings
from tokengraft.errors import OptionError
from tokengraft.extend import NAIVE_METHODS, Extension, Limits, extend, extend_naively
from tokengraft.extend.continued import CHARACTER_COVERAGE, require_extendable
from tokengraft.formats import load
from tokengraft.formats.files import is_tokenizer_file
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.tokenizer import Tokenizer

CONTINUED_ONLY = ("min_count", "character_coverage", "max_token_bytes", "deny", "deny_pattern", "extension")


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "extend",
        help="learn new tokens by continuing BPE training",
        description="Learn new tokens by continuing BPE training on new text, so that every new token is reachable. "
        "Kept ids do not move. The written folder is loaded again with other libraries and compared.",
    )
    add_source(command)
    add_counts(command, required=False)
    command.add_argument("--add", type=int, required=True, metavar="N", help="number of new tokens")
    command.add_argument(
        "--min-count", type=int, metavar="N", help="merge only pairs that occur at least N times (default: 2)"
    )
    command.add_argument(
        "--character-coverage",
        type=float,
        metavar="SHARE",
        help="SentencePiece types: add missing characters first, until the vocabulary covers this share of the text's "
        "characters (default: 0.9995; 0 adds none)",
    )
    command.add_argument("--max-token-bytes", type=int, metavar="N", help="maximum length of a new token")
    command.add_argument("--deny", type=Path, metavar="FILE", help="texts that must not become tokens, one per line")
    command.add_argument("--deny-pattern", metavar="REGEX", help="no new token may match this pattern anywhere")
    command.add_argument(
        "--method",
        choices=("continued", *NAIVE_METHODS),
        default="continued",
        help="continued training, or a naive baseline that adds tokens of a newly trained vocabulary (default: "
        "continued)",
    )
    command.add_argument(
        "--donor",
        metavar="SOURCE",
        help="naive methods: take the tokens of this tokenizer instead of training one",
    )
    command.add_argument(
        "--extension", type=Path, metavar="FILE", help="also write the learned tokens and merges as JSON"
    )
    add_output(command, "folder for the extended tokenizer")
    add_json(command)
    add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    warn_of_spelling(tokenizer)
    require_extendable(tokenizer, options.add)
    require(
        options.character_coverage is None or tokenizer.kind == "sentencepiece",
        f"--character-coverage has no effect: the tokenizer is {tokenizer.kind}, and its bytes spell every character",
        hint="drop --character-coverage",
    )
    if options.method != "continued":
        return _run_naively(tokenizer, options)
    with transformers_started():  # it is imported while the core counts and learns
        return _run_continued(tokenizer, options)


def _run_continued(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    limits = Limits(
        Limits.min_count if options.min_count is None else options.min_count,
        options.max_token_bytes,
        lines_of(options.deny, "--deny"),
        options.deny_pattern,
    )
    counts = counts_of(tokenizer, options)
    warnings = reading_warnings(counts.totals)
    print_warnings(warnings)
    character_coverage = CHARACTER_COVERAGE if options.character_coverage is None else options.character_coverage
    extension = extend(tokenizer, counts, options.add, limits=limits, character_coverage=character_coverage)
    extended = extension.apply(tokenizer)
    texts = sample_pretokens(counts, tokenizer.kind)
    verified = save_verified(extended, options.out, base=tokenizer, texts=texts, force=options.force)
    if options.extension:
        extension.save(options.extension, force=options.force)
    _report(tokenizer, extended, extension, verified, warnings, options)
    return 0


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    if options.extension:
        require_new(options.extension, force=options.force)
    inputs = input_paths([options.source, options.donor, options.deny], options.counts, options.corpus)
    require_distinct(inputs, options.out, options.extension)
    naive = options.method != "continued"
    ignored = [name for name in CONTINUED_ONLY if naive and getattr(options, name) is not None]
    for name in ignored:
        flag = f"--{name.replace('_', '-')}"
        raise OptionError(f"{flag} is for continued training, not for {options.method}", hint=f"drop {flag}")
    require(naive or not options.donor, "--donor is for the naive methods", hint="pass --method naive-regen too")
    text = bool(options.counts or options.corpus)
    require(text or bool(options.donor), "no text to learn from was given", hint="pass --counts or --corpus")
    require(
        not (text and options.donor),
        "both text and --donor were given; the tokens of --donor are copied, and nothing is learned from text",
        hint="drop --donor, or drop --counts and --corpus",
    )
    if options.donor:
        require_unread(options, "--donor reads none")
        require(not options.weight, "--weight is for --counts or --corpus, and neither was given", hint="drop --weight")


def _run_naively(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    counts = counts_of(tokenizer, options) if options.counts or options.corpus else None
    warnings = reading_warnings(counts.totals) if counts else ()
    print_warnings(warnings)
    donor = load(options.donor) if options.donor else None
    extended = extend_naively(tokenizer, counts, options.add, options.method, donor=donor)
    save(extended, options.out, force=options.force, verify=False)
    failing = set(extended.structure.unreachable)
    new = [i for string, i in extended.ids.items() if string not in tokenizer.ids]
    unreachable = sum(i in failing for i in new)
    if options.json:
        summary: dict[str, Any] = {
            "out": options.out,
            "added": len(new),
            "unreachable": unreachable,
            "rows": extended.n_rows,
        }
        summary["warnings"] = warnings
        print(json.dumps(summary))
    else:
        rows = [
            ("added", f"{len(new):,} tokens by {options.method}, a baseline for comparison"),
            (
                "unreachable",
                f"{unreachable:,} of them ({unreachable / max(len(new), 1):.1%}) are never produced by merges",
            ),
            ("embedding rows", f"{tokenizer.n_rows:,} → {extended.n_rows:,}"),
        ]
        print_table(rows)
    print(f"wrote `{options.out}`", file=sys.stderr)
    return 0


def _rules(extension: Extension) -> str:
    """The rules for new pieces, as text."""
    rules = dict(extension.provenance["rules"])
    length = rules.pop("max_sentencepiece_length")
    return f"{', '.join(name for name, on in rules.items() if on)}; at most {length} characters"


def _report(
    base: Tokenizer,
    extended: Tokenizer,
    extension: Extension,
    verified: Verification,
    warnings: Sequence[str],
    options: argparse.Namespace,
) -> None:
    reasons = left_out(base, extended)
    if options.json:
        summary: dict[str, Any] = {
            "out": options.out,
            "added": len(extension),
            "asked": extension.asked,
            "characters": len(extension.characters),
            "merges": len(extension.merges),
            "rows": extended.n_rows,
            "left_out": [*reasons],
            "loaded_by": verified.loaders,
            "notes": verified.notes,
            "warnings": warnings,
        }
        print(json.dumps(summary, ensure_ascii=False))
        return
    shown = " ".join(extension.characters[:16]) or "none were missing"
    origin = f"of {base.piece_file}" if base.piece_file else "Llama's, because there is no tokenizer.model"
    first = " ".join(readable(token, base.kind) for token in extension.tokens[:8])
    rows = [
        ("learned", extension.stopped),
        ("first tokens", first or "none"),
        ("merges", f"{len(extension.merges):,} new, {len(extended.merges):,} in all"),
        ("embedding rows", f"{base.n_rows:,} → {extended.n_rows:,}"),
        ("loaded back by", ", ".join(verified.loaders) + ": the same ids"),
    ]
    if base.kind == "sentencepiece":
        rows[1:1] = [
            ("characters", f"{len(extension.characters):,} of the new tokens: {shown}"),
            ("piece rules", f"{origin}; {_rules(extension)}"),
        ]
    rows += [("warning", f"left out `{name}`: {reason}") for name, reason in reasons.items()]
    rows += [("warning", note) for note in verified.notes]
    if len(extension) < extension.asked:
        hint = f"pass --add {max(len(extension), 1)}, lower --min-count from {extension.min_count}, or give more text"
        rows.append(("hint", hint))
    print_table(rows)
    print(f"wrote `{options.out}`", file=sys.stderr)
