"""`write_result`: writes an adapted model or tokenizer, with `adaptation.json`, `report.html` and `training.json`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengraft.adapt.distilled import DISTILL, write_distilled
from tokengraft.adapt.options import Job
from tokengraft.adapt.result import Adaptation
from tokengraft.adapt.training import training_file
from tokengraft.check.serving.check_serving import check_serving
from tokengraft.check.serving.stacks import choices_for
from tokengraft.check.verify import verify_folder
from tokengraft.checkpoint.model_files import ADAPT_FILES, TRAINING, written_before
from tokengraft.checkpoint.padding import PadMultiple
from tokengraft.checkpoint.rows import CONTEXT, DEFAULT
from tokengraft.checkpoint.transplant import transplant
from tokengraft.counts.count import HeldOutCounts
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.segments import Text
from tokengraft.formats.files import folder_files, is_tokenizer_file
from tokengraft.output.atomic import write_folder


def replaceable(out: Path, *, weighted: bool) -> Callable[[Path], bool]:
    """A test whether a file in an existing output may be replaced: only files that an earlier run wrote."""
    if weighted:
        ours = written_before(out)
        return lambda path: path.as_posix() in ours
    return lambda path: is_tokenizer_file(path) or path.as_posix() in ADAPT_FILES


def write_result(
    job: Job,
    result: Adaptation,
    parts: Mapping[str, HeldOutCounts],
    tests: Mapping[str, Text | PretokenCounts],
    *,
    weighted: bool,
    report: bool,
) -> Adaptation:
    """Writes the folder and returns the result; with weights, including the result of the transplant.

    Args:
        job: What was asked for.
        result: The adaptation, checked and measured.
        parts: The counts and held-out documents of every text.
        tests: The test texts.
        weighted: Whether the source has weights.
        report: Whether to write a report.

    Raises:
        TokengraftError: A file cannot be written, or the written folder fails its verification.
    """
    rows = _row_options(job, parts)
    if weighted:
        # A dry run gives the tables that will change, which the report shows.
        planned = transplant(job.source, result.tokenizer, None, **rows)
        result = replace(result, transplant=planned, warnings=(*result.warnings, *planned.warnings))
    files = {ADAPT_FILES[0]: json.dumps(result.as_dict(), ensure_ascii=False, indent=2).encode() + b"\n"}
    if report:
        job.start("making the report")
        files[ADAPT_FILES[1]] = _page(job, result, parts, tests).encode()
    if result.transplant and result.plan.summary.added:
        counts = {name: part.counts for name, part in parts.items()}
        files[TRAINING] = training_file(result, result.transplant, counts)
    job.start("writing")
    if weighted and job.options.init == DISTILL:
        return _served(job, write_distilled(job, result, rows, files))
    if weighted:
        more: dict[str, Any] = {"force": job.options.force, "progress": job.options.progress}
        done = transplant(job.source, result.tokenizer, job.out, others=files, request=result.request, **rows, **more)
        return _served(job, replace(result, transplant=done))
    write_folder(
        folder_files(result.tokenizer) | files,
        job.out,
        replaceable=replaceable(job.out, weighted=False) if job.options.force else None,
        check=lambda folder: verify_folder(folder, result.tokenizer, base=result.base).raise_for_failures(),
    )
    return _served(job, result)


def _row_options(job: Job, parts: Mapping[str, HeldOutCounts]) -> dict[str, Any]:
    """The options of `transplant` for rows. The initialiser `context` gets the counts of all texts."""
    options = job.options
    padding: PadMultiple = choices_for(options.stacks).pad_multiple or "keep"
    counts = [part.counts for part in parts.values()] if CONTEXT in (options.init, options.output_init) else []
    return {
        "init": DEFAULT if options.init in (None, DISTILL) else options.init,
        "output_init": options.output_init,
        "hole_rows": options.hole_rows,
        "counts": sum(counts[1:], counts[0]) if counts else None,
        "pad_multiple": padding,
        "seed": options.seed or 0,
    }


def _served(job: Job, result: Adaptation) -> Adaptation:
    """The result with a warning for everything that a serving stack cannot use, with its fix."""
    if not job.options.stacks:
        return result
    failures = check_serving(job.out, *job.options.stacks, base=result.base).failures
    warnings = (f"{finding.name}: {finding.detail}; {finding.fix}" for finding in failures)
    return replace(result, warnings=(*result.warnings, *warnings))


def _page(
    job: Job,
    result: Adaptation,
    parts: Mapping[str, HeldOutCounts],
    tests: Mapping[str, Text | PretokenCounts],
) -> str:
    """The report."""
    # not above: the report shows an `Adaptation`, so it imports `adapt`
    from tokengraft.report.adaptation import AdaptationTexts, adaptation_page

    weights = {name: str(target.weight) for name, target in job.targets.items()}
    title = f"{Path(job.source).resolve().name}, adapted to {', '.join(result.targets)}"
    return adaptation_page(result, AdaptationTexts(parts, tests, weights), title=title)
