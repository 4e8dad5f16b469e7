"""Corpora: every format is read alike, and what cannot be read is named."""

import glob
import gzip
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_count import TEXTS, as_dict, expected

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus import blocks as corpus_module


def write_corpus(folder, form):
    rows = [{"text": text, "n": n} for n, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = folder / f"corpus.{form}"
    if form == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=2)
    elif form == "jsonl.gz":
        path.write_bytes(gzip.compress(lines))
    elif form == "jsonl.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(lines)
    elif form == "parquet.gz":
        plain = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows), plain)
        path.write_bytes(gzip.compress(plain.getvalue()))
    else:
        path.write_bytes(lines)
    return path


@pytest.mark.parametrize("form", ["jsonl", "jsonl.gz", "jsonl.zst", "parquet", "parquet.gz", "ndjson"])
def test_every_format_gives_the_same_counts(tokenizer, tmp_path, form):
    counts = tg.count(tokenizer, write_corpus(tmp_path, form))
    assert as_dict(counts) == expected(tokenizer, TEXTS)[0]
    assert counts.totals.documents in (4, 5)  # an empty string is a document where it has a row


def test_folders_and_globs_are_read_in_order_of_names(tokenizer, tmp_path):
    for name in ("b.txt", "a.txt", "sub/c.jsonl", "ignored.bin"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('{"text": "c"}' if name.endswith("jsonl") else name[0])
    assert set(as_dict(tg.count(tokenizer, tmp_path))) == {b"a", b"b", b"c"}
    assert set(as_dict(tg.count(tokenizer, str(tmp_path / "*.txt")))) == {b"a", b"b"}
    assert as_dict(tg.count(tokenizer, [tmp_path / "a.txt", tmp_path / "a.txt"])) == {b"a": 2}


def test_names_that_begin_with_a_dot_are_read_only_if_they_are_given(tokenizer, tmp_path):
    folder = tmp_path / ".cache" / "[corpus]"
    for name in ("a.txt", ".b.txt", ".git/c.txt", "sub/._d.txt", "sub/e.txt"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name.strip("._")[0])

    def read(given):
        return set(as_dict(tg.count(tokenizer, str(given))))

    assert read(folder) == read(f"{glob.escape(str(folder))}/**/*.txt") == {b"a", b"e"}
    assert read(f"{glob.escape(str(folder))}/.*.txt") == read(folder / ".b.txt") == {b"b"}
    assert read(folder / ".git") == {b"c"}


def test_line_numbers_go_on_across_blocks(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "BLOCK", 64)
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a"}\n' * 1234 + "bad\n")
    with pytest.raises(errors.CorpusError, match="line 1,235"):
        tg.count(tokenizer, path)


@pytest.mark.parametrize("name", ["c.jsonl.gz", "c.jsonl.zst", "c.parquet", "c.txt.gz"])
@pytest.mark.parametrize("damage", ["cut", "noise", "empty"])
def test_a_corrupt_file_is_named_or_skipped(tokenizer, tmp_path, name, damage):
    generator = random.Random(3)
    good = write_corpus(tmp_path, name.removeprefix("c.").replace("txt", "jsonl")).read_bytes()
    bad = {"cut": good[: len(good) // 2], "noise": generator.randbytes(300), "empty": b""}[damage]
    path = tmp_path / name
    path.write_bytes(bad)
    (tmp_path / "fine.txt").write_text("kass")
    if damage == "empty" and not name.endswith("parquet"):
        assert as_dict(tg.count(tokenizer, [path, tmp_path / "fine.txt"])) == {b"kass": 1}
        return
    with pytest.raises(errors.CorpusError, match=name):
        tg.count(tokenizer, [path, tmp_path / "fine.txt"])
    counts = tg.count(tokenizer, [path, tmp_path / "fine.txt"], read_options=tg.ReadOptions(skip_bad=True))
    assert counts.totals.skipped == 1
    assert as_dict(counts)[b"kass"] >= 1


def test_a_corpus_that_is_not_there_is_an_error(tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for source, match in (
        ("nowhere.txt", "cannot read"),
        ("*.nothing", "pattern matches no file"),
        (".", "folder has no"),
        ([], "no corpus was given"),
    ):
        with pytest.raises(errors.CorpusError, match=match):
            tg.count(tokenizer, source)


def test_a_column_that_is_missing_or_no_text_is_an_error(tokenizer, tmp_path):
    path = tmp_path / "c.parquet"
    for columns, match in (
        ({"n": [1]}, "no column `text`; it has `n`"),
        ({"text": [[1]]}, "not string"),
        ({"text": [5]}, "of type int64"),
    ):
        pq.write_table(pa.table(columns), path)
        with pytest.raises(errors.CorpusError, match=match):
            tg.count(tokenizer, path)


def test_a_line_longer_than_many_blocks_is_one_document(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_module, "BLOCK", 1000)
    path = tmp_path / "c.txt"
    path.write_text("x" * 100_000 + "\nkass\n")
    counts = tg.count(tokenizer, path, read_options=tg.ReadOptions(documents="lines"))
    assert as_dict(counts) == {b"x" * 100_000: 1, b"kass": 1}


def test_what_is_no_corpus_is_refused(tokenizer, tmp_path):
    for corpus in ({"text": "a"}, b"text", 5, None, "x" * 5000, "a\0b"):
        with pytest.raises(errors.CorpusError):
            tg.count(tokenizer, corpus)
    with pytest.raises(errors.CorpusError, match="document 2 of the iterable is a int"):
        tg.count(tokenizer, iter(["a", 5]))
    (tmp_path / "c.txt.bz2").write_bytes(b"x")
    with pytest.raises(errors.CorpusError, match="unsupported compression"):
        tg.count(tokenizer, tmp_path / "c.txt.bz2")
