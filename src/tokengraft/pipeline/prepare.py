"""`prepare`: every check of a request that is possible before any text is read.

`with_given`: a tokenizer with the special tokens of a request. BPE starts from it, so that pruning, learning and all
checks compare with a tokenizer that has them. The vocabularies of Unigram and WordPiece are lists, and special tokens
follow them: there, they are added at the end.
"""

import re
import shutil
from collections.abc import Collection, Iterator
from dataclasses import dataclass, fields, replace
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from tokengraft.checkpoint.folder import SINGLE, has_weights, open_checkpoint
from tokengraft.checkpoint.ids import config_tokens, model_configs, used_ids
from tokengraft.checkpoint.layout import changes_fixed_ids, fixed_from
from tokengraft.checkpoint.rows import DEFAULT
from tokengraft.checkpoint.table import TransplantOptions, padded_rows
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.corpus.open import local_files
from tokengraft.counts.count import require_engine
from tokengraft.errors import CheckpointError, OptionError, OutputError, UnsupportedTokenizerError, option, require
from tokengraft.formats.sources import load
from tokengraft.learn.continued import require_extendable
from tokengraft.learn.include import WordList
from tokengraft.learn.special import SpecialToken, add_special
from tokengraft.learn.words import SplitWords, split_words
from tokengraft.pipeline.options import is_listed
from tokengraft.pipeline.request import Request
from tokengraft.pipeline.require import require_options, require_output, require_text, require_texts
from tokengraft.pruning.removable import Protection, chat_templates, removable_tokens, template_texts
from tokengraft.tokenizer.edit import free_ids
from tokengraft.tokenizer.inspect import spelling_warning
from tokengraft.tokenizer.llama_cpp import check_tokens, converter_check, require_known
from tokengraft.tokenizer.marks import join_marks
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import choices_for
from tokengraft.verify.joined_marks import marks_loaded

_MARKER = re.compile(r"<\|[^|<>\s]{1,60}\|>")
"""What is written like a special token. Templates also have other names in `<...>`, which are plain text."""
_SHOWN = 3


class Given(NamedTuple):
    """A tokenizer with its special tokens."""

    tokenizer: Tokenizer
    words: WordList | None = None
    """The words that become tokens by merges."""
    warnings: tuple[str, ...] = ()


def with_given(job: Request, base: Tokenizer, keep: Collection[str]) -> Given:
    """The tokenizer with the special tokens of a request, and with words that only added tokens can be.

    ``keep`` are the tokens that the configs of the model name.
    """
    options = job.options
    tokens, words, warnings = [*map(SpecialToken.of, options.special)], options.include, list[str]()
    if options.include_added and words is not None:
        found = split_words(base, words)
        tokens, words, warnings = [*tokens, *found.tokens], found.others, [*_split_warnings(found)]
    new = add_special(base, tokens, like=options.like, eos=options.eos, pad=options.pad, keep=keep)
    if job.step == "extend" and any(token.description for token in tokens):
        warnings.append(
            "descriptions of special tokens decide rows of a model, and only a tokenizer is written: pass them to "
            "`tokengraft adapt --special`; `tokengraft transplant` starts from the parts of the texts"
        )
    return Given(new, words, (*warnings, *unknown_markers(new)))


def _split_warnings(found: SplitWords) -> Iterator[str]:
    """What added tokens for words change, and which words cannot be one."""
    if found.tokens:
        shown = ", ".join(f"`{token.content}`" for token in found.tokens[:_SHOWN])
        yield (
            f"{len(found.tokens):,} words are added tokens, such as {shown}: they are found only as they are spelled, "
            "a space before them is a token of its own, and llama.cpp finds them inside words too"
        )
    yield from (f"{word.word!r} is no token: {word.reason}" for word in found.left_out)


def unknown_markers(tokenizer: Tokenizer) -> Iterator[str]:
    """A warning if chat templates write markers such as ``<|im_start|>`` that are no tokens."""
    texts = (text for template in chat_templates(tokenizer) for text in template_texts(template))
    found = dict.fromkeys(marker for text in texts for marker in _MARKER.findall(text))
    if unknown := [f"`{marker}`" for marker in found if marker not in tokenizer.ids]:
        yield f"the chat template writes {', '.join(unknown[:_SHOWN])}: no token{'s' * (len(unknown) > 1)} of that text"


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
    """What is pruned and extended: of BPE, the tokenizer with the special tokens that were given, and with words that
    are not cut at the marks of the scripts that were given."""
    before: Tokenizer
    """What the result is compared with: as ``base``, with words that are cut as in the source."""
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
    weighted = adapts and has_weights(job.source)
    require_texts(job)
    if not adapts:
        require_output(job, weighted=False)
    choices_for(job.options.stacks)
    original = load(job.source)
    require_options(job, original, weighted=weighted)
    used, options = config_tokens(original, job.source), job.options
    given = with_given(job, original, used) if is_listed(options) else Given(original, options.include)
    base = given.tokenizer
    if original.algorithm != "BPE":
        eos, pad = (text if text in original.ids else None for text in (options.eos, options.pad))
        base = add_special(original, (), eos=eos, pad=pad)
        if adapts and job.corpora and not given.tokenizer.ids.keys() <= base.ids.keys():
            # They would be added last, and the text was counted by a pipeline without them.
            raise OptionError(
                f"a {original.algorithm} tokenizer cannot get given added tokens and learn from text in one run",
                hint=f"adapt it to the text first, then pass the result with {option('special')} and without text",
            )
    before = base
    if options.join_marks:
        base = join_marks(base, options.join_marks)
    joining = [*marks_loaded(base, Path(job.source))]
    for each in joining:
        if each.outcome == "fail":
            raise UnsupportedTokenizerError(each.detail, hint=each.fix)
    weights = _weights(job, original, given.tokenizer) if weighted else None
    if adapts:  # not before: an option that is wrong is named before a file that is missing
        require_output(job, weighted=weighted)
    for corpus in job.corpora.values():
        require_engine(corpus, job.options.count_options)
    text_bytes = require_text(job)
    asked = job.options.keep_llama_cpp_hash
    if asked:
        require_known(base)
    by_default = asked is None and job.sizes.swap and not options.join_marks
    keep_hash = bool(asked or (by_default and converter_check(base).known))
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
        before=before,
        original=original,
        listed=given,
        protection=protection,
        text_bytes=text_bytes,
        weights=weights,
        keep_hash=keep_hash,
        warnings=(
            *given.warnings,
            *(f"{each.name}: {each.detail}" for each in joining if each.outcome == "note"),
            *_warnings(job, base, weights),
        ),
    )


def _weights(job: Request, original: Tokenizer, base: Tokenizer) -> Weights:
    """The sizes of the source's checkpoint, after refusing one that `transplant` would refuse."""
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
    adapts, read_options = job.step == "adapt", job.options.read_options
    read_options = replace(read_options, shard=None) if adapts else read_options
    counted = {path for corpus in job.corpora.values() for path in local_files(corpus, read_options)}
    if not adapts:
        held_out = {path for text in job.edit.held_out.values() for path in local_files(text, read_options)}
        if shared := sorted(counted & held_out):
            others = f" and {len(shared) - 1:,} more files are" if shared[1:] else " is"
            yield f"`{shared[0]}`{others} in --corpus and in --held-out: the result looks better than on other text"
        return
    rows = weights.rows_after if weights else 0
    if rows in choices_for(job.options.stacks).avoided_rows and weights and weights.rows != rows:
        yield (
            f"the model will have {rows:,} rows, which llama.cpp's converter takes for another model; choose another "
            "number of tokens"
        )
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
