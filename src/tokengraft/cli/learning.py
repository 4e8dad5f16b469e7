"""Options that decide which tokens are learned, shared by `extend` and `adapt`."""

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokengraft.cli.options import AUTO, given, lines_of, number, refuse, size
from tokengraft.cli.reading import counts_of_files
from tokengraft.counts.count import check_text_counts, reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import positive
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits
from tokengraft.learn.preserve import Preserved, preserved_text
from tokengraft.measure.choose_size import MAX_ADD, MAX_RARE
from tokengraft.tokenizer.llama_cpp import require_known
from tokengraft.tokenizer.tokenizer import Tokenizer

LEARNING = (
    *("min_count", "max_token_bytes", "deny", "deny_pattern", "scripts"),
    *("include", "include_exact", "preserve", "preserve_exactly", "balance", "parity_text", "max_share"),
    "keep_llama_cpp_hash",
)
"""The options of `add_learning`."""
SIZE = ("max_add", "min_support", "max_rare", "multiple")
"""The options of `add_size` that have no effect if the number of new tokens is given."""
MULTIPLE = 64
"""Vocabularies are often padded to a multiple of this."""


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
        "never merged. Words in a script of the text to learn from are not preserved if they have less than 1 %% of "
        "its letters",
    )
    group.add_argument(
        "--preserve-exactly",
        action="store_true",
        default=None,
        help="preserve every word of the text to preserve, even if hardly any new token can be learned then",
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
    """Adds `SIZE` and --training-text. None has a default, so that it is known which were given."""
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
    group.add_argument(
        "--training-text",
        type=size,
        metavar="SIZE",
        help="how much such text the model will be trained on: occurrences are scaled to it, also with --add N "
        "(default: the counted text)",
    )


def require_no_size(options: argparse.Namespace, *names: str) -> None:
    """Refuses options for choosing a size if the size is given."""
    why = f"has no effect: it is for --add {AUTO}, and the number of tokens was given"
    refuse(options, why, *names, instead=f"pass --add {AUTO}")


def size_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options that were given for choosing a size, as fields of `SizeOptions`."""
    return {"multiple": MULTIPLE} | given(options, "min_support", "max_rare", "multiple", "training_text")


def max_add_of(options: argparse.Namespace) -> int:
    """The largest number of new tokens that `auto` may choose."""
    return MAX_ADD if options.max_add is None else positive("max_add", options.max_add)


def limits_of(options: argparse.Namespace) -> Limits:
    """Which tokens may be learned."""
    chosen = given(options, "min_count", "max_token_bytes", "deny_pattern", "scripts")
    return Limits(deny=lines_of(options.deny, "--deny"), **chosen)


def word_list_of(options: argparse.Namespace) -> WordList | None:
    """The words of --include."""
    if options.include is None:
        why = "has no effect without a list of words"
        refuse(options, why, "include_exact", instead="pass --include FILE")
        return None
    return WordList(tuple(lines_of(options.include, "--include")), exact=bool(options.include_exact))


def preserve_of(
    tokenizer: Tokenizer, targets: Iterable[PretokenCounts], options: argparse.Namespace
) -> tuple[Preserved | None, list[str]]:
    """The text given by --preserve, and the check text of --keep-llama-cpp-hash; and warnings about reading it."""
    texts = [counts_of_files(tokenizer, options.preserve, options, whole=True)] if options.preserve else []
    always = None
    if options.keep_llama_cpp_hash:
        require_known(tokenizer)
        always = check_text_counts(tokenizer)
    preserve = preserved_text(texts, [*targets], exactly=bool(options.preserve_exactly), always=always)
    return preserve, [f"--preserve: {warning}" for text in texts for warning in reading_warnings(text.totals)]
