"""`Adaptation`: the result of adapting a model, as plain data."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tokengraft import _core
from tokengraft.checkpoint.result import Transplant
from tokengraft.learn.extension import Extension
from tokengraft.learn.preserve import PreserveCost
from tokengraft.measure.choose_size import SizeChoice
from tokengraft.measure.compare import SampleChange
from tokengraft.measure.scores import Evaluation
from tokengraft.pipeline.options import Role
from tokengraft.pipeline.request import shown_name
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
