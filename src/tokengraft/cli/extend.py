"""`tokengraft extend`."""

import argparse
import json
from pathlib import Path
from typing import Any

from tokengraft.check.against_base import preserved
from tokengraft.check.finding import Check
from tokengraft.check.save import save, save_verified
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.check.verify import sample_pretokens
from tokengraft.cli.display import print_table, print_warnings
from tokengraft.cli.extended import Learned, rows_of, summary_of
from tokengraft.cli.learning import (
    AUTO,
    LEARNING,
    SIZE,
    add_learning,
    add_size,
    counts_of_files,
    limits_of,
    max_add_of,
    named_texts,
    number_of_tokens,
    preserve_of,
    preserve_warnings,
    require_no_size,
    size_options,
    whole,
    word_list_of,
)
from tokengraft.cli.options import Commands, add_json, add_output, add_source, input_paths, named, require, say
from tokengraft.cli.progress import one_stage
from tokengraft.cli.reading import (
    add_counts,
    add_read_options,
    counts_of,
    require_unread,
    text_read_options_of,
    warn_of_spelling,
    without_text_reading,
)
from tokengraft.cli.report_option import add_report, report_if_asked, require_report
from tokengraft.cli.texts import one_text
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.evaluate.segments import open_text
from tokengraft.evaluate.size import SizeChoice, choose_size
from tokengraft.extend.continued import CHARACTER_COVERAGE, extend, require_extendable
from tokengraft.extend.cost import preserve_cost
from tokengraft.extend.extension import Extension
from tokengraft.extend.naive import NAIVE_METHODS, extend_naively
from tokengraft.extend.parity import Parity
from tokengraft.formats import load
from tokengraft.formats.files import is_tokenizer_file
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.tokenizer.tokenizer import Tokenizer

CONTINUED_ONLY = (*LEARNING, *SIZE, "held_out", "character_coverage", "extension")


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
    command.add_argument(
        "--add",
        type=number_of_tokens,
        required=True,
        metavar="N",
        help=f"number of new tokens, or `{AUTO}` to choose it on --held-out",
    )
    command.add_argument(
        "--character-coverage",
        type=float,
        metavar="SHARE",
        help="SentencePiece types: add missing characters first, until the vocabulary covers this share of the text's "
        "characters (default: 0.9995; 0 adds none)",
    )
    command.add_argument(
        "--method",
        choices=("continued", *NAIVE_METHODS),
        default="continued",
        help="continued training, or a baseline that adds tokens of a newly trained vocabulary (default: continued)",
    )
    command.add_argument(
        "--donor",
        metavar="SOURCE",
        help="baselines: take the tokens of this tokenizer instead of training one",
    )
    command.add_argument(
        "--extension", type=Path, metavar="FILE", help="also write the learned tokens and merges as JSON"
    )
    add_learning(command)
    add_size(command)
    command.add_argument(
        "--held-out",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help=f"text to choose the size on, with --add {AUTO}",
    )
    add_report(command)
    add_output(command, "folder for the extended tokenizer")
    add_json(command)
    add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    warn_of_spelling(tokenizer)
    require_extendable(tokenizer, _largest(options))
    require(
        options.character_coverage is None or tokenizer.kind == "sentencepiece",
        f"--character-coverage has no effect: the tokenizer is {tokenizer.kind}, and its bytes spell every character",
        hint="drop --character-coverage",
    )
    if options.method != "continued":
        return _run_naively(tokenizer, options)
    with transformers_started():  # it is imported while the core counts and learns
        return _run_continued(tokenizer, options)


def _largest(options: argparse.Namespace) -> int:
    """The number of tokens to train for."""
    return max_add_of(options) if options.add == AUTO else int(options.add)


def _run_continued(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    limits, words = limits_of(options), word_list_of(options)
    texts = _texts(tokenizer, options)
    counts = _sum(texts)
    warnings = [warning for part in texts.values() for warning in reading_warnings(part.totals)]
    preserve = preserve_of(tokenizer, options)
    warnings += preserve_warnings(preserve, options)
    print_warnings(warnings)
    coverage = CHARACTER_COVERAGE if options.character_coverage is None else options.character_coverage
    text = _parity(tokenizer, texts, options) if options.balance == "parity" else counts
    settings: dict[str, Any] = {"limits": limits, "character_coverage": coverage, "include": words}
    with one_stage("learning", quiet=options.quiet, unit="tokens") as progress:
        extension = extend(tokenizer, text, _largest(options), preserve=preserve, progress=progress, **settings)
    choice = _chosen(tokenizer, extension, counts, options) if options.add == AUTO else None
    extension = extension[: choice.size] if choice else extension
    extended = extension.apply(tokenizer)
    if preserve is not None:
        Check((preserved(extended, tokenizer, preserve),)).raise_for_failures()
    cost = preserve_cost(tokenizer, text, extension, **settings) if preserve else None
    samples = sample_pretokens(counts, tokenizer.kind)
    verified = save_verified(extended, options.out, base=tokenizer, texts=samples, force=options.force)
    if options.extension:
        extension.save(options.extension, force=options.force)
    learned = Learned(tokenizer, extended, extension, verified, choice, cost)
    if options.json:
        print(json.dumps({"out": options.out, **summary_of(learned), "warnings": warnings}, ensure_ascii=False))
    else:
        print_table(rows_of(learned))
        say(f"wrote `{options.out}`", options)
    report_if_asked(options, (tokenizer, extended), texts, extension=extension, warnings=warnings)
    return 0


def _texts(tokenizer: Tokenizer, options: argparse.Namespace) -> dict[str, PretokenCounts]:
    """The counts of every text to learn from, by name; without --balance parity, one that has them all."""
    other_text = bool(options.preserve or options.parity_text)
    if options.held_out and not options.corpus:
        options = without_text_reading(options)
    if options.balance != "parity":
        return {"text": counts_of(tokenizer, options, other_text=other_text)}
    if options.counts and not other_text:
        require_unread(options, "--counts was counted already")
    option = "--corpus" if options.corpus else "--counts"
    texts = named_texts(map(str, options.corpus or options.counts), option)
    return {name: counts_of_files(tokenizer, files, options) for name, files in texts.items()}


def _sum(texts: dict[str, PretokenCounts]) -> PretokenCounts:
    first, *others = texts.values()
    for other in others:
        first += other
    return first


def _parity(tokenizer: Tokenizer, texts: dict[str, PretokenCounts], options: argparse.Namespace) -> Parity:
    """The texts in balance, with those of --parity-text."""
    max_share = 1.0 if options.max_share is None else options.max_share
    if not options.parity_text:
        return Parity(texts, max_share=max_share)
    given = named_texts(options.parity_text, "--parity-text")
    parallel = {name: counts_of_files(tokenizer, files, whole(options)) for name, files in given.items()}
    return Parity.of_parallel(texts, parallel, max_share=max_share)


def _chosen(
    tokenizer: Tokenizer, extension: Extension, counts: PretokenCounts, options: argparse.Namespace
) -> SizeChoice:
    text = open_text(*one_text(options.held_out, "--held-out"), text_read_options_of(options))
    return choose_size(tokenizer, extension, counts, text, min_size=max(extension.n_listed, 1), **size_options(options))


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    if options.extension:
        require_new(options.extension, force=options.force)
    inputs = [options.source, options.donor, options.deny, options.include]
    texts = [named(text)[1] for text in (*(options.parity_text or ()), *(options.held_out or ()))]
    corpora = [named(str(path))[1] for path in (options.corpus or ())] if options.balance == "parity" else []
    paths = input_paths(inputs, options.counts, options.corpus, corpora, options.preserve, texts)
    require_distinct(paths, options.out, options.extension)
    require_report(options, paths, options.out, options.extension)
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
    _require_size(options)
    _require_balance(options)


def _require_size(options: argparse.Namespace) -> None:
    if options.add != AUTO:
        return require_no_size(options, (*SIZE, "held_out"))
    require(options.method == "continued", f"--add {AUTO} is for continued training", hint="pass --add N")
    return require(
        options.held_out is not None,
        f"--add {AUTO} chooses the number of tokens on held-out text, and none was given",
        hint="pass --held-out TEXT, or a number of tokens",
    )


def _require_balance(options: argparse.Namespace) -> None:
    parity = options.balance == "parity"
    for name in ("parity_text", "max_share"):
        flag = f"--{name.replace('_', '-')}"
        require(
            parity or getattr(options, name) is None, f"{flag} is for --balance parity", hint="pass --balance parity"
        )
    if parity:
        number = len(options.corpus or options.counts or ())
        require(
            number > 1,
            f"--balance parity needs several texts, and {number} was given",
            hint="pass --corpus NAME=FILES NAME=FILES",
        )
        require(not options.weight, "--weight has no effect with --balance parity", hint="drop --weight")


def _run_naively(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    counts = counts_of(tokenizer, options) if options.counts or options.corpus else None
    warnings = reading_warnings(counts.totals) if counts else ()
    print_warnings(warnings)
    donor = load(options.donor) if options.donor else None
    extended = extend_naively(tokenizer, counts, int(options.add), options.method, donor=donor)
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
    say(f"wrote `{options.out}`", options)
    report_if_asked(options, (tokenizer, extended), {"text": counts} if counts else {}, warnings=warnings)
    return 0
