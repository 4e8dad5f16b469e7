"""Exponentially weighted mean of pieces (AdaptiVocab, Nakash et al., 2025).

The last piece has the largest weight in the input, because the next token depends most on it. The first piece has the
largest weight in the output, because the model predicts it first.
"""

import numpy as np

from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo

STEEPNESS = 2.0
"""The weight of a piece is e^2 times that of its neighbour."""


def weighted(tokens: NewTokens, info: TableInfo) -> Rows:
    """A mean of each token's pieces in which later ones weigh more for input, earlier ones for output."""
    rows = np.empty((len(tokens), info.width), np.float32)
    for row, token in zip(rows, tokens, strict=True):
        row[:] = _weights(len(token.pieces), info) @ token.pieces if len(token.pieces) else info.mean
    return rows


def _weights(n: int, info: TableInfo) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    places = np.arange(n, dtype=np.float64)
    nearest = n - 1 - places if info.table == "input" else places
    weights = np.exp(-STEEPNESS * nearest)
    normalized: np.ndarray[tuple[int], np.dtype[np.float64]] = weights / weights.sum()
    return normalized
