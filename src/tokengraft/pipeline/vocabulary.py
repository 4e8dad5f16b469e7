"""`new_vocabulary`: prunes and extends the tokenizer. `measured`: checks and evaluates the result."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.ids import config_tokens
from tokengraft.checkpoint.table import model_rows, row_step
from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CorpusError, OptionError, TokengraftError, option
from tokengraft.learn.continued import extend
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import Preserved, cost_of, is_restricted, lost_gain, trained_freely
from tokengraft.learn.words import include_words
from tokengraft.measure.choose_size import SizeChoice, choose_size, rare_warning
from tokengraft.measure.compare import ADDED, REMOVED, sample_changes, sample_warnings
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.segments import Text
from tokengraft.measure.sizes import expected, most_frequent_in, support_bounds, text_ratio
from tokengraft.options.values import ALL, AUTO
from tokengraft.pipeline.options import is_listed
from tokengraft.pipeline.prepare import Prepared, with_given
from tokengraft.pipeline.request import shown_name
from tokengraft.pipeline.result import Adaptation, TargetResult, Vocabulary
from tokengraft.pipeline.texts import Texts, extend_by_mix, in_occurrences
from tokengraft.pruning.cost import MUCH, PrunePoint, prune_curve, unseen_cost
from tokengraft.pruning.order import COVERAGE, NONE_COVERED, PruneOrder, prune_order
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.known_tokens import end_warnings
from tokengraft.tokenizer.llama_cpp import converter_check
from tokengraft.tokenizer.marks import cut_scripts
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import PRESERVED
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, Finding, Outcome, as_notes, choices_for
from tokengraft.vocab_plan import plan


def new_vocabulary(job: Prepared, texts: Texts) -> Vocabulary:
    """The tokenizer after pruning and extension.

    A swap gives the ids of the pruned tokens to new ones. Without a swap, ids change only if more tokens are pruned
    than learned, or a serving stack cannot use ids with holes. Then all ids are renumbered without holes, as by
    `prune`, including holes of the base.
    """
    made = _with_cost(job, texts, _new_vocabulary(job, texts))
    made = replace(made, warnings=(*made.warnings, *_rare(job, texts, made)))
    has_holes = len(made.tokenizer.ids) < made.tokenizer.n_rows
    if has_holes and choices_for(job.options.stacks).no_holes:
        made = replace(made, tokenizer=made.tokenizer.compact())
    if job.base.algorithm != "BPE" and is_listed(job.options):
        special = with_given(job, made.tokenizer, config_tokens(job.original, job.source)).tokenizer
        made = replace(made, tokenizer=replace(special, starts=job.listed.tokenizer.starts))
    return replace(made, base=job.original, samples=sample_changes(job.before, made.tokenizer))


def _with_cost(job: Prepared, texts: Texts, made: Vocabulary) -> Vocabulary:
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


def _new_vocabulary(job: Prepared, texts: Texts) -> Vocabulary:
    base, sizes, choice, first = job.base, job.sizes, None, None
    order = _order(job, texts) if sizes.prune else None
    if sizes.auto:
        # A swap cannot replace more tokens than can be pruned.
        first = learned(job, texts, base, min(sizes.learn, len(order)) if sizes.swap and order else sizes.learn)
        job.start("choosing the number of tokens")
        choice = _choice(job, texts, base, first)
        sizes = sizes.chosen(choice.size)
    whole, coverage = order, None
    if order is not None:
        order, coverage = _cut(job, texts, order, sizes.prune)
    if sizes.swap and order:
        return replace(_swapped(job, texts, order), choice=choice, whole=whole)
    pruned = order.apply(base) if order else base
    warnings: tuple[str, ...] = (f"no token is removed: {NONE_COVERED}",) if coverage and not order else ()
    made = Vocabulary(base, pruned, order, whole=whole, coverage=coverage, warnings=warnings)
    if not sizes.add and job.listed.words is None:
        if whole is not None and order is not None:
            made = replace(made, prune_curve=_curve(job, texts, whole, len(order)))
        return made if job.edit.ids == "keep" or sizes.only_listed else replace(made, tokenizer=pruned.compact())
    extension = first[: sizes.learn] if first and not order else learned(job, texts, pruned, sizes.learn)
    new = extension.apply(pruned) if extension.merges or len(extension) else pruned
    if job.step == "adapt" and len(extension) < extension.asked:
        warnings = (*warnings, extension.stopped)
    closed = new.compact() if len(extension) < len(order or ()) else new
    before = pruned if order else None
    return replace(made, tokenizer=closed, extension=extension, pruned=before, choice=choice, warnings=warnings)


def _cut(job: Prepared, texts: Texts, order: PruneOrder, n: int) -> tuple[PruneOrder, float | None]:
    """The tokens that are removed, and the share of tokens by which their number was chosen, if it was."""
    if job.sizes.covering:
        share = COVERAGE if job.options.keep_coverage is None else job.options.keep_coverage
        # The text of the order too: a held-out text of a few words could do without nearly all tokens.
        counted = [] if texts.keep is None else [texts.keep.counts]
        held_out = (text.documents if isinstance(text, Text) else text for text in texts.held_out.values())
        cut = order.covering(job.base, share, *counted, *held_out)
        return in_occurrences(cut, texts.keep.unit if texts.keep else 1), share
    if job.edit.rows is not None:
        model, tokens = model_rows(job.source), len(job.base.tokens)
        step = row_step(job.base.n_rows, model.left(job.base.n_rows, job.base.n_rows)[0]) if model else 1
        n = max(tokens - job.edit.rows // step * step, 1)
    elif job.step == "prune" and job.given.get("remove", ALL) == ALL:
        n = len(order)
    return in_occurrences(order[:n], texts.keep.unit if texts.keep else 1), None


def _curve(job: Prepared, texts: Texts, order: PruneOrder, chosen: int) -> tuple[PrunePoint, ...]:
    """What it costs to prune more or fewer tokens, on held-out text, and what it saves."""
    job.start("measuring sizes")
    model, multiple = model_rows(job.source), choices_for(job.options.stacks).pad_multiple
    left = (lambda needed: model.left(job.base.n_rows, needed, multiple or "keep")) if model else None
    named = texts.held_out_counts(job.base)
    if job.step == "adapt":
        named = {shown_name(name, job.role(name)): counts for name, counts in named.items()}
        named = {name: counts for name, counts in named.items() if sum(counts.tokens(job.base).values())}
    compact = job.edit.ids == "compact"
    return prune_curve(job.base, order, chosen, named, left=left, compact=compact) if named else ()


def _order(job: Prepared, texts: Texts) -> PruneOrder:
    """All tokens that may be pruned, in the order in which they go, and none of the preserved text."""
    job.start("choosing tokens to prune")
    base, protection, edit = job.base, job.protection, job.edit
    if edit.reads_order and edit.order is not None:
        return PruneOrder.load(edit.order).bound_to(base)
    if texts.preserve is not None:
        used = sorted(base.strings[token_id] for token_id in texts.preserve.counts.tokens(base))
        protection = replace(protection, tokens=[*protection.tokens, *used])
    if job.step == "prune":
        held_out = texts.held_out_counts(base).values()
        added = [token for text in held_out for token, times in text.added.items() if times]
        protection = replace(protection, tokens=[*protection.tokens, *added])
    counts = texts.keep.counts if texts.keep else None
    how: dict[str, Any] = {"scripts": edit.scripts, "by_merges": job.options.by_merges}
    order = prune_order(base, counts, edit.method or "leaf-expected", protection=protection, **how)
    needed = job.sizes.least_prune
    if job.step == "adapt" and len(order) < needed:
        raise OptionError(
            f"{needed:,} tokens to prune asked, {len(order):,} can be pruned: the others are protected, or the "
            "preserved text uses them",
            hint=f"pass {option('swap')} or {option('remove')} with at most {len(order):,}, or preserve less text",
        )
    return order


def learned(job: Prepared, texts: Texts, tokenizer: Tokenizer, n: int) -> Extension:
    """The extension by n tokens: by parity, or from the mix."""
    options, preserve = job.options, texts.preserve.counts if texts.preserve else None
    if not n:
        job.start("making the words of the list tokens")
        helpers = options.max_helpers
        return include_words(tokenizer, job.listed.words, options.limits, max_helpers=helpers, preserve=preserve)
    job.start(f"learning {n:,} tokens")
    more: dict[str, Any] = {"preserve": preserve, "include": job.listed.words, "progress": options.progress}
    if job.edit.character_coverage is not None:
        more["character_coverage"] = job.edit.character_coverage

    def train(n: int) -> Extension:
        if texts.parity:
            return extend(tokenizer, texts.parity, n, limits=options.limits, **more)
        assert texts.learn is not None, "a request without text to learn from was refused"
        return extend_by_mix(tokenizer, texts.learn, n, options.limits, **more)

    return trained_freely(train, n) if texts.for_comparison else train(n)


def _choice(job: Prepared, texts: Texts, base: Tokenizer, extension: Extension) -> SizeChoice:
    size = job.options.size
    size = replace(size, min_size=max(size.min_size, extension.n_listed))
    return choose_size(base, extension, texts.support, texts.to_choose_on, size)


def _rare(job: Prepared, texts: Texts, made: Vocabulary) -> Iterator[str]:
    """A warning if a size that was given leaves many new tokens rare, with the size that `auto` would choose."""
    if made.extension is None or made.choice is not None or not texts.targets:
        return
    training_text, extension = job.options.size.training_text, made.extension
    ratio = text_ratio(texts.support, training_text)
    found = None
    if job.step == "extend" and texts.unweighted is None:  # it was learned from the text as it is
        least, most = (expected(bound, ratio) for bound in support_bounds(extension, job.base.algorithm == "BPE"))
        if not rare_warning(least, training_text):
            return
        found = rare_warning(least, training_text, at_most=most)
    if not found:
        ids, seen = made.tokenizer.ids, texts.support.tokens(made.tokenizer)
        occurring = (seen.get(ids[token], 0) for token in extension.tokens if token not in job.base.ids)
        found = rare_warning(expected(occurring, ratio), training_text)
    if not found:
        return
    if not texts.held_out:
        yield f"{found}; `--add {AUTO} --held-out TEXT` chooses a size that the text supports"
        return
    try:
        size = _choice(job, texts, made.order.apply(job.base) if made.order else job.base, extension).size
    except TokengraftError:  # no size is supported
        size = len(extension)
    fewer = f"`{AUTO}` would choose about {size:,}" if size < len(extension) else "give more text"
    yield f"{found}; {fewer}"


def _swapped(job: Prepared, texts: Texts, order: PruneOrder) -> Vocabulary:
    """A vocabulary with as many tokens replaced as can be learned.

    The tokens that can be learned depend on those that are pruned, so both steps are repeated until the numbers agree.
    The number decreases in every round.
    """
    n = len(order)
    while n:
        pruned = order[:n].apply(job.base)
        extension = learned(job, texts, pruned, n)
        if len(extension) == n:
            fewer = f"{len(order):,} tokens to swap asked, {n:,} replaced: {_shortage(job, extension)}"
            warnings = (fewer,) if n < len(order) else ()
            return Vocabulary(job.base, extension.apply(pruned), order[:n], extension, pruned, warnings=warnings)
        n = len(extension)
    raise CorpusError(
        f"{len(order):,} tokens to swap asked, and none can be learned: {_shortage(job, extension)}",
        hint=f"give more text of the target, or pass {option('remove', 'N')} to prune only",
    )


def _shortage(job: Prepared, extension: Extension) -> str:
    refused = f"{len(extension.refused):,} were refused because they occur in the preserved text"
    pairs = f"the target text has no more pairs seen at least {job.options.limits.min_count:,} times"
    return f"{pairs}, and {refused}" if extension.refused else pairs


HASH = "llama.cpp hash"
LEAST_BYTES = 50_000
"""With less held-out text a warning is printed. Samples of so many bytes of Estonian and Hindi web text differ in their
gain by 9 % and 3 % of it (standard deviation), those of 10,000 bytes by 18 % and 5 %."""


def _kept_cost(job: Prepared, texts: Texts, made: Vocabulary) -> dict[str, float]:
    """The expected increase of tokens in other text like each of the kept ones, by name."""
    if not made.whole or not made.order or texts.keep is None:
        return {}
    found = partial(PretokenCounts.tokens, tokenizer=job.base, by_merges=job.options.by_merges)
    mixed, factors = found(texts.keep.counts), texts.keep.factors[-len(job.kept) :]
    return {
        name: unseen_cost(job.base, made.whole, len(made.order), mixed, found(texts.parts[name].counts), factor)
        for name, factor in zip(job.kept, factors, strict=False)
    }


def measured(job: Prepared, texts: Texts, vocabulary: Vocabulary) -> Adaptation:
    """The adaptation, checked and evaluated on the held-out documents and on test texts."""
    base, new, targets = job.before, vocabulary.tokenizer, texts.targets
    job.start("checking")
    checked = check_against(new, base, texts.preserve.counts if texts.preserve else None)
    if job.keep_hash:
        asked = bool(job.options.keep_llama_cpp_hash)
        checked = Check((*checked.findings, _converter_hash(new, base, asked=asked)))
    checked.raise_for_failures()
    job.start("measuring held-out text")
    # Iterators: strings of a list may be taken for paths.
    held_out = {name: iter(part.held_out) for name, part in texts.parts.items()}
    evaluation = evaluate({"base": base, "new": new}, held_out) if held_out else Evaluation(())
    if texts.tests:
        job.start("measuring test text")
    test = evaluate({"base": base, "new": new}, texts.tests) if texts.tests else None
    added = [new.ids[string] for string in new.ids.keys() - base.ids.keys()]
    frequencies = {name: counts.tokens(new) for name, counts in targets.items()}
    own = most_frequent_in(added, frequencies, {name: counts.totals.bytes for name, counts in targets.items()})
    result = Adaptation(
        **{each.name: getattr(vocabulary, each.name) for each in fields(Vocabulary)},
        plan=plan(job.original, new),
        check=checked,
        evaluation=evaluation,
        test=test,
        targets={name: TargetResult(evaluation["new", name].gain, own[name]) for name in targets},
        transplant=None,
        kept_cost=FrozenDict(_kept_cost(job, texts, vocabulary)),
    )
    return replace(result, warnings=tuple(_warnings(job, texts, result)))


def _warnings(job: Prepared, texts: Texts, result: Adaptation) -> Iterator[str]:
    """All warnings of an adaptation: of the request, of reading, of the vocabulary, and of what was measured."""
    yield from job.warnings
    for name, part in texts.parts.items():
        yield from (f"{name}: {warning}" for warning in reading_warnings(part.counts.totals))
    yield from result.warnings
    yield from cut_warnings(job.base, texts.targets)
    yield from _lost(job.original, result.tokenizer, result.check)
    yield from end_warnings(result.tokenizer, job.original)
    yield from sample_warnings(result.samples, REMOVED.format("--keep") if result.order else ADDED)
    for name, cost in result.kept_cost.items():
        if cost > MUCH:
            size = texts.parts[name].counts.totals.bytes
            yield (
                f"other text like {name} is expected to need {cost:.1%} more tokens: {size:,} bytes of it do not show "
                "all tokens that it needs; give more text to --keep, or remove fewer tokens"
            )
    scores = (one for one in result.evaluation.scores if one.tokenizer == "new" and one.bytes < LEAST_BYTES)
    if few := ", ".join(f"{score.text} ({score.bytes:,} bytes)" for score in scores):
        hint = "" if result.test else "; measure on other text: --test NAME=FILES"
        yield f"less than {LEAST_BYTES:,} bytes are held out of {few}: gains on so little text are unreliable{hint}"
    yield from result.test.warnings if result.test else ()


MOST_PRETOKENS = 20_000
"""The most frequent pretokens of a text, which show whether its words are cut."""
OFTEN = 0.05
"""The share of them that begins with a mark from which on there is a warning."""


def cut_warnings(tokenizer: Tokenizer, targets: Mapping[str, PretokenCounts]) -> Iterator[str]:
    """Warnings of texts whose words the pipeline cuts at combining marks. They gain little then."""
    for name, counts in targets.items():
        frequent = [(pretoken.decode(errors="replace"), n) for pretoken, n in counts.top(MOST_PRETOKENS)]
        scripts = cut_scripts(tokenizer, "".join(text for text, _ in frequent))
        total = sum(n for _, n in frequent) if scripts else 0
        for script in scripts:
            marks = {*_core.marks([script])}
            cut = sum(n for text, n in frequent if text[:1] in marks)
            if cut > OFTEN * total:
                yield (
                    f"{name}: the pipeline cuts words in {script} at combining marks, before {cut / total:.0%} of the "
                    f"pretokens, and no token spans a cut; --join-marks {script} keeps words whole, but llama.cpp and "
                    "Ollama cannot use the result"
                )


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
