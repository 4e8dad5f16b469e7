"""Counting inside Spark. Skipped without pyspark or Java."""

import random

import builders
import pyarrow.parquet as pq
import pytest
from test_batches import MORE, column

import tokengraft as tg
from tokengraft import cli


@pytest.mark.filterwarnings("ignore")
def test_spark_counts_in_map_in_arrow(spark, tmp_path, capsys):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    tokenizer = tg.load(folder)
    rng = random.Random(8)
    texts = [rng.choice(MORE) for _ in range(400)]
    pq.write_table(column(texts), tmp_path / "corpus.parquet", row_group_size=50)
    counter = tg.distributed.BatchCounter(tokenizer)
    partial = (
        spark.read.parquet(str(tmp_path / "corpus.parquet"))
        .repartition(5)
        .mapInArrow(counter.count_batches, "pretoken binary, count long")
    )
    summed = partial.groupBy("pretoken").sum("count")
    expected = tg.count(tokenizer, iter(texts))
    assert tg.distributed.sum_partials(summed.toArrow(), tokenizer) == expected
    summed.write.parquet(str(tmp_path / "summed"))
    partial.write.parquet(str(tmp_path / "partial"))
    whole = expected.save(tmp_path / "whole.parquet").read_bytes()
    for name in ("summed", "partial"):
        assert tg.distributed.sum_partials(tmp_path / name, tokenizer) == expected
        out = tmp_path / f"{name}.parquet"
        assert cli.main(["counts", "merge", str(tmp_path / name), "--tokenizer", str(folder), "--out", str(out)]) == 0
        assert out.read_bytes() == whole
    capsys.readouterr()
