"""`draft_order`: all ids in the order in which the head of a draft model should have them. `chosen_size`: how many.

A draft model proposes tokens, and the target model verifies them. A token that the draft's head lacks is never
proposed, which costs speed and changes no output. Kept tokens need not be built from each other: every id is by itself.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, option, require, whole_number
from tokengraft.pruning.methods import Question, expected_usefulness
from tokengraft.pruning.order import require_coverage
from tokengraft.pruning.removable import CHAT, default_tokens, named_tokens
from tokengraft.tokenizer.known_tokens import reserved_tokens
from tokengraft.tokenizer.tokenizer import Tokenizer

Size = int | Literal["auto"]
MULTIPLE, STEP = 64, 1024
"""Sizes by coverage are multiples of 64, as servers pad heads, and those of `auto` of 1,024."""
SMALL_GAIN = 0.01
"""`auto` ends where twice as many ids would cover so much less than this share more of every text."""
FIRST_SIZE = 2048
"""The curve has this size and its doubles."""


class DraftOrder(NamedTuple):
    """All ids of a tokenizer, first to last."""

    ids: tuple[int, ...]
    required: int
    """So many at the beginning are always chosen."""


class CoveragePoint(NamedTuple):
    """The share of the tokens of every text that a draft vocabulary of this size has."""

    size: int
    chosen: Mapping[str, float]
    first_ids: Mapping[str, float]
    """The share that the ids from 0 to size - 1 have."""


def required_ids(tokenizer: Tokenizer, counts: PretokenCounts | None = None) -> set[int]:
    """Special tokens, those of chat templates, and bytes. Reserved tokens are left out, unless the text has them."""
    named = {tokenizer.unknown, *named_tokens(tokenizer)}
    required = {token.id for token in tokenizer.added} - reserved_tokens(tokenizer, counts.added if counts else {})
    required |= {token_id for string, token_id in tokenizer.ids.items() if string in named}
    required |= {token.id for token in tokenizer.tokens if len(token.bytes) == 1}
    return required | default_tokens(tokenizer)[CHAT]


def lacking_warning(tokenizer: Tokenizer, ids: Iterable[int]) -> str:
    """A warning about required ids that are not among some; empty if all are."""
    required = required_ids(tokenizer)
    lacking = required.difference(ids)
    if not lacking:
        return ""
    return (
        f"{len(lacking):,} of {len(required):,} special tokens, tokens of chat templates and bytes are not among the "
        "ids, so the draft never proposes them; ids of another tokenizer look like this too"
    )


def draft_order(tokenizer: Tokenizer, counts: PretokenCounts) -> DraftOrder:
    """The required ids, then all others: the most frequent first.

    Tokens that do not occur follow as in `leaf-expected`: by how often they are expected in other text of the kind.
    """
    required, everything = required_ids(tokenizer, counts), frozenset(tokenizer.ids.values())
    question = Question(tokenizer, everything, counts, (), by_merges=False)
    found, useful = question.frequencies(), expected_usefulness(question)
    order = sorted(everything - required, key=lambda i: (-found.get(i, 0), -useful.get(i, 0.0) * (i not in found), i))
    return DraftOrder((*sorted(required), *order), len(required))


@dataclass(frozen=True)
class Coverage:
    """What the beginnings of an order cover of some texts, given by how often each id occurs in them."""

    ids: tuple[int, ...]
    texts: Mapping[str, Mapping[int, int]]

    @cached_property
    def shares(self) -> dict[str, npt.NDArray[np.float64]]:
        """For every text, the share that the first n + 1 ids cover, at n."""
        return {name: self._shares(name, self.ids) for name in self.texts}

    def _shares(self, name: str, ids: Iterable[int]) -> npt.NDArray[np.float64]:
        tokens = self.texts[name]
        require(sum(tokens.values()) > 0, f"the text {name!r} has no tokens", hint="pass other text, or leave it out")
        covered: npt.NDArray[np.float64] = np.cumsum([tokens.get(i, 0) for i in ids]) / sum(tokens.values())
        return covered

    def curve(self, size: int) -> tuple[CoveragePoint, ...]:
        """The coverage at this size, and at 2,048 and its doubles."""
        doubles = (FIRST_SIZE << power for power in range(20))
        sizes = sorted({size, *(double for double in doubles if double < len(self.ids))})
        first = {name: self._shares(name, range(len(self.ids))) for name in self.texts}

        def at(shares: Mapping[str, npt.NDArray[np.float64]], n: int) -> dict[str, float]:
            return {name: round(float(share[n - 1]), 6) for name, share in shares.items()}

        return tuple(CoveragePoint(n, at(self.shares, n), at(first, n)) for n in sizes)


def chosen_size(order: DraftOrder, size: Size | None, share: float | None, held_out: Coverage | None) -> int:
    """How many ids a draft vocabulary has: a given number, as many as cover a share of every text, or `auto`."""
    most = len(order.ids)
    if (size is None) == (share is None):
        raise OptionError(
            "a size or a coverage must be given, and not both",
            hint=f"pass {option('size', 32768)} or {option('coverage', 0.98)}",
        )
    if size not in (None, "auto"):
        n = whole_number("size", size, "'auto'")
        if n > most:
            raise OptionError(
                f"{option('size')} is {n:,}, and the vocabulary has {most:,} tokens",
                hint=f"pass {option('size', most)} or less",
            )
        if n < order.required:
            raise OptionError(
                f"{option('size')} is {n:,}, and special tokens, chat templates and bytes need {order.required:,} ids",
                hint=f"pass {option('size', order.required)} or more",
            )
        return n
    if held_out is None or not held_out.texts:
        raise OptionError(
            "no text was given to choose the size by", hint=f"pass {option('held_out')}, text that is not counted"
        )
    if share is not None:
        share = require_coverage("coverage", share)
        needed = max(int(np.searchsorted(shares, share - 1e-12)) + 1 for shares in held_out.shares.values())
        return min(-(-max(needed, order.required) // MULTIPLE) * MULTIPLE, most)
    for n in range(-(-order.required // STEP) * STEP, most, STEP):
        twice = min(2 * n, most)
        if all(shares[twice - 1] - shares[n - 1] < SMALL_GAIN for shares in held_out.shares.values()):
            return n
    return most
