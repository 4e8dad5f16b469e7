"""`new_vocabulary`: prunes and extends the tokenizer."""

from dataclasses import dataclass, replace
from typing import Any

from tokengraft.adapt.mix import Mix, extend_by_mix, in_occurrences
from tokengraft.adapt.options import Job
from tokengraft.check.serving.stacks import choices_for
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, OptionError
from tokengraft.evaluate.segments import Text
from tokengraft.evaluate.size import SizeChoice, choose_size
from tokengraft.extend.continued import extend
from tokengraft.extend.extension import Extension
from tokengraft.extend.parity import Parity
from tokengraft.prune.methods import prune_order
from tokengraft.prune.order import PruneOrder
from tokengraft.prune.removable import Protection
from tokengraft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Texts:
    """What pruning and extension use."""

    learn: Mix
    """The targets. New tokens are learned from these counts."""
    keep: Mix
    """The targets and the text to keep. Tokens that are rare in these counts are pruned."""
    held_out: Text
    """The documents held out of the targets."""
    targets: tuple[PretokenCounts, ...]
    """The counts of each target, not weighted."""
    parity: Parity | None = None
    """The targets in balance; new tokens are then learned from these counts."""
    preserve: PretokenCounts | None = None
    """The text that must keep its tokens and ids."""


@dataclass(frozen=True)
class NewVocabulary:
    """The new tokenizer, with the prune order and the extension that produced it."""

    tokenizer: Tokenizer
    order: PruneOrder | None
    extension: Extension | None
    choice: SizeChoice | None = None
    """How the number of new tokens was chosen, if it was not given."""
    warnings: tuple[str, ...] = ()


def new_vocabulary(base: Tokenizer, texts: Texts, protection: Protection, job: Job) -> NewVocabulary:
    """The tokenizer after pruning and extension.

    A swap gives the ids of the pruned tokens to new ones. Without a swap, ids change only if more tokens are pruned
    than learned, or a serving stack cannot use ids with holes. Then all ids are renumbered without holes, as by
    `prune`, including holes of the base.

    Raises:
        OptionError: More tokens should be pruned than can be.
        CorpusError: A swap was asked for, and no token can be learned.
    """
    made = _new_vocabulary(base, texts, protection, job)
    has_holes = len(made.tokenizer.ids) < made.tokenizer.n_rows
    if has_holes and choices_for(job.options.stacks).no_holes:
        return replace(made, tokenizer=made.tokenizer.compact())
    return made


def _new_vocabulary(base: Tokenizer, texts: Texts, protection: Protection, job: Job) -> NewVocabulary:
    sizes, choice, first = job.sizes, None, None
    order = _order(base, texts, protection, job) if sizes.prune else None
    if sizes.auto:
        # A swap cannot replace more tokens than can be pruned.
        first = _learned(base, texts, min(sizes.swap, len(order)) if sizes.swap and order else sizes.learn, job)
        job.start("choosing the number of tokens")
        choice = _choice(base, first, texts, job)
        sizes = sizes.chosen(choice.size)
    order = in_occurrences(order[: sizes.prune], texts.keep.unit) if order else None
    if sizes.swap and order:
        return replace(_swapped(base, order, texts, job), choice=choice)
    pruned = order.apply(base) if order else base
    if not sizes.add:
        return NewVocabulary(pruned.compact(), order, None)
    extension = first[: sizes.add] if first and not order else _learned(pruned, texts, sizes.add, job)
    new = extension.apply(pruned)
    warnings = (extension.stopped,) if len(extension) < extension.asked else ()
    closed = new.compact() if len(extension) < sizes.remove else new
    return NewVocabulary(closed, order, extension, choice, warnings)


def _order(base: Tokenizer, texts: Texts, protection: Protection, job: Job) -> PruneOrder:
    """All tokens that may be pruned, rare ones first, and none of the preserved text."""
    job.start("choosing tokens to prune")
    if texts.preserve is not None:
        used = sorted(base.strings[token_id] for token_id in texts.preserve.tokens(base))
        protection = replace(protection, tokens=[*protection.tokens, *used])
    order = prune_order(base, texts.keep.counts, protection=protection, by_merges=job.options.by_merges)
    needed = job.sizes.least_prune
    if len(order) < needed:
        raise OptionError(
            f"{needed:,} tokens to prune asked, {len(order):,} can be pruned: the others are protected, or the "
            "preserved text uses them",
            hint=f"pass --swap or --remove with at most {len(order):,}, or preserve less text",
        )
    return order


def _learned(tokenizer: Tokenizer, texts: Texts, n: int, job: Job) -> Extension:
    """The extension by n tokens: by parity, or from the mix."""
    job.start(f"learning {n:,} tokens")
    options = job.options
    more: dict[str, Any] = {"preserve": texts.preserve, "include": options.include, "progress": options.progress}
    if texts.parity:
        return extend(tokenizer, texts.parity, n, limits=options.limits, **more)
    return extend_by_mix(tokenizer, texts.learn, n, options.limits, **more)


def _choice(base: Tokenizer, extension: Extension, texts: Texts, job: Job) -> SizeChoice:
    size = job.options.size
    return choose_size(
        base,
        extension,
        # Not the mix: its counts are multiplied by weights, and support is a number of occurrences.
        sum(texts.targets[1:], texts.targets[0]),
        texts.held_out,
        max_rare=size.max_rare,
        min_support=size.min_support,
        multiple=size.multiple,
        min_size=max(size.min_size, extension.n_listed),
    )


def _swapped(base: Tokenizer, order: PruneOrder, texts: Texts, job: Job) -> NewVocabulary:
    """A vocabulary with as many tokens replaced as can be learned.

    The tokens that can be learned depend on those that are pruned, so both steps are repeated until the numbers agree.
    The number decreases in every round.
    """
    n = len(order)
    while n:
        pruned = order[:n].apply(base)
        extension = _learned(pruned, texts, n, job)
        if len(extension) == n:
            warnings = (
                (f"{len(order):,} tokens to swap asked, {n:,} replaced: {_shortage(job)}",) if n < len(order) else ()
            )
            return NewVocabulary(extension.apply(pruned), order[:n], extension, warnings=warnings)
        n = len(extension)
    raise CorpusError(
        f"{len(order):,} tokens to swap asked, and none can be learned: {_shortage(job)}",
        hint="give more text of the target, or pass --remove N to prune only",
    )


def _shortage(job: Job) -> str:
    return f"the target text has no more pairs seen at least {job.options.limits.min_count:,} times"
