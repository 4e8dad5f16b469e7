"""Files of counts: what they hold, and what is refused."""

import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokengraft as tg
from tokengraft import _core, errors
from tokengraft.corpus.block import binary_buffers
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count_to_file
from tokengraft.counts.threads import CountJob


def test_a_file_of_counts_is_plain_parquet(tokenizer, tmp_path):
    counts = tg.count(tokenizer, iter(["b a b"]))
    rows = pq.read_table(counts.save(tmp_path / "c.parquet")).to_pylist()
    assert rows == [{"pretoken": b" a", "count": 1}, {"pretoken": b" b", "count": 1}, {"pretoken": b"b", "count": 1}]
    with pytest.raises(errors.OutputError, match="exists"):
        counts.save(tmp_path / "c.parquet")
    assert tg.PretokenCounts.load(counts.save(tmp_path / "c.parquet", force=True)) == counts
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.parquet"]


def test_a_file_of_counts_holds_pretokens_of_every_kind(tokenizer, tmp_path):
    numbers = random.Random(5)
    pretokens = {bytes(numbers.choices(range(256), k=numbers.choice([0, 1, 7, 30, 300]))) for _ in range(8_000)}
    ordered = sorted({*pretokens, b"\0" * 24, b"\xff" * 200, "õun ".encode() * 30_000})
    values = [numbers.choice([1, 1, 1, 2, 300, 2**40, 2**64 - 2]) for _ in ordered]
    table = pa.table({"pretoken": pa.array(ordered, pa.large_binary()), "count": pa.array(values, pa.uint64())})
    data, offsets = binary_buffers(table["pretoken"].combine_chunks())
    counts = replace(
        tg.count(tokenizer, set()),
        table=_core.Counts(data, offsets, table["count"].combine_chunks().buffers()[1].to_pybytes()),
    )
    path = counts.save(tmp_path / "c.parquet")
    read = pq.read_table(path)
    assert read["pretoken"].to_pylist() == ordered
    assert read["count"].to_pylist() == values
    assert tg.PretokenCounts.load(path) == counts
    # Other writers of Parquet use other encodings.
    pq.write_table(table.replace_schema_metadata(read.schema.metadata), tmp_path / "arrow.parquet", compression="zstd")
    assert tg.PretokenCounts.load(tmp_path / "arrow.parquet") == counts


def test_counts_of_no_text_are_a_file_without_rows(tokenizer, tmp_path):
    (tmp_path / "empty.txt").touch()
    nothing = tg.count(tokenizer, tmp_path / "empty.txt")
    read, counted = ReadOptions(), tg.CountOptions()
    count_to_file(CountJob.of(tokenizer, read, counted), tmp_path / "empty.txt", tmp_path / "a.parquet")
    saved = nothing.save(tmp_path / "b.parquet")
    assert saved.read_bytes() == (tmp_path / "a.parquet").read_bytes()
    assert pq.read_table(saved).num_rows == 0
    assert tg.PretokenCounts.load(saved) == nothing


def test_counts_in_another_order_load_alike(tokenizer, tmp_path):
    counts = tg.count(tokenizer, iter(["b a b c d"]))
    table = pq.read_table(counts.save(tmp_path / "c.parquet"))
    pq.write_table(table.take([3, 1, 0, 2, 4]), tmp_path / "shuffled.parquet")
    assert tg.PretokenCounts.load(tmp_path / "shuffled.parquet") == counts


def test_a_file_that_is_no_counts_is_refused(tmp_path):
    path = tmp_path / "c.parquet"
    for raw in (b"", b"PAR1", b"x" * 100, None):
        if raw is None:
            pq.write_table(pa.table({"pretoken": [b"a"], "count": [1]}), path)
        else:
            path.write_bytes(raw)
        with pytest.raises(errors.CountsError, match="is not a file of counts"):
            tg.PretokenCounts.load(path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'"documents": 1', b'"documents": -1'),
        (b'"min_count": 1', b'"min_count": "1"'),
        (b'"normalize": null', b'"normalize": "\\ud800"'),
        (b'"normalize": null', b'"normalize": "nfd"'),
        (b'"normalize": null', b'"normalize": ' + b"[" * 9999),
    ],
)
def test_damaged_metadata_of_counts_is_refused(tokenizer, tmp_path, before, after):
    path = tg.count(tokenizer, iter(["the cat"])).save(tmp_path / "c.parquet")
    table = pq.read_table(path)
    damaged = {name: value.replace(before, after) for name, value in table.schema.metadata.items()}
    assert damaged != table.schema.metadata
    pq.write_table(table.replace_schema_metadata(damaged), path)
    with pytest.raises(errors.CountsError, match="is not a file of counts"):
        tg.PretokenCounts.load(path)


def test_counts_and_extensions_can_be_pickled(tokenizer):
    counts = tg.count(tokenizer, iter(["xyzzy xyzzy<|end|>"]))
    extension = tg.extend(tokenizer, counts, 2)
    assert pickle.loads(pickle.dumps(counts)) == counts
    assert pickle.loads(pickle.dumps(extension)) == extension


def test_an_output_that_exists_is_refused_before_anything_is_read(tmp_path, tokengraft):
    for command in ("count {0} nowhere.txt", "extend {0} --corpus nowhere.txt --add 5"):
        arguments = command.format("nowhere").split()
        assert "exists; the output must be new" in tokengraft(*arguments, "--out", tmp_path, code=2).err
