"""Like `fvt`, but rescaled to the length of a typical row: a mean of rows is shorter than the rows."""

from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo
from tokengraft.checkpoint.rows.rescale import rescaled


def fvt_norm(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, rescaled to the median length of the table's rows."""
    return rescaled(fvt(tokens, info), info.median_norm)
