"""Rows that no token has: which they are, and rows for them that a model does not choose.

A model computes a logit for every row of its output. With pruned tokens and kept ids, some rows have no token, and an
id without a token decodes to nothing. `docs/initialisers.md` has the proofs for what is said here.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from tokengraft.checkpoint.ids import NEVER_CHOSEN, generated_ids
from tokengraft.checkpoint.rows import TableInfo
from tokengraft.checkpoint.tensors import Rows
from tokengraft.errors import OptionError
from tokengraft.vocab_plan import VocabPlan

HoleRows = Literal["keep", "zero", "lowest"]
"""What rows without a token get: the row that they had, zeros, or a row that is never the most likely."""
DEFAULT_HOLE_ROWS: HoleRows = "lowest"
BIAS_DROP = 10_000.0
"""How far the bias of a row without a token is below the mean. A finite number in 16 bits; e^-10000 is 0 in 64."""


@dataclass(frozen=True)
class Unused:
    """New rows that have no token, what they get, and whether their ids may be generated."""

    rows: frozenset[int] = field(default_factory=frozenset)
    """Those that do not keep the row that they had."""
    how: HoleRows = "keep"
    suppressed: frozenset[int] = field(default_factory=frozenset)
    """Those that `generate` must not choose."""

    def row(self, info: TableInfo, *, is_bias: bool = False) -> Rows:
        """The row that all of them get in one table.

        `lowest` is the mean of the rows of all kept tokens. Its logit is the mean of theirs, which is never above the
        largest. With a bias, it is far below.
        """
        if self.how == "zero":
            return np.zeros(info.width, np.float32)
        return info.kept_mean - np.float32(BIAS_DROP) if is_bias else info.kept_mean


def unused_rows(
    plan: VocabPlan, rows: tuple[int, int], how: HoleRows, fields: Collection[tuple[str, int]] = ()
) -> Unused:
    """The new rows without a token. With `keep`, there are none.

    Holes in the new ids get another row, and so does padding for which there is no old row. Padding that the model has
    keeps its rows, and so do the ids that configs use, such as that of an image (``fields``). All of them are
    suppressed, unless the model may have to generate one of them. ``rows`` are those of the embedding before and after.
    """
    if how == "keep":
        return Unused()
    named = {token_id for name, token_id in fields if name not in NEVER_CHOSEN}
    holes = {i for i, source in enumerate(plan.sources) if source is None}
    padding = {*range(plan.rows_after, rows[1])}
    kept = {*range(plan.rows_after + rows[0] - plan.rows_before)} & padding
    suppressed = (holes | padding) - generated_ids(fields)
    return Unused(frozenset((holes - named) | (padding - kept)), how, suppressed=frozenset(suppressed))


def require_hole_rows(how: str) -> None:
    """Refuses a choice that does not exist."""
    if how not in get_args(HoleRows):
        raise OptionError(f"there are no hole rows {how!r}", hint=f"pass one of {', '.join(get_args(HoleRows))}")
