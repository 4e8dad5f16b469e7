"""`new_vocabulary`: prunes and extends the tokenizer. `measured`: checks and evaluates the result."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tokengraft.checkpoint.padding import model_rows
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, OptionError, TokengraftError
from tokengraft.learn.continued import extend
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import PreserveCost, Preserved, cost_of, is_restricted, lost_gain, trained_freely
from tokengraft.measure.choose_size import SizeChoice, choose_size, rare_warning
from tokengraft.measure.evaluate import Evaluation, evaluate
from tokengraft.measure.prune_curve import PrunePoint, prune_curve
from tokengraft.measure.sample_texts import ADDED, REMOVED, sample_changes, sample_warnings
from tokengraft.measure.sizes import expected, most_frequent_in, text_ratio
from tokengraft.pipeline.options import shown_name
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.result import Adaptation, TargetResult
from tokengraft.pipeline.texts import Texts, extend_by_mix, in_occurrences
from tokengraft.pruning.order import COVERAGE, NONE_COVERED, PruneOrder, prune_order
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.llama_cpp import converter_check
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import PRESERVED
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, Finding, Outcome, as_notes
from tokengraft.verify.serving.stacks import choices_for
from tokengraft.vocab_plan import plan


@dataclass(frozen=True)
class NewVocabulary:
    """The new tokenizer, with the prune order and the extension that produced it."""

    tokenizer: Tokenizer
    order: PruneOrder | None
    extension: Extension | None
    choice: SizeChoice | None = None
    """How the number of new tokens was chosen, if it was not given."""
    warnings: tuple[str, ...] = ()
    cost: PreserveCost | None = None
    """What preserving text costs."""
    coverage: float | None = None
    """The share of tokens by which the number of tokens to prune was chosen, if it was not given."""
    curve: tuple[PrunePoint, ...] = ()
    """What it costs to prune more or fewer tokens, if none are learned."""


def new_vocabulary(job: Prepared, texts: Texts) -> NewVocabulary:
    """The tokenizer after pruning and extension.

    A swap gives the ids of the pruned tokens to new ones. Without a swap, ids change only if more tokens are pruned
    than learned, or a serving stack cannot use ids with holes. Then all ids are renumbered without holes, as by
    `prune`, including holes of the base.
    """
    made = _with_cost(job, texts, _new_vocabulary(job, texts))
    made = replace(made, warnings=(*made.warnings, *_rare(job, texts, made)))
    has_holes = len(made.tokenizer.ids) < made.tokenizer.n_rows
    if has_holes and choices_for(job.options.stacks).no_holes:
        return replace(made, tokenizer=made.tokenizer.compact())
    return made


def _with_cost(job: Prepared, texts: Texts, made: NewVocabulary) -> NewVocabulary:
    """The vocabulary with the cost of text that the user preserves: the same is made without that text, to compare."""
    preserve, extension = texts.preserve, made.extension
    if preserve is None or extension is None or not (job.options.preserve_keep or job.options.preserve is not None):
        return made
    extension = preserve.noted_in(extension)
    free = made
    if made.order or is_restricted(extension) or len(extension) < job.sizes.learn:
        job.start("learning without the preserved text, to compare")
        without = Preserved(preserve.always, preserve.always) if preserve.always else None
        silent = replace(job, options=replace(job.options, on_step=None))
        free = _new_vocabulary(silent, replace(texts, preserve=without, for_comparison=True))
    cost = cost_of([*texts.targets.values()], job.base, made.tokenizer, free.tokenizer)
    error = lost_gain(cost, len(extension.refused))
    if error and not job.options.preserve_exactly:
        raise error
    warnings = (*made.warnings, *([error.message] if error else []))
    return replace(made, extension=extension, cost=cost, warnings=warnings)


def _new_vocabulary(job: Prepared, texts: Texts) -> NewVocabulary:
    base, sizes, choice, first = job.base, job.sizes, None, None
    order = _order(job, texts) if sizes.prune else None
    if sizes.auto:
        # A swap cannot replace more tokens than can be pruned.
        first = _learned(job, texts, base, min(sizes.swap, len(order)) if sizes.swap and order else sizes.learn)
        job.start("choosing the number of tokens")
        choice = _choice(job, texts, base, first)
        sizes = sizes.chosen(choice.size)
    whole, coverage = order, None
    if order and sizes.covering:
        coverage = COVERAGE if job.options.keep_coverage is None else job.options.keep_coverage
        order = order.covering(base, coverage, texts.keep.counts, *texts.held_out_counts(base).values())
    elif order:
        order = order[: sizes.prune]
    order = in_occurrences(order, texts.keep.unit) if order is not None else None
    if sizes.swap and order:
        return replace(_swapped(job, texts, order), choice=choice)
    pruned = order.apply(base) if order else base
    warnings: tuple[str, ...] = (f"no token is removed: {NONE_COVERED}",) if coverage and not order else ()
    if not sizes.add:
        curve = _curve(job, texts, whole, len(order)) if whole and order is not None else ()
        return NewVocabulary(pruned.compact(), order, None, None, warnings, coverage=coverage, curve=curve)
    extension = first[: sizes.add] if first and not order else _learned(job, texts, pruned, sizes.add)
    new = extension.apply(pruned)
    warnings += (extension.stopped,) if len(extension) < extension.asked else ()
    closed = new.compact() if len(extension) < len(order or ()) else new
    return NewVocabulary(closed, order, extension, choice, warnings, coverage=coverage)


def _curve(job: Prepared, texts: Texts, order: PruneOrder, chosen: int) -> tuple[PrunePoint, ...]:
    """What it costs to prune more or fewer tokens, on the held-out documents, and what it saves."""
    job.start("measuring sizes")
    model, multiple = model_rows(job.source), choices_for(job.options.stacks).pad_multiple
    left = (lambda needed: model.left(job.base.n_rows, needed, multiple or "keep")) if model else None
    named = {shown_name(name, job.role(name)): counts for name, counts in texts.held_out_counts(job.base).items()}
    with_tokens = {name: counts for name, counts in named.items() if sum(counts.tokens(job.base).values())}
    return prune_curve(job.base, order, chosen, with_tokens, left=left) if with_tokens else ()


def _order(job: Prepared, texts: Texts) -> PruneOrder:
    """All tokens that may be pruned, rare ones first, and none of the preserved text."""
    job.start("choosing tokens to prune")
    base, protection = job.base, job.protection
    if texts.preserve is not None:
        used = sorted(base.strings[token_id] for token_id in texts.preserve.counts.tokens(base))
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


def _learned(job: Prepared, texts: Texts, tokenizer: Tokenizer, n: int) -> Extension:
    """The extension by n tokens: by parity, or from the mix."""
    job.start(f"learning {n:,} tokens")
    options, preserve = job.options, texts.preserve.counts if texts.preserve else None
    more: dict[str, Any] = {"preserve": preserve, "include": options.include, "progress": options.progress}

    def train(n: int) -> Extension:
        if texts.parity:
            return extend(tokenizer, texts.parity, n, limits=options.limits, **more)
        return extend_by_mix(tokenizer, texts.learn, n, options.limits, **more)

    return trained_freely(train, n) if texts.for_comparison else train(n)


def _choice(job: Prepared, texts: Texts, base: Tokenizer, extension: Extension) -> SizeChoice:
    size = job.options.size
    size = replace(size, min_size=max(size.min_size, extension.n_listed))
    return choose_size(base, extension, texts.support, texts.held_out, size)


def _rare(job: Prepared, texts: Texts, made: NewVocabulary) -> Iterator[str]:
    """A warning if a size that was given leaves many new tokens rare, with the size that `auto` would choose."""
    if made.extension is None or made.choice is not None:
        return
    base, ids, seen = job.base, made.tokenizer.ids, texts.support.tokens(made.tokenizer)
    training_text = job.options.size.training_text
    occurring = (seen.get(ids[token], 0) for token in made.extension.tokens if token not in base.ids)
    found = rare_warning(expected(occurring, text_ratio(texts.support, training_text)), training_text)
    if not found:
        return
    try:
        size = _choice(job, texts, made.order.apply(base) if made.order else base, made.extension).size
    except TokengraftError:  # no size is supported
        size = len(made.extension)
    fewer = f"`auto` would choose about {size:,}" if size < len(made.extension) else "give more text"
    yield f"{found}; {fewer}"


def _swapped(job: Prepared, texts: Texts, order: PruneOrder) -> NewVocabulary:
    """A vocabulary with as many tokens replaced as can be learned.

    The tokens that can be learned depend on those that are pruned, so both steps are repeated until the numbers agree.
    The number decreases in every round.
    """
    n = len(order)
    while n:
        pruned = order[:n].apply(job.base)
        extension = _learned(job, texts, pruned, n)
        if len(extension) == n:
            fewer = f"{len(order):,} tokens to swap asked, {n:,} replaced: {_shortage(job, extension)}"
            warnings = (fewer,) if n < len(order) else ()
            return NewVocabulary(extension.apply(pruned), order[:n], extension, warnings=warnings)
        n = len(extension)
    raise CorpusError(
        f"{len(order):,} tokens to swap asked, and none can be learned: {_shortage(job, extension)}",
        hint="give more text of the target, or pass --remove N to prune only",
    )


def _shortage(job: Prepared, extension: Extension) -> str:
    refused = f"{len(extension.refused):,} were refused because they occur in the preserved text"
    pairs = f"the target text has no more pairs seen at least {job.options.limits.min_count:,} times"
    return f"{pairs}, and {refused}" if extension.refused else pairs


HASH = "llama.cpp hash"
LEAST_BYTES = 50_000
"""With less held-out text a warning is printed. Samples of so many bytes of Estonian and Hindi web text differ in their
gain by 9 % and 3 % of it (standard deviation), those of 10,000 bytes by 18 % and 5 %."""


def measured(job: Prepared, texts: Texts, vocabulary: NewVocabulary) -> Adaptation:
    """The adaptation, checked and evaluated on the held-out documents and on test texts."""
    base, new, parts = job.base, vocabulary.tokenizer, texts.parts
    job.start("checking")
    checked = check_against(new, base, texts.preserve.counts if texts.preserve else None)
    if job.keep_hash:
        asked = bool(job.options.keep_llama_cpp_hash)
        checked = Check((*checked.findings, _converter_hash(new, base, asked=asked)))
    checked.raise_for_failures()
    job.start("measuring held-out text")
    # Iterators: strings of a list may be taken for paths.
    evaluation = evaluate({"base": base, "new": new}, {name: iter(part.held_out) for name, part in parts.items()})
    if texts.tests:
        job.start("measuring test text")
    test = evaluate({"base": base, "new": new}, texts.tests) if texts.tests else None
    samples = sample_changes(base, new)
    read = (f"{name}: {warning}" for name, part in parts.items() for warning in reading_warnings(part.counts.totals))
    return Adaptation(
        base=base,
        tokenizer=new,
        order=vocabulary.order,
        extension=vocabulary.extension,
        plan=plan(base, new),
        check=checked,
        evaluation=evaluation,
        test=test,
        targets=_target_results(base, new, evaluation, texts.targets),
        transplant=None,
        choice=vocabulary.choice,
        coverage=vocabulary.coverage,
        prune_curve=vocabulary.curve,
        samples=samples,
        cost=vocabulary.cost,
        warnings=(
            *job.warnings,
            *read,
            *vocabulary.warnings,
            *_lost(base, new, checked),
            *sample_warnings(samples, REMOVED.format("--keep") if vocabulary.order else ADDED),
            *_small(evaluation, tests=bool(test)),
            *(test.warnings if test else ()),
        ),
    )


def _small(evaluation: Evaluation, *, tests: bool) -> Iterator[str]:
    """One warning for all texts of which too little is held out for their figures to be reliable."""
    scores = (score for score in evaluation.scores if score.tokenizer == "new" and score.bytes < LEAST_BYTES)
    if few := ", ".join(f"{score.text} ({score.bytes:,} bytes)" for score in scores):
        hint = "" if tests else "; measure on other text: --test NAME=FILES"
        yield f"less than {LEAST_BYTES:,} bytes are held out of {few}: gains on so little text are unreliable{hint}"


def _converter_hash(new: Tokenizer, base: Tokenizer, *, asked: bool) -> Finding:
    """Whether llama.cpp's converter recognises the new tokenizer as it recognises the base.

    Ids that were renumbered without holes may change the hash. That fails if the hash was asked for.
    """
    found = converter_check(new, base)
    if found.known:
        return Finding(HASH, "pass", f"its converter knows both as `{found.type}`")
    moved = any(base.ids.get(string, i) != i for string, i in new.ids.items())
    outcome: Outcome = "note" if moved and not asked else "fail"
    why = ": ids were renumbered without holes" if moved else ""
    return Finding(HASH, outcome, f"its converter knows the base as `{found.base_type}`, not the result{why}")


def check_against(new: Tokenizer, base: Tokenizer, preserve: PretokenCounts | None = None) -> Check:
    """The check of a tokenizer. Checks that the base fails too, such as loading by transformers, are notes."""
    checked = check(new, base, preserve=preserve)
    failing = {finding.name for finding in check(base).failures} if checked.failures else set()
    return as_notes(checked, failing, "{}; the base has the same problem")


def _lost(base: Tokenizer, new: Tokenizer, checked: Check) -> Iterator[str]:
    """What loaders cannot read, and what the base has and the result has not: files, llama.cpp's hash, and ids."""
    notes = [finding for finding in checked.findings if finding.outcome == "note"]
    for finding in notes:
        if finding.name in ("loaders", "files"):
            yield from finding.evidence or (finding.detail,)
    yield from (f"left out `{name}`: {reason}" for name, reason in left_out(base, new).items())
    for finding in notes:
        if finding.name == HASH:
            yield f"{HASH}: {finding.detail}; `tokengraft check --for llama.cpp` has the lines to add"
        if finding.name == PRESERVED:
            yield (
                f"{PRESERVED}: {finding.detail}, because ids were renumbered without holes; only --swap, or --add with "
                "at least as many tokens as --remove, keeps ids"
            )


def _target_results(
    base: Tokenizer, new: Tokenizer, evaluation: Evaluation, counts: Mapping[str, PretokenCounts]
) -> dict[str, TargetResult]:
    """The gain of each target, and the number of new tokens that are most frequent in it."""
    added = [token_id for string, token_id in new.ids.items() if string not in base.ids]
    frequencies = {name: part.tokens(new) for name, part in counts.items()}
    own = most_frequent_in(added, frequencies, {name: part.totals.bytes for name, part in counts.items()})
    return {name: TargetResult(evaluation["new", name].gain, own[name]) for name in counts}
