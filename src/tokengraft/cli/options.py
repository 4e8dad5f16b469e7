"""Options shared by several commands, and functions that turn parsed options into values."""

import argparse
import glob
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from tokengraft.checkpoint.unused import HoleRows
from tokengraft.cli.display import print_warnings
from tokengraft.cli.progress import one_stage
from tokengraft.corpus import COMPRESSIONS, FORMATS, ReadOptions, local_name, without_credentials
from tokengraft.counts.count import count
from tokengraft.counts.fingerprint import may_be_cut, piece_rules
from tokengraft.counts.options import DEFAULT_MEMORY, CountOptions, Engine
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, escaped
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.sentencepiece import PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Commands = object

READ_OPTIONS = (
    "text_field",
    "documents",
    "format",
    "skip_bad",
    "shard",
    "normalize",
    "rule",
    "max_bytes",
    "max_documents",
    "workers",
    "memory",
)
"""The options of `add_read_options`."""
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def size(text: str) -> int:
    """A number of bytes: ``4GB``, ``500 MB``, ``2GiB``, ``1000``.

    >>> size("4GB"), size("1.5KiB"), size("7")
    (4000000000, 1536, 7)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", text.upper())
    if not match or match[2] == "I":
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; pass one like 4GB, 500MB or 2GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def number(text: str) -> int:
    """A whole number, also in thousands or millions: ``16k``, ``1.5M``, ``16000``.

    >>> number("16k"), number("1.5M"), number("16_000"), number("-1")
    (16000, 1500000, 16000, -1)
    """
    match = re.fullmatch(r"\s*([-+]?\d[\d_]*(?:\.\d+)?)\s*([KMG]?)\s*", text.upper())
    value = Fraction(match[1].replace("_", "")) * _UNITS[match[2]] if match else Fraction(1, 2)
    if value.denominator != 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; pass one like 16000 or 16k")
    return int(value)


def shard(text: str) -> tuple[int, int]:
    """A shard of the inputs: ``3/64 -> (3, 64)``."""
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a shard; pass one like 3/64, counted from 0")
    return int(match[1]), int(match[2])


def rule(text: str) -> tuple[str, int]:
    """A rule for pieces: ``split_digits=false -> ("split_digits", False)``."""
    name, _, value = text.partition("=")
    values = {"true": True, "false": False}
    if name == "max_sentencepiece_length" and value.isdecimal() and 0 < int(value) < 2**31:
        return name, int(value)
    if name not in {field.name for field in fields(PieceRules)} - {"max_sentencepiece_length"} or value not in values:
        names = ", ".join(field.name for field in fields(PieceRules))
        raise argparse.ArgumentTypeError(f"{text!r} is not a rule; pass one like split_digits=false. Rules: {names}")
    return name, values[value]


def named(text: str) -> tuple[str, str]:
    """A pair of (name, value) from ``NAME=VALUE``. Without a name, it is the file name without text file suffixes.

    >>> named("et=data/et.txt"), named("data/et.jsonl.gz"), named("Qwen/Qwen2.5-7B")
    (('et', 'data/et.txt'), ('et', 'data/et.jsonl.gz'), ('Qwen2.5-7B', 'Qwen/Qwen2.5-7B'))
    """
    name, equals, value = text.partition("=")
    if name and equals and "/" not in name:
        require(bool(value), f"{text!r} has no value after `=`", hint=f"pass {name}=PATH")
        return name, value
    name = Path(without_credentials(text)).name
    for suffixes in (COMPRESSIONS, (*FORMATS, ".model")):
        name = next((name.removesuffix(suffix) for suffix in suffixes if name.endswith(suffix)), name)
    return name or text, text


def add_source(command: argparse.ArgumentParser) -> None:
    """Adds SOURCE."""
    command.add_argument("source", metavar="SOURCE", help="model folder, tokenizer.json, tokenizer.model or hub name")


def add_counts(command: argparse.ArgumentParser, *, required: bool = True) -> None:
    """Adds --counts, --corpus and --weight."""
    text = command.add_mutually_exclusive_group(required=required)
    text.add_argument(
        "--counts", action="extend", nargs="+", type=Path, metavar="FILE", help="counts from `tokengraft count`"
    )
    text.add_argument(
        "--corpus",
        action="extend",
        nargs="+",
        metavar="CORPUS",
        help="text to count, in any form that `tokengraft count` reads",
    )
    command.add_argument(
        "--weight",
        action="append",
        metavar="W",
        help="weight of one --counts or --corpus, such as 2 or 1/3; give one for each",
    )


def add_hole_rows(command: argparse.ArgumentParser) -> None:
    """Adds --hole-rows."""
    command.add_argument(
        "--hole-rows",
        choices=get_args(HoleRows),
        help="rows whose ids have no token. lowest: a row that is never the most likely; zero: zeros; both with the "
        "ids suppressed in the generation config; keep: the row that they had (default: lowest)",
    )


def add_json(command: argparse.ArgumentParser) -> None:
    """Adds --json and --quiet, which every command has."""
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument(
        "--quiet", action="store_true", help="print only the result, warnings and errors: no progress, no notes"
    )


def add_wide(command: argparse.ArgumentParser) -> None:
    """Adds --wide."""
    command.add_argument("--wide", action="store_true", help="show all measures, not only the five that matter most")


def say(text: str, options: argparse.Namespace) -> None:
    """Prints a message to stderr, unless --quiet was given."""
    if not options.quiet:
        print(escaped(text), file=sys.stderr)


def add_output(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --out and --force."""
    command.add_argument("--out", required=True, metavar="PATH", help=f"output: {what}; must not exist")
    command.add_argument("--force", action="store_true", help="replace an existing output")


def add_read_options(command: argparse.ArgumentParser) -> None:
    """Adds `READ_OPTIONS`. None of them has a default, so that it is known which were given."""
    group = command.add_argument_group("reading the corpus")
    group.add_argument(
        "--text-field", metavar="NAME", help="JSON field or Parquet column with the text (default: text)"
    )
    group.add_argument(
        "--documents",
        choices=("files", "lines"),
        help="whether a text file is one document, or each of its lines is one (default: files; adapt: lines)",
    )
    group.add_argument(
        "--format", choices=("text", "jsonl", "parquet"), help="format of all inputs (default: by file name)"
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="skip files and documents that cannot be read, and report how many"
    )
    group.add_argument("--shard", type=shard, metavar="I/N", help="read only shard I of N of the inputs; I starts at 0")
    group.add_argument("--normalize", choices=("nfkc",), help="normalize text before the tokenizer's own normalizer")
    group.add_argument(
        "--rule",
        action="append",
        type=rule,
        metavar="NAME=VALUE",
        help="SentencePiece types: a field of trainer_spec that decides which pieces may be made, such as "
        "split_digits=false or max_sentencepiece_length=20, in place of the model's own or Llama's",
    )
    group.add_argument("--max-bytes", type=size, metavar="SIZE", help="stop after this much text")
    group.add_argument("--max-documents", type=number, metavar="N", help="stop after N documents")
    add_count_options(group)


def add_text_read_options(command: argparse.ArgumentParser) -> None:
    """Adds options for reading an evaluation text. None has a default, so that it is known which were given."""
    group = command.add_argument_group("reading the text")
    group.add_argument(
        "--text-field", metavar="NAME", help="JSON field or Parquet column with the text (default: text)"
    )
    group.add_argument(
        "--documents",
        choices=("files", "lines"),
        help="whether a text file is one document, or each of its lines is one (default: lines)",
    )
    group.add_argument(
        "--format", choices=("text", "jsonl", "parquet"), help="format of all texts (default: by file name)"
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="skip files and documents that cannot be read, and report how many"
    )


def text_read_options_of(options: argparse.Namespace) -> ReadOptions | None:
    """The read options for an evaluation text; None if none were given."""
    names = ("text_field", "documents", "format", "skip_bad")
    given = {name: getattr(options, name) for name in names if getattr(options, name)}
    return ReadOptions(**{"documents": "lines"} | given) if given else None


def without_text_reading(options: argparse.Namespace) -> argparse.Namespace:
    """The options without those for reading an evaluation text, which do not apply to counts."""
    unread = {"text_field": None, "documents": None, "format": None, "skip_bad": False}
    return argparse.Namespace(**vars(options) | unread)


def add_count_options(group: "argparse._ActionsContainer") -> None:
    """Adds --workers and --memory."""
    group.add_argument(
        "--workers", type=int, metavar="N", help="threads (default: one per core); on Ray, tasks at once"
    )
    add_memory(group)


def add_memory(group: "argparse._ActionsContainer") -> None:
    """Adds --memory."""
    group.add_argument(
        "--memory",
        type=size,
        metavar="SIZE",
        help="memory for counting (default: 4GiB): half for tables of pretokens, which are written to disk beyond it, "
        "and half for documents; longer documents are refused. On Ray: for each task",
    )


def add_engine(command: argparse.ArgumentParser) -> None:
    """Adds --engine and --address."""
    group = command.add_argument_group("counting on several machines")
    group.add_argument(
        "--engine",
        choices=get_args(Engine),
        help="where to count: in this process, or on Ray, for corpora that one machine cannot read (default: local)",
    )
    group.add_argument(
        "--address",
        metavar="ADDRESS",
        help="Ray cluster to use: auto, or HOST:PORT; by default Ray is started on this machine",
    )


def read_options_of(options: argparse.Namespace, tokenizer: Tokenizer | None) -> ReadOptions:
    """The read options for a corpus. `--rule` changes the piece rules of the tokenizer.

    Raises:
        OptionError: `--rule` would have no effect.
    """
    chosen = {
        name: getattr(options, name) for name in ("text_field", "documents") if getattr(options, name) is not None
    }
    if options.rule and tokenizer:
        require(
            may_be_cut(tokenizer),
            f"--rule has no effect here: this {tokenizer.kind} tokenizer has no piece rules",
            hint="drop --rule",
        )
        chosen["rules"] = replace(piece_rules(tokenizer), **dict(options.rule))
    return ReadOptions(
        format=options.format,
        skip_bad=options.skip_bad,
        shard=options.shard,
        normalize=options.normalize,
        **chosen,
    )


def require_unread(options: argparse.Namespace, why: str, *, instead: str = "--corpus") -> None:
    """Refuses options for reading a corpus if no corpus is read. The hint names the option that would read one.

    Raises:
        OptionError: One was given. The message names the first.
    """
    given = [
        name for name in READ_OPTIONS if getattr(options, name) is not None and getattr(options, name) is not False
    ]
    if given:
        flag = f"--{given[0].replace('_', '-')}"
        raise OptionError(f"{flag} is for reading a corpus, and {why}", hint=f"drop {flag}, or pass {instead}")


def add_min_count(command: argparse.ArgumentParser) -> None:
    """Adds --min-count, for pretokens."""
    command.add_argument(
        "--min-count", type=number, default=1, metavar="N", help="drop pretokens that occur less often (default: 1)"
    )


def count_options_of(options: argparse.Namespace, *, min_count: int) -> CountOptions:
    """The count options: workers, memory and limits."""
    return CountOptions(
        workers=getattr(options, "workers", None),
        memory=DEFAULT_MEMORY if options.memory is None else options.memory,
        min_count=min_count,
        max_documents=getattr(options, "max_documents", None),
        max_bytes=getattr(options, "max_bytes", None),
        engine=getattr(options, "engine", None) or "local",
        address=getattr(options, "address", None),
    )


def require(condition: bool, message: str, *, hint: str) -> None:
    """Raises an `OptionError` unless the condition holds."""
    if not condition:
        raise OptionError(message, hint=hint)


def counts_of(tokenizer: Tokenizer, options: argparse.Namespace, *, other_text: bool = False) -> PretokenCounts:
    """The counts given by --counts, or counted from --corpus.

    Args:
        tokenizer: The tokenizer.
        options: The parsed options.
        other_text: Whether another option names text, which the options for reading are for.

    Raises:
        OptionError: Options for reading have no effect, or the weights do not fit.
    """
    if options.corpus:
        count_options = count_options_of(options, min_count=1)
        with one_stage("counting", quiet=options.quiet) as progress:
            return count(
                tokenizer,
                options.corpus,
                weights=options.weight,
                read_options=read_options_of(options, tokenizer),
                count_options=count_options,
                progress=progress,
            )
    if not other_text:
        require_unread(options, "--counts was counted already")
    weights = options.weight or [1] * len(options.counts)
    require(
        len(weights) == len(options.counts),
        f"{len(weights)} weights were given for {len(options.counts)} files of counts",
        hint="give one --weight for each",
    )
    parts = [PretokenCounts.load(p).scale(w) for p, w in zip(options.counts, weights, strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def input_paths(*groups: Iterable[str | os.PathLike[str] | None] | None) -> list[str]:
    """All input paths given by options, with globs expanded, for `require_distinct`."""
    items = [local_name(os.fspath(item)) for group in groups for item in group or () if item is not None]
    matches = ([item] if os.path.lexists(item) else glob.glob(item, recursive=True) for item in items)  # noqa: PTH207
    return [*(path for paths in matches for path in paths), *(["/dev/stdin"] if "-" in items else [])]


def warn_of_spelling(tokenizer: Tokenizer, name: str = "") -> None:
    """Prints a warning if the vocabulary cannot spell all text."""
    if warning := spelling_warning(tokenizer):
        print_warnings([f"{name}{': ' if name else ''}{warning}"])


def lines_of(path: Path | None, option: str) -> list[str]:
    """The lines of the file given by an option; none without a file."""
    try:
        return path.read_text(encoding="utf-8-sig").splitlines() if path else []
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"cannot read `{path}`: {error}", hint=f"check {option}") from error
