"""Fast Vocabulary Transfer (Gee et al., 2022): the mean of the rows of a token's pieces."""

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def fvt(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces; without pieces, the mean of the table.

    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    >>> fvt(NewTokens([7], np.array([2]), np.array([0, 1]), rows), TableInfo(np.arange(0), lambda ids: rows[ids], 2))
    array([[2., 3.]], dtype=float32)
    """
    means = np.empty((len(tokens), info.width), np.float32)
    starts = np.cumsum(tokens.n_pieces) - tokens.n_pieces
    for count in np.unique(tokens.n_pieces):
        alike = tokens.n_pieces == count
        pieces = tokens.places[starts[alike, None] + np.arange(count)]
        means[alike] = _means(tokens.rows, pieces) if count else info.mean
    return means


def _means(rows: Rows, pieces: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """For each group of rows the mean that `rows[group].mean(axis=0, dtype=np.float64)` computes."""
    if rows.shape[1] == 1:  # a bias: numpy adds in another order, which rounds differently
        means: npt.NDArray[np.float64] = rows[pieces].mean(axis=1, dtype=np.float64)
        return means
    total = rows[pieces[:, 0]].astype(np.float64)
    for place in range(1, pieces.shape[1]):
        total += rows[pieces[:, place]]
    total /= pieces.shape[1]
    return total
