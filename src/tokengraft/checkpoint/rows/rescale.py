"""`rescaled`: rows with other lengths and the same directions."""

import numpy as np
import numpy.typing as npt

from tokengraft.checkpoint.rows.interface import Rows


def rescaled(rows: Rows, lengths: float | npt.NDArray[np.float64]) -> Rows:
    """Rows of the given lengths, of one or of each. A row of zeros stays one.

    >>> rescaled(np.array([[3.0, 4.0], [0.0, 0.0]], np.float32), 1.0)
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    wide = rows.astype(np.float64)
    before = np.linalg.norm(wide, axis=1)
    factors = np.divide(lengths, before, out=np.ones_like(before), where=before > 0)
    scaled: Rows = (wide * factors[:, None]).astype(np.float32)
    return scaled
