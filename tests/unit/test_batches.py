"""Counting inside other engines: batches of text to partial counts, and their sum, against `count`."""

import multiprocessing
import os
import pickle
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_partial import TEXTS

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft import distributed as batches_module
from tokengraft.distributed import BatchCounter, sum_partials

KINDS = {
    "string": pa.string(),
    "large_string": pa.large_string(),
    "string_view": pa.string_view(),
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
}
MORE = [*TEXTS, "<s> and <|end|><|start|> ", *builders.TEXT[:4]]


ANY = {"unigram": builders.unigram, "word-piece": builders.word_piece, **builders.TINY}


@pytest.fixture(
    scope="module", params=["byte-level", "sentencepiece", "specials-first-with-holes", "unigram", "word-piece"]
)
def any_tokenizer(request, tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("tok"), ANY[request.param]()))


def column(texts, kind="string"):
    values = [text.encode() if "binary" in kind and text is not None else text for text in texts]
    return pa.table({"n": range(len(texts)), "text": pa.array(values, KINDS[kind])})


splits = st.lists(st.lists(st.lists(st.sampled_from(MORE), max_size=6), max_size=4), max_size=4)


@given(partitions=splits, kind=st.sampled_from(sorted(KINDS)), whole=st.booleans())
def test_any_split_into_batches_and_partitions_gives_the_counts_of_the_whole(
    any_tokenizer, tmp_path_factory, partitions, kind, whole
):
    counter = BatchCounter(any_tokenizer)
    tables = [[column(texts, kind) for texts in partition] for partition in partitions]
    if whole:
        partial = [counter(table) for partition in tables for table in partition]
    else:
        partial = [part for partition in tables for part in counter.count_batches(partition)]
    counts = sum_partials(partial, any_tokenizer)
    texts = pa.array([text for partition in partitions for texts in partition for text in texts], pa.string())
    expected = tg.count(any_tokenizer, texts)
    assert counts == expected
    out = tmp_path_factory.mktemp("out")
    assert counts.save(out / "a.parquet").read_bytes() == expected.save(out / "b.parquet").read_bytes()


def test_types_of_results_are_those_of_the_arguments(tokenizer):
    counter = BatchCounter(tokenizer)
    table = column(MORE)
    assert isinstance(counter(table), pa.Table)
    assert isinstance(counter(table.to_batches()[0]), pa.RecordBatch)
    assert counter(table).schema == pa.schema(
        [pa.field("pretoken", pa.binary(), False), pa.field("count", pa.int64(), False)]
    )
    assert counter(table.slice(3, 2)) == counter(column(MORE[3:5]))
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert counter(chunked) == counter(table)
    (batch,) = [*counter.count_batches(iter([table]))][:1]
    assert isinstance(batch, pa.RecordBatch)


def test_it_can_be_pickled_before_and_after_its_use(any_tokenizer):
    counter = BatchCounter(any_tokenizer)
    raw = pickle.dumps(counter)
    first = counter(column(MORE))
    assert pickle.loads(raw)(column(MORE)) == pickle.loads(pickle.dumps(counter))(column(MORE)) == first


def test_it_is_small_however_large_the_vocabulary_is(llama3_folder):
    large = tg.load(llama3_folder)
    raw = pickle.dumps(BatchCounter(large))
    assert len(raw) < 200_000
    assert sum_partials(pickle.loads(raw)(column(MORE)), large) == tg.count(large, iter(MORE))


def test_threads_can_share_it(tokenizer):
    counter = BatchCounter(tokenizer)
    rng = random.Random(3)
    tables = [column([rng.choice(MORE) for _ in range(50)]) for _ in range(40)]
    barrier = threading.Barrier(4)

    def run(part):
        barrier.wait()
        return [counter(table) for table in part]

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(run, [tables[at::4] for at in range(4)]))
    alone = [[BatchCounter(tokenizer)(table) for table in tables[at::4]] for at in range(4)]
    assert results == alone


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_process_that_was_forked_can_use_it(tokenizer):
    counter = BatchCounter(tokenizer)
    expected = counter(column(MORE))
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe()
    process = context.Process(target=lambda: sender.send(counter(column(MORE)).to_pydict()))
    process.start()
    assert receiver.recv() == expected.to_pydict()
    process.join()


def test_after_an_error_nothing_of_the_batch_is_left(tokenizer):
    counter = BatchCounter(tokenizer)
    counter(column(MORE))
    for _ in range(2):
        with pytest.raises(errors.CorpusError, match="row 3"):
            counter(column(["a", "b", None]))
    assert sum_partials(counter(column(MORE)), tokenizer) == tg.count(tokenizer, iter(MORE))


def test_a_null_is_an_error_or_skipped_as_in_parquet(tokenizer, tmp_path):
    table = column(["a", None, "b c"])
    pq.write_table(table, tmp_path / "c.parquet")
    skipping = tg.ReadOptions(skip_bad=True)
    counter = BatchCounter(tokenizer, read_options=skipping)
    expected = tg.count(tokenizer, tmp_path / "c.parquet", read_options=skipping)
    assert expected.totals.skipped == 1
    assert sum_partials(counter(table), tokenizer, read_options=skipping) == expected
    with pytest.raises(errors.CorpusError, match="the batch`, row 12"):  # rows are numbered across batches
        [*BatchCounter(tokenizer).count_batches([column(["a"] * 10), table])]


@pytest.mark.parametrize("skip_bad", [False, True])
def test_other_columns_and_types_are_refused_and_never_skipped(tokenizer, skip_bad):
    read_options = tg.ReadOptions(skip_bad=skip_bad)
    for batch, column_name, match in [
        (pa.table({"n": [1]}), "text", "no column `text`; it has `n`"),
        (pa.table({"n": [1]}), "n", "int64"),
        (pa.table({"n": [None]}), "n", "null"),
        (pa.table([["a"], ["b"]], names=["text", "text"]), "text", "2 columns `text`"),
        ({"text": ["a"]}, "text", "a batch is a dict"),
    ]:
        counter = BatchCounter(tokenizer, column_name, read_options=read_options)
        with pytest.raises(errors.OptionError, match=match):
            counter(batch)
        with pytest.raises(errors.OptionError, match=match):
            [*counter.count_batches([batch])]


def test_options_for_files_are_refused(tokenizer):
    for options in ({"documents": "lines"}, {"shard": (0, 2)}, {"format": "jsonl"}):
        with pytest.raises(errors.OptionError, match="no effect on batches"):
            BatchCounter(tokenizer, read_options=tg.ReadOptions(**options))


def test_normalization_is_applied(tokenizer):
    options = tg.ReadOptions(normalize="nfkc")
    table = BatchCounter(tokenizer, read_options=options)(column(["ﬁne ½"]))
    assert sum_partials(table, tokenizer, read_options=options) == tg.count(
        tokenizer, iter(["ﬁne ½"]), read_options=options
    )


@pytest.mark.parametrize("memory", [1, 1 << 30])
def test_memory_is_bounded_by_writing_to_disk(tokenizer, monkeypatch, memory):
    monkeypatch.setattr(batches_module, "ROWS_PER_BATCH", 7)
    texts = [f"word{number} {number}" for number in range(300)]
    counter = BatchCounter(tokenizer, memory=memory)
    partial = [*counter.count_batches(column(texts[at : at + 20]) for at in range(0, 300, 20))]
    assert max(len(batch) for batch in partial) <= (7 if memory > 1 else 16)
    assert sum_partials(partial, tokenizer) == tg.count(tokenizer, iter(texts))


def test_tables_of_more_bytes_than_an_array_holds_are_divided(tokenizer, monkeypatch):
    monkeypatch.setattr(batches_module, "_MOST_BYTES", 200)
    partial = [*BatchCounter(tokenizer).count_batches([column(MORE)])]
    assert len(partial) > 3
    assert sum_partials(partial, tokenizer) == tg.count(tokenizer, iter(MORE))


def test_partial_counts_in_files_are_added_up_in_python_and_on_the_command_line(tokenizer, folder, tmp_path, capsys):
    written = tmp_path / "partial"
    (written / "_temporary").mkdir(parents=True)
    counter = BatchCounter(tokenizer)
    for number, texts in enumerate([MORE[:4], MORE[4:]]):
        pq.write_table(counter(column(texts)), written / f"part-{number}.snappy.parquet")
    shutil.copy(written / "part-0.snappy.parquet", written / "_temporary" / "part-0.parquet")
    (written / "_SUCCESS").touch()
    expected = tg.count(tokenizer, iter(MORE))
    assert sum_partials(written, tokenizer) == expected
    assert sum_partials(f"{written}/*.parquet", tokenizer) == expected
    out, whole = tmp_path / "counts.parquet", expected.save(tmp_path / "whole.parquet")
    assert cli.main(["counts", "merge", str(written), "--tokenizer", str(folder), "--out", str(out)]) == 0
    assert out.read_bytes() == whole.read_bytes()
    capsys.readouterr()
    assert cli.main(["counts", "merge", str(whole), "--tokenizer", str(folder), "--out", str(tmp_path / "no")]) == 2
    assert "rows are missing" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_files_that_are_no_partial_counts_are_refused(tokenizer, tmp_path):
    with pytest.raises(errors.CorpusError, match="folder has no"):
        sum_partials(tmp_path, tokenizer)
    (tmp_path / "a.txt").write_text("x")
    with pytest.raises(errors.CountsError, match="no Parquet file"):
        sum_partials(tmp_path, tokenizer)
    (tmp_path / "a.parquet").write_bytes(b"x")
    with pytest.raises(errors.CountsError, match="is not a Parquet file"):
        sum_partials(tmp_path, tokenizer)


def test_pandas_adds_up(tokenizer):
    pandas = pytest.importorskip("pandas")
    counter = BatchCounter(tokenizer)
    frame = pandas.concat([counter(column(texts)).to_pandas() for texts in (MORE, TEXTS)])
    summed = frame.groupby("pretoken", as_index=False)["count"].sum()
    assert sum_partials(summed, tokenizer) == tg.count(tokenizer, iter([*MORE, *TEXTS]))


def test_datasets_map_counts(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict({"text": MORE * 5, "n": list(range(5 * len(MORE)))})
    counter = BatchCounter(tokenizer)
    partial = dataset.with_format("arrow").map(counter, batched=True, batch_size=7, remove_columns=dataset.column_names)
    assert sum_partials(partial.with_format("arrow").iter(batch_size=1000), tokenizer) == tg.count(
        tokenizer, iter(MORE * 5)
    )


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["llama3", "gemma3", "mistral_v3"])
def test_real_text_in_partitions_gives_the_counts_of_the_whole(shared_data, tmp_path, name):
    tok = tg.load(next(path.parent for path in shared_data.rglob("tokenizer.json") if path.parent.name == name))
    texts = [line for path in sorted(shared_data.rglob("*.devtest"))[::20] for line in path.read_text().splitlines()]
    counter = pickle.loads(pickle.dumps(BatchCounter(tok)))
    partial = []
    for at in range(0, len(texts), 3001):
        partition = column(texts[at : at + 3001])
        partial += counter.count_batches(partition.to_batches(max_chunksize=700))
    summed = pa.Table.from_batches(partial).group_by("pretoken").aggregate([("count", "sum")])
    expected = tg.count(tok, iter(texts)).save(tmp_path / "expected.parquet")
    assert sum_partials(summed, tok).save(tmp_path / "summed.parquet").read_bytes() == expected.read_bytes()


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.binary()])
def test_dictionaries_of_every_type_of_text_are_read(tokenizer, kind):
    values = pa.array(["the cat", "a cat", "õ"], pa.string()).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([2, 0, 0, 1, 2], pa.int8()), values).slice(1)
    found = sum_partials(BatchCounter(tokenizer)(pa.table({"text": column})), tokenizer)
    assert found == tg.count(tokenizer, iter(["the cat", "the cat", "a cat", "õ"]))
