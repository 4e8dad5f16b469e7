"""Means of bf16 rows in the core are those that numpy computes, to the bit."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokengraft import _core
from tokengraft.checkpoint.rows import NewTokens, TableInfo, fvt
from tokengraft.checkpoint.tensors import narrow, widen


@given(st.data(), st.integers(2, 9), st.integers(1, 6))
def test_means_in_the_core_are_those_of_numpy(data, width, count):
    bits = st.one_of(st.integers(0, 2**16 - 1), st.sampled_from([0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x3F80, 0x3F81]))
    values = data.draw(st.lists(bits, min_size=width * count, max_size=width * count))
    raw = np.array(values, "<u2").reshape(count, width).view(np.uint8)
    groups = data.draw(st.lists(st.lists(st.integers(0, count - 1), min_size=1, max_size=7), max_size=6))
    lengths, places = [len(group) for group in groups], [place for group in groups for place in group]
    ours = _core.bf16_means(raw.tobytes(), width, lengths, places)
    rows = widen(raw, "BF16").reshape(count, width)
    tokens = NewTokens(range(len(groups)), np.array(lengths, np.int64), np.array(places, np.int64), rows)
    with np.errstate(all="ignore"):
        expected = narrow(fvt(tokens, TableInfo(np.arange(0), lambda ids: rows[ids], width)), "BF16")
    assert ours == expected.tobytes()
