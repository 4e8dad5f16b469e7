"""`measured`: checks a new vocabulary, and evaluates it on the held-out documents and on test texts."""

from collections.abc import Iterator
from dataclasses import replace

from tokengraft.counts.count import reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.measure.evaluate import Evaluation, evaluate
from tokengraft.measure.sample_texts import ADDED, REMOVED, sample_changes, sample_warnings
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.result import Adaptation, target_results
from tokengraft.pipeline.texts import Texts
from tokengraft.pipeline.vocabulary import NewVocabulary
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.llama_cpp import converter_check
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.against_base import PRESERVED
from tokengraft.verify.check import check
from tokengraft.verify.finding import Check, Finding, Outcome
from tokengraft.vocab_plan import plan

HASH = "llama.cpp hash"
LEAST_BYTES = 50_000
"""With less held-out text a warning is printed. Samples of so many bytes of Estonian and Hindi web text differ in their
gain by 9 % and 3 % of it (standard deviation), those of 10,000 bytes by 18 % and 5 %."""


def measured(job: Prepared, texts: Texts, vocabulary: NewVocabulary) -> Adaptation:
    """The adaptation, checked and evaluated on the held-out documents and on test texts.

    Raises:
        InvalidTokenizerError: The new tokenizer fails a check that the base passes.
    """
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
        targets=target_results(base, new, evaluation, texts.targets),
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

    def noted(finding: Finding) -> Finding:
        if finding.outcome != "fail" or finding.name not in failing:
            return finding
        return replace(finding, outcome="note", detail=f"{finding.detail}; the base has the same problem")

    return Check(tuple(map(noted, checked.findings)))


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
