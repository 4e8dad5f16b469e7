"""`Adaptation`: the result of adapting a model, as plain data. `record_of`: what was asked for, which is part of it.

The record depends only on the request, the inputs and the versions, so that the same request gives the same bytes.
Paths are written as they were given. There is no date, unless SOURCE_DATE_EPOCH is set, and no output path.
"""

import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.folder import has_weights, open_checkpoint
from tokengraft.checkpoint.result import Transplant
from tokengraft.checkpoint.rows import init_name
from tokengraft.corpus.files import input_without_credentials
from tokengraft.corpus.open import Corpus, open_corpus, paths_of
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import PreserveCost
from tokengraft.measure.choose_size import SizeChoice
from tokengraft.measure.compare import SampleChange
from tokengraft.measure.scores import Evaluation
from tokengraft.pipeline.options import AdaptOptions, Role, Target
from tokengraft.pipeline.prepare import Prepared
from tokengraft.pipeline.request import INLINE, OF_A_RUN, Request, given_of, shown_name
from tokengraft.pipeline.texts import Texts
from tokengraft.pruning.cost import PrunePoint, RemovedTokens, removed_summary
from tokengraft.pruning.order import PruneOrder, coverage_reason
from tokengraft.representation import FrozenDict, Table, sentences, shown
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import Check
from tokengraft.verify.loaders import Verification
from tokengraft.vocab_plan import VocabPlan

HELD_OUT = "held-out documents of the corpora that were counted"
TEST = "texts given by --test"


@shown
@dataclass(frozen=True)
class TargetResult:
    """The result for one target."""

    gain: float | None
    """Relative increase of bytes per token on held-out text."""
    tokens: int
    """New tokens that are more frequent here than in any other target, relative to the bytes of the texts."""


@dataclass(frozen=True)
class Vocabulary:
    """A new tokenizer, and how it was made. The result of `tokengraft extend` and `tokengraft prune`."""

    base: Tokenizer
    tokenizer: Tokenizer
    order: PruneOrder | None = None
    """The pruned tokens; None if none were asked for."""
    extension: Extension | None = None
    """The learned tokens; None if none were asked for."""
    pruned: Tokenizer | None = None
    """The tokenizer after pruning and before tokens were learned; None if there were not both."""
    whole: PruneOrder | None = None
    """The complete order, of which the pruned tokens are the beginning."""
    choice: SizeChoice | None = None
    """How the number of new tokens was chosen; None if it was given."""
    coverage: float | None = None
    """The share of tokens by which the number of pruned tokens was chosen; None if it was given."""
    prune_curve: tuple[PrunePoint, ...] = ()
    """What it costs on held-out text to prune more or fewer tokens, and what that saves; empty if any are learned."""
    cost: PreserveCost | None = None
    """What text that the user preserves costs; None if there is none, or nothing was learned."""
    samples: tuple[SampleChange, ...] = ()
    """The tokens of the built-in sample texts before and after, the largest increase first."""
    text_tokens: tuple[int, ...] = ()
    """Tokens of the counted text with the base and with the pruned tokenizer; empty if no text was counted."""
    warnings: tuple[str, ...] = ()
    """One sentence each."""
    verified: Verification | None = None
    """How loaders read the written tokenizer, where no checkpoint was written."""

    @property
    def covered(self) -> str | None:
        """How the number of tokens to prune was chosen; None if it was given."""
        left_out = self.order.left_out if self.order else ()
        return coverage_reason(self.coverage, left_out) if self.coverage else None

    @property
    def size_reason(self) -> str | None:
        """How the numbers of tokens were chosen; None if they were given."""
        learned = self.choice.reason if self.choice else None
        pruned = f"{len(self.order or ()):,} pruned: {self.covered}" if self.covered else None
        return "; ".join(filter(None, (learned, pruned))) or None


@shown
@dataclass(frozen=True, kw_only=True)
class Adaptation(Vocabulary):
    """The adapted tokenizer, how it was made, and how it was checked and measured."""

    plan: VocabPlan
    check: Check
    evaluation: Evaluation
    """Scores of the tokenizers `base` and `new` on held-out documents of the corpora. Other text usually gains less."""
    targets: Mapping[str, TargetResult]
    transplant: Transplant | None
    """None without weights."""
    test: Evaluation | None = None
    """Scores on texts of the user's choice; None if there are none."""
    request: Mapping[str, Any] = field(default_factory=FrozenDict)
    """What was asked for: options, inputs with sizes, and versions, as `adaptation.json` has it."""
    kept_cost: Mapping[str, float] = field(default_factory=FrozenDict)
    """The expected increase of tokens in other text like each kept one, because of pruned tokens."""

    @property
    def rows(self) -> tuple[int, int]:
        """Rows before and after: of the embedding with padding; without weights, those that the tokenizer needs."""
        if self.transplant:
            return self.transplant.rows_before, self.transplant.rows_after
        return self.plan.rows_before, self.plan.rows_after

    @property
    def removed(self) -> RemovedTokens:
        """The pruned tokens that were not learned again, by kind and by script."""
        gone = set(self.plan.removed)
        return removed_summary(
            self.base, (each.id for each in self.order.removals if each.id in gone) if self.order else ()
        )

    @property
    def scores(self) -> Evaluation:
        """The scores on test texts, then on held-out documents, by the names that terminal and report show."""
        held_out, test = self.evaluation, self.test or Evaluation(())
        named = [replace(score, text=shown_name(score.text, "test")) for score in test.scores]
        for score in held_out.scores:
            role: Role = "target" if score.text in self.targets else "keep"
            named.append(replace(score, text=shown_name(score.text, role)))
        notes = tuple(dict.fromkeys((*test.notes, *held_out.notes)))
        return replace(held_out, scores=tuple(named), notes=notes, warnings=(*test.warnings, *held_out.warnings))

    def _facts(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer,
            "rows": self.rows,
            "passed": self.check.passed,
        } | self.plan.summary._asdict()

    def _tables(self) -> Iterator[Table]:
        yield from self.evaluation._tables()
        rows = ((name, target.gain, target.tokens) for name, target in self.targets.items())
        yield Table("targets", ("target", "gain", "new tokens most frequent here"), rows, len(self.targets))
        notable = [
            f"{each.outcome}: {each.name}: {each.detail}" for each in self.check.findings if each.outcome != "pass"
        ]
        yield from sentences("checks", notable)
        yield from sentences("warnings", self.warnings)

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        return {
            "tokengraft": _core.__version__,
            "request": dict(self.request),
            "plan": self.plan.summary._asdict(),
            "checks_passed": self.check.passed,
            "findings": [asdict(finding) for finding in self.check.findings],
            "evaluation": {"measured_on": HELD_OUT, **self.evaluation.as_dict()},
            "test": {"measured_on": TEST, **self.test.as_dict()} if self.test else None,
            "targets": {name: asdict(target) for name, target in self.targets.items()},
            "transplant": self.transplant.as_dict() if self.transplant else None,
            "size": self.choice.as_dict() if self.choice else None,
            "coverage": self.coverage,
            "pruned": len(self.order) if self.order else 0,
            "prune_curve": [point.as_dict() for point in self.prune_curve],
            "included": [word._asdict() for word in self.extension.included] if self.extension else [],
            "refused": len(self.extension.refused) if self.extension else 0,
            "kept": dict(self.order.kept) if self.order else {},
            "kept_cost": dict(self.kept_cost),
            "removed_tokens": self.removed.as_dict(),
            "samples": [sample._asdict() for sample in self.samples],
            "not_preserved": self.extension.provenance.get("not_preserved") if self.extension else None,
            "preserve_cost": self.cost.as_dict() if self.cost else None,
            "warnings": list(self.warnings),
        }


def given_paths(corpus: Corpus | PretokenCounts) -> list[str] | None:
    """The paths of a corpus, sorted, without credentials; None if it was something in memory, such as texts."""
    paths = paths_of(corpus)
    return None if paths is None else sorted(input_without_credentials(os.fspath(path)) for path in paths)


def record_of(job: Prepared, texts: Texts, test: Evaluation | None) -> dict[str, Any]:
    """The record of a request: its options as a recipe has them, its inputs, and the versions."""
    from importlib.metadata import version

    documents = {("test", score.text): score.documents for score in (test.scores if test else ())}
    documents |= {(job.role(name), name): texts.n_documents(name) for name in texts.parts}
    inputs, options = [_model(job), *_text_inputs(job)], job.options
    only_in_python = [name for name in ("init", "output_init") if callable(getattr(options, name))]
    only_in_python += ["hold_out"] * (options.hold_out != AdaptOptions().hold_out)
    only_in_python += ["read_options.rules"] * (options.read_options.rules is not None)
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    date = {"date": datetime.fromtimestamp(int(epoch), UTC).isoformat()} if epoch.isdecimal() else {}
    return {
        "step": job.step,
        "command": job.command,
        "versions": {
            "tokengraft": _core.__version__,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "pyarrow")},
        },
        **date,
        "source": os.fspath(job.source),
        "options": recipe_of(job),
        "only_in_python": only_in_python,  # options that no recipe can have
        "inputs": [{**item, "documents": documents.get((item["role"], item["name"]))} for item in inputs],
    }


def _model(job: Prepared) -> dict[str, Any]:
    weights = open_checkpoint(Path(job.source)).files if has_weights(job.source) else ()
    return {
        "role": "model",
        "name": Path(job.source).resolve().name,
        "path": os.fspath(job.source),
        "bytes": sum(file.path.stat().st_size for file in weights),
        "sha256": job.base.content_hash,
    }


def _text_inputs(job: Request) -> Iterator[dict[str, Any]]:
    """Every text: its role, its name, its paths as they were given, and the bytes of its files as they are on disk."""
    texts: list[tuple[str, str, Corpus | PretokenCounts]] = [
        *((job.role(name), name, corpus) for name, corpus in job.corpora.items()),
        *(("test", name, text) for name, text in job.tests.items()),
        *([] if job.options.preserve is None else [("preserve", "preserve", job.options.preserve)]),
        *(("parity text", name, text) for name, text in (job.options.parity_text or {}).items()),
    ]
    # Of all shards: the record says what was given, and the shard is an option.
    read_options = ReadOptions(format=job.options.read_options.format, skip_bad=job.options.read_options.skip_bad)
    for role, name, text in texts:
        paths, size = given_paths(text), 0
        if paths is not None:
            files = dict.fromkeys(source.file for source in open_corpus(text, read_options))
            size = sum(file.size for file in files if file)
        path = paths[0] if paths and len(paths) == 1 else paths
        yield {"role": role, "name": name, "path": path, "bytes": size}


def recipe_of(job: Request) -> dict[str, Any]:
    """The options that decide the result, as a recipe has them. A text in memory is null."""
    given = {name: value for name, value in job.given.items() if name not in OF_A_RUN}
    # A record has what the files of word lists said: they may change.
    given |= {name: value for name, value in given_of(job.options).items() if name in INLINE}
    return {"model": os.fspath(job.source), **{name: _plain(value) for name, value in given.items()}}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, Target):
        paths = given_paths(value.corpus)
        weight = "" if str(value.weight) == "1" else f":{value.weight}"
        return paths and [f"{paths[0]}{weight}", *paths[1:]]
    if isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return f"{value[0]}/{value[1]}"  # a shard
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | tuple | list) for item in value):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return input_without_credentials(value)
    if callable(value):
        return init_name(value)
    return value if isinstance(value, bool | int | float) else given_paths(value)
