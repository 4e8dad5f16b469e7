"""Q8_0 of ggml: blocks of 32 numbers as 8-bit integers, with a 16-bit scale before them.

Rows are rounded as ggml's `quantize_row_q8_0_ref` does, to the bit.
"""

import numpy as np
import numpy.typing as npt

Q8_0 = "Q8_0"
BLOCK, BLOCK_BYTES = 32, 34

Rows = npt.NDArray[np.float32]
Raw = npt.NDArray[np.uint8]


def dequantised(raw: Raw) -> Rows:
    """Rows as 32-bit floats.

    >>> dequantised(np.array([[0x00, 0x3C, 5, *[0] * 30, 0xFF]], np.uint8))[0, [0, 1, 31]]
    array([ 5.,  0., -1.], dtype=float32)
    """
    blocks = np.ascontiguousarray(raw).reshape(-1, BLOCK_BYTES)
    scale = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float32)
    values = np.ascontiguousarray(blocks[:, 2:]).view(np.int8) * scale
    return values.astype(np.float32, copy=False).reshape(len(raw), raw.shape[1] // BLOCK_BYTES * BLOCK)


def quantised(rows: Rows) -> Raw:
    """Rows as blocks. The largest number of a block becomes 127 or -127; halves are rounded away from 0."""
    blocks = rows.reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        scaled = blocks * np.where(scale == 0, np.float32(0), np.float32(1) / scale)
        size = np.abs(scaled)
        # subtle: floor(size + 0.5) would round the number below 0.5 up to 1
        whole = np.sign(scaled) * (np.floor(size) + np.floor(2 * (size - np.floor(size))))
        integers = np.nan_to_num(whole, nan=0, posinf=127, neginf=-127).astype(np.int8)
        packed = [scale.astype("<f2").view(np.uint8), integers.view(np.uint8)]
    blocked: Raw = np.concatenate(packed, axis=1)
    return blocked.reshape(len(rows), rows.shape[1] // BLOCK * BLOCK_BYTES)


def scales(raw: Raw) -> Raw:
    """The bytes of the scales of all blocks: a row is finite if they are."""
    return np.ascontiguousarray(np.ascontiguousarray(raw).reshape(-1, BLOCK_BYTES)[:, :2])
