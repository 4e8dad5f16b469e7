"""Fast Vocabulary Transfer (Gee et al., 2022): the mean of the rows of a token's pieces."""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def fvt(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces; without pieces, the mean of the table.

    >>> pieces = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> fvt(NewTokens([7], np.array([2]), pieces), TableInfo(np.arange(0), lambda ids: pieces[ids], 2))
    array([[2., 3.]], dtype=float32)
    """
    rows = np.empty((len(tokens), info.width), np.float32)
    starts = np.cumsum(tokens.n_pieces) - tokens.n_pieces
    for count in np.unique(tokens.n_pieces):
        alike = tokens.n_pieces == count
        if not count:
            rows[alike] = info.mean
        elif alike.all():
            return _means(tokens.pieces.reshape(len(tokens), count, info.width))
        else:
            rows[alike] = _means(tokens.pieces[starts[alike, None] + np.arange(count)])
    return rows


def _means(pieces: Rows) -> Rows:
    """The mean of each group of rows, as `mean(axis=1, dtype=np.float64)` computes it."""
    count, width = pieces.shape[1:]
    if width == 1:  # a bias: numpy adds in another order, which rounds differently
        total = pieces.mean(axis=1, dtype=np.float64)
    else:
        total = pieces[:, 0].astype(np.float64)
        for place in range(1, count):
            total += pieces[:, place]
        total /= count
    means: Rows = total.astype(np.float32)
    return means
