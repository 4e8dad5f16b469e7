"""`check_before_start`: every check that is possible before any text is read."""

import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple, get_args

from tokengraft.adapt.distilled import DISTILL, require_distillable
from tokengraft.adapt.inputs import given_paths
from tokengraft.adapt.mix import shares
from tokengraft.adapt.options import KEEP, Balance, Job, work_folder
from tokengraft.adapt.protect import model_configs, protection
from tokengraft.adapt.work import is_work_file
from tokengraft.adapt.write import replaceable
from tokengraft.check.serving.stacks import choices_for
from tokengraft.checkpoint.ids import used_ids
from tokengraft.checkpoint.layout import has_weights, open_checkpoint
from tokengraft.checkpoint.padding import padded_rows
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import DEFAULT, RANDOM, require_initialisers
from tokengraft.checkpoint.transplant import transplant
from tokengraft.checkpoint.unused import require_hole_rows
from tokengraft.corpus.open import STDIN, Corpus, open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.corpus.remote import local_name
from tokengraft.corpus.strings import paths_of
from tokengraft.counts.count import require_engine
from tokengraft.counts.pretoken_counts import PretokenCounts, as_weight
from tokengraft.errors import CheckpointError, CorpusError, OptionError, OutputError
from tokengraft.extend.continued import require_extendable
from tokengraft.extend.limits import Limits
from tokengraft.extend.parity import reference_of, require_max_share
from tokengraft.formats.sources import load
from tokengraft.output.atomic import require_distinct, require_new
from tokengraft.prune.removable import Protection, removable_tokens
from tokengraft.tokenizer.edit import free_ids
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.llama_cpp import check_tokens, converter_check, require_known
from tokengraft.tokenizer.tokenizer import Tokenizer

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


@dataclass(frozen=True)
class Start:
    """The inputs of an adaptation, after all checks."""

    base: Tokenizer
    protection: Protection
    text_bytes: int
    """Size of all corpora on disk; 0 if unknown."""
    weights: Weights | None
    """None if only a tokenizer is adapted."""
    report: bool
    """Whether to write a report."""
    keep_hash: bool
    """Whether llama.cpp's converter must recognise the result as it recognises the base."""
    warnings: tuple[str, ...]


def check_before_start(job: Job) -> Start:
    """The inputs of an adaptation, after refusing everything that would fail later.

    Reads file names, headers and configs, but no text.

    Raises:
        TokengraftError: An input or an option is wrong.
    """
    _require_targets(job)
    choices_for(job.options.stacks)
    init = job.options.init
    require_initialisers(None if init == DISTILL else init, job.options.output_init)
    if job.options.hole_rows is not None:
        require_hole_rows(job.options.hole_rows)
    base = load(job.source)
    weights = _weights(job, base)
    _require_options(job, weighted=weights is not None)
    _require_output(job, weighted=weights is not None)
    for corpus in job.corpora.values():
        require_engine(corpus, job.options.count_options)
    text_bytes = _require_text(job)
    _require_read_once(job)
    if init == DISTILL:
        require_distillable(job)
    keep_hash = _keep_hash(job, base)
    protected = protection(base, job.source, job.options.protection)
    if keep_hash:
        protected = replace(protected, tokens=[*protected.tokens, *check_tokens(base)])
    _require_vocabulary(base, protected, job)
    if weights:
        _require_named_holes(base, job)
    _require_space(job.out, weights)
    report = job.options.report is not False
    return Start(base, protected, text_bytes, weights, report, keep_hash, tuple(_source_warnings(job, base, weights)))


def _keep_hash(job: Job, base: Tokenizer) -> bool:
    """Whether to keep the hash of llama.cpp's converter: if asked for, or for a swap of a tokenizer that it knows."""
    asked = job.options.keep_llama_cpp_hash
    if asked and job.sizes.learn < job.sizes.prune:
        raise OptionError(
            "--keep-llama-cpp-hash needs ids that do not move, and they are renumbered if more tokens are pruned than "
            "learned",
            hint="pass --swap N, or drop --keep-llama-cpp-hash",
        )
    if asked:
        require_known(base)
    return bool(asked or (asked is None and job.sizes.swap and converter_check(base).known))


def _require_targets(job: Job) -> None:
    if not job.targets:
        raise OptionError("no target was given; at least one is needed", hint="pass --target FILES")
    if KEEP in job.targets:
        raise OptionError(
            f"a target is called {KEEP!r}, which is reserved for the text to keep",
            hint="use another name: --target NAME=FILES",
        )
    for name in (*job.targets, *job.kept, *job.tests):
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise OptionError(
                f"{name!r} is not a valid name for a text: it becomes part of a file name",
                hint="use letters, digits, - _ and . only, as in --target et=FILES",
            )
    twice = next((name for name in job.kept if name in job.targets), None)
    if twice is not None:
        raise OptionError(
            f"a target and a text to keep are called {twice!r}", hint="give each a different name: NAME=FILES"
        )
    shares({name: target.weight for name, target in job.targets.items()})


def _require_options(job: Job, *, weighted: bool) -> None:
    """Refuses options that would have no effect."""
    options = job.options
    given: dict[str, object] = {"--init": options.init, "--output-init": options.output_init}
    given |= {"--hole-rows": options.hole_rows, "--seed": options.seed}
    for flag, value in given.items():
        if value is not None and not weighted:
            raise OptionError(
                f"{flag} {value} was given, but `{job.source}` has no weights",
                hint=f"leave out {flag}, or pass a model folder with weights",
            )
    if options.seed is not None and not {*RANDOM, DISTILL} & {options.init, options.output_init}:
        raise OptionError(
            f"--seed {options.seed} has no effect: the initialiser {options.init or DEFAULT} is not random",
            hint=f"leave it out, or pass --init {', '.join(sorted(RANDOM))} or {DISTILL}",
        )
    asked = any(asdict(options.protection).values())
    if not job.sizes.prune and (asked or options.by_merges):
        flag = "--protect or --protect-pattern" if asked else "--by-merges"
        raise OptionError(f"{flag} was given, but nothing is pruned", hint="leave it out, or pass --swap or --remove")
    if options.preserve_keep and not job.kept:
        raise OptionError("--preserve-keep was given without text to keep", hint="pass --keep FILES, or leave it out")
    learning = options.limits != Limits() or options.include is not None or options.balance == "parity"
    learning = learning or options.init is not None or options.output_init is not None
    if learning and not job.sizes.learn:
        raise OptionError(
            "options for new tokens were given, but none are learned", hint="leave them out, or pass --swap or --add"
        )
    _require_balance(job)


def _require_balance(job: Job) -> None:
    options = job.options
    if options.balance not in get_args(Balance):
        raise OptionError(f"there is no balance {options.balance!r}", hint="pass weights or parity")
    if options.balance == "weights":
        given = "--parity-text" if options.parity_text else "--max-share" if options.max_share is not None else None
        if given:
            raise OptionError(f"{given} is for --balance parity", hint="pass --balance parity too")
        return
    if len(job.targets) < 2:
        raise OptionError("--balance parity needs several targets, and 1 was given", hint="repeat --target NAME=FILES")
    weighted = next((name for name, target in job.targets.items() if as_weight(target.weight) != 1), None)
    if weighted is not None:
        raise OptionError(
            f"the target {weighted!r} has a weight, which has no effect with --balance parity",
            hint="leave out the weight, or pass --balance weights",
        )
    require_max_share(1.0 if options.max_share is None else options.max_share, len(job.targets))
    if options.parity_text is not None:
        reference_of(job.targets, options.parity_text)


def _require_output(job: Job, *, weighted: bool) -> None:
    if not job.out.resolve().name:
        raise OutputError(f"`{job.out}` is the root folder", hint="name a new folder: --out adapted")
    keep_work = job.options.keep_work
    require_distinct([*_input_paths(job)], job.out, keep_work)
    if keep_work is not None:
        require_distinct([], Path(keep_work), work_folder(job.out))
        require_new(keep_work, force=job.options.force, replaceable=is_work_file)
    require_new(job.out, force=job.options.force, replaceable=replaceable(job.out, weighted=weighted))


def _input_paths(job: Job) -> Iterator[Path]:
    if Path(job.source).exists():
        yield Path(job.source)
    for corpus in (*job.corpora.values(), *job.other_texts.values()):
        items = paths_of(corpus)
        if items is not None:
            sources = open_corpus(corpus, job.options.read_options)  # refuses names that are too long for the system
            # Folders too: a later run would read what this one wrote into them.
            names = dict.fromkeys([*(os.fspath(item) for item in items), *(source.name for source in sources)])
            paths = (local_name(name) for name in names)
            yield from (Path(path) for path in paths if os.path.isdir(path) or os.path.isfile(path))  # noqa: PTH112, PTH113


def _require_text(job: Job) -> int:
    """The size of all corpora on disk, after refusing files that are missing or not readable."""
    total = 0
    limit = job.options.count_options.max_bytes
    for name, corpus in (job.corpora | job.other_texts).items():
        inputs = open_corpus(corpus, job.options.read_options)
        if not inputs:
            raise CorpusError(f"the corpus `{name}` has no files in this shard", hint="pass another --shard, or none")
        for path in dict.fromkeys(source.name for source in inputs):
            if not job.options.read_options.skip_bad and os.path.isfile(path) and not os.access(path, os.R_OK):  # noqa: PTH113
                raise CorpusError(f"no permission to read `{path}`", hint="change its permissions, or pass --skip-bad")
        size = sum(source.size for source in inputs)
        total += min(size, limit) if limit else size
    return total


def _require_read_once(job: Job) -> None:
    """Refuses an input that can be read only once and is given twice: the second text would be empty."""
    corpora = (job.corpora | job.other_texts).values()
    once = [name for corpus in corpora for name in read_once(corpus, job.options.read_options)]
    twice = next((name for at, name in enumerate(once) if name in once[:at]), None)
    if twice is not None:
        what = f"{twice} is" if isinstance(twice, str) else "an iterator is"
        raise CorpusError(
            f"{what} given twice, but can be read only once", hint="write the text to a file, and pass the file twice"
        )


def read_once(corpus: Corpus, read_options: ReadOptions) -> list[str | int]:
    """The inputs of a corpus that can be read only once: names of pipes, or the identity of an iterator."""
    if isinstance(corpus, Iterator):
        return [id(corpus)]
    if not isinstance(corpus, str | os.PathLike | list | tuple):
        return []
    return [
        source.name
        for source in open_corpus(corpus, read_options)
        if source.name == STDIN or (source.file is not None and Path(source.name).is_fifo())
    ]


class _Needed(NamedTuple):
    rows_before: int
    rows_after: int


def _weights(job: Job, base: Tokenizer) -> Weights | None:
    """The sizes of the source's checkpoint, after refusing one that `transplant` would refuse."""
    if not has_weights(job.source):
        return None
    # An initialiser has no effect yet, and `context` would need counts; one for a tied output is refused.
    current = transplant(job.source, base, None, output_init=job.options.output_init and DEFAULT)
    after = job.sizes.rows(base.n_rows, len(base.ids))
    choices = choices_for(job.options.stacks)
    rows = padded_rows(_Needed(base.n_rows, after), current.rows_before, choices.pad_multiple or "keep")
    growth = rows - current.rows_before
    size = sum(file.path.stat().st_size for file in open_checkpoint(Path(job.source)).files)
    return Weights(
        bytes=size,
        rows=current.rows_before,
        rows_after=rows,
        parameters_added=growth * _width(job, current),
        bytes_added=growth * sum(before // current.rows_before for *_, before, _ in current.tensors),
    )


def _width(job: Job, current: Transplant) -> int:
    """The number of values in one row, summed over all tables."""
    names = {name for name, *_ in current.tensors}
    files = open_checkpoint(Path(job.source)).files
    shapes = [tensor.shape for file in files for name, tensor in file.tensors.items() if name in names]
    return sum(shape[1] if len(shape) > 1 else 1 for shape in shapes)


def _require_vocabulary(base: Tokenizer, protected: Protection, job: Job) -> None:
    if job.sizes.learn:
        require_extendable(base, job.sizes.learn)
    if job.sizes.prune:
        removable = removable_tokens(base, protected)
        needed = job.sizes.least_prune
        if needed > len(removable.ids):
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in removable.kept.items() if count)
            raise OptionError(
                f"{needed:,} tokens to prune asked, {len(removable.ids):,} can be pruned; the others are {reasons}",
                hint=f"pass --swap or --remove with at most {len(removable.ids):,}, or protect fewer tokens",
            )


def _require_named_holes(base: Tokenizer, job: Job) -> None:
    """Refuses a config that names an id without a token, if a new token would take that id or it would be removed."""
    used, growth = set(base.ids.values()), job.sizes.learn - job.sizes.prune
    below = takewhile(lambda token_id: token_id < base.n_rows, free_ids(used))
    taken = set(islice(below, min(max(growth, 0), base.n_rows)))
    for name, config in model_configs(job.source).items():
        holes = {token_id for token_id in used_ids(config) - used if 0 <= token_id < base.n_rows}
        lost = sorted(holes if growth < 0 else holes & taken)
        if lost:
            raise CheckpointError(
                f"`{name}` names the id {lost[0]:,}, which has no token, and the new vocabulary would "
                + ("remove it" if growth < 0 else "give it to a new token"),
                hint=f"pass --swap N, which does not change ids without a token, or correct `{name}`",
            )


def _require_space(out: Path, weights: Weights | None) -> None:
    needed = weights.bytes + max(weights.bytes_added, 0) if weights else 0
    parent = next(folder for folder in out.resolve().parents if folder.exists())
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise OutputError(
            f"the adapted model needs {needed / 1e9:,.1f} GB and `{parent}` has {free / 1e9:,.1f} GB free",
            hint="free some space, or pass --out on another disk",
        )


def _files(corpus: Corpus | PretokenCounts, job: Job) -> set[str]:
    """The names of the local files of a corpus, with links resolved."""
    if given_paths(corpus) is None:
        return set()
    sources = open_corpus(corpus, replace(job.options.read_options, shard=None))
    return {str(Path(source.name).resolve()) for source in sources if Path(source.name).is_file()}


def _source_warnings(job: Job, base: Tokenizer, weights: Weights | None) -> Iterator[str]:
    rows = weights.rows_after if weights else 0
    if rows in choices_for(job.options.stacks).avoided_rows and weights and weights.rows != rows:
        yield (
            f"the model will have {rows:,} rows, which llama.cpp's converter takes for another model; choose another "
            "number of tokens"
        )
    counted = {name for corpus in job.corpora.values() for name in _files(corpus, job)}
    for name, text in job.tests.items():
        if shared := sorted(counted & _files(text, job)):
            yield f"the test text {name} has `{shared[0]}`, which is counted: its figures say nothing about other text"
    if not Path(job.source).exists():
        yield f"`{job.source}` is a hub name: only its tokenizer is adapted, its weights are not downloaded"
    if warning := spelling_warning(base):
        yield warning
