"""`tokengraft prune`."""

import argparse
import json
import sys
from pathlib import Path

from tokengraft.atomic import require_new
from tokengraft.commands.options import (
    Commands,
    add_counts,
    add_json,
    add_output,
    add_reading,
    add_source,
    counts_of,
    lines_of,
    require,
    warn_of_spelling,
)
from tokengraft.counts import PretokenCounts
from tokengraft.formats import load, save
from tokengraft.prune import METHODS, Protection, PruneOrder, prune_order
from tokengraft.rewrite import stale_files
from tokengraft.show import print_table, readable
from tokengraft.tokenizer import Tokenizer
from tokengraft.verify import Verification, sample_pretokens, verify_folder

COUNTED = ("leaf-frequency", "frequency", "merge")
WHOLE = ("script", "script-leaf", "unreachable")


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "prune",
        help="take away tokens that a deployment does not need",
        description="Take tokens away, by default the rarest leaves of the merge tree, so that every kept token stays "
        "reachable. Special and added tokens, bytes and single characters stay. Ids close up unless --ids keep.",
    )
    add_source(command)
    add_counts(command, required=False)
    command.add_argument("--remove", type=int, metavar="N", help="how many tokens; all, for script and unreachable")
    command.add_argument("--method", choices=METHODS, default="leaf-frequency", help="which go first (leaf-frequency)")
    command.add_argument("--scripts", metavar="A,B", help="for the script methods: what is written in others goes")
    command.add_argument("--protect", type=Path, metavar="FILE", help="tokens, one a line, that stay")
    command.add_argument("--protect-pattern", metavar="REGEX", help="tokens whose text matches it anywhere stay")
    command.add_argument("--characters", action="store_true", help="let characters go that byte fallback can spell")
    command.add_argument(
        "--reuse-reserved", action="store_true", help="let reserved tokens go that nothing names; they go first"
    )
    command.add_argument(
        "--ids",
        choices=("compact", "keep"),
        default="compact",
        help="close the holes, or keep every id for a later extend to fill them (compact)",
    )
    command.add_argument("--order", type=Path, metavar="FILE", help="also write the whole order, as JSON")
    add_output(command, "the smaller tokenizer, a folder")
    add_json(command)
    add_reading(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    for path in (Path(options.out), options.order):
        if path:
            require_new(path, force=options.force)
    _require_options(options)
    tokenizer = load(options.source)
    warn_of_spelling(tokenizer)
    protection = Protection(
        tokens=lines_of(options.protect, "--protect"),
        pattern=options.protect_pattern,
        characters=options.characters,
        reuse_reserved=options.reuse_reserved,
    )
    counts = counts_of(tokenizer, options) if options.counts or options.corpus else None
    scripts = [name.strip() for name in (options.scripts or "").split(",") if name.strip()]
    order = prune_order(tokenizer, counts, options.method, scripts=scripts, protection=protection)
    chosen = order[: options.remove]
    pruned = chosen.apply(tokenizer)
    if options.ids == "compact":
        pruned = pruned.compact()
    verified: list[Verification] = []
    texts = sample_pretokens(counts, tokenizer.kind) if counts else []
    save(
        pruned,
        Path(options.out),
        force=options.force,
        check=lambda folder: verified.append(verify_folder(folder, pruned, texts)),
    )
    if options.order:
        order.save(options.order, force=options.force)
    _report(tokenizer, pruned, chosen, counts, verified[0], options)
    return 0


def _require_options(options: argparse.Namespace) -> None:
    counted = bool(options.counts or options.corpus)
    require(
        counted or options.method not in COUNTED,
        f"the method {options.method} goes by how often tokens occur, and there is no text",
        hint="pass --counts or --corpus, or take --method last-id-leaf",
    )
    require(
        options.remove is not None or options.method in WHOLE,
        "how many tokens are to go is not said",
        hint="pass --remove N",
    )
    require(
        options.remove is None or options.remove > 0,
        f"{options.remove} tokens were asked to go",
        hint="ask for at least 1: --remove 1000",
    )


def _report(
    base: Tokenizer,
    pruned: Tokenizer,
    order: PruneOrder,
    counts: PretokenCounts | None,
    verified: Verification,
    options: argparse.Namespace,
) -> None:
    failing = {token.string for token in base.tokens if token.id in set(base.structure.unreachable)}
    after = set(pruned.structure.unreachable)
    broken = sum(token.id in after and token.string not in failing for token in pruned.tokens)
    lengths = [sum(counts.tokens(tok).values()) for tok in (base, pruned)] if counts else []
    if options.json:
        facts = {
            "out": options.out,
            "method": order.method,
            "removed": len(order),
            "tokens": len(pruned.tokens),
            "rows": pruned.n_rows,
            "newly_unreachable": broken,
            "tokens_in_text": lengths,
            "left_out": stale_files(base.files),
            "loaded_by": verified.loaders,
            "notes": verified.notes,
        }
        print(json.dumps(facts, ensure_ascii=False))
        return
    last = " ".join(readable(token, base.kind) for token in order.tokens[-8:])
    rows = [
        ("removed", f"{len(order):,} tokens by {order.method}, {len(pruned.tokens):,} stay"),
        ("last to go", last or "none"),
        ("unreachable", f"{broken:,} kept tokens became so"),
        ("embedding rows", f"{base.n_rows:,} → {pruned.n_rows:,}"),
        ("loaded back by", ", ".join(verified.loaders) + ": the same ids"),
    ]
    if lengths and lengths[0]:
        rows.insert(3, ("tokens in text", f"{lengths[0]:,} → {lengths[1]:,} ({lengths[1] / lengths[0] - 1:+.2%})"))
    rows += [("warning", f"left out `{name}`: it lists the old tokens") for name in stale_files(base.files)]
    rows += [("warning", note) for note in verified.notes]
    if options.ids == "compact" and len(order):
        rows.append(("note", "ids have moved: the checkpoint needs `tokengraft transplant` to follow"))
    print_table(rows)
    print(f"wrote `{options.out}`", file=sys.stderr)
