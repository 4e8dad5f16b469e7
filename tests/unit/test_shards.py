"""Shards: ranges of bytes of a file of lines, and which inputs a shard reads."""

import json
import pickle
import random
from types import SimpleNamespace

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.corpus import Cut, blocks, open_corpus, read_documents, shards
from tokengraft.corpus.files import LocalFile
from tokengraft.corpus.ranges import ByteRange, byte_ranges, whole_lines

TEXTS = ["tere õhtust, kass!", "the cat  sat<|start|>on 12345 mats", "", "猫 ja kass", "\ufeffa\rb", "x" * 700]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("tok"), builders.byte_level()))


class Bytes:
    """A file in memory."""

    def __init__(self, raw):
        self.raw, self.size = raw, len(raw)

    def read_at(self, position, size):
        return self.raw[position : position + size]


@given(st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\xef\xbb\xbf"])).map(b"".join), st.integers(1, 40))
def test_every_line_is_in_the_range_of_its_first_byte(raw, part_bytes):
    ranges = [whole_lines(Bytes(raw), span) for span in byte_ranges(len(raw), part_bytes)]
    parts = [raw[span.start : span.end] for span in ranges]
    assert b"".join(parts) == raw
    lines = raw.splitlines(keepends=True) if b"\r" not in raw else None
    starts = {0, *(at + 1 for at, byte in enumerate(raw) if byte == ord("\n"))} - {len(raw)}
    for span, whole in zip(byte_ranges(len(raw), part_bytes), ranges, strict=True):
        inside = {start for start in starts if whole.start <= start < whole.end}
        assert inside == {start for start in starts if span.start <= start < span.end}
    assert lines is None or sum(part.count(b"\n") for part in parts) == raw.count(b"\n")


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 8))
def test_every_input_is_in_one_shard_and_shards_are_balanced(sizes, n_shards):
    inputs = [SimpleNamespace(size=size, number=number) for number, size in enumerate(sizes)]
    parts = [shards.shard_of(inputs, (number, n_shards)) for number in range(n_shards)]
    assert sorted(source.number for part in parts for source in part) == list(range(len(sizes)))
    assert all([s.number for s in part] == sorted(s.number for s in part) for part in parts)
    loads = [sum(source.size for source in part) for part in parts]
    assert max(loads) - min(loads) <= max(sizes, default=0)


def write_corpus(folder):
    """A folder with one large file of each kind that shards can divide, and smaller ones that they cannot."""
    folder.mkdir()
    rng = random.Random(4)
    texts = [rng.choice(TEXTS) for _ in range(300)]
    lines = "\ufeff" + "".join(text + rng.choice(["\n", "\r\n", "\n\n"]) for text in texts) + "no line end"
    (folder / "a.txt").write_text(lines, encoding="utf-8", newline="")
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    pq.write_table(pa.table({"text": texts}), folder / "c.parquet", row_group_size=40)
    (folder / "d.txt").write_text("kass koer")
    return folder


@pytest.mark.parametrize("block", [16, 1 << 20])
@pytest.mark.parametrize("n_shards", [1, 3, 7, 64])
def test_merged_shards_are_the_file_of_the_whole(tmp_path, monkeypatch, capsys, n_shards, block):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 500)
    monkeypatch.setattr(blocks, "BLOCK", block)
    folder, corpus = builders.write(tmp_path / "tok", builders.byte_level()), write_corpus(tmp_path / "corpus")
    options = ["--documents", "lines", "--quiet"]
    assert cli.main(["count", str(folder), str(corpus), "--out", str(tmp_path / "whole.parquet"), *options]) == 0
    names = [str(tmp_path / f"{number}.parquet") for number in range(n_shards)]
    for number, name in enumerate(names):
        shard = ["--shard", f"{number}/{n_shards}"]
        assert cli.main(["count", str(folder), str(corpus), "--out", name, *shard, *options]) == 0
    assert cli.main(["counts", "merge", *names, "--out", str(tmp_path / "merged.parquet")]) == 0
    assert (tmp_path / "merged.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    capsys.readouterr()


def test_a_single_large_file_is_shared_by_all_shards(tmp_path, monkeypatch):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 100)
    corpus = write_corpus(tmp_path / "corpus")
    for name in ("a.txt", "b.jsonl"):
        loads = [
            sum(source.size for source in open_corpus(corpus / name, tg.ReadOptions(documents="lines", shard=(n, 5))))
            for n in range(5)
        ]
        size = (corpus / name).stat().st_size
        assert sum(loads) == size
        assert max(loads) < 1.05 * size / 5


def test_the_parts_of_a_file_can_be_sent_to_other_processes(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    read_options = tg.ReadOptions(documents="lines")
    expected = read_documents(corpus, read_options)[0]
    inputs = pickle.loads(pickle.dumps(open_corpus(corpus, read_options, part_bytes=333)))
    assert len(inputs) > 50
    texts = [
        text
        for source in inputs
        for block in source.blocks(Cut(lambda _: None))
        for text in block.documents(skip_bad=False)[0]
    ]
    assert tuple(texts) == expected


def test_a_whole_file_that_is_one_document_or_compressed_is_not_divided(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    assert len(open_corpus(corpus / "a.txt", tg.ReadOptions(), part_bytes=100)) == 1


def test_limits_hold_inside_a_part(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 500)
    corpus = write_corpus(tmp_path / "corpus")
    read_options = tg.ReadOptions(documents="lines", shard=(1, 3))
    some = tg.count(tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(max_documents=7))
    assert some.totals.documents == 7
    few = tg.count(tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(max_bytes=100))
    assert few.totals.bytes == 100


def test_a_bad_line_of_a_part_is_named_by_the_byte_where_the_part_begins(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 50)
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a"}\n' * 9 + "bad\n")
    with pytest.raises(errors.CorpusError, match=r"c\.jsonl`, line 3 after byte 98: not a JSON object"):
        tg.count(tokenizer, path, read_options=tg.ReadOptions(shard=(0, 1)))


def test_a_file_that_became_shorter_is_an_error(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("a\n" * 10)
    file = LocalFile(path, 20)
    path.write_text("a\n" * 5)
    with pytest.raises(errors.CorpusError, match="has become shorter"):
        list(
            blocks.range_blocks(
                file, "text", ByteRange(4, 20), tg.ReadOptions(documents="lines"), Cut(lambda _: None, None)
            )
        )


def test_nothing_is_read_for_lines_that_begin_in_other_ranges():
    raw = b"x" * 100 + b"\n" + b"y" * 5
    assert whole_lines(Bytes(raw), ByteRange(10, 50)) == ByteRange(101, 101)
    assert whole_lines(Bytes(b"x" * 9), ByteRange(3, 6)) == ByteRange(9, 9)
