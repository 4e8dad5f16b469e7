"""A mean of pieces that are weighted by their length in characters: long pieces say more about a token."""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def length_weighted(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, weighted by length; without pieces, the mean of the table.

    A byte of an incomplete character is a quarter of a character long.
    """
    lengths = np.array(info.facts.lengths, np.int64)[tokens.pieces]
    rows = np.empty((len(tokens), info.width), np.float32)
    ends = np.cumsum(tokens.n_pieces)
    for row, token, end in zip(rows, tokens, ends, strict=True):
        weights = lengths[end - len(token.pieces) : end].astype(np.float64)
        row[:] = (weights / weights.sum()) @ token.pieces if weights.any() else info.mean
    return rows
