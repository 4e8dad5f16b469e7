"""`Adaptation`: what came of adapting a model. Plain data; the report is made from it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tokengraft import _core
from tokengraft.check import Check
from tokengraft.checkpoint.transplant import Transplant
from tokengraft.evaluate import Evaluation
from tokengraft.extend import Extension
from tokengraft.plan import VocabPlan
from tokengraft.prune import PruneOrder
from tokengraft.tokenizer import Tokenizer


@dataclass(frozen=True)
class Served:
    """What one target language got."""

    gain: float | None
    """More bytes per token on held-out text, as a share."""
    tokens: int
    """Added tokens that occur in it relatively more often than in any other target."""


@dataclass(frozen=True)
class Adaptation:
    """What came of it."""

    base: Tokenizer
    tokenizer: Tokenizer
    order: PruneOrder | None
    extension: Extension | None
    plan: VocabPlan
    check: Check
    evaluation: Evaluation
    served: Mapping[str, Served]
    transplant: Transplant | None
    """None where there were no weights."""

    def as_dict(self) -> dict[str, Any]:
        """The summary as JSON-ready data."""
        return {
            "tokengraft": _core.__version__,
            "plan": self.plan.summary._asdict(),
            "checks_passed": self.check.passed,
            "findings": [asdict(finding) for finding in self.check.findings],
            "evaluation": self.evaluation.as_dict(),
            "served": {name: asdict(served) for name, served in self.served.items()},
            "transplant": self.transplant.as_dict() if self.transplant else None,
        }
