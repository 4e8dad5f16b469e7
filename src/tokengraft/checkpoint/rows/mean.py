"""The mean of the table, the same row for every new token."""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def mean(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean row of the table, for each token."""
    return np.tile(info.mean, (len(tokens), 1))
