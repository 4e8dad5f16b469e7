"""Random rows with the mean and covariance of the table (after Hewitt, 2021)."""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def mean_cov(tokens: NewTokens, info: TableInfo) -> Rows:
    """For each token a sample from the normal distribution with the mean and the covariance of the table's rows."""
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = info.mean + info.factor @ info.generator(token.id).standard_normal(info.width)
    return rows
