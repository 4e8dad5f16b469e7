"""Random rows, like the model's weights before training."""

from collections.abc import Sequence

import numpy as np

from tokengraft.checkpoint.rows.interface import NewToken, Rows, TableInfo


def random(tokens: Sequence[NewToken], info: TableInfo) -> Rows:
    """For each token a sample from the normal distribution around 0 with the model's `initializer_range`."""
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = info.spread * info.generator(token.id).standard_normal(info.width)
    return rows
