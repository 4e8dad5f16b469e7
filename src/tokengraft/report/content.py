"""`Content`: what a report is about. Plain values; `data` makes JSON of them, and `page` makes HTML of that."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tokengraft.check.finding import Check
from tokengraft.checkpoint.result import Transplant
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.evaluate.evaluation import Evaluation
from tokengraft.evaluate.segments import Text, TokenTotals, token_totals
from tokengraft.extend.extension import Extension
from tokengraft.plan import VocabPlan
from tokengraft.tokenizer.tokenizer import Tokenizer

Role = Literal["target", "keep", "text"]
BASE, NEW = "base", "new"
"""The names of the two tokenizers in the evaluation."""


@dataclass(frozen=True)
class ReportText:
    """A text that both tokenizers are measured on."""

    name: str
    measured_on: str
    """What the measures are from, such as `held-out documents`."""
    role: Role = "text"
    documents: tuple[str, ...] = ()
    """The documents that are measured and shown; none if there are only counts."""
    counts: PretokenCounts | None = None
    """Where the frequencies of tokens are from; by default from the documents."""

    @property
    def source(self) -> Text | PretokenCounts:
        """What is measured."""
        return Text(self.name, self.documents) if self.counts is None or self.documents else self.counts


@dataclass(frozen=True)
class Content:
    """Two tokenizers, and everything that is known about the way from one to the other."""

    title: str
    base: Tokenizer
    new: Tokenizer
    plan: VocabPlan
    texts: tuple[ReportText, ...]
    evaluation: Evaluation
    """Of the tokenizers `base` and `new` on the texts."""
    check: Check | None = None
    pruned: Tokenizer | None = None
    """What the extension was learned for; None if it was the base."""
    extension: Extension | None = None
    size_reason: str | None = None
    """How the number of new tokens was chosen."""
    transplant: Transplant | None = None
    warnings: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    """What was asked: `command`, `date`, `versions`, `options`, and `inputs` as a list of mappings."""
    probe: Mapping[str, Any] | None = None
    """The result of `tokengraft probe`, as its JSON has it."""

    @cached_property
    def token_totals(self) -> dict[tuple[str, str], TokenTotals]:
        """The number of tokens of every text that has documents, by tokenizer and text."""
        sides = {BASE: self.base, NEW: self.new}
        texts = [text for text in self.texts if text.documents]
        return {
            (side, text.name): token_totals(tokenizer, text.documents)
            for text in texts
            for side, tokenizer in sides.items()
        }

    @cached_property
    def frequencies(self) -> dict[tuple[str, str], Mapping[int, int]]:
        """How often each token occurs in each text, by tokenizer and text."""
        return {(side, text.name): self._frequencies(side, text) for text in self.texts for side in (BASE, NEW)}

    def _frequencies(self, side: str, text: ReportText) -> Mapping[int, int]:
        if text.counts is not None:
            return text.counts.tokens(self.base if side == BASE else self.new)
        found = self.token_totals.get((side, text.name))
        return found.counted if found else Counter()
