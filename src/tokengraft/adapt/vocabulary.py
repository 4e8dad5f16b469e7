"""`new_vocabulary`: prunes and extends the tokenizer."""

from dataclasses import dataclass

from tokengraft.adapt.mix import Mix, extend_by_mix, in_occurrences
from tokengraft.adapt.options import Job
from tokengraft.errors import CorpusError
from tokengraft.extend import Extension
from tokengraft.prune import Protection, PruneOrder, prune_order
from tokengraft.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Texts:
    """The counts that pruning and extension use."""

    learn: Mix
    """The targets. New tokens are learned from these counts."""
    keep: Mix
    """The targets and the text to keep. Tokens that are rare in these counts are pruned."""


@dataclass(frozen=True)
class NewVocabulary:
    """The new tokenizer, with the prune order and the extension that produced it."""

    tokenizer: Tokenizer
    order: PruneOrder | None
    extension: Extension | None
    warnings: tuple[str, ...] = ()


def new_vocabulary(base: Tokenizer, texts: Texts, protection: Protection, job: Job) -> NewVocabulary:
    """The tokenizer after pruning and extension.

    A swap gives the ids of the pruned tokens to new ones. Without a swap, ids change only if more tokens are pruned
    than learned. Then all ids are renumbered without holes, as by `prune`, including holes of the base.

    Raises:
        OptionError: More tokens should be pruned than can be.
        CorpusError: A swap was asked for, and no token can be learned.
    """
    order = None
    if job.sizes.prune:
        job.start("choosing tokens to prune")
        mixed = texts.keep
        order = prune_order(base, mixed.counts, protection=protection, by_merges=job.options.by_merges)
        order = in_occurrences(order[: job.sizes.prune], mixed.unit)
    if job.sizes.learn:
        job.start("learning new tokens")
    if job.sizes.swap and order:
        return _swapped(base, order, texts.learn, job)
    pruned = order.apply(base) if order else base
    if not job.sizes.add:
        return NewVocabulary(pruned.compact(), order, None)
    extension = extend_by_mix(pruned, texts.learn, job.sizes.add, job.options.limits)
    new = extension.apply(pruned)
    warnings = (extension.stopped,) if len(extension) < extension.asked else ()
    closed = new.compact() if len(extension) < job.sizes.remove else new
    return NewVocabulary(closed, order, extension, warnings)


def _swapped(base: Tokenizer, order: PruneOrder, learn: Mix, job: Job) -> NewVocabulary:
    """A vocabulary with as many tokens replaced as can be learned.

    The tokens that can be learned depend on those that are pruned, so both steps are repeated until the numbers agree.
    The number decreases in every round.
    """
    n = len(order)
    while n:
        pruned = order[:n].apply(base)
        extension = extend_by_mix(pruned, learn, n, job.options.limits)
        if len(extension) == n:
            warnings = (
                (f"{len(order):,} tokens to swap asked, {n:,} replaced: {_shortage(job)}",) if n < len(order) else ()
            )
            return NewVocabulary(extension.apply(pruned), order[:n], extension, warnings)
        n = len(extension)
    raise CorpusError(
        f"{len(order):,} tokens to swap asked, and none can be learned: {_shortage(job)}",
        hint="give more text of the target, or pass --remove N to prune only",
    )


def _shortage(job: Job) -> str:
    return f"the target text has no more pairs seen at least {job.options.limits.min_count:,} times"
