"""Refuses what a request asks for in vain or cannot get, before any text is read."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args

from tokengraft.checkpoint.model_files import ADAPT_FILES, CARD, written_before
from tokengraft.checkpoint.table import model_rows, row_step
from tokengraft.corpus.files import local_name
from tokengraft.corpus.open import open_corpus, paths_of
from tokengraft.counts.pretoken_counts import is_counts_file
from tokengraft.counts.weights import as_weight
from tokengraft.errors import CorpusError, OptionError, OutputError, option, require
from tokengraft.formats.sources import is_tokenizer_file
from tokengraft.learn.limits import reference_of, require_max_share
from tokengraft.options.option import require_effect
from tokengraft.options.table import options_of
from tokengraft.options.values import ALL, AUTO
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.pipeline.options import KEEP, Balance, shares
from tokengraft.pipeline.request import Request, read_once
from tokengraft.pruning.methods import COUNTED
from tokengraft.tokenizer.tokenizer import Tokenizer

_NAME = re.compile(r"\w[\w.-]{0,99}")


def require_texts(job: Request) -> None:
    """Refuses texts of `adapt` whose names do not fit, and an adaptation without a target."""
    if job.step != "adapt":
        return
    has_target = bool(job.targets) or job.sizes.only_listed
    require(has_target, "no target was given; at least one is needed", f"pass {option('target')} FILES")
    require(
        KEEP not in job.targets,
        f"a target is called {KEEP!r}, which is reserved for the text to keep",
        f"use another name: {option('target')} NAME=FILES",
    )
    for name in (*job.targets, *job.kept, *job.tests):
        require(
            isinstance(name, str) and bool(_NAME.fullmatch(name)),
            f"{name!r} is not a valid name for a text: it becomes part of a file name",
            f"use letters, digits, - _ and . only, as in {option('target')} et=FILES",
        )
    for name in job.kept:
        message = f"a target and a text to keep are called {name!r}"
        require(name not in job.targets, message, "give each a different name: NAME=FILES")
    if job.targets:
        shares({name: target.weight for name, target in job.targets.items()})


def require_options(job: Request, base: Tokenizer, *, weighted: bool) -> None:
    """Refuses options that would have no effect, and texts and sizes that do not go together."""
    options, edit = job.options, job.edit
    facts = {
        "weights": weighted,
        "a random initialiser": any(one == "random" or callable(one) for one in (options.init, options.output_init)),
        "a tokenizer that is not byte-level": base.kind != "byte-level",
        "BPE": base.algorithm == "BPE",
    }
    known = options_of("recipe" if job.step == "adapt" else job.step)
    require_effect(known, job.given, [name for name, holds in facts.items() if holds])
    sizes = job.sizes
    require(
        not options.keep_llama_cpp_hash or edit.ids == "keep" or (sizes.learn >= sizes.prune and not sizes.covering),
        f"{option('keep_llama_cpp_hash')} needs ids that do not move, and they are renumbered if more tokens are "
        "pruned than learned",
        f"pass {option('swap', 'N')}, or drop {option('keep_llama_cpp_hash')}",
    )
    require(
        not (options.join_marks and options.keep_llama_cpp_hash),
        f"{option('join_marks')} and {option('keep_llama_cpp_hash')} do not go together: llama.cpp cuts words at marks",
        f"drop {option('join_marks')} or {option('keep_llama_cpp_hash')}",
    )
    require(options.balance in get_args(Balance), f"there is no balance {options.balance!r}", "pass weights or parity")
    if options.balance == "parity":
        message = f"{option('balance', 'parity')} needs several texts, and {len(job.targets)} was given"
        require(len(job.targets) > 1, message, "pass NAME=FILES for each")
        for name, target in job.targets.items():
            require(
                as_weight(target.weight) == 1,
                f"the target {name!r} has a weight, which has no effect with {option('balance', 'parity')}",
                f"leave out the weight, or pass {option('balance', 'weights')}",
            )
        require_max_share(1.0 if options.max_share is None else options.max_share, len(job.targets))
        if options.parity_text is not None:
            reference_of(job.targets, options.parity_text)
    if job.step != "adapt":
        _require_edit(job, base)


def replaceable(out: Path, *, weighted: bool) -> Callable[[Path], bool]:
    """A test whether a file in an existing output may be replaced: only files that an earlier run wrote."""
    if weighted:
        return written_before(out)
    return lambda path: is_tokenizer_file(path) or path.as_posix() in (*ADAPT_FILES, CARD)


def require_output(job: Request, *, weighted: bool) -> None:
    """Refuses outputs that exist, or that are inputs."""
    force, edit = job.options.force, job.edit
    if edit.curve:
        return
    if not job.out.name and job.step != "adapt":
        raise OptionError("no output was given", hint=f"pass {option('out', 'PATH')}, or {option('curve')}")
    if not job.out.resolve().name:
        raise OutputError(f"`{job.out}` is the root folder", hint=f"name a new folder: {option('out')} adapted")
    others = [edit.extension, None if edit.reads_order else edit.order, edit.report]
    require_new(job.out, force=force, replaceable=replaceable(job.out, weighted=weighted))
    for other in filter(None, others):
        require_new(other, force=force)
    require_distinct([*_input_paths(job)], job.out, *others)


def _input_paths(job: Request) -> Iterator[Path]:
    lists = [job.given.get(name) for name in ("protect", "deny", "include")]
    lists += [Path(one) for one in job.given.get("special", ()) if os.path.isfile(one)]  # noqa: PTH113
    order = job.edit.order if job.edit.reads_order else None
    given = [job.source, order, *(path for path in lists if isinstance(path, Path))]
    yield from (Path(path) for path in given if path is not None and Path(path).exists())
    for corpus in (*job.corpora.values(), *job.other_texts.values()):
        items = paths_of(corpus)
        if items is not None:
            sources = open_corpus(corpus, job.options.read_options)  # refuses names that are too long for the system
            # Folders too: a later run would read what this one wrote into them.
            names = dict.fromkeys([*(os.fspath(item) for item in items), *(source.name for source in sources)])
            paths = (local_name(name) for name in names)
            yield from (Path(path) for path in paths if os.path.isdir(path) or os.path.isfile(path))  # noqa: PTH112, PTH113


def require_text(job: Request) -> int:
    """The size of all corpora on disk, after refusing files that are missing, not readable, or a pipe given twice."""
    total, limit, options = 0, job.options.count_options.max_bytes, job.options.read_options
    once = set[str | int]()
    for name, corpus in (job.corpora | job.other_texts).items():
        inputs = open_corpus(corpus, options)
        if not inputs:
            raise CorpusError(
                f"the corpus `{name}` has no files in this shard", hint=f"pass another {option('shard')}, or none"
            )
        for path in dict.fromkeys(source.name for source in inputs):
            if not options.skip_bad and os.path.isfile(path) and not os.access(path, os.R_OK):  # noqa: PTH113
                raise CorpusError(
                    f"no permission to read `{path}`", hint=f"change its permissions, or pass {option('skip_bad')}"
                )
        for again in read_once(corpus, options):
            if again in once:  # the second text would be empty
                raise CorpusError(
                    f"{again if isinstance(again, str) else 'an iterator'} is given twice, but can be read only once",
                    hint="write the text to a file, and pass the file twice",
                )
            once.add(again)
        size = sum(source.size for source in inputs)
        total += min(size, limit) if limit else size
    return total


WHOLE = ("script", "script-leaf", "unreachable")
"""Methods that order only the tokens to remove."""
_READING = {one.name for one in options_of("count") if one.group} - {"join_marks"}


def _require_edit(job: Request, base: Tokenizer) -> None:
    """Refuses texts, sizes and methods of `extend` and `prune` that do not go together."""
    edit, sizes = job.edit, job.sizes
    if job.step == "extend":
        hint = f"pass {option('counts')} or {option('corpus')}, or {option('include')} without {option('add')}"
        require(bool(job.targets) or sizes.only_listed, "no text to learn from was given", hint)
        hint = f"pass {option('add', 'N')}, or drop {option('counts')} and {option('corpus')}"
        given = bool(job.targets and sizes.only_listed)
        require(not given, "text to learn from was given, and no number of tokens", hint)
        naive, auto = edit.method not in (None, "continued"), option("add", AUTO)
        require(not (naive and sizes.auto), f"{auto} is for continued training", f"pass {option('add', 'N')}")
        _require_held_out(job, auto, chosen=sizes.auto)
        if naive:
            allowed = {"counts", "corpus", "weight", "add", "method", "report", "out", "force", "json", "quiet"}
            _refuse(job, lambda name: name not in allowed | _READING, f"is for continued training, not {edit.method}")
    else:
        _require_order(job, base)
    texts = [*map(str, edit.corpus), *(one for files in job.other_texts.values() for one in paths_of(files) or ())]
    if all(map(is_counts_file, texts)):
        _refuse(job, lambda name: name in _READING, "is for reading text, and all texts are counts")


def _require_held_out(job: Request, auto: str, *, chosen: bool) -> None:
    message = f"{auto} chooses the number of tokens on held-out text, and none was given"
    hint = f"pass {option('held_out', 'TEXT')}, or a number of tokens"
    require(bool(job.edit.held_out) or not chosen, message, hint)


def _refuse(job: Request, has_none: Callable[[str], bool], why: str) -> None:
    """Refuses options that have no effect for a reason that the table does not know."""
    if name := next(filter(has_none, job.given), None):
        raise OptionError(f"{option(name)} {why}", hint=f"drop {option(name)}")


def _require_order(job: Request, base: Tokenizer) -> None:
    """Refuses options of `prune` that decide an order which is read, and a method without what it needs."""
    edit, given = job.edit, job.given
    method = edit.method or "leaf-expected"
    if edit.reads_order:
        allowed = {"order", "remove", "rows", "held_out", "keep_coverage", "ids", "report", "out", "force", "json"}
        why = f"decides an order, and `{edit.order}` was made before"
        _refuse(job, lambda name: name not in {*allowed, "quiet", *_READING}, why)
    require(
        bool(job.targets) or edit.reads_order or method not in COUNTED,
        f"the method {method} counts tokens in a text, and no text was given",
        f"pass {option('counts')} or {option('corpus')}, choose {option('method', 'last-id-leaf')}, or pass "
        f"{option('order')} with an order made before",
    )
    auto = option("remove", AUTO)
    require(
        bool({"remove", "rows"} & given.keys()) or method in WHOLE,
        f"the number of tokens to remove was not given, and the method {method} orders all of them",
        f"pass {option('remove', 'N')}, {option('rows', 'N')}, {option('remove', ALL)}, or {auto} "
        f"{option('held_out', 'TEXT')}",
    )
    _require_held_out(job, auto, chosen=job.sizes.covering)
    if edit.rows is not None:
        model = model_rows(job.source)
        rows = model.left(base.n_rows, base.n_rows)[0] if model else base.n_rows
        step = row_step(base.n_rows, rows)
        message = f"{option('rows')} is {edit.rows:,}; expected {step:,} to {rows - 1:,}"
        hint = f"there are {rows:,} now; pass {option('rows')} with a number in between"
        require(step <= edit.rows < rows, message, hint)
    keep = option("ids", "keep")
    require(
        edit.ids != "keep" or base.algorithm == "BPE",
        f"{keep} leaves ids without a token, and a {base.algorithm} vocabulary is a list",
        f"leave out {keep}, which renumbers the tokens; or replace tokens, which moves no id: `tokengraft adapt "
        "--swap N`",
    )
