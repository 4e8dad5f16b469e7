"""Fast Vocabulary Transfer (Gee et al., 2022): the mean of the rows of a token's pieces."""

from collections.abc import Sequence

import numpy as np

from tokengraft.checkpoint.rows.interface import NewToken, Rows, TableInfo


def fvt(tokens: Sequence[NewToken], info: TableInfo) -> Rows:
    """The mean of each token's pieces; without pieces, the mean of the table.

    >>> piece = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> fvt([NewToken(7, piece)], TableInfo(np.arange(0), lambda ids: piece[ids], 2))
    array([[2., 3.]], dtype=float32)
    """
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = token.pieces.mean(axis=0, dtype=np.float64) if len(token.pieces) else info.mean
    return rows
