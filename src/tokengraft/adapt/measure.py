"""`measured`: checks a new vocabulary, and evaluates it on the held-out documents and on test texts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tokengraft.adapt.checks import Start
from tokengraft.adapt.options import Job
from tokengraft.adapt.result import Adaptation, target_results
from tokengraft.adapt.vocabulary import NewVocabulary
from tokengraft.check.check import check
from tokengraft.check.finding import Check, Finding, Outcome
from tokengraft.counts.count import HeldOutCounts, reading_warnings
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.measure import evaluate
from tokengraft.evaluate.segments import Text, open_text
from tokengraft.plan import plan
from tokengraft.tokenizer.edit import left_out
from tokengraft.tokenizer.llama_cpp import converter_check
from tokengraft.tokenizer.tokenizer import Tokenizer

HASH = "llama.cpp hash"
LEAST_DOCUMENTS, LEAST_BYTES = 50, 10_000
"""With fewer held-out documents or bytes, a warning is printed: chance decides the second digit of a gain."""


def measured(
    job: Job,
    start: Start,
    vocabulary: NewVocabulary,
    parts: Mapping[str, HeldOutCounts],
    preserve: PretokenCounts | None = None,
    tests: Mapping[str, Text | PretokenCounts] | None = None,
) -> Adaptation:
    """The adaptation, checked and evaluated on the held-out documents and on test texts.

    Args:
        job: What was asked for.
        start: The inputs.
        vocabulary: The new vocabulary.
        parts: The counts and held-out documents of every text.
        preserve: The text that must keep its tokens.
        tests: The test texts, as `open_tests` gives them.

    Raises:
        InvalidTokenizerError: The new tokenizer fails a check that the base passes.
    """
    base, new = start.base, vocabulary.tokenizer
    job.start("checking")
    checked = check_against(new, base, preserve)
    if start.keep_hash:
        asked = bool(job.options.keep_llama_cpp_hash)
        checked = Check((*checked.findings, _converter_hash(new, base, asked=asked)))
    checked.raise_for_failures()
    job.start("measuring held-out text")
    # Iterators: strings of a list may be taken for paths.
    evaluation = evaluate({"base": base, "new": new}, {name: iter(part.held_out) for name, part in parts.items()})
    if tests:
        job.start("measuring test text")
    test = evaluate({"base": base, "new": new}, tests) if tests else None
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
        targets=target_results(base, new, evaluation, {name: parts[name].counts for name in job.targets}),
        transplant=None,
        choice=vocabulary.choice,
        warnings=(
            *start.warnings,
            *read,
            *vocabulary.warnings,
            *_loader_warnings(checked),
            *_lost(base, new, checked),
            *_small(evaluation, tests=bool(test)),
            *(test.warnings if test else ()),
        ),
    )


def open_tests(job: Job, base: Tokenizer) -> dict[str, Text | PretokenCounts]:
    """The test texts. Shards and normalization are for counting.

    Raises:
        CorpusError: A text cannot be read, or is empty.
        CountsError: Counts were made for another pipeline, or do not give the length of the text.
    """
    given = replace(job.options.read_options, shard=None, normalize=None, rules=None)
    tests = {name: open_text(name, text, given) for name, text in job.tests.items()}
    for text in tests.values():
        if isinstance(text, PretokenCounts):
            text.require(base)
    return tests


def _small(evaluation: Evaluation, *, tests: bool) -> Iterator[str]:
    """A warning for each text with so few held-out documents that its figures mean little."""
    hint = "" if tests else "; measure on other text: --test NAME=FILES"
    for score in evaluation.scores:
        if score.tokenizer == "new" and (score.documents < LEAST_DOCUMENTS or score.bytes < LEAST_BYTES):
            yield (
                f"{score.text}: only {score.documents:,} documents with {score.bytes:,} bytes are held out, so its "
                f"figures mean little{hint}"
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
    return Check(tuple(_noted(finding) if finding.name in failing else finding for finding in checked.findings))


def _noted(finding: Finding) -> Finding:
    if finding.outcome != "fail":
        return finding
    return replace(finding, outcome="note", detail=f"{finding.detail}; the base has the same problem")


def _loader_warnings(checked: Check) -> tuple[str, ...]:
    notes = [
        finding for finding in checked.findings if finding.outcome == "note" and finding.name in ("loaders", "files")
    ]
    return tuple(text for finding in notes for text in (finding.evidence or (finding.detail,)))


def _lost(base: Tokenizer, new: Tokenizer, checked: Check) -> Iterator[str]:
    """What the base has and the result has not: files that cannot express the change, and llama.cpp's hash."""
    yield from (f"left out `{name}`: {reason}" for name, reason in left_out(base, new).items())
    for finding in checked.findings:
        if finding.name == HASH and finding.outcome == "note":
            yield f"{HASH}: {finding.detail}; `tokengraft check --for llama.cpp` has the lines to add"
