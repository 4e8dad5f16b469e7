"""`prepare`: every check of a request that is possible before any text is read."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import get_args

from tokengraft.checkpoint.folder import SINGLE, has_weights, open_checkpoint
from tokengraft.checkpoint.ids import config_tokens, model_configs, used_ids
from tokengraft.checkpoint.layout import changes_fixed_ids, fixed_from
from tokengraft.checkpoint.model_files import ADAPT_FILES, CARD, written_before
from tokengraft.checkpoint.rows import DEFAULT
from tokengraft.checkpoint.table import TransplantOptions, padded_rows
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.corpus.files import local_name
from tokengraft.corpus.open import local_files, open_corpus, paths_of
from tokengraft.counts.count import require_engine
from tokengraft.counts.pretoken_counts import as_weight
from tokengraft.errors import CheckpointError, CorpusError, OptionError, OutputError, option, require
from tokengraft.formats.sources import is_tokenizer_file, load
from tokengraft.learn.continued import require_extendable
from tokengraft.learn.limits import reference_of, require_max_share
from tokengraft.learn.special import add_special
from tokengraft.options.option import require_effect
from tokengraft.options.table import options_of
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.pipeline.edit_options import require_edit, shared_texts
from tokengraft.pipeline.given import Given, with_given
from tokengraft.pipeline.options import KEEP, Balance, is_listed, shares
from tokengraft.pipeline.request import Request, read_once
from tokengraft.pruning.removable import Protection, removable_tokens
from tokengraft.tokenizer.edit import free_ids
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.llama_cpp import check_tokens, converter_check, require_known
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import choices_for

_NAME = re.compile(r"\w[\w.-]{0,99}")


@dataclass(frozen=True)
class Weights:
    """Sizes of the checkpoint, as far as they are known before the new vocabulary is."""

    bytes: int
    """Size of all weight files."""
    rows: int
    """Rows of the embedding, padding included."""
    rows_after: int
    parameters_added: int
    bytes_added: int


@dataclass(frozen=True, kw_only=True)
class Prepared(Request):
    """A request after all checks, with what they found out. Nothing is read yet."""

    base: Tokenizer
    """What is pruned and extended: of BPE, the tokenizer with the special tokens that were given."""
    original: Tokenizer
    """The tokenizer of the source."""
    listed: Given
    """The original tokenizer with special tokens, and the words that become tokens before any is learned."""
    protection: Protection
    """Tokens that are not pruned: those of the options, and those that configs and llama.cpp's converter need."""
    text_bytes: int
    """Size of all corpora on disk; 0 if unknown."""
    weights: Weights | None
    """None if only a tokenizer is adapted."""
    keep_hash: bool
    """Whether llama.cpp's converter must recognise the result as it recognises the base."""
    warnings: tuple[str, ...]


def prepare(job: Request) -> Prepared:
    """The request, after refusing everything that would fail later. Reads file names, headers, configs, but no text."""
    adapts = job.step == "adapt"
    if adapts:
        _require_targets(job)
    else:
        _require_output(job, weighted=False)
    choices_for(job.options.stacks)
    original = load(job.source)
    _require_options(job, original, weighted=adapts and has_weights(job.source))
    used, options = config_tokens(original, job.source), job.options
    given = with_given(job, original, used) if is_listed(options) else Given(original, options.include)
    base = given.tokenizer
    if original.algorithm != "BPE":
        eos, pad = (text if text in original.ids else None for text in (options.eos, options.pad))
        base = add_special(original, (), eos=eos, pad=pad)
    weights = _weights(job, original, given.tokenizer) if adapts else None
    if adapts:
        _require_output(job, weighted=weights is not None)
    for corpus in job.corpora.values():
        require_engine(corpus, job.options.count_options)
    text_bytes = _require_text(job)
    asked = job.options.keep_llama_cpp_hash
    if asked:
        require_known(base)
    keep_hash = bool(asked or (asked is None and job.sizes.swap and converter_check(base).known))
    protection = job.options.protection
    fixed = _fixed_tokens(job, base, weights)
    protection = replace(
        protection,
        tokens=[*protection.tokens, *used, *fixed, *(check_tokens(base) if keep_hash else ())],
        highest_id=job.edit.ids == "keep" if job.step == "prune" else protection.highest_id,
    )
    _require_vocabulary(job, base, protection)
    if weights:
        _require_named_holes(job, base)
        if not job.options.as_adapter:
            _require_space(job.out, weights)
    request = {field.name: getattr(job, field.name) for field in fields(Request)}
    return Prepared(
        **request,
        base=base,
        original=original,
        listed=given,
        protection=protection,
        text_bytes=text_bytes,
        weights=weights,
        keep_hash=keep_hash,
        warnings=(*given.warnings, *_warnings(job, base, weights)),
    )


def _require_targets(job: Request) -> None:
    if job.sizes.listed:
        kept = f"{option('target')} or {option('keep')}" if job.targets or job.kept else ""
        message = f"{kept} has no effect: no number of tokens to learn was given, only listed tokens"
        require(not kept, message, f"pass {option('add', 'N')} too, or drop {kept}")
    else:
        require(bool(job.targets), "no target was given; at least one is needed", f"pass {option('target')} FILES")
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


def _require_options(job: Request, base: Tokenizer, *, weighted: bool) -> None:
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
        require_edit(job, base)


def replaceable(out: Path, *, weighted: bool) -> Callable[[Path], bool]:
    """A test whether a file in an existing output may be replaced: only files that an earlier run wrote."""
    if weighted:
        return written_before(out)
    return lambda path: is_tokenizer_file(path) or path.as_posix() in (*ADAPT_FILES, CARD)


def _require_output(job: Request, *, weighted: bool) -> None:
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


def _require_text(job: Request) -> int:
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


def _weights(job: Request, original: Tokenizer, base: Tokenizer) -> Weights | None:
    """The sizes of the source's checkpoint, after refusing one that `transplant` would refuse."""
    if not has_weights(job.source):
        return None
    from tokengraft.checkpoint.transplant import transplant  # `extend` and `prune` do not need it

    # An initialiser has no effect yet; one for a tied output is refused.
    # An adapter that adds rows is refused later, with all options that it does not go with.
    current = transplant(
        job.source,
        base,
        None,
        as_adapter=job.options.as_adapter,
        options=TransplantOptions(output_init=job.options.output_init and DEFAULT),
    )
    before, after = original.n_rows, job.sizes.rows(base.n_rows, len(base.ids))
    rows = padded_rows(before, after, current.rows_before, choices_for(job.options.stacks).pad_multiple or "keep")
    growth = rows - current.rows_before
    # A tied output counts once, also in a checkpoint that has it.
    counted = [table for table in current.tensors if not (current.tied and table[1] == "output")]
    return Weights(
        bytes=sum(file.path.stat().st_size for file in open_checkpoint(Path(job.source)).files),
        rows=current.rows_before,
        rows_after=rows,
        parameters_added=growth * sum(b // current.rows_before // ITEM_BYTES[kind] for _, _, kind, b, _ in counted),
        bytes_added=growth * sum(before // current.rows_before for *_, before, _ in current.tensors),
    )


def _require_vocabulary(job: Request, base: Tokenizer, protection: Protection) -> None:
    if job.sizes.learn:
        # `auto` first learns with all tokens of the base.
        require_extendable(base, job.sizes.learn, removed=0 if job.sizes.auto else job.sizes.prune)
    if job.sizes.prune and job.step == "adapt":
        removable, needed = removable_tokens(base, protection), job.sizes.least_prune
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in removable.kept.items() if count)
        require(
            needed <= len(removable.ids),
            f"{needed:,} tokens to prune asked, {len(removable.ids):,} can be pruned; the others are {reasons}",
            f"pass {option('swap')} or {option('remove')} with at most {len(removable.ids):,}, or protect fewer "
            f"tokens: {option('no_protect_defaults')} protects no white space, punctuation and source code",
        )


def _fixed_tokens(job: Request, base: Tokenizer, weights: Weights | None) -> list[str]:
    """The tokens whose ids the model has fixed, after refusing sizes that would change them or the number of rows."""
    first = fixed_from(open_checkpoint(Path(job.source)).config, weights.rows) if weights else None
    if first is None:
        return []
    free = first - sum(token_id < first for token_id in base.ids.values())
    if not job.sizes.swap and (job.sizes.covering or not 0 <= job.sizes.learn - job.sizes.prune <= free):
        raise changes_fixed_ids(first)
    return [string for string, token_id in base.ids.items() if token_id >= first]


def _require_named_holes(job: Request, base: Tokenizer) -> None:
    """Refuses a config that names an id without a token, if a new token would take that id or it would be removed."""
    used, growth = set(base.ids.values()), -1 if job.sizes.covering else job.sizes.learn - job.sizes.prune
    below = takewhile(lambda token_id: token_id < base.n_rows, free_ids(used))
    taken = set(islice(below, min(max(growth, 0), base.n_rows)))
    for name, config in model_configs(job.source).items():
        holes = {token_id for token_id in used_ids(config) - used if 0 <= token_id < base.n_rows}
        lost = sorted(holes if growth < 0 else holes & taken)
        if lost:
            raise CheckpointError(
                f"`{name}` names the id {lost[0]:,}, which has no token, and the new vocabulary would "
                + ("remove it" if growth < 0 else "give it to a new token"),
                hint=f"pass {option('swap', 'N')}, which does not change ids without a token, or correct `{name}`",
            )


def _require_space(out: Path, weights: Weights) -> None:
    needed = weights.bytes + max(weights.bytes_added, 0)
    parent = next(folder for folder in out.resolve().parents if folder.exists())
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise OutputError(
            f"the adapted model needs {needed / 1e9:,.1f} GB and `{parent}` has {free / 1e9:,.1f} GB free",
            hint=f"free some space, or pass {option('out')} on another disk",
        )


def _warnings(job: Request, base: Tokenizer, weights: Weights | None) -> Iterator[str]:
    if warning := spelling_warning(base, is_base=True):
        yield warning
    if job.step != "adapt":
        yield from shared_texts(job)
        return
    rows = weights.rows_after if weights else 0
    if rows in choices_for(job.options.stacks).avoided_rows and weights and weights.rows != rows:
        yield (
            f"the model will have {rows:,} rows, which llama.cpp's converter takes for another model; choose another "
            "number of tokens"
        )
    read_options = replace(job.options.read_options, shard=None)
    counted = {path for corpus in job.corpora.values() for path in local_files(corpus, read_options)}
    for name, text in job.tests.items():
        if shared := sorted(counted & local_files(text, read_options)):
            yield f"the test text {name} has `{shared[0]}`, which is counted: its figures say nothing about other text"
    if job.sizes.prune and not job.kept:
        yield (
            f"no text to keep was given: only the text of {', '.join(job.targets)} decides which tokens are removed; "
            "pass --keep FILES with text of everything else that the model must handle"
        )
    if not Path(job.source).exists():
        yield f"`{job.source}` is a hub name: only its tokenizer is adapted, its weights are not downloaded"
    elif not weights and (Path(job.source) / "config.json").is_file():
        yield f"`{job.source}` has no weights, such as `{SINGLE}`: only its tokenizer is adapted"
