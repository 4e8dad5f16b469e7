"""The row of the kept token that occurs beside the most similar tokens in counted text (`tokengraft.similar`)."""

import numpy as np

from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def context(tokens: NewTokens, info: TableInfo) -> Rows:
    """A copy of the row of each token's similar token; for tokens without one, the mean of the pieces."""
    rows, similar = fvt(tokens, info), info.facts.similar or {}
    old = np.array([similar.get(i, -1) for i in tokens.ids], np.int64)
    copied = np.isin(old, info.kept)
    rows[copied] = info.read(old[copied])
    return rows
