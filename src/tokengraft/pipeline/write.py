"""`write_result`: writes an adapted model or tokenizer, with its card, report, record and settings for training.

`adaptation_content`: what the report shows.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tokengraft.checkpoint.model_files import ADAPT_FILES, CARD, TRAINING
from tokengraft.checkpoint.model_job import ModelJob, NewRowsJob
from tokengraft.errors import OutputError
from tokengraft.formats.sources import folder_files
from tokengraft.output.atomic import write_folder
from tokengraft.page.content import Content, ReportText
from tokengraft.page.page import report_page
from tokengraft.pipeline.card import adaptation_card
from tokengraft.pipeline.options import row_options
from tokengraft.pipeline.prepare import Prepared, replaceable
from tokengraft.pipeline.request import shown_name
from tokengraft.pipeline.result import Adaptation
from tokengraft.pipeline.texts import Texts
from tokengraft.pipeline.training import next_step, training_file
from tokengraft.progress import stage
from tokengraft.verify.check_serving import check_serving
from tokengraft.verify.finding import choices_for


def write_result(job: Prepared, texts: Texts, result: Adaptation) -> Adaptation:
    """Writes the folder and returns the result; with weights, including the result of the transplant."""
    options = job.options
    model = None
    if job.weights:
        rows = row_options(options, choices_for(options.stacks).pad_multiple)
        kind = NewRowsJob if options.as_adapter else ModelJob
        model = kind.prepare(job.source, result.tokenizer, replace(rows, progress=options.progress))
        planned = model.describe()  # the tables that will change, which the report shows
        result = replace(result, transplant=planned, warnings=(*result.warnings, *planned.warnings))
    record = json.dumps(result.as_dict(), ensure_ascii=False, indent=2) + "\n"
    files = {ADAPT_FILES[0]: record.encode(errors="backslashreplace")}  # as in `tokengraft.json`
    if options.report is not False:
        job.start("making the report")
        files[ADAPT_FILES[1]] = report_page(adaptation_content(job, texts, result)).encode(errors="backslashreplace")
    if result.transplant and result.plan.summary.added:
        files[TRAINING] = training_file(result, result.transplant, texts, options.size.training_text)
    files[CARD] = adaptation_card(job, texts, result)
    job.start("writing")
    if model:
        with stage("transplanting the checkpoint"):
            done = model.write(job.out, force=options.force, others=files, request=result.request)
        return _with_serving(job, replace(result, transplant=done))
    written = folder_files(result.tokenizer)
    write_folder(
        written | files,
        job.out,
        replaceable=replaceable(job.out, weighted=False) if options.force else None,
        check=lambda folder: _require_written(folder, written),
    )
    return _with_serving(job, result)


def _require_written(folder: Path, files: Mapping[str, bytes]) -> None:
    """Refuses a folder whose files are not those that `check` has loaded with other libraries."""
    for name, content in files.items():
        if (folder / name).read_bytes() != content:
            raise OutputError(f"`{name}` was read back with other bytes than were written", hint="check the disk")


def _with_serving(job: Prepared, result: Adaptation) -> Adaptation:
    """The result with a warning for everything that a serving stack cannot use, with its fix."""
    if not job.options.stacks:
        return result
    failures = check_serving(job.out, *job.options.stacks, base=result.base).failures
    warnings = (f"{finding.name}: {finding.detail}; {finding.fix}" for finding in failures)
    return replace(result, warnings=(*result.warnings, *warnings))


def adaptation_content(job: Prepared, texts: Texts, result: Adaptation) -> Content:
    """What the report of an adaptation shows."""
    extension, record = result.extension, dict(result.request)
    return Content(
        title=f"{Path(job.source).resolve().name}, adapted to {', '.join(result.targets) or 'listed tokens'}",
        base=result.base,
        new=result.tokenizer,
        plan=result.plan,
        texts=tuple(_report_texts(job, texts)),
        evaluation=result.scores,
        check=result.check,
        pruned=result.order.apply(job.base) if result.order and extension else None,
        extension=extension,
        size_reason=result.size_reason,
        training_text=job.options.size.training_text,
        prune_curve=result.prune_curve,
        transplant=result.transplant,
        next_step=next_step(result, "adapted"),  # not the path: the same request gives the same page
        warnings=result.warnings,
        record=record | {"inputs": [_input(job, texts, entry) for entry in record["inputs"]]},
    )


def _report_texts(job: Prepared, texts: Texts) -> Iterator[ReportText]:
    for name, text in texts.tests.items():
        yield ReportText.of(shown_name(name, "test"), "text given with --test", text)
    for name, part in texts.parts.items():
        role = job.role(name)
        yield ReportText(shown_name(name, role), "held-out documents", role, part.held_out, part.counts)


def _input(job: Prepared, texts: Texts, recorded: Mapping[str, Any]) -> dict[str, Any]:
    """An input of the request with what is known of its text.

    `bytes` are those of the text without what is held out, `documents` are all of its documents, and `file_bytes` those
    of the files, as recorded.
    """
    role, name = recorded["role"], recorded["name"]
    entry = {**recorded, "bytes": None, "file_bytes": recorded["bytes"] or None}
    if role == "test":
        totals = texts.tests[name].totals
        return entry | {"bytes": totals.bytes, "documents": totals.documents}
    if role not in ("target", "keep"):
        return entry
    part = texts.parts[name]
    entry |= {"bytes": part.counts.totals.bytes, "held_out_bytes": sum(len(text.encode()) for text in part.held_out)}
    return entry | ({"weight": str(job.targets[name].weight)} if role == "target" else {})
