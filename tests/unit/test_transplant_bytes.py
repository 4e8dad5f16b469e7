"""Bytes of weight files: copied in every way, computed in blocks of any size, compared byte by byte, interrupted."""

import os
import sys
import threading
from concurrent.futures import CancelledError
from importlib import import_module

import numpy as np
import pytest
from checkpoints import add_tensor, changed, checkpoint
from outputs import failing_disk

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint import result, table, tensors
from tokengraft.checkpoint.rows import INITIALISERS, NewTokens, TableInfo, fvt
from tokengraft.checkpoint.tensors import TensorFile, all_finite, widen

WEIGHTS = "model.safetensors"


@pytest.mark.parametrize("size", [1000, tensors.BUFFER])
def test_extents_and_bytes_are_appended_in_order(size, tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "BUFFER", size)
    data = np.random.default_rng(0).bytes(3_000_000)
    (tmp_path / "old").write_bytes(data)
    places = [tensors.Extent(tmp_path / "old", *place) for place in ((7, 2_500_000), (0, 0), (2_999_990, 10))]
    read_back = tensors.write_parts(tmp_path / "new", [b"header", *places, b"rows"])
    assert (tmp_path / "new").read_bytes() == b"header" + data[7:2_500_007] + data[-10:] + b"rows"
    assert read_back.extents == [(6, places[0]), (2_500_006, places[1]), (2_500_006, places[2])]


def test_what_was_read_back_is_a_part_of_one_extent_at_its_place(tmp_path):
    old, new, other = (tmp_path / name for name in ("old", "new", "other"))
    places = [(10, tensors.Extent(old, 100, 50)), (60, tensors.Extent(old, 0, 0)), (60, tensors.Extent(old, 150, 8))]
    read_back = tensors.ReadBack(places)

    def has(start, size, source, path=old):
        return read_back.has(tensors.Extent(path, source, size), tensors.Extent(new, start, size))

    assert has(10, 50, 100)
    assert has(12, 48, 102)
    assert has(60, 8, 150)
    assert not has(12, 48, 101)  # another place of the source
    assert not has(12, 49, 102)  # two extents
    assert not has(9, 5, 99)  # before the first
    assert not has(68, 1, 158)  # after the last
    assert not has(10, 50, 100, other)
    assert not read_back.has(tensors.Extent(old, 100, 5), tensors.Extent(new, 10, 4))


def test_a_source_that_is_too_short_is_an_error(tmp_path):
    (tmp_path / "old").write_bytes(b"x" * 100)
    beyond = tensors.Extent(tmp_path / "old", 50, 51)
    with pytest.raises(OSError, match="shorter than its header says"):
        tensors.write_parts(tmp_path / "new", [beyond])
    with pytest.raises(OSError, match="shorter than its header says"):
        tensors.equal_bytes(beyond, beyond)


def test_a_change_of_any_byte_while_it_is_written_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(tensors, "BUFFER", 16)
    (tmp_path / "old").write_bytes(bytes(range(40)))
    parts = [b"header", tensors.Extent(tmp_path / "old", 1, 36), np.arange(12, dtype=np.uint8).reshape(3, 4)]
    for at in range(6 + 36 + 12):
        with failing_disk("new", at), pytest.raises(errors.CheckpointError, match="differs from what was"):
            tensors.write_parts(tmp_path / "new", parts)
    with failing_disk("new", at + 1):
        tensors.write_parts(tmp_path / "new", parts)


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_a_file_shares_the_blocks_of_its_source_where_the_system_can(tmp_path, monkeypatch):
    import fcntl

    asked = []

    def share(target, request, source):
        asked.append(request)
        os.sendfile(target.fileno(), source, 0, os.fstat(source).st_size)

    base = checkpoint(tmp_path / "model", shards=3)
    monkeypatch.setattr(fcntl, "ioctl", share)
    done = tg.transplant(tmp_path / "model", changed(base, add=4), tmp_path / "shared")
    assert asked == [tensors.FICLONE] * len(done.copied)
    monkeypatch.undo()
    tg.transplant(tmp_path / "model", changed(base, add=4), tmp_path / "copied")
    for name in done.copied:
        assert (tmp_path / "shared" / name).read_bytes() == (tmp_path / "copied" / name).read_bytes()


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
