"""Like `fvt`, but rescaled to the length of a typical row: a mean of rows is shorter than the rows."""

import numpy as np

from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo


def fvt_norm(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, rescaled to the median length of the table's rows."""
    rows = fvt(tokens, info).astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Rows = (rows * np.divide(info.median_norm, lengths, out=np.ones_like(lengths), where=lengths > 0)).astype(
        np.float32
    )
    return scaled
