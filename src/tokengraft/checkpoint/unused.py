"""Rows that no token has: which they are, and rows for them that a model does not choose.

A model computes a logit for every row of its output. With pruned tokens and kept ids, some rows have no token, and an
id without a token decodes to nothing. `docs/initialisers.md` has the proofs for what is said here.
"""

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from tokengraft.checkpoint.rows import TableInfo
from tokengraft.checkpoint.rows.interface import Rows
from tokengraft.errors import OptionError
from tokengraft.plan import VocabPlan

HoleRows = Literal["keep", "zero", "lowest"]
"""What rows without a token get: the row that they had, zeros, or a row that is never the most likely."""
DEFAULT_HOLE_ROWS: HoleRows = "lowest"
BIAS_DROP = 10_000.0
"""How far the bias of a row without a token is below the mean. A finite number in 16 bits; e^-10000 is 0 in 64."""


@dataclass(frozen=True)
class Unused:
    """New rows that have no token, and what they get."""

    rows: frozenset[int] = field(default_factory=frozenset)
    how: HoleRows = "keep"
    is_bias: bool = False

    def row(self, info: TableInfo) -> Rows:
        """The row that all of them get in one table.

        `lowest` is the mean of the rows of all kept tokens. Its logit is the mean of theirs, which is never above the
        largest. With a bias, it is far below.
        """
        if self.how == "zero":
            return np.zeros(info.width, np.float32)
        return info.kept_mean - np.float32(BIAS_DROP) if self.is_bias else info.kept_mean


def unused_rows(plan: VocabPlan, rows: tuple[int, int], how: HoleRows, named: Container[int]) -> Unused:
    """The new rows without a token that do not keep the row that they had.

    These are the ids of the new tokenizer without a token, and padding for which there is no old row. Other padding
    stays as it is. With `keep`, there are none.

    Args:
        plan: The plan.
        rows: Rows of the embedding before and after, padding included.
        how: What they get.
        named: New ids that a config uses, such as the id of an image. Their rows are kept.
    """
    if how == "keep":
        return Unused()
    holes = (i for i, source in enumerate(plan.sources) if source is None and i not in named)
    first_new = plan.rows_after + rows[0] - plan.rows_before
    return Unused(frozenset((*holes, *range(max(first_new, plan.rows_after), rows[1]))), how)


def require_hole_rows(how: str) -> None:
    """Refuses a choice that does not exist.

    Raises:
        OptionError: The hint lists those that do.
    """
    if how not in get_args(HoleRows):
        raise OptionError(f"there are no hole rows {how!r}", hint=f"pass one of {', '.join(get_args(HoleRows))}")
