"""`texts_of`: the texts of an adaptation after they were counted: the mixes, what is preserved, languages in balance.

`mix`: adds up the counts of several texts by share, not by size.

The counts of every text are multiplied by a whole factor that gives it its share, so that no count is rounded and equal
counts stay equal. The factors are the smallest that give the exact shares. If they are too large, they are scaled down
together and rounded to whole numbers of at least 1. This is the only rounding.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from tokengraft.corpus.open import Corpus, paths_of
from tokengraft.corpus.options import only_paths
from tokengraft.counts.count import HeldOutCounts, check_text_counts, count, counts_of
from tokengraft.counts.pretoken_counts import PretokenCounts, is_counts_file, load_weighted, weighted_sum
from tokengraft.counts.weights import factors_for, whole_ratio
from tokengraft.errors import OptionError, option
from tokengraft.learn.continued import extend
from tokengraft.learn.extension import Extension
from tokengraft.learn.limits import Limits, Parity
from tokengraft.learn.preserve import Preserved, preserved_text, split_by_joining
from tokengraft.measure.segments import Text, open_text
from tokengraft.pipeline.options import shares
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.request import read_once
from tokengraft.pruning.order import PruneOrder
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_BYTES = 10**15 - 1
"""The maximum size of a mix. Sums stay far below 2^63, and a factor has at most 15 digits."""
_MOST = 2**63 - 1


class Mix(NamedTuple):
    """Several texts as one table of counts."""

    counts: PretokenCounts
    unit: int = 1
    """The smallest factor: the count of one occurrence in the text with the smallest factor."""
    factors: tuple[int, ...] = (1,)
    """What the counts of every text are multiplied by."""


def mix(parts: Sequence[tuple[PretokenCounts, Fraction]]) -> Mix:
    """Counts mixed by share, of which only the ratios matter. A single text is not changed."""
    sizes = list[TextSize]()
    for counts, _ in parts:
        _, offsets, numbers = counts.table.columns()
        occurrences, lengths = np.frombuffer(numbers, "<u8"), np.diff(np.frombuffer(offsets, "<u8"))
        sizes.append(TextSize(int(occurrences.sum()), int((occurrences * lengths).sum())))
    factors = whole_factors(sizes, [share for _, share in parts])
    weighted = zip(parts, factors, strict=True)
    first, *others = (counts.scale(factor) if factor > 1 else counts for (counts, _), factor in weighted)
    return Mix(sum(others, first), min(factors), tuple(factors))


class TextSize(NamedTuple):
    """The size of the counted text."""

    pretokens: int
    bytes: int


def whole_factors(sizes: Sequence[TextSize], shares: Sequence[Fraction]) -> list[int]:
    """The factors that give every text its share of the pretokens.

    >>> whole_factors([TextSize(10, 50), TextSize(40, 200)], [Fraction(1, 2), Fraction(1, 2)])
    [4, 1]
    >>> whole_factors([TextSize(10, 50)], [Fraction(1, 7)])
    [1]
    """
    ratios = [share / max(size.pretokens, 1) for size, share in zip(sizes, shares, strict=True)]
    exact = whole_ratio(ratios)
    total = sum(factor * size.bytes for factor, size in zip(exact, sizes, strict=True))
    if total <= MAX_BYTES:
        return exact
    return [max(1, round(Fraction(factor * MAX_BYTES, total))) for factor in exact]


def extend_by_mix(tokenizer: Tokenizer, mixed: Mix, n: int, limits: Limits, **more: Any) -> Extension:
    """What `extend` learns from a mix. The minimum count and frequencies are divided by ``mixed.unit``."""
    scaled = replace(limits, min_count=min(limits.min_count * mixed.unit, _MOST))
    extension = extend(tokenizer, mixed.counts, n, limits=scaled, **more)
    if mixed.unit == 1:
        return replace(extension, min_count=limits.min_count)
    merges = tuple(merge._replace(frequency=merge.frequency // mixed.unit) for merge in extension.merges)
    refused = tuple(pair._replace(frequency=pair.frequency // mixed.unit) for pair in extension.refused)
    return replace(extension, merges=merges, refused=refused, min_count=limits.min_count)


def in_occurrences(order: PruneOrder, unit: int) -> PruneOrder:
    """The prune order with its counts divided by the unit of a mix."""
    removals = tuple(removal._replace(decided_by=removal.decided_by // unit) for removal in order.removals)
    return replace(order, removals=removals)


@dataclass(frozen=True)
class Texts:
    """All texts of a request, counted or read."""

    parts: Mapping[str, HeldOutCounts]
    """The counts and held-out documents of every text, targets first."""
    tests: Mapping[str, Text | PretokenCounts]
    """The texts to measure on besides."""
    targets: Mapping[str, PretokenCounts]
    """The counts of each target, not weighted by share."""
    held_out: Mapping[str, Text | PretokenCounts]
    """Text that was not counted, to choose and to measure sizes on."""
    learn: Mix | None
    """The targets. New tokens are learned from these counts."""
    keep: Mix | None
    """The targets and the text to keep. Tokens that are rare in these counts are pruned; None if no text decides."""
    parity: Parity | None = None
    """The targets in balance; new tokens are then learned from these counts."""
    preserve: Preserved | None = None
    """The text that must keep its tokens and ids."""
    for_comparison: bool = False
    """Whether these are the texts without those that the user preserves, to know what preserving costs."""
    unweighted: PretokenCounts | None = None
    """The targets as they occur in the text, if ``targets`` are multiplied by weights."""

    @property
    def support(self) -> PretokenCounts:
        """The text in which occurrences of new tokens are counted. The mix is multiplied by weights."""
        first, *others = [self.unweighted] if self.unweighted else self.targets.values()
        return sum(others, first)  # only if there is a target

    def n_documents(self, name: str) -> int:
        """Documents of a counted text, held-out ones included."""
        return self.parts[name].counts.totals.documents + self.parts[name].held_out_documents

    def held_out_counts(self, base: Tokenizer) -> dict[str, PretokenCounts]:
        """The counts of every held-out text."""
        return {
            name: text if isinstance(text, PretokenCounts) else count(base, iter(text.documents))
            for name, text in self.held_out.items()
        }

    @property
    def to_choose_on(self) -> Text | PretokenCounts:
        """The text that a number of new tokens is chosen on: what is held out of the targets, or was given."""
        held_out = [self.held_out[name] for name in self.targets if name in self.held_out]
        if not held_out or isinstance(held_out[0], PretokenCounts):
            return next(iter(self.held_out.values()))
        texts = (text for text in held_out if isinstance(text, Text))
        return Text("held out", tuple(document for text in texts for document in text.documents))


def texts_of(job: Prepared, parts: Mapping[str, HeldOutCounts], tests: Mapping[str, Text | PretokenCounts]) -> Texts:
    """The mix of the targets, the mix of the targets with the text to keep, which has half of the weight, and more."""
    by_share = shares({name: target.weight for name, target in job.targets.items()}) if job.targets else {}
    learn = [(parts[name].counts, share) for name, share in by_share.items()]
    keep = [(parts[name].counts, Fraction(1, len(job.kept))) for name in job.kept]
    if keep and learn and job.sizes.prune:
        for counts, _ in (*learn, *keep):  # those of the mixes follow, and each is needed later
            counts.tokens(job.base, by_merges=job.options.by_merges)
    targets = {name: parts[name].counts for name in job.targets}
    return Texts(
        parts=parts,
        tests=tests,
        targets=targets,
        held_out={name: Text(name, part.held_out) for name, part in parts.items()},
        learn=mix(learn) if learn else None,
        keep=mix([*learn, *keep]) if learn else None,
        parity=_parity(job, targets) if job.options.balance == "parity" else None,
        preserve=_preserve(job, targets, parts),
    )


def texts_of_edit(job: Prepared) -> Texts:
    """The texts of `extend` and `prune`: counted as a whole, weighted by size, and held-out text that was given."""
    job.start("counting")
    edit = job.edit
    held_out: dict[str, Text | PretokenCounts] = {}
    for name, corpus in edit.held_out.items():
        documents = "lines" if job.step == "extend" else "files"
        given = replace(job.options.read_options, documents=job.given.get("documents", documents))
        held_out[name] = open_text(name, corpus, given)
    unweighted = None
    if job.options.balance == "parity" or not job.targets:
        targets = {name: _count_all(job, target.corpus, limited=True) for name, target in job.targets.items()}
    elif edit.weight:
        factors_for(len(edit.corpus or edit.counts), edit.weight)
        counted = [*_each(job)]
        targets = {name: weighted_sum(counted, edit.weight) for name in job.targets}
        unweighted = sum(counted[1:], counted[0])
    else:
        targets = {name: _together(job) for name in job.targets}
    first, *others = targets.values() if targets else (None,)
    mixed = None if first is None else Mix(sum(others, first))
    return Texts(
        parts={},
        tests={},
        targets=targets,
        held_out=held_out,
        learn=mixed,
        keep=mixed,
        parity=_parity(job, targets) if job.options.balance == "parity" else None,
        preserve=_preserve(job, targets, {}) if job.step == "extend" else None,
        unweighted=unweighted,
    )


def _together(job: Prepared) -> PretokenCounts:
    """The counts of `extend` and `prune`, added up."""
    return _counted(job, [*job.edit.corpus]) if job.edit.corpus else load_weighted(job.edit.counts, None)


def _each(job: Prepared) -> Iterator[PretokenCounts]:
    """The counts of `extend` and `prune`, one after the other. Limits are for each of them."""
    yield from (_counted(job, path) for path in job.edit.corpus)
    yield from (PretokenCounts.load(path) for path in job.edit.counts)


def _counted(job: Prepared, corpus: Corpus) -> PretokenCounts:
    given = job.options
    return count(
        job.base,
        corpus,
        read_options=given.read_options,
        count_options=given.count_options,
        progress=given.progress,
    )


def open_tests(job: Prepared) -> dict[str, Text | PretokenCounts]:
    """The test texts. Shards and normalization are for counting."""
    given = replace(job.options.read_options, shard=None, normalize=None, rules=None)
    tests = {name: open_text(name, text, given) for name, text in job.tests.items()}
    for text in tests.values():
        if isinstance(text, PretokenCounts):
            text.require(job.base)
    return tests


def _parity(job: Prepared, counts: Mapping[str, PretokenCounts]) -> Parity:
    max_share = 1.0 if job.options.max_share is None else job.options.max_share
    if not job.options.parity_text:
        return Parity(counts, max_share=max_share)
    texts = {name: _count_all(job, corpus) for name, corpus in job.options.parity_text.items()}
    return Parity.of_parallel(counts, texts, max_share=max_share)


def _preserve(
    job: Prepared, targets: Mapping[str, PretokenCounts], parts: Mapping[str, HeldOutCounts]
) -> Preserved | None:
    """The text to preserve; None if there is none."""
    options, given, counts = job.options, job.options.preserve, list[PretokenCounts]()
    if given is not None:
        counts += [given] if isinstance(given, PretokenCounts) else _counts_to_preserve(job, given)
    if options.preserve_keep:
        counts += [parts[name].counts for name in job.kept]
    preserved = preserved_text(
        counts,
        [*targets.values()],
        exactly=options.preserve_exactly or not job.sizes.learn,  # nothing is refused if nothing is learned
        always=check_text_counts(job.base) if job.keep_hash else None,
    )
    if preserved is None or job.base is job.before:
        return preserved
    kept, joined = split_by_joining(preserved.counts, job.base)
    if joined and options.preserve_exactly:
        raise OptionError(
            f"{len(joined):,} words of the preserved text are not cut at combining marks any more, and get other ids",
            hint=f"drop {option('preserve_exactly')} or {option('join_marks')}",
        )
    return replace(preserved, counts=kept, joined=joined)


def _counts_to_preserve(job: Prepared, corpus: Corpus) -> Iterator[PretokenCounts]:
    """The counts of a text to preserve. Files that are read by line are preserved as a whole too.

    Otherwise tokens that occur only at line breaks, such as those of source code, would not be preserved.
    """
    options = job.options.read_options
    yield _count_all(job, corpus)
    files = [path for path in paths_of(corpus) or () if not is_counts_file(path)]
    if options.documents == "lines" and files and not read_once(files, options):
        with only_paths():  # a list of strings may be taken for texts
            by_file = _count_all(job, files, documents="files")
        yield by_file


def _count_all(job: Prepared, corpus: Corpus, *, limited: bool = False, **read: Any) -> PretokenCounts:
    """The counts of a corpus without hold-out. Files of counts, alone or in a list, are added up.

    Limits, shards and engines are for the text to learn from, which is ``limited``.
    """
    read_options, count_options = job.options.read_options, job.options.count_options
    if not limited:
        read_options = replace(read_options, shard=None, **read)
        count_options = replace(count_options, max_bytes=None, max_documents=None, engine="local", address=None)
    progress = job.options.progress if limited else None
    return counts_of(job.base, corpus, read_options=read_options, count_options=count_options, progress=progress)
