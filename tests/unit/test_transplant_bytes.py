"""Bytes of weight files: copied in every way, computed in blocks of any size, compared byte by byte, interrupted."""

import errno
import os
import threading
from concurrent.futures import CancelledError
from importlib import import_module

import numpy as np
import pytest
from checkpoints import add_tensor, changed, checkpoint

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint import result, table, tensors
from tokengraft.checkpoint.rows import INITIALISERS, NewTokens, TableInfo, fvt
from tokengraft.checkpoint.tensors import TensorFile, all_finite, widen

WEIGHTS = "model.safetensors"


def unsupported(*_, **__):
    raise OSError(errno.EXDEV, "Invalid cross-device link")


def nothing(*_, **__):
    return 0


def a_few(function):
    """Copies at most 1,000 bytes at a time, as a system call may."""
    return lambda source, target, start, size: function(source, target, start, min(size, 1000))


WAYS = {
    "in the kernel": [tensors._WAYS["copy_file_range"]],
    "a few at a time": [a_few(tensors._WAYS["copy_file_range"])],
    "between file systems": [unsupported, tensors._WAYS["sendfile"]],
    "through memory": [unsupported, unsupported],
    "a call that copies nothing": [nothing, nothing],
    "no such call": [],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="a call of Linux")
def test_every_way_of_copying_appends_the_same_bytes(way, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "_COPIERS", WAYS[way])
    data = np.random.default_rng(0).bytes(3_000_000)
    (tmp_path / "old").write_bytes(data)
    places = [tensors.Extent(tmp_path / "old", *place) for place in ((7, 2_500_000), (0, 0), (2_999_990, 10))]
    tensors.write_parts(tmp_path / "new", [b"header", *places, b"rows"])
    assert (tmp_path / "new").read_bytes() == b"header" + data[7:2_500_007] + data[-10:] + b"rows"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.skipif(not hasattr(os, "copy_file_range"), reason="a call of Linux")
def test_a_source_that_is_too_short_is_an_error_however_it_is_copied(way, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "_COPIERS", WAYS[way])
    (tmp_path / "old").write_bytes(b"x" * 100)
    beyond = tensors.Extent(tmp_path / "old", 50, 51)
    with pytest.raises(OSError, match="shorter than its header says"):
        tensors.write_parts(tmp_path / "new", [beyond])
    with pytest.raises(OSError, match="shorter than its header says"):
        tensors.equal_bytes(beyond, beyond)


def test_copying_stops_when_it_is_told_to(tmp_path):
    (tmp_path / "old").write_bytes(b"x" * 100)
    stop = threading.Event()
    stop.set()
    with pytest.raises(CancelledError):
        tensors.write_parts(tmp_path / "new", [tensors.Extent(tmp_path / "old", 0, 100)], stop)


@pytest.mark.parametrize("width", [1, 2, 5, 16])
def test_the_mean_of_pieces_equals_that_of_numpy_to_the_bit(width):
    generator = np.random.default_rng(width)
    counts = np.concatenate([generator.integers(0, 40, 300), np.zeros(3, int), np.full(20, 2)])
    places = generator.integers(0, 500, counts.sum())
    # Exponents far apart: another order of additions would round differently.
    rows = (generator.normal(size=(500, width)) * 10.0 ** generator.integers(-20, 20, (500, width))).astype(np.float32)
    info = TableInfo(np.arange(5), lambda ids: rows[ids], width)
    groups = np.split(places, np.cumsum(counts))[:-1]
    expected = [rows[g].mean(axis=0, dtype=np.float64).astype(np.float32) if len(g) else info.mean for g in groups]
    assert np.array_equal(fvt(NewTokens(range(len(counts)), counts, places, rows), info), expected)
    alike = NewTokens(range(20), counts[-20:], places[-40:], rows)
    assert np.array_equal(fvt(alike, info), expected[-20:])
    without = NewTokens([1, 2], np.zeros(2, int), places[:0], rows[:0])
    assert np.array_equal(fvt(without, info), [info.mean] * 2)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
def test_numbers_that_are_not_finite_are_found_by_their_bits(dtype):
    every = np.arange(1 << 16, dtype=np.uint32)
    if dtype == "F32":
        raw = (every << 16 | 1).astype("<u4").view(np.uint8).reshape(-1, 4)
    else:
        raw = every.astype("<u2").view(np.uint8).reshape(-1, 2)
    finite = np.isfinite(widen(raw, dtype)[:, 0])
    assert all_finite(raw[finite], dtype)
    assert not any(all_finite(row[None], dtype) for row in raw[~finite])
    assert all_finite(raw[:0], dtype)


@pytest.fixture
def model(tmp_path):
    """A checkpoint whose new tokenizer moves, removes and adds rows, with an empty tensor beside its tables."""
    base = checkpoint(tmp_path / "model", bias=True)
    add_tensor(tmp_path / "model", "model.layers.2.weight", (0, 4))
    return changed(base, remove=30, add=14, compact=True)


def small_blocks(monkeypatch, size):
    monkeypatch.setattr(table, "BLOCK_BYTES", size)
    monkeypatch.setattr(tensors, "LONG_RUN", 3)
    monkeypatch.setattr(result, "ROWS_BYTES", size)
    monkeypatch.setattr(result, "PIECE", size)
    monkeypatch.setattr(tensors, "PIECE", size)
    monkeypatch.setattr(tensors, "BUFFER", size)


@pytest.mark.parametrize("size", [32, 1000])
@pytest.mark.parametrize("init", INITIALISERS)
def test_the_result_does_not_depend_on_the_size_of_blocks(model, init, size, tmp_path, monkeypatch):
    first = tg.transplant(tmp_path / "model", model, tmp_path / "one", init=init)
    small_blocks(monkeypatch, size)
    second = tg.transplant(tmp_path / "model", model, tmp_path / "two", init=init)
    assert (tmp_path / "one" / WEIGHTS).read_bytes() == (tmp_path / "two" / WEIGHTS).read_bytes()
    assert first == second


@pytest.mark.parametrize("blocks", [100, 1000, None])
def test_a_change_of_any_byte_after_writing_is_found(model, blocks, tmp_path, monkeypatch):
    tg.transplant(tmp_path / "model", model, tmp_path / "out")
    if blocks:
        small_blocks(monkeypatch, blocks)
    old, path = TensorFile.open(tmp_path / "model" / WEIGHTS), tmp_path / "out" / WEIGHTS
    new, raw = TensorFile.open(path), path.read_bytes()
    base = tg.load(tmp_path / "model")
    copies = table.copied_rows(tg.plan(base, model), base.n_rows, model.n_rows)
    tables = dict.fromkeys(["model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"], copies)

    def compare():
        return [part() for part in result.comparisons(old, new, tables)]

    total = result.ByteComparison.total(compare())
    assert (total.kept_rows, total.new_rows) == (3 * (copies >= 0).sum(), 3 * (copies < 0).sum())
    assert (total.untouched_tensors, total.untouched_bytes) == (4, 2 * (5 * 7 + 9 * 16 + 16))
    for tensor in new.tensors.values():
        row = max(tensor.row_bytes, 1)
        for at in range(0, tensor.size, 499 if tensor.size > 4000 else 11):
            if tensor.name in tables and copies[at // row] < 0:
                continue  # a new row, which the source does not have
            changed = bytearray(raw)
            changed[tensor.start + at] ^= 1
            path.write_bytes(changed)
            with pytest.raises(errors.CheckpointError, match="differs from the source"):
                compare()
    path.write_bytes(raw)
    assert result.ByteComparison.total(compare()) == total


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_an_interrupt_stops_every_thread_and_leaves_nothing(error, tmp_path, monkeypatch):
    base = checkpoint(tmp_path / "model", shards=3)
    new = changed(base, add=4)
    module = import_module("tokengraft.checkpoint.result")

    def interrupted(*_):
        raise error

    monkeypatch.setattr(module, "_finished", interrupted)
    before = threading.active_count()
    with pytest.raises(error):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert threading.active_count() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
