"""Exponential weights (AdaptiVocab, Nakash et al., 2025): the last piece for reading, the first for writing.

When a token is read, what follows depends most on how it ended; when it is written, the model decides as it begins.
"""

from collections.abc import Sequence

import numpy as np

from tokengraft.checkpoint.rows.interface import NewToken, Rows, TableInfo

STEEPNESS = 2.0
"""Each piece weighs e^2 times as much as its neighbour."""


def weighted(tokens: Sequence[NewToken], info: TableInfo) -> Rows:
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
