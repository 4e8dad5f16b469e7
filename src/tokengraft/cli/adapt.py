"""`tokengraft adapt`."""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from tokengraft import __version__
from tokengraft.adapt.adapt import adapt
from tokengraft.adapt.cache import WITHOUT_EFFECT
from tokengraft.adapt.distilled import DISTILL
from tokengraft.adapt.estimate import estimate
from tokengraft.adapt.inputs import require_unchanged
from tokengraft.adapt.options import KEEP, AdaptOptions, Target, new_job, work_folder
from tokengraft.adapt.record import read_record, repeat_of
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.cli.adapted import show_estimate, show_result
from tokengraft.cli.command_line import command_line
from tokengraft.cli.display import print_warnings
from tokengraft.cli.interrupt import resumable
from tokengraft.cli.learning import (
    AUTO,
    add_learning,
    add_size,
    limits_of,
    max_add_of,
    named_texts,
    number_of_tokens,
    require_no_size,
    size_options,
    word_list_of,
)
from tokengraft.cli.options import Commands, add_json, add_output, add_wide, lines_of, number, require
from tokengraft.cli.progress import Unit, stages
from tokengraft.cli.reading import add_engine, add_read_options, count_options_of, read_options_of
from tokengraft.cli.rows import add_hole_rows
from tokengraft.cli.stacks import add_stacks
from tokengraft.cli.texts import kept_texts, texts_of, weighted_texts
from tokengraft.evaluate.size import SizeOptions
from tokengraft.formats import load
from tokengraft.prune.removable import Protection

_OF_OUTPUT = ("out", "force", "json", "quiet", "wide", "keep_work", "dry_run", "from_record")
_NOT_RECORDED = (*_OF_OUTPUT, "workers", "memory", "engine", "address")
"""Options that do not change the result."""


def add(commands: Commands) -> None:
    """Adds the command to the parser."""
    command = commands.add_parser(
        "adapt",
        help="adapt a model to text: prune, extend, check, measure, transplant",
        description="The complete pipeline: count the text, prune tokens that it rarely uses, learn new ones, check "
        "the result, measure it on held-out documents, and transplant the checkpoint. An interrupted run resumes when "
        "it is started again with the same options.",
    )
    command.add_argument("model", nargs="?", metavar="MODEL", help="model folder with weights, or a tokenizer")
    command.add_argument(
        "--target",
        action="append",
        nargs="+",
        metavar="TEXT",
        help="text to learn from: FILES, or NAME=FILES:WEIGHT; repeat it for several. Each gets a share of the mix by "
        "its WEIGHT (default: 1), not by its size",
    )
    command.add_argument(
        "--keep",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="text whose tokens should be kept: FILES, or NAME=FILES for several; all together have the same weight as "
        "all targets together",
    )
    command.add_argument(
        "--test",
        action="extend",
        nargs="+",
        metavar="NAME=FILES",
        help="text to measure the result on, besides held-out documents of the corpora",
    )
    _add_sizes(command)
    add_learning(command)
    command.add_argument(
        "--preserve-keep",
        action="store_true",
        help="preserve the text of --keep: its tokens are not pruned, and it keeps its tokens and ids",
    )
    add_size(command)
    command.add_argument("--protect", type=Path, metavar="FILE", help="tokens, one per line, that are not pruned")
    command.add_argument(
        "--protect-pattern", metavar="REGEX", help="do not prune tokens whose text matches it anywhere"
    )
    command.add_argument(
        "--by-merges", action="store_true", help="prune by the paper's counts, which turn merge skipping off"
    )
    add_stacks(command, "serving stack that should be able to use the result")
    command.add_argument(
        "--init",
        choices=(*INITIALISERS, DISTILL),
        help="initialiser for new embedding rows (default: fvt); distill: learn them from the targets with the model, "
        "as `tokengraft distill` does (needs torch)",
    )
    command.add_argument(
        "--output-init",
        choices=tuple(INITIALISERS),
        help="initialiser for new rows of an untied output (default: as --init, but fvt if that rescales rows)",
    )
    command.add_argument("--seed", type=int, metavar="N", help="seed for random initialisers and distill (default: 0)")
    add_hole_rows(command)
    command.add_argument(
        "--no-report",
        dest="report",
        action="store_const",
        const=False,
        help="do not write report.html, a page about the result",
    )
    command.add_argument(
        "--keep-work",
        metavar="DIR",
        help="also write the results of the single steps: counts, held-out documents, prune order, extension, and the "
        "pruned tokenizer",
    )
    command.add_argument(
        "--from-record",
        metavar="FILE",
        help="repeat the request in an adaptation.json or tokengraft.json, if its inputs are unchanged; only options "
        "for the output can be given besides",
    )
    command.add_argument("--dry-run", action="store_true", help="check everything, show an estimate, write nothing")
    add_output(command, "folder for the adapted model")
    add_wide(command)
    add_json(command)
    add_read_options(command)
    add_engine(command)
    # Held-out documents must be small compared to the text, so one document per line is the default here.
    command.set_defaults(run=partial(_run, command), documents="lines")


def _add_sizes(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--swap",
        type=number_of_tokens,
        default=0,
        metavar="N",
        help="replace N tokens: prune N, learn N new ones, which take their ids; no shape changes",
    )
    command.add_argument(
        "--add",
        type=number_of_tokens,
        default=0,
        metavar="N",
        help=f"learn N tokens; `{AUTO}` for --add or --swap chooses N on held-out documents",
    )
    command.add_argument(
        "--remove",
        type=number,
        default=0,
        metavar="N",
        help="prune N tokens; ids are renumbered without holes if fewer are added",
    )


def targets_of(occurrences: Sequence[Sequence[str]]) -> dict[str, Target]:
    """The targets given by --target: ``[["et=et/*.parquet:2"]] -> {"et": Target("et/*.parquet", "2")}``."""
    return {name: Target(*pair) for name, pair in weighted_texts(occurrences).items()}


def _run(command: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    arguments = _recorded(command, options) if options.from_record else _given(command, options)
    chosen: AdaptOptions = arguments.pop("options")
    chosen = replace(chosen, force=options.force, keep_work=options.keep_work)
    if options.dry_run:
        show_estimate(estimate(**arguments, out=options.out, options=chosen), options)
        return 0
    kept = resumable(work_folder(Path(options.out)), options.arguments, "counts of text that was read")
    with kept, stages(quiet=options.quiet) as shown:
        chosen = replace(chosen, on_step=lambda step: shown.start(step, _unit(step)), progress=shown.update)
        result = adapt(**arguments, out=options.out, options=chosen)
    show_result(result, options)
    return 0


def _given(command: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `adapt` that the command line has."""
    if options.model is None or not options.target:
        missing = [name for name, value in (("MODEL", options.model), ("--target", options.target)) if not value]
        command.error(f"required: {', '.join(missing)}; MODEL is before options that take several files")
    sizes = {"swap": options.swap, "add": options.add, "remove": options.remove}
    texts = {"target": targets_of(options.target), "keep": kept_texts(options.keep, KEEP)}
    chosen = replace(_adapt_options(options), command=command_line(command, options, _NOT_RECORDED))
    return {"source": options.model, **texts, **sizes, "options": chosen}


def _recorded(command: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `adapt` that a record has, after refusing inputs that have changed.

    Raises:
        OptionError: Options that change the result were given too, or an input has changed.
    """
    for action in command._actions:
        value = getattr(options, action.dest, None)
        given = value != command.get_default(action.dest) or (action.option_strings and action.dest in options.given)
        given = given and action.dest not in _NOT_RECORDED
        name = action.option_strings[0] if action.option_strings else action.metavar
        require(
            not given or action.dest == "help",
            f"{name} was given together with --from-record, which has all options",
            hint=f"drop {name}, or drop --from-record and give all options",
        )
    record = read_record(options.from_record)
    arguments = repeat_of(record)
    sizes = (arguments.get("add", 0), arguments.get("remove", 0), arguments.get("swap", 0))
    keep, chosen = arguments["keep"] or None, arguments["options"]
    job = new_job(arguments["source"], arguments["target"], keep, options.out, sizes, chosen)
    print_warnings(_not_compared(require_unchanged(job, record["inputs"]), record))
    here = count_options_of(options, min_count=1)
    here = replace(chosen.count_options, **{name: getattr(here, name) for name in WITHOUT_EFFECT})
    return arguments | {"options": replace(chosen, count_options=here)}


def _not_compared(names: Sequence[str], record: Mapping[str, Any]) -> Iterator[str]:
    """Warnings if the result may differ from the recorded one."""
    yield from (f"the record has no hash of the text `{name}`: it may have changed" for name in names)
    made_by = dict(record.get("versions") or {}).get("tokengraft")
    if made_by != __version__:
        yield f"the record was made by tokengraft {made_by}, and this is {__version__}: the result may differ"


def _unit(step: str) -> Unit:
    """What the progress of a step is measured in."""
    if "distillation" in step:
        return "share"
    return "tokens" if step.startswith("learning") else "bytes"


def _adapt_options(options: argparse.Namespace) -> AdaptOptions:
    return AdaptOptions(
        init=options.init,
        output_init=options.output_init,
        hole_rows=options.hole_rows,
        seed=options.seed,
        read_options=read_options_of(options, load(options.model) if options.rule else None),
        count_options=count_options_of(options, min_count=1),
        protection=Protection(tokens=lines_of(options.protect, "--protect"), pattern=options.protect_pattern),
        by_merges=options.by_merges,
        limits=limits_of(options),
        preserve=options.preserve,
        preserve_keep=options.preserve_keep,
        test=texts_of(options.test, "--test") if options.test else None,
        include=word_list_of(options),
        balance=options.balance or "weights",
        parity_text=named_texts(options.parity_text, "--parity-text") if options.parity_text else None,
        max_share=options.max_share,
        keep_llama_cpp_hash=options.keep_llama_cpp_hash,
        stacks=tuple(options.stacks),
        **_size(options),
        report=options.report,
    )


def _size(options: argparse.Namespace) -> dict[str, Any]:
    """How to choose the number of tokens, if it is not given."""
    if AUTO not in (options.add, options.swap):
        require_no_size(options)
        return {}
    return {"size": SizeOptions(**size_options(options)), "max_add": max_add_of(options)}
