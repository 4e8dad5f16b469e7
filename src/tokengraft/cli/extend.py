"""`tokengraft extend`."""

import argparse
import json
from functools import partial
from pathlib import Path

from tokengraft.cli import learning, reading
from tokengraft.cli.display import print_columns, print_result, print_warnings
from tokengraft.cli.extended import Learned, rows_of, summary_of
from tokengraft.cli.options import (
    AUTO,
    Commands,
    add_output,
    add_report,
    add_source,
    given,
    input_paths,
    named,
    number_or,
    refuse,
    report_if_asked,
    require,
    require_report,
    say,
    without,
)
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats import load
from tokengraft.formats.sources import is_tokenizer_file
from tokengraft.learn.continued import extend, require_extendable
from tokengraft.learn.extension import Extension
from tokengraft.learn.limits import Parity
from tokengraft.learn.naive import NAIVE_METHODS, extend_naively
from tokengraft.learn.preserve import cost_of, is_restricted, lost_gain, trained_freely
from tokengraft.measure.choose_size import SizeChoice, SizeOptions, choose_size, rare_warning
from tokengraft.measure.segments import Text, open_text
from tokengraft.measure.sizes import (
    CurvePoint,
    curve_of_extension,
    default_sizes,
    expected,
    least_support,
    support,
    text_ratio,
)
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.progress import one_stage
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import preserved
from tokengraft.verify.finding import Check
from tokengraft.verify.loaders import sample_pretokens
from tokengraft.verify.save import save, save_verified
from tokengraft.verify.transformers_loader import transformers_started

CONTINUED_ONLY = (
    *(*learning.LEARNING, *learning.SIZE),
    *("training_text", "held_out", "character_coverage", "extension"),
)


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "extend",
        help="learn new tokens by continuing BPE training",
        description="Learn new tokens by continuing BPE training on new text, so that every new token is reachable. "
        "Kept ids do not move. The written folder is loaded again with other libraries and compared.",
        first="--counts --corpus --add --held-out --curve --scripts --preserve --include --balance --text-field "
        "--report --out --force --json",
    )
    add_source(command)
    reading.add_counts(command)
    command.add_argument(
        "--add",
        type=number_or(AUTO),
        required=True,
        metavar="N",
        help=f"number of new tokens, or `{AUTO}` to choose it on --held-out",
    )
    command.add_argument(
        "--character-coverage",
        type=float,
        metavar="SHARE",
        help="not byte-level: add missing characters first, until the vocabulary covers this share of the text's "
        "characters (default: 0.9995; 0 adds none)",
    )
    command.add_argument(
        "--method",
        choices=("continued", *NAIVE_METHODS),
        default="continued",
        help="continued training, or a baseline that adds tokens of a newly trained vocabulary (default: continued)",
    )
    command.add_argument(
        "--donor", metavar="SOURCE", help="baselines: take the tokens of this tokenizer instead of training one"
    )
    command.add_argument(
        "--extension", type=Path, metavar="FILE", help="also write the learned tokens and merges as JSON"
    )
    learning.add_learning(command)
    learning.add_size(command)
    command.add_argument(
        "--held-out",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help=f"text that is not learned from, to choose the size on with --add {AUTO}, or for --curve",
    )
    command.add_argument(
        "--curve",
        action="store_true",
        help="show the gain on --held-out by number of new tokens, up to --add, and write nothing",
    )
    add_report(command)
    add_output(command, "folder for the extended tokenizer", required=False)
    reading.add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    reading.warn_of_spelling({options.source: tokenizer})
    require_extendable(tokenizer, _largest(options))
    if tokenizer.kind == "byte-level":
        why = "has no effect: the tokenizer is byte-level, and its bytes spell every character"
        refuse(options, why, "character_coverage")
    if options.method != "continued":
        return _run_naively(tokenizer, options)
    with transformers_started():  # it is imported while the core counts and learns
        return _run_continued(tokenizer, options)


def _largest(options: argparse.Namespace) -> int:
    """The number of tokens to train for."""
    return learning.max_add_of(options) if options.add == AUTO else int(options.add)


def _run_continued(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    limits, words, held_out = learning.limits_of(options), learning.word_list_of(options), _held_out(options)
    texts = _texts(tokenizer, options)
    first, *others = texts.values()
    counts = sum(others, first)
    ratio = text_ratio(counts, options.training_text)
    preserve, warnings = learning.preserve_of(tokenizer, texts.values(), options)
    warnings = [*(warning for part in texts.values() for warning in reading_warnings(part.totals)), *warnings]
    warnings += reading.shared_warnings(options)
    print_warnings(warnings)
    text = _parity(tokenizer, texts, options) if options.balance == "parity" else counts
    settings = {"limits": limits, "include": words, **given(options, "character_coverage")}

    def learn(preserved_counts: PretokenCounts | None, n: int) -> Extension:
        with one_stage("learning", quiet=options.quiet, unit="tokens") as progress:
            return extend(tokenizer, text, n, preserve=preserved_counts, progress=progress, **settings)

    def cut(extension: Extension) -> tuple[Extension, SizeChoice | None]:
        if options.add != AUTO or held_out is None:
            return extension, None
        least = max(extension.n_listed, 1)
        size = SizeOptions(min_size=least, **learning.size_options(options))
        choice = choose_size(tokenizer, extension, counts, held_out, size)
        return extension[: choice.size], choice

    largest = learn(preserve.counts if preserve else None, _largest(options))
    if options.curve and held_out is not None:
        return _show_curve(tokenizer, largest, counts, held_out, warnings, options)
    extension, choice = cut(largest)
    extended, cost = extension.apply(tokenizer), None
    least = expected(least_support(extension, has_merges=tokenizer.algorithm == "BPE"), ratio)
    may_be_rare = choice is None and rare_warning(least)
    trained = options.training_text
    occurring = support(tokenizer, extension, counts, trained)(len(extension)) if may_be_rare else ()
    if rare := rare_warning(occurring, trained):
        warnings.append(f"{rare}; `--add {AUTO} --held-out TEXT` chooses a size that the text supports")
        print_warnings(warnings[-1:])
    if preserve is not None:
        extension = preserve.noted_in(extension)
        Check((preserved(extended, tokenizer, preserve.counts),)).raise_for_failures()
        free = cut(trained_freely(partial(learn, None), _largest(options)))[0] if is_restricted(largest) else extension
        cost = cost_of([*texts.values()], tokenizer, extended, free.apply(tokenizer))
        if error := lost_gain(cost, len(extension.refused)):
            if options.preserve and not options.preserve_exactly:
                raise error
            warnings.append(error.message)
            print_warnings([error.message])
    samples = sample_pretokens(counts, tokenizer.kind)
    verified = save_verified(extended, options.out, base=tokenizer, texts=samples, force=options.force)
    if options.extension:
        extension.save(options.extension, force=options.force)
    learned = Learned(tokenizer, extended, extension, verified, choice, cost)
    print_result(options, {"out": options.out, **summary_of(learned), "warnings": warnings}, rows_of(learned))
    if not options.json:
        say(f"wrote `{options.out}`", options)
    more = {"extension": extension, "warnings": warnings, "training_text": trained}
    report_if_asked(options, (tokenizer, extended), texts, **more)
    return 0


def _texts(tokenizer: Tokenizer, options: argparse.Namespace) -> dict[str, PretokenCounts]:
    """The counts of every text to learn from, by name; without --balance parity, one that has them all."""
    other_text = bool(options.preserve or options.parity_text)
    if options.held_out and not options.corpus:
        options = without(options, *reading.TEXT_OPTIONS)
    if options.balance != "parity":
        return {"text": reading.given_counts(tokenizer, options, other_text=other_text)}
    if options.counts and not other_text:
        reading.require_unread(options, "--counts was counted already")
    option = "--corpus" if options.corpus else "--counts"
    texts = reading.named_texts(map(str, options.corpus or options.counts), option)
    return {name: reading.counts_of_files(tokenizer, files, options) for name, files in texts.items()}


def _parity(tokenizer: Tokenizer, texts: dict[str, PretokenCounts], options: argparse.Namespace) -> Parity:
    """The texts in balance, with those of --parity-text."""
    share = given(options, "max_share")
    if not options.parity_text:
        return Parity(texts, **share)
    named = reading.named_texts(options.parity_text, "--parity-text")
    parallel = {name: reading.counts_of_files(tokenizer, files, options, whole=True) for name, files in named.items()}
    return Parity.of_parallel(texts, parallel, **share)


def _show_curve(
    tokenizer: Tokenizer,
    extension: Extension,
    counts: PretokenCounts,
    text: Text | PretokenCounts,
    warnings: list[str],
    options: argparse.Namespace,
) -> int:
    """Prints the gain by number of new tokens, and how often the new tokens occur in the training text."""
    trained = options.training_text
    sizes = default_sizes(options.add)
    curve = curve_of_extension(tokenizer, extension, support(tokenizer, extension, counts, trained), text, sizes)
    more = [*curve.warnings]
    if len(options.weight or ()) > 1:
        more.append("the shares below 10, 100 and 1,000 are of occurrences multiplied by --weight")
    print_warnings(more)
    if options.json:
        points = [point._asdict() for point in curve.points]
        print(json.dumps({"text": curve.text, "knee": curve.knee, "points": points, "warnings": [*warnings, *more]}))
        return 0
    heads = ["new tokens", "bytes/token", "gain", "below 10", "below 100", "below 1,000"]
    print_columns(heads, [_curve_row(point) for point in curve.points])
    knee = f"{curve.knee:,} tokens (1,000 more gain less than 1 %)" if curve.knee is not None else "not reached"
    print(f"knee: {knee}")
    where = f"{trained:,} bytes of training text" if trained else "the text they were learned from"
    say(f"below N: the share of new tokens that occur fewer than N times in {where}", options)
    if len(extension) < extension.asked:
        say(f"note: {extension.stopped}", options)
    return 0


def _curve_row(point: CurvePoint) -> list[str]:
    rare = ("" if share is None else f"{share:.1%}" for share in (point.below_10, point.below_100, point.below_1000))
    return [f"{point.tokens:,}", f"{point.bytes_per_token:.3f}", f"{point.gain:+.1%}", *rare]


def _held_out(options: argparse.Namespace) -> Text | PretokenCounts | None:
    """The text of --held-out."""
    if not options.held_out:
        return None
    read_options = reading.text_read_options_of(options)
    text = open_text(*reading.one_text(options.held_out, "--held-out"), read_options)
    require(
        read_options is None or bool(options.corpus) or not isinstance(text, PretokenCounts),
        "options for reading text were given, but both --counts and --held-out are counts",
        hint="leave them out, or pass text",
    )
    return text


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    if options.curve:
        _require_curve(options)
    else:
        require(options.out is not None, "no output was given", hint="pass --out PATH, or --curve")
        require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    if options.extension:
        require_new(options.extension, force=options.force)
    inputs = [options.source, options.donor, options.deny, options.include]
    texts = [named(text)[1] for text in (*(options.parity_text or ()), *(options.held_out or ()))]
    corpora = [named(str(path))[1] for path in (options.corpus or ())] if options.balance == "parity" else []
    paths = input_paths(inputs, options.counts, options.corpus, corpora, options.preserve, texts)
    require_distinct(paths, options.out, options.extension)
    require_report(options, paths, options.out, options.extension)
    reading.require_one_stdin(options)
    if options.method != "continued":
        why = f"is for continued training, not for {options.method}"
        refuse(options, why, *CONTINUED_ONLY)
        no_hash = options.keep_llama_cpp_hash is False  # given as --no-keep-llama-cpp-hash
        require(not no_hash, f"--no-keep-llama-cpp-hash {why}", hint="drop --no-keep-llama-cpp-hash")
    else:
        refuse(options, "is for the naive methods", "donor", instead="pass --method naive-regen too")
    if options.donor:
        why = "both text and --donor were given; its tokens are copied, and nothing is learned from text"
        require(not (options.counts or options.corpus), why, hint="drop --donor, or drop --counts and --corpus")
        reading.require_unread(options, "--donor reads none")
        refuse(options, "is for --counts or --corpus, and neither was given", "weight")
    else:
        text = bool(options.counts or options.corpus)
        require(text, "no text to learn from was given", hint="pass --counts or --corpus")
    _require_size(options)
    _require_balance(options)
    if not options.preserve:
        refuse(options, "has no effect without text to preserve", "preserve_exactly", instead="pass --preserve TEXT")


def _require_curve(options: argparse.Namespace) -> None:
    """Refuses what has no effect with --curve."""
    require(options.add != AUTO, f"--curve shows sizes up to --add, which is `{AUTO}`", hint="pass --add 32000")
    why = "--curve measures text that is not learned from, and none was given"
    require(options.held_out is not None, why, hint="pass --held-out TEXT")
    refuse(options, "has no effect: --curve writes nothing", "out", "force", "extension", "report")
    require(options.method == "continued", "--curve is for continued training", hint="drop --method")


def _require_size(options: argparse.Namespace) -> None:
    if len({*(options.weight or ())}) > 1:
        why = "has no effect: --weight multiplies occurrences, so those in the training text are unknown"
        refuse(options, why, "training_text", instead="drop --weight")
    if options.add != AUTO:
        return learning.require_no_size(options, *learning.SIZE, *(() if options.curve else ("held_out",)))
    require(options.method == "continued", f"--add {AUTO} is for continued training", hint="pass --add N")
    why = f"--add {AUTO} chooses the number of tokens on held-out text, and none was given"
    return require(options.held_out is not None, why, hint="pass --held-out TEXT, or a number of tokens")


def _require_balance(options: argparse.Namespace) -> None:
    if options.balance != "parity":
        why, instead = "is for --balance parity", "pass --balance parity"
        return refuse(options, why, "parity_text", "max_share", instead=instead)
    number = len(options.corpus or options.counts or ())
    why = f"--balance parity needs several texts, and {number} was given"
    require(number > 1, why, hint="pass --corpus NAME=FILES NAME=FILES")
    return refuse(options, "has no effect with --balance parity", "weight")


def _run_naively(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    counts = reading.given_counts(tokenizer, options) if options.counts or options.corpus else None
    warnings = reading_warnings(counts.totals) if counts else ()
    print_warnings(warnings)
    donor = load(options.donor) if options.donor else None
    extended = extend_naively(tokenizer, counts, int(options.add), options.method, donor=donor)
    save(extended, options.out, force=options.force, verify=False)
    failing = set(extended.structure.unreachable)
    new = [i for string, i in extended.ids.items() if string not in tokenizer.ids]
    unreachable = sum(i in failing for i in new)
    summary = {"out": options.out, "added": len(new), "unreachable": unreachable, "rows": extended.n_rows}
    share = f"({unreachable / max(len(new), 1):.1%})"
    rows = [
        ("added", f"{len(new):,} tokens by {options.method}, a baseline for comparison"),
        ("unreachable", f"{unreachable:,} of them {share} are never produced by merges"),
        ("embedding rows", f"{tokenizer.n_rows:,} → {extended.n_rows:,}"),
    ]
    print_result(options, summary | {"warnings": warnings}, rows)
    say(f"wrote `{options.out}`", options)
    report_if_asked(options, (tokenizer, extended), {"text": counts} if counts else {}, warnings=warnings)
    return 0
