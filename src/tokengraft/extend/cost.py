"""`preserve_cost`: what preserved text costs in compression."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from tokengraft.arguments import checked
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.extend.continued import CHARACTER_COVERAGE, WordListError, extend
from tokengraft.extend.extension import Extension
from tokengraft.extend.include import WordList
from tokengraft.extend.limits import Limits
from tokengraft.extend.parity import Parity, languages_of
from tokengraft.representation import shown
from tokengraft.tokenizer.tokenizer import Tokenizer


@shown
@checked
@dataclass(frozen=True)
class PreserveCost:
    """The tokens of the training text with and without preserved text."""

    base: int
    """Tokens under the base."""
    preserved: int
    """Tokens under the extension that preserves text."""
    free: int
    """Tokens under the extension of the same size that preserves none."""

    @property
    def share(self) -> float:
        """How many more tokens the text has because of the preserved text, as a share: 0.01 is one percent."""
        return self.preserved / self.free - 1 if self.free else 0.0


@checked
def preserve_cost(
    tokenizer: Tokenizer,
    counts: PretokenCounts | Parity,
    extension: Extension,
    *,
    limits: Limits | None = None,
    character_coverage: float = CHARACTER_COVERAGE,
    include: WordList | Sequence[str] | None = None,
) -> PreserveCost:
    """What preserving text cost, measured on the training text by training once more without it.

    Args:
        tokenizer: The base.
        counts: What the extension was learned on.
        extension: The result of ``extend(tokenizer, counts, ..., preserve=...)``.
        limits: The limits that it was learned with.
        character_coverage: The coverage that it was learned with.
        include: The word list that it was learned with.
    """
    asked = extension.asked
    train = partial(extend, tokenizer, counts, limits=limits, character_coverage=character_coverage, include=include)
    try:
        free = train(asked)
    except WordListError as error:  # words that the preserved text does not allow need tokens too
        free = train(error.needed)[:asked]
    tokenizers = (tokenizer, extension.apply(tokenizer), free.apply(tokenizer))
    base, preserved, without = (
        sum(sum(text.tokens(one).values()) for text in languages_of(counts)) for one in tokenizers
    )
    return PreserveCost(base, preserved, without)
