"""The mean of the table, the same row for every new token."""

from collections.abc import Sequence

import numpy as np

from tokengraft.checkpoint.rows.interface import NewToken, Rows, TableInfo


def mean(tokens: Sequence[NewToken], info: TableInfo) -> Rows:
    """The mean row of the table, for each token."""
    return np.tile(info.mean, (len(tokens), 1))
