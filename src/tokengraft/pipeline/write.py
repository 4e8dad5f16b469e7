"""`write_result`: writes an adapted model or tokenizer, with its card, report, record and settings for training.

`adaptation_content`: what the report shows. `adaptation_card`: the model card. `training_file`: `training.json`, which
tells a training run about the new rows, with settings to start from. `next_step`: what to do with the result.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.model_card import (
    CAUSAL,
    CardFacts,
    code,
    made_by,
    model_card,
    model_class,
    public_command,
    size_text,
    table,
)
from tokengraft.checkpoint.model_files import ADAPT_FILES, CARD, TRAINING
from tokengraft.checkpoint.model_job import ModelJob, NewRowsJob
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.tensors import ITEM_BYTES
from tokengraft.errors import OutputError
from tokengraft.formats.sources import folder_files
from tokengraft.measure.choose_size import MIN_SUPPORT
from tokengraft.measure.scores import legend
from tokengraft.measure.sizes import expected, text_ratio
from tokengraft.output.atomic import write_folder
from tokengraft.page.content import BASE, Content, NextStep, ReportText
from tokengraft.page.report import report_page
from tokengraft.pipeline.options import Role, row_options
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.request import Request, shown_name
from tokengraft.pipeline.require import replaceable
from tokengraft.pipeline.result import HELD_OUT, Adaptation
from tokengraft.pipeline.texts import Texts
from tokengraft.progress import stage
from tokengraft.training.options import KEPT_SHARE, NEW_ROWS_FACTOR, OLD_ROWS_FACTOR, STEP_BYTES, measured_rate
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
    if result.transplant and (result.plan.summary.added or result.transplant.untrained):
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
    given = "text given with --test"
    shown_texts = [ReportText.of(shown_name(name, "test"), given, text) for name, text in texts.tests.items()]
    for name, part in texts.parts.items():
        role = job.role(name)
        shown = ReportText(shown_name(name, role), "held-out documents", role, part.held_out, part.counts)
        shown_texts.append(shown)
    return Content(
        title=f"{Path(job.source).resolve().name}, adapted to {', '.join(result.targets) or 'listed tokens'}",
        base=result.base,
        new=result.tokenizer,
        plan=result.plan,
        texts=tuple(shown_texts),
        evaluation=result.scores,
        check=result.check,
        pruned=result.pruned,
        extension=extension,
        size_reason=result.size_reason,
        training_text=job.options.size.training_text,
        prune_curve=result.prune_curve,
        transplant=result.transplant,
        next_step=next_step(result, "adapted"),  # not the path: the same request gives the same page
        warnings=result.warnings,
        record=record | {"inputs": [_input(job, texts, entry) for entry in record["inputs"]]},
    )


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


def adaptation_card(job: Request, texts: Texts, result: Adaptation) -> bytes:
    """The content of `README.md`."""
    made = "With `tokengraft.adapt` in Python."
    if job.command:
        made = public_command([*shlex.split(job.command), "--out", "adapted"])
    facts = CardFacts(
        made=made_by(made, "adaptation.json"),
        measured="\n\n".join(_measured(result)),
        changes=[*_methods(job, texts, result)],
        texts=(*job.targets, *job.kept),
        is_adapter=job.options.as_adapter,
    )
    return model_card(job.source, result.plan, result.transplant, facts)


def _methods(job: Request, texts: Texts, result: Adaptation) -> Iterator[tuple[str, str]]:
    def sizes(role: Role) -> str:
        parts = {name: part.counts.totals.bytes for name, part in texts.parts.items() if job.role(name) == role}
        return ", ".join(f"{code(name)} ({size_text(n)})" for name, n in parts.items())

    if result.extension:
        yield "learned", f"by continued training, from {sizes('target') or 'a list of words'}"
    if result.order:
        kept = f", with text to keep: {sizes('keep')}" if job.kept else ""
        yield "pruned", f"by {code(result.order.method)}{kept}"
    yield "checks", "passed" if result.check.passed else "some failed"


def _measured(result: Adaptation) -> Iterator[str]:
    scores = result.scores
    if not scores.scores:
        yield "Nothing: no text was given."
        return
    heads, rows = scores.table(wide=False)
    sizes = [size_text(scores[BASE, row[0]].bytes) for row in rows]
    yield table([*heads, "measured"], [[code(row[0]), *row[1:], size] for row, size in zip(rows, sizes, strict=True)])
    yield f"{legend(heads)}."
    which = "Texts without (test) are" if result.test else "The texts are"
    yield f"{which} {HELD_OUT}. Other text usually gains less."
    more = "" if result.test else "text of another source, "
    model = ", and the model itself (bits per byte, downstream tasks)" if result.transplant else ""
    yield f"Not measured: {more}speed{model}."


RARE_BELOW = MIN_SUPPORT
"""Tokens that occur less often are rare: a training run that reads the text once hardly changes their rows."""
LORA = {"r": 64, "lora_alpha": 128, "lora_dropout": 0.0, "target_modules": "all-linear"}
_LIBRARIES = ("torch", "transformers", "peft")


def training_file(result: Adaptation, transplant: Transplant, texts: Texts, training_text: int | None) -> bytes:
    """The content of `training.json`, by the counts of every text without held-out documents.

    Text to keep is expected to have the same share of the training text as of the counted text.
    """
    counts = {name: part.counts for name, part in texts.parts.items()}
    pieces = {row: len(source) for row, source in enumerate(result.plan.sources) if isinstance(source, tuple)}
    pieces |= dict.fromkeys(transplant.untrained, 1)  # the source has these tokens
    new = sorted(pieces)
    # Of an adapter, all its rows: trained with LoRA layers, they again are a complete adapter of the base.
    rows = [*transplant.adapter_rows] or new
    seen = Counter[int]()
    for part in counts.values():
        seen.update(part.tokens(result.tokenizer))
    frequency = [seen[token_id] for token_id in new]
    ratio = text_ratio(texts.support, training_text) if texts.targets else Fraction(1)
    trained = expected(frequency, ratio)
    task = {"task_type": "CAUSAL_LM"} if is_causal(result) else {}
    versions = {"tokengraft": _core.__version__}
    for name in _LIBRARIES:  # those that are installed
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    _, _, dtype, _, size = next(tensor for tensor in transplant.tensors if tensor[1] == "input")
    settings = {
        "versions": versions,
        "embedding_rows": transplant.rows_after,
        "tied": transplant.tied,
        "counted": {name: part.totals.bytes for name, part in counts.items()},
        "counted_tokens": seen.total(),
        "new_ids": new,
        "pieces": [pieces[row] for row in new],
        "frequency": frequency,
        **({"training_text": training_text} if training_text else {}),
        "rare_below": RARE_BELOW,
        "rare_ids": [token_id for token_id, times in zip(new, trained, strict=True) if times < RARE_BELOW],
        "lora": task | LORA | {"trainable_token_indices": dict.fromkeys(_modules(transplant), rows)},
        "learning_rate": measured_rate(size // transplant.rows_after // ITEM_BYTES[dtype]),
        "new_rows_factor": NEW_ROWS_FACTOR,
        "old_rows_factor": OLD_ROWS_FACTOR,
        "kept_share": KEPT_SHARE,
        "step_bytes": STEP_BYTES,
    }
    return (json.dumps(settings, ensure_ascii=False, indent=2) + "\n").encode()


def is_causal(result: Adaptation) -> bool:
    """Whether the adapted model is one that predicts the next token, as the settings and the commands here train it."""
    return model_class(Path(result.request["source"])) == CAUSAL


def next_step(result: Adaptation, folder: str) -> NextStep:
    """What to do with a result in a folder: transplant, train, or measure."""
    if not result.transplant:
        command = ["tokengraft", "transplant", "MODEL", folder, "--out", "NEW_MODEL"]
        return NextStep("transplant", "Only the tokenizer is adapted: the source has no weights.", command)
    tests = [f"{name}={paths[0]}" for name, paths in _paths(result, "test") if len(paths) == 1] or ["NAME=FILES"]
    if not is_causal(result):
        why = "The model has never read the words of removed tokens as shorter ones: compare it on your task."
        if result.plan.summary.added:
            why = "New rows are only initialised: train the model, by its own objective, before you use it."
        command = ["tokengraft", "evaluate", f"base={result.request.get('source', 'MODEL')}", f"new={folder}"]
        return NextStep("measure the model, and the tokens of other text", why, [*command, "--text", *tests])
    if not result.plan.summary.added and not result.transplant.untrained:
        models = [str(result.request.get("source", "MODEL")), folder]
        command = ["tokengraft", "evaluate", "--bits", *models, "--text", *tests]
        why = "The model has never read the words of removed tokens as shorter ones: compare bits per byte."
        return NextStep("measure the model", why, command)
    if result.transplant.adapter_rows:
        # JSON, for its quotation marks: a shell has the others around the whole.
        source, merged = json.dumps(folder), json.dumps(f"{folder}-merged")
        merge = (
            "import shutil; from peft import AutoPeftModelForCausalLM as Model; "
            "from transformers import AutoTokenizer; "
            f"Model.from_pretrained({source}).merge_and_unload().save_pretrained({merged}); "
            f"AutoTokenizer.from_pretrained({source}).save_pretrained({merged}); "
            f"shutil.copy({json.dumps(f'{folder}/{TRAINING}')}, {merged})"
        )
        why = "New rows are only initialised: load the adapter with `is_trainable=True`, or merge it first."
        return NextStep("train the adapter, or merge it and train the model", why, ["python", "-c", merge])
    command = ["tokengraft", "train", folder]
    for flag, role in (("--text", "target"), ("--keep", "keep")):
        named = ([f"{name}={paths[0]}", *paths[1:]] for name, paths in _paths(result, role))
        files = [word for words in named for word in words]
        command += [flag, *files] if files else []
    if "--text" not in command:
        command += ["--text", "FILES"]
    why = f"New rows are only initialised: `{TRAINING}` has their ids, and settings to start from."
    return NextStep("train the model", why, [*command, "--out", f"{folder}-trained"])


def _paths(result: Adaptation, role: str) -> Iterator[tuple[str, list[str]]]:
    """The name and the paths of every text of a role that was read from files."""
    for item in result.request.get("inputs", ()):
        if item["role"] == role and item["path"]:
            yield item["name"], [item["path"]] if isinstance(item["path"], str) else item["path"]


def _modules(transplant: Transplant) -> list[str]:
    """The names of the modules with new rows, as PEFT finds them: of a tied output, the embedding alone.

    >>> from types import SimpleNamespace
    >>> tensors = [("model.embed_tokens.weight", "input"), ("lm_head.weight", "output")]
    >>> _modules(SimpleNamespace(tied=False, tensors=tensors)), _modules(SimpleNamespace(tied=True, tensors=tensors))
    (['embed_tokens', 'lm_head'], ['embed_tokens'])
    """
    roles = ("input",) if transplant.tied else ("input", "output")
    names = [next((name for name, kind, *_ in transplant.tensors if kind == role), None) for role in roles]
    return [name.removesuffix(".weight").rpartition(".")[2] for name in names if name is not None]
