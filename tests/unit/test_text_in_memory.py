"""Text in memory as a corpus: lists of texts, columns of pandas, polars and Arrow, tables, used-up iterators."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import builders
import pyarrow as pa
import pytest

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus.open import paths_of
from tokengraft.corpus.options import only_paths

TEXTS = ["the cat sat on the mat", "", "Yes", "põdrad põõsas\nja õues", "a cat"]


@pytest.fixture
def tokenizer(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tg.load(builders.write(tmp_path / "model", builders.byte_level()))


@pytest.fixture
def expected(tokenizer):
    return tg.count(tokenizer, iter(TEXTS))


@dataclass
class Stream:
    """What polars, pandas and DuckDB have in common: the Arrow C stream interface."""

    data: Any

    def __arrow_c_stream__(self, requested_schema=None):
        return self.data.__arrow_c_stream__(requested_schema)


def test_a_list_of_texts_is_counted_as_an_iterator_of_them(tokenizer, expected):
    assert tg.count(tokenizer, TEXTS) == expected
    assert tg.count(tokenizer, tuple(TEXTS)) == expected
    found = tg.evaluate({"base": tokenizer}, {"texts": TEXTS})
    assert found["base", "texts"].documents == len([text for text in TEXTS if text])


@pytest.mark.parametrize(
    "corpus",
    [["a.txt", "b c.txt"], ["corpus"], ["hello", "world"], ["s3://bucket/my file"], ["-"], ["/data/my corpus"], []],
)
def test_strings_that_may_be_paths_are_paths(corpus):
    assert paths_of(corpus) == corpus


@pytest.mark.parametrize("text", ["the cat", "the cat\n.txt", "and/or not", "x " * 5000, "what? [1] *"])
def test_strings_that_cannot_be_paths_are_texts(text):
    assert paths_of([text, "Yes", ""]) is None


def test_a_list_that_has_signs_of_both_is_refused_with_the_ways_out(tokenizer, tmp_path):
    (tmp_path / "notes").write_text("kass")
    (tmp_path / "my notes").write_text("kass")
    for path in ("notes", "et.txt", "model/more", "-", "https://example.org", "./data", "my notes"):
        with pytest.raises(errors.CorpusError, match="either paths or texts") as raised:
            tg.count(tokenizer, ["the cat sat", path])
        assert "iter(texts)" in raised.value.hint
        assert "Path(name)" in raised.value.hint
    assert tg.count(tokenizer, iter(["the cat sat", "notes"])).totals.documents == 2
    assert tg.count(tokenizer, [Path("notes"), "my notes"]).totals.bytes == 8


def test_a_string_alone_is_a_path_and_the_error_says_how_to_pass_text(tokenizer):
    for corpus in ("the cat sat", ["hello", "world"]):
        with pytest.raises(errors.CorpusError, match="No such file") as raised:
            tg.count(tokenizer, corpus)
        assert "iter(texts)" in raised.value.hint


def test_an_empty_path_is_not_the_working_folder(tokenizer, tmp_path):
    (tmp_path / "a.txt").write_text("kass")
    for corpus in ("", [""], ["", ""]):
        with pytest.raises(errors.CorpusError, match="a path is empty"):
            tg.count(tokenizer, corpus)
    assert tg.count(tokenizer, iter([""])).totals.documents == 1


@pytest.mark.parametrize(
    "command",
    [
        ["count", "model", "no such file", "--out", "c.parquet"],
        ["extend", "model", "--corpus", "no such file", "--add", "3", "--out", "new"],
        ["prune", "model", "--corpus", "no such file", "--remove", "3", "--out", "new"],
        ["check", "model", "--base", "model", "--preserve", "no such file"],
        ["adapt", "model", "--target", "no such file", "--add", "3", "--out", "new"],
        ["evaluate", "model", "--text", "no such file"],
        ["evaluate", "a=model", "b=model", "--text", "no such file", "--examples"],
        ["extend", "model", "--corpus", "no such file", "--held-out", "no such file", "--add", "3", "--curve"],
    ],
    ids=lambda command: command[0],
)
@pytest.mark.usefixtures("tokenizer")
def test_on_the_command_line_every_string_is_a_path(command, tokengraft):
    assert "no such file" in tokengraft(*command, code=2).err


def test_only_paths_ends_with_its_block():
    with only_paths():
        assert paths_of(["the cat sat"]) == ["the cat sat"]
    assert paths_of(["the cat sat"]) is None


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view(), pa.large_binary()], ids=str)
def test_arrow_columns_and_tables_of_one_column_are_counted(tokenizer, expected, kind):
    encoded = [text.encode() for text in TEXTS] if kind == pa.large_binary() else TEXTS
    column = pa.chunked_array([pa.array(encoded[:2], kind), pa.array(encoded[2:], kind)])
    table = pa.table({"anything": column})
    batch = table.combine_chunks().to_batches()[0]
    for corpus in (column, table, batch, table.to_reader(), pa.array(encoded, kind), Stream(column), Stream(table)):
        assert tg.count(tokenizer, corpus) == expected
    assert (
        tg.count(tokenizer, column.combine_chunks().dictionary_encode() if kind == pa.string() else column) == expected
    )


def test_large_columns_are_read_in_parts(tokenizer):
    texts = [f"the cat {n} sat" for n in range(70_000)]
    assert tg.count(tokenizer, pa.array(texts)) == tg.count(tokenizer, iter(texts))


def test_pandas_columns_are_counted_and_data_frames_refused(tokenizer, expected):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame({"id": range(len(TEXTS)), "content": TEXTS})
    for column in (frame["content"], frame["content"].astype(object), frame["content"].astype("category")):
        assert tg.count(tokenizer, column) == expected
    assert tg.count(tokenizer, frame["content"].to_numpy()) == expected
    with pytest.raises(errors.CorpusError, match=r"DataFrame has 2 columns \(`id`, `content`\)") as raised:
        tg.count(tokenizer, frame)
    assert "table['content']" in raised.value.hint
    with pytest.raises(errors.CorpusError, match="row 2: the text is null"):
        tg.count(tokenizer, pandas.Series(["a", None]))
    skipped = tg.count(tokenizer, pandas.Series(["a", None]), read_options=tg.ReadOptions(skip_bad=True))
    assert (skipped.totals.documents, skipped.totals.skipped) == (1, 1)
    for wrong in (frame["id"], pandas.Series(["a", 3], dtype=object)):
        with pytest.raises(errors.CorpusError, match="the Series"):
            tg.count(tokenizer, wrong)


def test_polars_columns_are_counted_and_data_frames_refused(tokenizer, expected):
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = polars.DataFrame({"id": range(len(TEXTS)), "content": TEXTS})
    assert tg.count(tokenizer, frame["content"]) == expected
    assert tg.count(tokenizer, frame.select("content")) == expected
    for table in (frame, frame.lazy()):
        with pytest.raises(errors.CorpusError):
            tg.count(tokenizer, table)


def test_datasets_and_their_columns_are_counted(tokenizer, expected):
    datasets = pytest.importorskip("datasets", reason="datasets is not installed")
    dataset = datasets.Dataset.from_dict({"content": TEXTS, "id": [*range(len(TEXTS))]})
    options = tg.ReadOptions(text_field="content")
    for corpus in (dataset, dataset.to_iterable_dataset()):
        assert tg.count(tokenizer, corpus, read_options=options) == expected
    assert tg.count(tokenizer, dataset["content"]) == expected
    with pytest.raises(errors.CorpusError, match="no column `text`; it has `content`, `id`"):
        tg.count(tokenizer, dataset)
    with pytest.raises(errors.CorpusError, match="a DatasetDict"):
        tg.count(tokenizer, datasets.DatasetDict(train=dataset))


def test_a_table_of_several_columns_is_refused_in_every_form(tokenizer):
    table = pa.table({"id": [1], "text": ["kass"]})
    for corpus in (table, table.to_batches()[0], table.to_reader(), Stream(table), table.select([])):
        with pytest.raises(errors.CorpusError, match="columns"):
            tg.count(tokenizer, corpus)


@pytest.mark.parametrize("used", [(text for text in TEXTS), map(str, TEXTS), iter(TEXTS)], ids=["gen", "map", "list"])
def test_an_iterator_that_was_used_up_is_refused(tokenizer, used):
    assert len(list(used)) == len(TEXTS)
    with pytest.raises(errors.CorpusError, match="gave no document: it is empty, or was used up"):
        tg.count(tokenizer, used)


def test_progress_adds_up_to_the_bytes_of_text_in_memory(tokenizer):
    texts = [f"põdrad {n} the cat sat" for n in range(100_000)]
    size = sum(len(text.encode()) for text in texts)
    for corpus in (texts, iter(texts), pa.array(texts), pa.table({"text": texts}).to_reader()):
        calls = []
        tg.count(tokenizer, corpus, progress=lambda *call, calls=calls: calls.append(call))
        assert len(calls) > 1
        assert sum(done for _, done, _ in calls) == size
        assert {total for _, _, total in calls} == {0}


def test_an_adaptation_takes_text_in_memory(tokenizer, tmp_path):
    texts = [f"põdrad põõsas {n} õunad õues ja kassid koerad jooksevad" for n in range(400)]
    done = []
    options = tg.AdaptOptions(report=False, progress=lambda *call: done.append(call))
    result = tg.adapt("model", target=texts, keep=pa.array(texts), add=4, out=tmp_path / "new", options=options)
    assert result.plan.summary.added == 4
    learned = result.plan.summary.added  # tokens are reported as they are learned
    assert sum(more for _, more, _ in done) == 2 * sum(len(text.encode()) for text in texts) + learned
    assert tokenizer.n_rows + 4 == result.tokenizer.n_rows
