"""Options for reading text and counts, shared by several commands, and functions that turn them into values.

Texts on the command line are ``FILES``, ``NAME=FILES`` or ``NAME=FILES:WEIGHT``.
"""

import argparse
import os
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple, get_args

from tokengraft.cli.display import print_warnings
from tokengraft.cli.options import given, input_paths, named, number, refuse, require, size, without
from tokengraft.corpus.files import is_url
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count, counts_of
from tokengraft.counts.fingerprint import may_be_cut, piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts, split_counts, whole_weights
from tokengraft.counts.threads import CountOptions, Engine
from tokengraft.progress import one_stage
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.piece_model import PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer

Files = str | list[str]
"""One path, glob or URL, or several."""
TEXT_OPTIONS = ("text_field", "documents", "format", "skip_bad")
READ_OPTIONS = (*TEXT_OPTIONS, "shard", "normalize", "rule", "max_bytes", "max_documents", "workers", "memory")
"""The options of `add_read_options`."""


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


def add_counts(command: argparse.ArgumentParser) -> None:
    """Adds --counts, --corpus and --weight."""
    text = command.add_mutually_exclusive_group()
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
    add_weight(command, "--counts or --corpus")


def add_weight(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --weight."""
    command.add_argument(
        "--weight",
        action="append",
        metavar="W",
        help=f"weight of one {what}, such as 2 or 1/3; give one for each. Counts are multiplied by the smallest whole "
        "numbers with this ratio: 1 and 1/3 are 3 and 1",
    )


def add_read_options(command: argparse.ArgumentParser) -> None:
    """Adds `READ_OPTIONS`. None of them has a default, so that it is known which were given."""
    group = command.add_argument_group("reading the corpus")
    _add_text_options(group, "inputs", "files; adapt: lines")
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
    group.add_argument(
        "--workers", type=int, metavar="N", help="threads (default: one per core); on Ray, tasks at once"
    )
    add_memory(group)


def add_text(command: argparse.ArgumentParser, what: str) -> None:
    """Adds --text."""
    command.add_argument("--text", action="extend", nargs="+", required=True, metavar="NAME=FILES", help=what)


def add_text_read_options(command: argparse.ArgumentParser) -> None:
    """Adds options for reading an evaluation text. None has a default, so that it is known which were given."""
    group = command.add_argument_group("reading the text")
    _add_text_options(group, "texts", "lines")


def _add_text_options(group: "argparse._ActionsContainer", inputs: str, documents: str) -> None:
    group.add_argument(
        "--text-field", metavar="NAME", help="JSON field or Parquet column with the text (default: text)"
    )
    group.add_argument(
        "--documents",
        choices=("files", "lines"),
        help=f"whether a text file is one document, or each of its lines is one (default: {documents})",
    )
    group.add_argument(
        "--format",
        choices=("text", "jsonl", "parquet"),
        help=f"format of all {inputs} (default: by file name); with text or jsonl, binary files are not refused",
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="skip files and documents that cannot be read, and report how many"
    )


def text_read_options_of(options: argparse.Namespace) -> ReadOptions | None:
    """The read options for an evaluation text; None if none were given."""
    chosen = given(options, *TEXT_OPTIONS)
    return ReadOptions(**{"documents": "lines"} | chosen) if chosen else None


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
    """The read options for a corpus. `--rule` changes the piece rules of the tokenizer."""
    chosen = given(options, *TEXT_OPTIONS, "shard", "normalize")
    if options.rule and tokenizer:
        if not may_be_cut(tokenizer):
            refuse(options, f"has no effect here: this {tokenizer.kind} tokenizer has no piece rules", "rule")
        chosen["rules"] = replace(piece_rules(tokenizer), **dict(options.rule))
    return ReadOptions(**chosen)


def require_unread(options: argparse.Namespace, why: str, *, instead: str = "--corpus") -> None:
    """Refuses options for reading a corpus if no corpus is read. The hint names the option that would read one."""
    refuse(options, f"is for reading a corpus, and {why}", *READ_OPTIONS, instead=f"pass {instead}")


def require_one_stdin(options: argparse.Namespace) -> None:
    """Refuses a corpus and held-out text that are both read from standard input."""
    require(
        not ("-" in (options.corpus or ()) and any(named(text)[1] == "-" for text in options.held_out or ())),
        "both --corpus and --held-out are standard input, which can be read only once",
        hint="name a file for one of them",
    )


def count_options_of(options: argparse.Namespace, *, min_count: int = 1) -> CountOptions:
    """The count options: workers, memory and limits."""
    names = ("workers", "memory", "max_documents", "max_bytes", "engine", "address")
    return CountOptions(min_count=min_count, **given(options, *(name for name in names if name in options)))


def given_counts(tokenizer: Tokenizer, options: argparse.Namespace, *, other_text: bool = False) -> PretokenCounts:
    """The counts given by --counts, or counted from --corpus.

    Options for reading are refused with --counts, unless another option names text (``other_text``).
    """
    if options.corpus:
        read, limits = read_options_of(options, tokenizer), count_options_of(options)
        with one_stage("counting", quiet=options.quiet) as progress:
            weights = options.weight
            return count(
                tokenizer, options.corpus, weights=weights, read_options=read, count_options=limits, progress=progress
            )
    if not other_text:
        require_unread(options, "--counts was counted already")
    weights = whole_weights(options.weight or [1] * len(options.counts))
    require(
        len(weights) == len(options.counts),
        f"{len(weights)} weights were given for {len(options.counts)} files of counts",
        hint="give one --weight for each",
    )
    parts = [PretokenCounts.load(path).scale(weight) for path, weight in zip(options.counts, weights, strict=True)]
    return sum(parts[1:], parts[0])


def counts_of_files(
    tokenizer: Tokenizer, files: Files, options: argparse.Namespace, *, whole: bool = False
) -> PretokenCounts:
    """The counts of files of text, files of counts, or both.

    With ``whole``, limits and shards have no effect: they are for the text to learn from.
    """
    if whole:
        options = without(options, "max_bytes", "max_documents", "shard")
    read, limits = read_options_of(options, tokenizer), count_options_of(options)
    only_counts = split_counts(files)[1] is None
    with one_stage("counting", quiet=options.quiet or only_counts) as progress:
        return counts_of(tokenizer, files, read_options=read, count_options=limits, progress=progress)


def warn_of_spelling(tokenizers: Mapping[str, Tokenizer]) -> None:
    """Prints a warning if a vocabulary cannot spell all text: once for all tokenizers, by name, that lack the same."""
    warnings = {name: spelling_warning(tokenizer) for name, tokenizer in tokenizers.items()}
    for warning in dict.fromkeys(filter(None, warnings.values())):
        names = ", ".join(name for name, other in warnings.items() if other == warning)
        print_warnings([f"{names}: {warning}"])


def _exists(path: str) -> bool:
    """Whether a path exists. A name that is too long is none, and not an error as for `Path.exists`."""
    return os.path.exists(path)  # noqa: PTH110


def has_name(text: str) -> bool:
    """Whether a text is ``NAME=FILES``. A file whose name has ``=`` is no name, and neither is part of a path."""
    name, equals, _ = text.partition("=")
    return bool(name and equals) and "/" not in name and not _exists(text)


def texts_of(items: Iterable[str], option: str) -> dict[str, str]:
    """The texts of an option by name. Without a name, it is that of the file. Two texts of one name are refused.

    >>> texts_of(["et=a.txt", "data/en.txt"], "--text")
    {'et': 'a.txt', 'en': 'data/en.txt'}
    """
    texts: dict[str, str] = {}
    for item in items:
        name, file = named(item) if has_name(item) or not _exists(item) else (named(f"./{item}")[0], item)
        _require_new_name(name, texts, option)
        texts[name] = file
    return texts


def _require_new_name(name: str, others: Collection[str | None], option: str) -> None:
    require(
        name not in others,
        f"two texts of {option} are called {name!r}",
        hint="give each a different name: NAME=FILES, where several files are a folder or a glob in quotes",
    )


def named_texts(items: Iterable[str], option: str) -> dict[str, str]:
    """As `texts_of`, in the order of the names."""
    return dict(sorted(texts_of(items, option).items()))


def _one_or_all(files: list[str]) -> Files:
    return files[0] if len(files) == 1 else files


def shared_warnings(options: argparse.Namespace) -> list[str]:
    """A warning if files of --held-out are in --corpus too."""
    held_out, corpus = (
        input_paths([named(item)[1] if has_name(item) else item for item in map(str, items or ())])
        for items in (options.held_out, options.corpus)
    )
    real = {os.path.realpath(path) for path in corpus}
    shared = [path for path in held_out if os.path.realpath(path) in real]
    if not shared:
        return []
    others = f" and {len(shared) - 1:,} more files are" if shared[1:] else " is"
    return [f"`{shared[0]}`{others} in --corpus and in --held-out: the result looks better than on other text"]


def one_text(items: Sequence[str], option: str) -> tuple[str, Files]:
    """The name and the files of an option that is one text: ``FILES`` or ``NAME=FILES``."""
    groups = _groups([[*items]], option)
    names = [group.name or named(group.files[0])[0] for group in groups]
    require(
        len(groups) == 1,
        f"{option} is one text, and {len(groups)} were given: {', '.join(map(repr, names))}",
        hint="give one name, before all files, or none",
    )
    return names[0], _one_or_all(groups[0].files)


class _Group(NamedTuple):
    name: str | None
    files: list[str]


def _groups(occurrences: Iterable[Sequence[str]], option: str) -> list[_Group]:
    """The files of an option by name. Those without a name belong to the name before them in the same occurrence."""
    groups: list[_Group] = []
    for items in occurrences:
        begins = True
        for item in items:
            name, file = named(item) if has_name(item) else (None, item)
            if name:
                _require_new_name(name, [group.name for group in groups], option)
            if name or begins:
                groups.append(_Group(name, []))
            groups[-1].files.append(file)
            begins = False
    return groups


def kept_texts(items: Sequence[str] | None, name: str) -> dict[str, Files] | None:
    """The texts of --keep by name. All files without a name are one text, which gets the name given here."""
    texts: dict[str, Files] = {}
    for group in _groups([items] if items else [], "--keep"):
        _require_new_name(group.name or name, texts, "--keep")
        texts[group.name or name] = _one_or_all(group.files)
    return texts or None


def weighted_texts(occurrences: Sequence[Sequence[str]]) -> dict[str, tuple[Files, str]]:
    """The files and the weight of every --target, by name.

    >>> weighted_texts([["et=et.txt:2", "more.txt"], ["lv=lv.txt"]])
    {'et': (['et.txt', 'more.txt'], '2'), 'lv': ('lv.txt', '1')}
    """
    groups, targets = _groups(occurrences, "--target"), dict[str, tuple[Files, str]]()
    for at, group in enumerate(groups, start=1):
        name = group.name or ("target" if len(groups) == 1 else f"target-{at}")
        _require_new_name(name, targets, "--target")
        pairs = [_weighted(file) for file in group.files]
        weights = {weight for _, weight in pairs if weight is not None}
        require(
            len(weights) <= 1,
            f"the files of the target {name!r} have the weights {', '.join(sorted(weights))}",
            hint="a target has one weight: give files with different weights different names",
        )
        targets[name] = (_one_or_all([file for file, _ in pairs]), next(iter(weights), "1"))
    return targets


def _weighted(text: str) -> tuple[str, str | None]:
    """The files and the weight of ``FILES:WEIGHT``; None without a weight."""
    # In a URL, a number after the name of the host is a port.
    source = ".*?://[^/]*/.*" if is_url(text) else ".+"
    match = None if _exists(text) else re.fullmatch(rf"({source}):([-+]?[\d.]+(?:/[-+]?[\d.]+)?)", text)
    return (match[1], match[2]) if match else (text, None)
