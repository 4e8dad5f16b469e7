"""`adaptation_card`: the model card of an adaptation, with its figures."""

import shlex
from collections.abc import Iterator

from tokengraft.checkpoint.model_card import CardFacts, code, made_by, model_card, public_command, size_text, table
from tokengraft.measure.scores import LEGEND
from tokengraft.page.content import BASE
from tokengraft.pipeline.options import Role
from tokengraft.pipeline.request import Request
from tokengraft.pipeline.result import HELD_OUT, Adaptation
from tokengraft.pipeline.texts import Texts


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
    yield "; ".join(f"{head}: {LEGEND[head]}" for head in heads if head in LEGEND) + "."
    which = "Texts without (test) are" if result.test else "The texts are"
    yield f"{which} {HELD_OUT}. Other text usually gains less."
    more = "" if result.test else "text of another source, "
    model = ", and the model itself (bits per byte, downstream tasks)" if result.transplant else ""
    yield f"Not measured: {more}speed{model}."
