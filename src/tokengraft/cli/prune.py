"""`tokengraft prune`."""

import argparse
import json
from pathlib import Path
from typing import NamedTuple

from tokengraft.check.save import save_verified
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.check.verify import Verification, sample_pretokens
from tokengraft.cli.display import print_table, print_warnings, readable
from tokengraft.cli.options import (
    Commands,
    add_json,
    add_output,
    add_source,
    input_paths,
    lines_of,
    number,
    require,
    say,
)
from tokengraft.cli.reading import add_counts, add_read_options, counts_of, require_unread, warn_of_spelling
from tokengraft.cli.report_option import add_report, report_if_asked, require_report
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats import load
from tokengraft.formats.files import is_tokenizer_file
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.prune.methods import COUNTED, METHODS, Method, prune_order
from tokengraft.prune.order import PruneOrder
from tokengraft.prune.removable import Protection
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.llama_cpp import check_tokens, require_known
from tokengraft.tokenizer.tokenizer import Tokenizer

SCRIPTS = ("script", "script-leaf")
WHOLE = (*SCRIPTS, "unreachable")
ALL = "all"
"""The value of --remove for the whole order."""
_OF_ORDER = (
    *("protect", "protect_pattern", "protect_defaults", "scripts", "by_merges", "prune_characters", "reuse_reserved"),
    *("keep_llama_cpp_hash", "weight"),
)
"""Options that decide an order."""


def _number_or_all(text: str) -> int | str:
    try:
        return ALL if text == ALL else number(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"{error}, or `{ALL}`") from error


def _n_removed(options: argparse.Namespace) -> int | None:
    """How many tokens of the order are removed; None for all."""
    return None if options.remove == ALL else options.remove


class _Text(NamedTuple):
    """What is reported about the text that was counted."""

    lengths: list[int]
    """Its number of tokens with the base and with the pruned tokenizer; empty if no text was given."""
    warnings: tuple[str, ...]


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "prune",
        help="remove tokens that a deployment does not need",
        description="Remove tokens, by default the rarest leaves of the merge tree, so that every kept token stays "
        "reachable. Special and added tokens, bytes and single characters are kept. Ids are renumbered without holes "
        "unless --ids keep.",
    )
    add_source(command)
    add_counts(command, required=False)
    command.add_argument(
        "--remove",
        type=_number_or_all,
        metavar="N",
        help="number of tokens to remove, or `all` of the order (default for the script and unreachable methods: all)",
    )
    command.add_argument(
        "--method",
        choices=METHODS,
        help="which tokens are removed first (default: leaf-frequency)",
    )
    command.add_argument(
        "--by-merges",
        action="store_true",
        help="count tokens with merge skipping (ignore_merges) off, as the paper does; by default, as the tokenizer "
        "encodes",
    )
    command.add_argument("--scripts", metavar="A,B", help="for the script methods: the scripts to keep")
    command.add_argument("--protect", type=Path, metavar="FILE", help="tokens to keep, one per line")
    command.add_argument("--protect-pattern", metavar="REGEX", help="keep tokens whose text matches it anywhere")
    command.add_argument(
        "--protect-defaults",
        action="store_true",
        help="keep what `adapt` keeps: tokens that configs name, and those of chat templates, ASCII, JSON and code",
    )
    command.add_argument(
        "--prune-characters",
        action="store_true",
        help="remove single characters too, where byte fallback can spell them",
    )
    command.add_argument(
        "--reuse-reserved", action="store_true", help="remove reserved tokens that nothing uses, before all others"
    )
    command.add_argument(
        "--ids",
        choices=("compact", "keep"),
        default="compact",
        help="compact: renumber without holes; keep: no id moves, a later extend fills the holes, and the token with "
        "the highest id is kept so that the number of embedding rows does not change (default: compact)",
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
    add_json(command)
    add_read_options(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    _require_options(options)
    tokenizer = load(options.source)
    warn_of_spelling(tokenizer)
    with transformers_started():  # it is imported while the core counts
        return _prune(tokenizer, options)


def _prune(tokenizer: Tokenizer, options: argparse.Namespace) -> int:
    counts = counts_of(tokenizer, options) if options.counts or options.corpus else None
    warnings = reading_warnings(counts.totals) if counts else ()
    print_warnings(warnings)
    reads = reads_order(options)
    order = _read_order(tokenizer, options) if reads else _order(tokenizer, counts, options)
    chosen = order[: _n_removed(options)]
    pruned = chosen.apply(tokenizer)
    if options.ids == "compact":
        pruned = pruned.compact()
    lengths = [sum(counts.tokens(tok).values()) for tok in (tokenizer, pruned)] if counts else []
    text = _Text(lengths, warnings)
    texts = sample_pretokens(counts, tokenizer.kind) if counts else []
    verified = save_verified(pruned, options.out, base=tokenizer, texts=texts, force=options.force)
    if options.order and not reads:
        order.save(options.order, force=options.force)
    _report(tokenizer, pruned, chosen, text, verified, options)
    report_if_asked(options, (tokenizer, pruned), {"text": counts} if counts else {}, warnings=warnings)
    return 0


def _order(tokenizer: Tokenizer, counts: PretokenCounts | None, options: argparse.Namespace) -> PruneOrder:
    protected = lines_of(options.protect, "--protect")
    if options.keep_llama_cpp_hash:
        require_known(tokenizer)
        protected += check_tokens(tokenizer)
    asked = Protection(
        tokens=protected,
        pattern=options.protect_pattern,
        characters=options.prune_characters,
        reuse_reserved=options.reuse_reserved,
        highest_id=options.ids == "keep",
    )
    kept = _with_defaults(tokenizer, options.source, asked) if options.protect_defaults else asked
    scripts = [name.strip() for name in (options.scripts or "").split(",") if name.strip()]
    return prune_order(
        tokenizer, counts, _method(options), scripts=scripts, protection=kept, by_merges=options.by_merges
    )


def _with_defaults(tokenizer: Tokenizer, source: str, asked: Protection) -> Protection:
    from tokengraft.adapt.protect import protection  # not above: few runs need it

    return protection(tokenizer, source, asked)


def reads_order(options: argparse.Namespace) -> bool:
    """Whether --order is read: if neither text nor a method says how to make one."""
    return bool(options.order and not (options.counts or options.corpus or options.method))


def _read_order(tokenizer: Tokenizer, options: argparse.Namespace) -> PruneOrder:
    """The order in the file of --order, with a warning if --ids keep cannot keep the number of embedding rows."""
    order = PruneOrder.load(options.order)
    require(
        options.remove is not None,
        f"--remove was not given, and the order in `{options.order}` has {len(order):,} tokens",
        hint=f"pass --remove N to remove the first N of them, or --remove {ALL}",
    )
    highest = tokenizer.n_rows - 1
    if options.ids == "keep" and any(removal.id == highest for removal in order.removals[: _n_removed(options)]):
        print_warnings(
            [
                f"the order removes the token with the highest id, {highest:,}: there are fewer embedding rows until "
                "`extend` adds tokens"
            ]
        )
    return order


def _method(options: argparse.Namespace) -> Method:
    method: Method = options.method or "leaf-frequency"
    return method


def _require_options(options: argparse.Namespace) -> None:
    """Refuses options that are invalid or would have no effect, before any work is done."""
    require_new(options.out, force=options.force, replaceable=is_tokenizer_file)
    inputs = input_paths([options.source, options.protect], options.counts, options.corpus)
    require_report(options, inputs, options.out, options.order)
    if reads_order(options):
        require_distinct([*inputs, options.order], options.out)
        _require_only_order(options)
    else:
        if options.order:
            require_new(options.order, force=options.force)
        require_distinct(inputs, options.out, options.order)
        _require_method(options)
    require(
        options.remove in (None, ALL) or options.remove > 0,
        f"--remove is {options.remove}; it must be at least 1",
        hint="pass --remove 1 or more",
    )


def _require_only_order(options: argparse.Namespace) -> None:
    """Refuses options that decide an order, if one is read."""
    require_unread(options, "--order has the order")
    for name in _OF_ORDER:
        flag = f"--{name.replace('_', '-')}"
        require(
            not getattr(options, name),
            f"{flag} decides an order, and `{options.order}` was made before",
            hint=f"pass {flag} when the order is made, with --counts, --corpus or --method",
        )


def _require_method(options: argparse.Namespace) -> None:
    """Refuses options that the method cannot use."""
    method, counted = _method(options), bool(options.counts or options.corpus)
    if not counted:
        require_unread(options, "none was given")
        require(not options.weight, "--weight is for --counts or --corpus, and neither was given", hint="drop --weight")
    require(
        options.ids == "keep" or not options.keep_llama_cpp_hash,
        "--keep-llama-cpp-hash needs ids that do not move",
        hint="pass --ids keep too",
    )
    require(
        not options.scripts or method in SCRIPTS,
        f"--scripts is for the script methods, not for {method}",
        hint="drop --scripts, or pass --method script-leaf",
    )
    require(
        counted or method not in COUNTED,
        f"the method {method} counts tokens in a text, and no text was given",
        hint="pass --counts or --corpus, choose --method last-id-leaf, or pass --order with an order made before",
    )
    require(
        options.remove is not None or method in WHOLE,
        f"the method {method} needs the number of tokens to remove",
        hint=f"pass --remove N, or --remove {ALL} for all tokens that may be removed",
    )


def _report(
    base: Tokenizer,
    pruned: Tokenizer,
    order: PruneOrder,
    text: _Text,
    verified: Verification,
    options: argparse.Namespace,
) -> None:
    broken, reasons = len(_unreachable(pruned) - _unreachable(base)), left_out(base, pruned)
    if options.json:
        summary = {
            "out": options.out,
            "method": order.method,
            "by_merges": order.provenance["by_merges"],
            "removed": len(order),
            "tokens": len(pruned.tokens),
            "rows": pruned.n_rows,
            "newly_unreachable": broken,
            "tokens_in_text": text.lengths,
            "left_out": [*reasons],
            "loaded_by": verified.loaders,
            "notes": verified.notes,
            "warnings": text.warnings,
        }
        print(json.dumps(summary, ensure_ascii=False))
        return
    last = " ".join(readable(token, base.kind) for token in order.tokens[-8:])
    rows = [
        ("removed", f"{len(order):,} tokens by {order.method}, {len(pruned.tokens):,} kept"),
        ("removed last", last or "none"),
        ("unreachable", f"{broken:,} kept tokens became unreachable"),
        ("embedding rows", f"{base.n_rows:,} → {pruned.n_rows:,}"),
        ("loaded back by", ", ".join(verified.loaders) + ": the same ids"),
    ]
    if text.lengths and text.lengths[0]:
        change = f"{text.lengths[0]:,} → {text.lengths[1]:,} ({text.lengths[1] / text.lengths[0] - 1:+.2%})"
        rows.insert(3, ("tokens in text", f"{change}; measure held-out text with `tokengraft evaluate`"))
    rows += [("warning", f"left out `{name}`: {reason}") for name, reason in reasons.items()]
    rows += [("warning", note) for note in verified.notes]
    if options.ids == "compact" and len(order):
        rows.append(("note", "ids have changed: adapt the checkpoint with `tokengraft transplant`"))
    print_table(rows)
    say(f"wrote `{options.out}`", options)


def _unreachable(tokenizer: Tokenizer) -> set[str]:
    failing = set(tokenizer.structure.unreachable)
    return {token.string for token in tokenizer.tokens if token.id in failing}
