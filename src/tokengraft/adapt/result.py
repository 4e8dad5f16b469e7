"""`Adaptation`: the result of adapting a model, as plain data."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.check.finding import Check
from tokengraft.checkpoint.result import Transplant
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.size import SizeChoice
from tokengraft.extend.extension import Extension
from tokengraft.frozen import FrozenDict
from tokengraft.plan import VocabPlan
from tokengraft.prune.order import PruneOrder
from tokengraft.representation import Table, sentences, shown
from tokengraft.tokenizer.tokenizer import Tokenizer

HELD_OUT = "held-out documents of the corpora that were counted"
TEST = "texts given by --test"


@shown
@checked
@dataclass(frozen=True)
class TargetResult:
    """The result for one target."""

    gain: float | None
    """Relative increase of bytes per token on held-out text."""
    tokens: int
    """New tokens whose relative frequency is higher here than in any other target."""


@shown
@checked
@dataclass(frozen=True)
class Adaptation:
    """The adapted tokenizer, how it was made, and how it was checked and measured."""

    base: Tokenizer
    tokenizer: Tokenizer
    order: PruneOrder | None
    """The pruned tokens; None if none were asked for."""
    extension: Extension | None
    """The learned tokens; None if none were asked for."""
    plan: VocabPlan
    check: Check
    evaluation: Evaluation
    """Scores of the tokenizers `base` and `new` on held-out documents of the corpora. Other text usually gains less."""
    targets: Mapping[str, TargetResult]
    transplant: Transplant | None
    """None without weights."""
    test: Evaluation | None = None
    """Scores on texts of the user's choice; None if there are none."""
    choice: SizeChoice | None = None
    """How the number of new tokens was chosen; None if it was given."""
    warnings: tuple[str, ...] = ()
    """One sentence each."""
    request: Mapping[str, Any] = field(default_factory=FrozenDict)
    """What was asked for: inputs with sizes and hashes, weights, options and versions, as `adaptation.json` has it."""

    @property
    def rows(self) -> tuple[int, int]:
        """Rows before and after: of the embedding with padding; without weights, those that the tokenizer needs."""
        if self.transplant:
            return self.transplant.rows_before, self.transplant.rows_after
        return self.plan.rows_before, self.plan.rows_after

    def _facts(self) -> dict[str, Any]:
        return {
            "tokenizer": self.tokenizer,
            "rows": self.rows,
            "passed": self.check.passed,
        } | self.plan.summary._asdict()

    def _tables(self) -> Iterator[Table]:
        yield from self.evaluation._tables()
        rows = ((name, target.gain, target.tokens) for name, target in self.targets.items())
        yield Table("targets", ("target", "gain", "new tokens of its own"), rows, len(self.targets))
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
            "included": [word._asdict() for word in self.extension.included] if self.extension else [],
            "refused": len(self.extension.refused) if self.extension else 0,
            "warnings": list(self.warnings),
        }


def target_results(
    base: Tokenizer, new: Tokenizer, evaluation: Evaluation, counts: Mapping[str, PretokenCounts]
) -> dict[str, TargetResult]:
    """The gain of each target, and the number of new tokens that are most frequent in it."""
    added = [token_id for string, token_id in new.ids.items() if string not in base.ids]
    occurrences = {name: part.tokens(new) for name, part in counts.items()}
    totals = {name: max(sum(tokens.values()), 1) for name, tokens in occurrences.items()}
    own = dict.fromkeys(counts, 0)
    for token_id in added:
        rates = {name: tokens.get(token_id, 0) / totals[name] for name, tokens in occurrences.items()}
        best = max(rates, key=lambda name: rates[name])
        own[best] += rates[best] > 0
    return {name: TargetResult(evaluation["new", name].gain, own[name]) for name in counts}
