"""`edit`: `tokengraft extend` and `tokengraft prune`, the pipeline without a checkpoint.

A tokenizer is written and loaded back with other libraries. `extension_curve` measures sizes and writes nothing.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.counts.count import reading_warnings
from tokengraft.formats import save
from tokengraft.learn.naive import extend_naively
from tokengraft.measure.compare import REMOVED, sample_warnings
from tokengraft.measure.evaluate import evaluate
from tokengraft.measure.scores import Evaluation
from tokengraft.measure.sizes import Curve, Sizes, curve_of_extension, default_sizes
from tokengraft.pipeline.prepare import Prepared, prepare
from tokengraft.pipeline.request import Request
from tokengraft.pipeline.result import Vocabulary
from tokengraft.pipeline.texts import Texts, texts_of_edit
from tokengraft.pipeline.vocabulary import cut_warnings, learned, new_vocabulary
from tokengraft.tokenizer.known_tokens import end_warnings
from tokengraft.verify.against_base import preserved
from tokengraft.verify.check import check, save_verified
from tokengraft.verify.finding import Check
from tokengraft.verify.loaders import sample_pretokens
from tokengraft.verify.transformers_loader import transformers_started
from tokengraft.vocab_plan import plan


def edit(request: Request) -> Vocabulary:
    """Extends or prunes a tokenizer, writes it, and loads it back with other libraries."""
    with transformers_started():  # it is imported while the core loads, counts and learns
        job = prepare(request)
        texts = texts_of_edit(job)
        if job.step == "extend" and job.edit.method not in (None, "continued"):
            return _extended_naively(job, texts)
        made = new_vocabulary(job, texts)
        if texts.preserve is not None:
            Check((preserved(made.tokenizer, job.base, texts.preserve.counts),)).raise_for_failures()
        if made.order is not None and texts.targets:
            before, after = (sum(texts.support.tokens(one).values()) for one in (job.base, made.tokenizer))
            made = replace(made, text_tokens=(before, after))
        made = replace(made, warnings=tuple(_warnings(job, texts, made)))
        samples = sample_pretokens(texts.support, job.base.kind) if texts.targets else []
        force = job.options.force
        verified = save_verified(made.tokenizer, job.out, base=job.base, texts=samples, force=force)
    made = replace(made, verified=verified)
    if job.edit.extension and made.extension is not None:
        made.extension.save(job.edit.extension, force=force)
    if job.edit.order and made.whole is not None and not job.edit.reads_order:
        made.whole.save(job.edit.order, force=force)
    _write_report(job, texts, made)
    return made


def extension_curve(request: Request) -> tuple[Vocabulary, Curve]:
    """The largest extension that was asked for, and the gain on held-out text by number of new tokens."""
    job = prepare(request)
    texts = texts_of_edit(job)
    extension, trained = learned(job, texts, job.base, job.sizes.learn), job.options.size.training_text
    sizes = default_sizes(job.sizes.learn)
    every_size = Sizes(job.base, extension)
    occurrences = every_size.support(texts.support, trained)
    curve = curve_of_extension(every_size, occurrences, texts.to_choose_on, sizes)
    warnings = (*_warnings(job, texts, Vocabulary(job.base, job.base)), *curve.warnings)
    return Vocabulary(job.base, job.base, extension=extension, warnings=warnings), curve


def _extended_naively(job: Prepared, texts: Texts) -> Vocabulary:
    """The result of a baseline. Loaders are not asked: many of its tokens are unreachable by design."""
    method: Any = job.edit.method
    new = extend_naively(job.base, texts.support, job.sizes.learn, method)
    save(new, job.out, force=job.options.force)
    made = Vocabulary(job.base, new, warnings=tuple(_warnings(job, texts, Vocabulary(job.base, new))))
    _write_report(job, texts, made)
    return made


def _warnings(job: Prepared, texts: Texts, made: Vocabulary) -> Iterator[str]:
    yield from job.warnings
    for text in (*texts.targets.values(), *texts.held_out.values()):
        yield from reading_warnings(text.totals)
    yield from made.warnings
    if made.extension is not None:
        yield from end_warnings(made.tokenizer, job.original)
        yield from cut_warnings(job.base, texts.targets)
    if job.options.join_marks and (job.edit.report is not None or job.edit.curve):
        yield "gains are against the tokenizer with joined marks; `tokengraft evaluate` compares with the source"
    if made.order is not None:
        yield from sample_warnings(made.samples, REMOVED.format("--corpus"))
        highest = job.base.n_rows - 1
        if job.edit.reads_order and job.edit.ids == "keep" and any(each.id == highest for each in made.order.removals):
            yield (
                f"the order removes the token with the highest id, {highest:,}: there are fewer embedding rows until "
                "`extend` adds tokens"
            )


def _write_report(job: Prepared, texts: Texts, made: Vocabulary) -> None:
    """Writes the page of `--report`: both tokenizers, measured on the counts."""
    if job.edit.report is None:
        return
    from tokengraft.page.content import Content, ReportText  # a page needs most of the package
    from tokengraft.page.report import page_date, text_inputs, write_page

    held_out = texts.held_out_counts(job.base) if job.step == "prune" else {}
    held_out = {f"{name} (held out)": part for name, part in held_out.items()}
    counts = held_out | dict(texts.targets)
    measured = {name: part for name, part in counts.items() if part.is_unchanged}
    warnings = made.warnings
    if len(measured) < len(counts):
        warnings += ("the counts were weighted, lack rare pretokens or are of normalized text: they give no measures",)
    what = "the text that the tokens were learned from" if made.extension else "the text that was counted"
    inputs = [*text_inputs(held_out, "held-out text"), *text_inputs(texts.targets, "target")]
    content = Content(
        title=f"{job.out.name} compared with {Path(job.source).name}",
        base=job.base,
        new=made.tokenizer,
        plan=plan(job.base, made.tokenizer),
        texts=tuple(
            ReportText(name, what, "target", counts=part)
            if name in texts.targets
            else ReportText(name, "held-out text", counts=part)
            for name, part in measured.items()
        ),
        evaluation=evaluate({"base": job.base, "new": made.tokenizer}, measured) if measured else Evaluation(()),
        check=check(made.tokenizer, job.base),
        extension=made.extension,
        size_reason=made.size_reason,
        training_text=job.options.size.training_text,
        prune_curve=made.prune_curve,
        warnings=warnings,
        record={
            "command": job.command,
            "date": page_date(),
            "versions": {"tokengraft": _core.__version__},
            "inputs": inputs,
        },
    )
    write_page(content, job.edit.report, force=job.options.force)
