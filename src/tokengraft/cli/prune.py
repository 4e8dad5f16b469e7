"""`tokengraft prune`."""

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from tokengraft.checkpoint.ids import config_tokens
from tokengraft.checkpoint.padding import model_rows, row_step
from tokengraft.cli import reading
from tokengraft.cli.display import print_result, print_warnings
from tokengraft.cli.extended import print_curve, removed_rows, sample_rows
from tokengraft.cli.options import (
    AUTO,
    Commands,
    add_output,
    add_protection,
    add_report,
    add_source,
    given,
    input_paths,
    lines_of,
    number,
    number_or,
    refuse,
    report_if_asked,
    require,
    require_report,
    say,
)
from tokengraft.corpus.read import documents
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.errors import positive
from tokengraft.formats import load
from tokengraft.formats.sources import is_tokenizer_file
from tokengraft.measure.prune_curve import PrunePoint, prune_curve
from tokengraft.measure.sample_texts import REMOVED, SampleChange, sample_changes, sample_warnings
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.pipeline.options import read_once
from tokengraft.pruning.coverage import COVERAGE, MANY, NONE_COVERED, coverage_reason, require_coverage
from tokengraft.pruning.methods import COUNTED, METHODS, Method
from tokengraft.pruning.order import PruneOrder, prune_order
from tokengraft.pruning.removable import Protection
from tokengraft.pruning.summary import removed_summary
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.llama_cpp import check_tokens, require_known
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.loaders import Verification, sample_pretokens
from tokengraft.verify.save import save_verified
from tokengraft.verify.transformers_loader import transformers_started

SCRIPTS = ("script", "script-leaf")
WHOLE = (*SCRIPTS, "unreachable")
ALL = "all"
"""The value of --remove for the whole order."""
_OF_ORDER = (
    *("protect", "protect_pattern", "no_protect_defaults", "scripts", "by_merges", "prune_characters"),
    *("reuse_reserved", "keep_llama_cpp_hash", "weight"),
)
"""Options that decide an order."""


def _cut(
    tokenizer: Tokenizer,
    order: PruneOrder,
    counts: PretokenCounts | None,
    held_out: Mapping[str, PretokenCounts],
    options: argparse.Namespace,
) -> PruneOrder:
    """The beginning of the order that is removed. With `auto`, all texts keep their tokens."""
    if options.rows is not None:
        tokens, rows = len(tokenizer.tokens), _rows(tokenizer, tokenizer, options)
        step = row_step(tokenizer.n_rows, rows)
        why = f"--rows is {options.rows:,}; expected {step:,} to {rows - 1:,}"
        require(step <= options.rows < rows, why, hint=f"there are {rows:,} now; pass --rows with a number in between")
        return order[: max(tokens - options.rows // step * step, 1)]
    if options.remove != AUTO:
        return order[: None if options.remove in (None, ALL) else options.remove]
    texts = _documents(tokenizer, held_out, options)
    # The text of the order too: a held-out text of a few words could do without nearly all tokens.
    return order.covering(tokenizer, _coverage(options), *([counts] if counts else []), *texts)


def _documents(
    tokenizer: Tokenizer, held_out: Mapping[str, PretokenCounts], options: argparse.Namespace
) -> Iterator[PretokenCounts | Iterator[str]]:
    """Every text of --held-out by its documents, if there are many and it can be read again, and else its counts."""
    read = replace(reading.read_options_of(options, tokenizer), shard=None)
    for name, files in reading.texts_of(options.held_out, "--held-out").items():
        counts = held_out[name]
        again = counts.totals.documents >= MANY and not is_counts_file(files) and not read_once(files, read)
        again = again and read.normalize is None  # the tokens of counts are those of normalized text
        yield documents(files, read) if again else counts


def _coverage(options: argparse.Namespace) -> float:
    return COVERAGE if options.keep_coverage is None else float(options.keep_coverage)


def _held_out(tokenizer: Tokenizer, options: argparse.Namespace) -> dict[str, PretokenCounts]:
    """The counts of every text of --held-out."""
    texts = reading.texts_of(options.held_out or (), "--held-out")
    return {name: reading.counts_of_files(tokenizer, files, options, whole=True) for name, files in texts.items()}


def _rows(base: Tokenizer, tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    """The embedding rows of the model with a tokenizer, padding included; without a model, those that tokens need."""
    model = model_rows(options.source)
    return model.left(base.n_rows, tokenizer.n_rows)[0] if model else tokenizer.n_rows


def _curve(
    tokenizer: Tokenizer,
    order: PruneOrder,
    chosen: PruneOrder,
    held_out: Mapping[str, PretokenCounts],
    options: argparse.Namespace,
) -> tuple[PrunePoint, ...]:
    model = model_rows(options.source)
    left = (lambda needed: model.left(tokenizer.n_rows, needed)) if model else None
    compact = options.ids == "compact"
    return prune_curve(tokenizer, order, len(chosen), held_out, left=left, compact=compact) if held_out else ()


class _Measured(NamedTuple):
    """What is reported about text."""

    lengths: list[int]
    """Tokens of the counted text with the base and with the pruned tokenizer; empty if no text was given."""
    samples: tuple[SampleChange, ...]
    warnings: tuple[str, ...]
    curve: tuple[PrunePoint, ...]


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "prune",
        help="remove tokens that a deployment does not need",
        description="Remove tokens, by default the rarest leaves of the merge tree, so that every kept token stays "
        "reachable. Special and added tokens, bytes and, unless bytes spell them, characters are kept; by default also "
        "white space, digits, ASCII punctuation, names of source code and text of chat templates. Ids are renumbered "
        "without holes unless --ids keep.",
        first="--counts --corpus --remove --rows --held-out --method --scripts --protect --no-protect-defaults "
        "--ids --report --out --force --json",
    )
    add_source(command)
    reading.add_counts(command)
    command.add_argument(
        "--remove",
        type=number_or(ALL, AUTO),
        metavar="N",
        help="number of tokens to remove; `auto`: as many as --held-out can do without; `all`: the whole order "
        "(default for the script and unreachable methods)",
    )
    command.add_argument(
        "--rows",
        type=number,
        metavar="N",
        help="remove tokens until at most N embedding rows are left, padding included: a model whose rows are a "
        "multiple of 64 keeps such a multiple",
    )
    command.add_argument(
        "--held-out",
        action="extend",
        nargs="+",
        metavar="NAME=FILES",
        help="text that the order is not made from, one for each language, to show what other sizes cost",
    )
    command.add_argument(
        "--keep-coverage",
        type=float,
        metavar="SHARE",
        help="with --remove auto: the share of the tokens of the corpus and of every held-out text that stay "
        f"(default: {COVERAGE})",
    )
    command.add_argument(
        "--method",
        choices=METHODS,
        help="which tokens are removed first (default: leaf-expected). With --by-merges and --no-protect-defaults, "
        "leaf-frequency is the order of the paper",
    )
    command.add_argument(
        "--by-merges",
        action="store_true",
        help="count tokens with merge skipping (ignore_merges) off, as the paper does; by default, as the tokenizer "
        "encodes",
    )
    command.add_argument(
        "--scripts",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="for the script methods: the Unicode scripts to keep, such as Latin",
    )
    add_protection(command)
    command.add_argument(
        "--prune-characters",
        action="store_true",
        help="remove single characters too, where byte fallback can spell them; of Unigram and WordPiece, all that the "
        "text lacks",
    )
    command.add_argument(
        "--reuse-reserved", action="store_true", help="remove reserved tokens that nothing uses, before all others"
    )
    command.add_argument(
        "--ids",
        choices=("compact", "keep"),
        default="compact",
        help="compact: renumber without holes; keep: no id moves, a later extend fills the holes, and the token with "
        "the highest id is kept so that the number of embedding rows does not change; for BPE only (default: compact)",
    )
    command.add_argument(
        "--keep-llama-cpp-hash",
        action="store_true",
        help="with --ids keep: the tokens of the check text of llama.cpp's converter are kept, so that it recognises "
        "the result",
    )
    command.add_argument(
        "--order",
        type=Path,
        metavar="FILE",
        help="with text or --method: also write the complete order as JSON; without: remove the first tokens of an "
        "order that was written before, as many as --remove says",
    )
    add_report(command)
    add_output(command, "folder for the pruned tokenizer")
    reading.add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    require(
        options.ids != "keep" or tokenizer.algorithm == "BPE",
        f"--ids keep leaves ids without a token, and a {tokenizer.algorithm} vocabulary is a list",
        hint="leave out --ids keep, which renumbers the tokens; or replace tokens, which moves no id: `tokengraft "
        "adapt --swap N`",
    )
    reading.warn_of_spelling({options.source: tokenizer})
    with transformers_started():  # it is imported while the core counts
        return _prune(tokenizer, options)


def _prune(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    held_out = _held_out(tokenizer, options)
    counts = None
    if options.counts or options.corpus:
        counts = reading.given_counts(tokenizer, options, other_text=bool(held_out))
    texts = [*held_out.values(), *([counts] if counts else [])]
    warnings = tuple(warning for text in texts for warning in reading_warnings(text.totals))
    warnings += tuple(reading.shared_warnings(options))
    print_warnings(warnings)
    reads = reads_order(options)
    order = _read_order(options) if reads else _order(tokenizer, counts, held_out, options)
    chosen = _cut(tokenizer, order, counts, held_out, options)
    if options.remove == AUTO and not len(chosen):
        print_warnings([f"no token is removed: {NONE_COVERED}"])
    highest = tokenizer.n_rows - 1
    if reads and options.ids == "keep" and any(removal.id == highest for removal in chosen.removals):
        message = f"the order removes the token with the highest id, {highest:,}: there are fewer embedding rows until "
        print_warnings([f"{message}`extend` adds tokens"])
    pruned = chosen.apply(tokenizer)
    if options.ids == "compact":
        pruned = pruned.compact()
    curve = _curve(tokenizer, order, chosen, held_out, options)
    lengths = [sum(counts.tokens(tok).values()) for tok in (tokenizer, pruned)] if counts else []
    samples = sample_changes(tokenizer, pruned)
    warned = sample_warnings(samples, REMOVED.format("--corpus"))
    print_warnings(warned)
    warnings = (*warnings, *warned)
    shown = sample_pretokens(counts, tokenizer.kind) if counts else []
    verified = save_verified(pruned, options.out, base=tokenizer, texts=shown, force=options.force)
    if options.order and not reads:
        order.save(options.order, force=options.force)
    _report(tokenizer, pruned, chosen, _Measured(lengths, samples, warnings, curve), verified, options)
    reason = coverage_reason(_coverage(options), chosen.left_out) if options.remove == AUTO else None
    more = {"held_out": held_out, "prune_curve": curve, "size_reason": reason, "warnings": warnings}
    report_if_asked(options, (tokenizer, pruned), {"text": counts} if counts else {}, **more)
    return 0


def _order(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None,
    held_out: Mapping[str, PretokenCounts],
    options: argparse.Namespace,
) -> PruneOrder:
    protected = [*lines_of(options.protect, "--protect"), *config_tokens(tokenizer, options.source)]
    protected += [token for text in held_out.values() for token, count in text.added.items() if count]
    if options.keep_llama_cpp_hash:
        require_known(tokenizer)
        protected += check_tokens(tokenizer)
    protection = Protection(
        tokens=protected,
        pattern=options.protect_pattern,
        characters=options.prune_characters,
        reuse_reserved=options.reuse_reserved,
        highest_id=options.ids == "keep",
        defaults=not options.no_protect_defaults,
    )
    how = given(options, "scripts", "by_merges")
    return prune_order(tokenizer, counts, _method(options), protection=protection, **how)


def reads_order(options: argparse.Namespace) -> bool:
    """Whether --order is read: if neither text nor a method says how to make one."""
    return bool(options.order and not (options.counts or options.corpus or options.method))


def _read_order(options: argparse.Namespace) -> PruneOrder:
    """The order in the file of --order."""
    order = PruneOrder.load(options.order)
    require(
        options.remove is not None or options.rows is not None,
        f"--remove was not given, and the order in `{options.order}` has {len(order):,} tokens",
        hint=f"pass --remove N to remove the first N of them, or --remove {ALL}",
    )
    return order


def _method(options: argparse.Namespace) -> Method:
    method: Method = options.method or "leaf-expected"
    return method


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    held_out = reading.texts_of(options.held_out or (), "--held-out").values()
    inputs = input_paths([options.source, options.protect], options.counts, options.corpus, held_out)
    reading.require_one_stdin(options)
    require_report(options, inputs, options.out, options.order)
    if reads_order(options):
        require_distinct([*inputs, options.order], options.out)
        if not held_out:
            reading.require_unread(options, "--order has the order")
        instead = "pass it when the order is made, with --counts, --corpus or --method"
        refuse(options, f"decides an order, and `{options.order}` was made before", *_OF_ORDER, instead=instead)
    else:
        if options.order:
            require_new(options.order, force=options.force)
        require_distinct(inputs, options.out, options.order)
        _require_method(options)
    if held_out and not options.corpus:
        refuse(options, "is for --corpus, and none was given", "max_documents", "max_bytes", "shard")
    if isinstance(options.remove, int):
        positive("remove", options.remove)
    _require_size(options)


def _require_size(options: argparse.Namespace) -> None:
    """Refuses sizes that contradict each other or have no effect."""
    require(options.rows is None or options.remove is None, "both --remove and --rows were given", hint="pass one")
    if options.ids != "compact":
        refuse(options, "has no effect with --ids keep: the number of rows stays", "rows", instead="pass --ids compact")
    if options.remove != AUTO:
        refuse(options, "is for --remove auto", "keep_coverage", instead="pass --remove auto")
        return
    why = "--remove auto chooses the number of tokens on held-out text, and none was given"
    require(options.held_out is not None, why, hint="pass --held-out TEXT, or a number of tokens")
    require_coverage("keep_coverage", _coverage(options))


def _require_method(options: argparse.Namespace) -> None:
    """Refuses options that the method cannot use."""
    method, counted = _method(options), bool(options.counts or options.corpus)
    if not counted:
        if not options.held_out:
            reading.require_unread(options, "none was given")
        refuse(options, "is for --counts or --corpus, and neither was given", "weight")
    if options.ids != "keep":
        refuse(options, "needs ids that do not move", "keep_llama_cpp_hash", instead="pass --ids keep too")
    if method not in SCRIPTS:
        why = f"is for the script methods, not for {method}"
        refuse(options, why, "scripts", instead="pass --method script-leaf")
    require(
        counted or method not in COUNTED,
        f"the method {method} counts tokens in a text, and no text was given",
        hint="pass --counts or --corpus, choose --method last-id-leaf, or pass --order with an order made before",
    )
    require(
        options.remove is not None or options.rows is not None or method in WHOLE,
        f"the method {method} needs the number of tokens to remove",
        hint=f"pass --remove N, --rows N, or --remove {AUTO} --held-out TEXT",
    )


def _report(
    base: Tokenizer,
    pruned: Tokenizer,
    order: PruneOrder,
    measured: _Measured,
    verified: Verification,
    options: argparse.Namespace,
) -> None:
    rows_before, rows_after = (_rows(base, tokenizer, options) for tokenizer in (base, pruned))
    broken, reasons = len(_unreachable(pruned) - _unreachable(base)), left_out(base, pruned)
    removed, lengths = removed_summary(base, (removal.id for removal in order.removals)), measured.lengths
    summary = {
        "out": options.out,
        "method": order.method,
        "by_merges": order.provenance["by_merges"],
        "removed": len(order),
        "tokens": len(pruned.tokens),
        "rows": rows_after,
        "newly_unreachable": broken,
        "tokens_in_text": lengths,
        "curve": [point.as_dict() for point in measured.curve],
        "kept": dict(order.kept),
        "removed_tokens": removed.as_dict(),
        "samples": [sample._asdict() for sample in measured.samples],
        "left_out": [*reasons],
        "loaded_by": verified.loaders,
        "notes": verified.notes,
        "warnings": measured.warnings,
    }
    rows = [
        ("tokens", f"{len(order):,} removed by {order.method}, {len(pruned.tokens):,} kept"),
        *removed_rows(removed, order.kept),
        ("unreachable", f"{broken:,} kept tokens became unreachable"),
        ("embedding rows", f"{rows_before:,} → {rows_after:,}"),
        ("loaded back by", ", ".join(verified.loaders) + ": the same ids"),
    ]
    if options.remove == AUTO:
        rows.insert(0, ("size", coverage_reason(_coverage(options), order.left_out)))
    if lengths and lengths[0]:
        change = f"{lengths[0]:,} → {lengths[1]:,} ({lengths[1] / lengths[0] - 1:+.2%})"
        more = "" if measured.curve else "; measure held-out text with --held-out or `tokengraft evaluate`"
        rows.append(("tokens in text", change + more))
    rows += sample_rows(measured.samples)
    rows += [("warning", f"left out `{name}`: {reason}") for name, reason in reasons.items()]
    rows += [("warning", note) for note in verified.notes]
    if options.ids == "compact" and len(order):
        rows.append(("note", "ids have changed: adapt the checkpoint with `tokengraft transplant`"))
    print_result(options, summary, rows)
    if not options.json:
        if measured.curve:
            print_curve(measured.curve, len(order))
        say(f"wrote `{options.out}`", options)


def _unreachable(tokenizer: Tokenizer) -> set[str]:
    failing = set(tokenizer.structure.unreachable)
    return {token.string for token in tokenizer.tokens if token.id in failing}
