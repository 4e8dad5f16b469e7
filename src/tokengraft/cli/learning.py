"""Options that decide which tokens are learned, shared by `extend` and `adapt`."""

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from tokengraft.cli.options import lines_of, number, require
from tokengraft.cli.progress import one_stage
from tokengraft.cli.reading import count_options_of, read_options_of
from tokengraft.cli.texts import Files, texts_of
from tokengraft.counts.count import count, reading_warnings
from tokengraft.counts.llama_cpp import check_text_counts
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file
from tokengraft.errors import require_positive
from tokengraft.evaluate.size import MAX_ADD, MAX_RARE
from tokengraft.extend.include import WordList
from tokengraft.extend.limits import Limits
from tokengraft.tokenizer.llama_cpp import require_known
from tokengraft.tokenizer.tokenizer import Tokenizer

AUTO: Literal["auto"] = "auto"
LEARNING = (
    *("min_count", "max_token_bytes", "deny", "deny_pattern", "scripts"),
    *("include", "include_exact", "preserve", "balance", "parity_text", "max_share", "keep_llama_cpp_hash"),
)
"""The options of `add_learning`."""
SIZE = ("max_add", "min_support", "max_rare", "multiple")
"""The options of `add_size`."""
MULTIPLE = 64
"""Vocabularies are often padded to a multiple of this."""


def number_of_tokens(text: str) -> int | Literal["auto"]:
    """A number of tokens, or ``auto``."""
    if text == AUTO:
        return AUTO
    try:
        return number(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a whole number, like 16000 or 16k, nor `{AUTO}`"
        ) from error


def add_learning(command: argparse.ArgumentParser) -> None:
    """Adds `LEARNING`. None of them has a default, so that it is known which were given."""
    group = command.add_argument_group("which tokens are learned")
    group.add_argument(
        "--min-count", type=number, metavar="N", help="merge only pairs that occur at least N times (default: 2)"
    )
    group.add_argument("--max-token-bytes", type=number, metavar="N", help="maximum length of a new token")
    group.add_argument("--deny", type=Path, metavar="FILE", help="texts that must not become tokens, one per line")
    group.add_argument("--deny-pattern", metavar="REGEX", help="no new token may match this pattern anywhere")
    group.add_argument(
        "--scripts",
        action="extend",
        nargs="+",
        metavar="NAME",
        help="new tokens may have only characters of these Unicode scripts, such as Arabic; a leading space and "
        "combining marks are allowed",
    )
    group.add_argument(
        "--preserve",
        action="extend",
        nargs="+",
        metavar="TEXT",
        help="text, or counts of it, that must keep its tokens and ids: pairs of tokens that are neighbours in it are "
        "never merged",
    )
    group.add_argument(
        "--include",
        type=Path,
        metavar="FILE",
        help="words, one per line, that become tokens before any is learned, with and without a leading space",
    )
    group.add_argument(
        "--include-exact", action="store_true", default=None, help="take the lines of --include as they are"
    )
    group.add_argument(
        "--keep-llama-cpp-hash",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="the stock converter of llama.cpp recognises the result: its check text keeps its tokens and ids (default "
        "for `adapt --swap`)",
    )
    _add_balance(group)


def _add_balance(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--balance",
        choices=("weights", "parity"),
        help="several texts: add up their counts by weight, or learn every next token for the text with the smallest "
        "gain (default: weights)",
    )
    group.add_argument(
        "--parity-text",
        action="extend",
        nargs="+",
        metavar="NAME=FILE",
        help="--balance parity: the same sentences in every language, and in one more, the reference; every next token "
        "is learned for the language that needs the most tokens for them",
    )
    group.add_argument(
        "--max-share",
        type=float,
        metavar="SHARE",
        help="--balance parity: no language gets more than this share of the new tokens, such as 0.5 (default: 1)",
    )


def add_size(command: argparse.ArgumentParser) -> None:
    """Adds `SIZE`. None of them has a default, so that it is known which were given."""
    group = command.add_argument_group(f"number of new tokens, with --add {AUTO}")
    group.add_argument("--max-add", type=number, metavar="N", help=f"largest number of new tokens (default: {MAX_ADD})")
    group.add_argument(
        "--min-support",
        type=number,
        metavar="N",
        help="a new token that occurs fewer than N times in the training text is rare (default: 100)",
    )
    group.add_argument(
        "--max-rare",
        type=float,
        metavar="SHARE",
        help=f"largest share of rare tokens among the new ones (default: {MAX_RARE})",
    )
    group.add_argument(
        "--multiple", type=number, metavar="N", help="round the number down to a multiple of N (default: 64)"
    )


def require_no_size(options: argparse.Namespace, names: Iterable[str] = SIZE) -> None:
    """Refuses options for choosing a size if the size is given.

    Raises:
        OptionError: One was given.
    """
    for name in names:
        flag = f"--{name.replace('_', '-')}"
        require(
            getattr(options, name) is None,
            f"{flag} has no effect: it is for --add {AUTO}, and the number of tokens was given",
            hint=f"drop {flag}, or pass --add {AUTO}",
        )


def size_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given for choosing a size, as arguments of `choose_size`."""
    names = ("min_support", "max_rare", "multiple")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    return {"multiple": MULTIPLE} | given


def max_add_of(options: argparse.Namespace) -> int:
    """The largest number of new tokens that `auto` may choose.

    Raises:
        OptionError: It is below 1.
    """
    require_positive("max_add", options.max_add)
    return MAX_ADD if options.max_add is None else int(options.max_add)


def limits_of(options: argparse.Namespace) -> Limits:
    """Which tokens may be learned."""
    return Limits(
        Limits.min_count if options.min_count is None else options.min_count,
        options.max_token_bytes,
        tuple(lines_of(options.deny, "--deny")),
        options.deny_pattern,
        tuple(options.scripts or ()),
    )


def word_list_of(options: argparse.Namespace) -> WordList | None:
    """The words of --include."""
    require(
        options.include is not None or not options.include_exact,
        "--include-exact has no effect without a list of words",
        hint="pass --include FILE, or drop --include-exact",
    )
    if options.include is None:
        return None
    return WordList(tuple(lines_of(options.include, "--include")), exact=bool(options.include_exact))


def preserve_of(tokenizer: Tokenizer, options: argparse.Namespace) -> PretokenCounts | None:
    """The counts of the text given by --preserve, and of the check text of --keep-llama-cpp-hash."""
    parts = [counts_of_files(tokenizer, options.preserve, whole(options))] if options.preserve else []
    if options.keep_llama_cpp_hash:
        require_known(tokenizer)
        parts.append(check_text_counts(tokenizer))
    # Texts that were normalized and texts that were not are preserved together.
    alike = [replace(part, normalize=None) for part in parts]
    return sum(alike[1:], alike[0]) if alike else None


def whole(options: argparse.Namespace) -> argparse.Namespace:
    """The options for reading a text as a whole: limits and shards are for the text to learn from."""
    return argparse.Namespace(**vars(options) | {"max_bytes": None, "max_documents": None, "shard": None})


def preserve_warnings(preserve: PretokenCounts | None, options: argparse.Namespace) -> list[str]:
    """Warnings about text to preserve that was read with replacements, or skipped."""
    if preserve is None or not options.preserve:
        return []
    return [f"--preserve: {warning}" for warning in reading_warnings(preserve.totals)]


def counts_of_files(tokenizer: Tokenizer, files: Files, options: argparse.Namespace) -> PretokenCounts:
    """The counts of files of text, files of counts, or both."""
    paths = [files] if isinstance(files, str) else files
    counted = [path for path in paths if is_counts_file(path)]
    parts = [PretokenCounts.load(path) for path in counted]
    if texts := [path for path in paths if path not in counted]:
        with one_stage("counting", quiet=options.quiet) as progress:
            read, limits = read_options_of(options, tokenizer), count_options_of(options, min_count=1)
            parts.append(count(tokenizer, texts, read_options=read, count_options=limits, progress=progress))
    total = parts[0]
    for part in parts[1:]:
        total += part
    return total


def named_texts(texts: Iterable[str], option: str) -> dict[str, Files]:
    """The texts of an option by name, in the order of their names.

    Raises:
        OptionError: Two have the same name.
    """
    return dict(sorted(texts_of(texts, option).items()))
