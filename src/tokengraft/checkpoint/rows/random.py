"""Random rows, like the model's weights before training."""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def random(tokens: NewTokens, info: TableInfo) -> Rows:
    """For each token a sample from the normal distribution around 0 with the model's `initializer_range`."""
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = info.spread * info.generator(token.id).standard_normal(info.width)
    return rows
