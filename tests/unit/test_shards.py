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
from tokengraft.corpus import blocks
from tokengraft.corpus import open as shards
from tokengraft.corpus.block import Cut
from tokengraft.corpus.blocks import split_input
from tokengraft.corpus.open import open_corpus

TEXTS = ["tere õhtust, kass!", "the cat  sat<|start|>on 12345 mats", "", "猫 ja kass", "\ufeffa\rb", "x" * 700]


@pytest.fixture
def small_parts(monkeypatch):
    """Files are divided from 500 bytes on, as others are from 64 MiB on."""
    monkeypatch.setattr("tokengraft.corpus.open.PART_BYTES", 500)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 64})


@given(
    st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r\n", b"\xef\xbb\xbf"]), max_size=80).map(b"".join),
    st.integers(1, 40),
    st.integers(3, 9),
)
def test_every_line_of_a_file_is_in_one_part(tmp_path_factory, raw, size, block):
    path = tmp_path_factory.mktemp("parts") / "c.txt"
    path.write_bytes(raw)
    read_options = tg.ReadOptions(documents="lines")
    (source,) = open_corpus(path, read_options)
    cut = Cut(lambda _: None)
    parts = [b"".join(bytes(b.data) for b in part.blocks(cut)) for part in split_input(source, size, block=block)]
    assert b"".join(parts) == raw.removeprefix(b"\xef\xbb\xbf")
    assert all(part.endswith(b"\n") for part in [part for part in parts if part][:-1])


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


@pytest.mark.parametrize(("n_shards", "block"), [(1, 16), (3, 16), (3, 1 << 20), (7, 1 << 20), (64, 16)])
@pytest.mark.usefixtures("small_parts")
def test_merged_shards_are_the_file_of_the_whole(tmp_path, monkeypatch, capsys, n_shards, block):
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


@pytest.mark.usefixtures("small_parts")
def test_a_single_large_file_is_shared_by_all_shards(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    for name in ("a.txt", "b.jsonl"):
        loads = [
            sum(source.size for source in open_corpus(corpus / name, tg.ReadOptions(documents="lines", shard=(n, 5))))
            for n in range(5)
        ]
        size = (corpus / name).stat().st_size
        assert sum(loads) == size
        assert max(loads) <= 1.1 * size / 5


def test_the_parts_of_a_file_can_be_sent_to_other_processes(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    read_options = tg.ReadOptions(documents="lines")
    expected = builders.read_documents(corpus, read_options)[0]
    whole = open_corpus(corpus, read_options)
    inputs = pickle.loads(pickle.dumps([part for source in whole for part in split_input(source, 333, block=64)]))
    assert len(inputs) > 50
    texts = [
        text
        for source in inputs
        for block in source.blocks(Cut(lambda _: None))
        for text in block.documents(skip_bad=False)[0]
    ]
    assert tuple(texts) == expected


@pytest.mark.usefixtures("small_parts")
def test_limits_hold_inside_a_part(tokenizer, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    read_options = tg.ReadOptions(documents="lines", shard=(1, 3))
    some = tg.count(tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(max_documents=7))
    assert some.totals.documents == 7
    few = tg.count(tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(max_bytes=100))
    assert few.totals.bytes == 100


@pytest.mark.usefixtures("small_parts")
def test_a_bad_line_of_a_shard_is_found_by_a_position_in_the_file(tokenizer, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a"}\n' * 90 + "bad\n")
    with pytest.raises(errors.CorpusError, match=r"c\.jsonl`, line 18 after byte 1,022: not a JSON object"):
        tg.count(tokenizer, path, read_options=tg.ReadOptions(shard=(0, 1)))
    assert path.read_bytes()[1022:].splitlines()[17] == b"bad"
    (source,) = open_corpus(path, tg.ReadOptions())
    blocks_read = [
        b for part in split_input(source, 500) for b in blocks.numbered(part.part).blocks(Cut(lambda _: None))
    ]
    with pytest.raises(errors.CorpusError, match=r"c\.jsonl`, line 91: not a JSON object"):
        blocks_read[-1].documents(skip_bad=False)


def test_a_file_that_changed_is_an_error(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("a\n" * 10)
    (source,) = open_corpus(path, tg.ReadOptions(documents="lines"))
    parts = split_input(source, 5, block=5)
    path.write_text("a\n" * 5)
    with pytest.raises(errors.CorpusError, match="it had 20 bytes and now has 10"):
        list(parts[2].blocks(Cut(lambda _: None)))
