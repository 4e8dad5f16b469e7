"""Like `fvt`, but rescaled to the length of a typical row of the token's script."""

import numpy as np

from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.interface import NewTokens, Rows, TableInfo
from tokengraft.checkpoint.rows.rescale import rescaled


def fvt_script_norm(tokens: NewTokens, info: TableInfo) -> Rows:
    """The mean of each token's pieces, rescaled to the median length of the rows of kept tokens of its script.

    Scripts with few kept tokens, and tokens without a script, use the median length of kept tokens of all scripts.
    """
    norms, scripts = info.script_norms, info.facts.new_scripts
    named = (scripts[i] if i < len(scripts) else None for i in tokens.ids)
    return rescaled(fvt(tokens, info), np.array([norms.get(name, norms[None]) for name in named], np.float64))
