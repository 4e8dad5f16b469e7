"""A corpus counted in units of work, as on several machines, against the local engine. Nothing else runs here."""

import gzip
import json
import random
from dataclasses import replace

import builders
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus.block import Cut
from tokengraft.corpus.blocks import file_blocks, numbered, split_input
from tokengraft.corpus.open import open_corpus
from tokengraft.counts import units as work
from tokengraft.counts.count import HoldOut, count_with_hold_out
from tokengraft.counts.threads import CountJob, new_counter

LINES = tg.ReadOptions(documents="lines")
SHAPES = sorted(builders.TINY)


@pytest.fixture(scope="module", params=SHAPES)
def tokenizer(request, tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("tok"), builders.TINY[request.param]()))


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("tok"), builders.byte_level()))


def job_of(tokenizer, read_options, hold_out=None, **count_options):
    job = CountJob.of(tokenizer, read_options, tg.CountOptions(workers=1, **count_options), hold_out)
    return replace(job, tokenizer=tokenizer)  # for `local`


def in_units(job, parts, buckets=3):
    """The pretokens, totals, added tokens and held-out documents of parts that are counted apart and merged twice."""
    tables, summaries = [[] for _ in range(buckets)], [[] for _ in range(buckets)]
    for number, unit in enumerate(parts):
        packed, summary = work.count_unit(job, unit, buckets)
        summaries[number % buckets].append(work.pickle.dumps(summary))
        for bucket, more in zip(tables, packed, strict=True):
            bucket.extend(more)
    with new_counter(job) as counter:
        merged = [row for each in zip(tables, summaries, strict=True) for row in work.merge_bucket(job, *each)]
        for table, _ in merged:
            if table:
                counter.add(work.unpack(table))
        total = work.merged(counter, [work.pickle.loads(summary) for _, summary in merged if summary])
        share = counter.hold_out_share()
        held_out = [tuple(text for text, *copies in share if any(copies)), sum(at_start for _, at_start, _ in share)]
        table = counter.finish().take(2**63 - 1, job.count_options.min_count)
    return table, total.totals, {job.added[i]: n for i, n in total.added}, held_out, total.cut_off


def local(job, corpus):
    if job.hold_out is None:
        counts = tg.count(job.tokenizer, corpus, read_options=job.read_options, count_options=job.count_options)
        held_out = [(), 0]
    else:
        counts, *held_out = count_with_hold_out(
            job.tokenizer,
            corpus,
            read_options=job.read_options,
            count_options=job.count_options,
            hold_out=job.hold_out,
        )
    return counts.table, counts.totals, counts.added, held_out, frozenset()


texts = st.text(st.sampled_from("abõ猫 \u00a0\x1c"), max_size=30)


@given(
    st.lists(st.lists(texts, max_size=25), min_size=1, max_size=5),
    st.sampled_from([1, 2, 3, 4, 10**9]),
    st.integers(1, 200),
    st.integers(1, 4),
)
def test_the_hold_outs_of_units_make_that_of_the_corpus(
    tmp_path_factory, byte_level, files, one_in, max_bytes, buckets
):
    folder = tmp_path_factory.mktemp("corpus")
    for number, documents in enumerate(files):
        pq.write_table(pa.table({"text": pa.array(documents, pa.string())}), folder / f"{number}.parquet")
    job = job_of(byte_level, tg.ReadOptions(), HoldOut(one_in, max_bytes))
    parts = [(source,) for source in open_corpus(folder, job.read_options)]
    assert in_units(job, parts, buckets) == local(job, folder)


def test_a_document_that_another_unit_has_no_room_for_is_not_held_out(byte_level, tmp_path):
    """A unit that drops a document must say so: a later document of another unit could fit instead."""
    generator = random.Random(5)
    for seed in range(60):
        words = [generator.choice("abcdefgh") * generator.randrange(1, 12) for _ in range(60)]
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "0.txt").write_text("\n".join(words))
        (folder / "1.txt").write_text("y" * generator.randrange(1, 5))
        job = job_of(byte_level, LINES, HoldOut(1, generator.randrange(90, 140)))
        assert in_units(job, [(source,) for source in open_corpus(folder, LINES)]) == local(job, folder)


def corpus_of_all_formats(folder):
    """Files of every format, with added tokens, bytes that are not UTF-8, bad documents and a damaged file."""
    folder.mkdir()
    lines = [f"{text} <|end|> <s> {number}" for number, text in enumerate(builders.TEXT)]
    (folder / "a.txt").write_text("\n".join(lines), encoding="utf-8")
    (folder / "b.txt").write_bytes(b"\xef\xbb\xbfcaf\xe9 \xff\xfe cat\r\n\r\n  \nlast")
    rows = [*({"text": line} for line in lines), {"text": None}, {"other": "x"}]
    (folder / "c.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"text": "a\\ud800"}\nnot json\n')
    table = pa.table({"text": [*lines, None, ""]})
    pq.write_table(table, folder / "d.parquet", row_group_size=7)
    (folder / "e.jsonl.gz").write_bytes(gzip.compress((folder / "c.jsonl").read_bytes()))
    (folder / "f.txt.zst").write_bytes(pa.compress((folder / "a.txt").read_bytes(), "zstd", asbytes=True))
    (folder / "g.txt.gz").write_bytes(gzip.compress(b"the cat sat " * 9000)[:-40])
    (folder / "h.parquet").write_bytes(b"PAR1 damaged")
    return folder


@pytest.mark.parametrize(
    ("documents", "normalize", "hold_out"),
    [
        ("files", None, HoldOut(2, 600)),
        ("files", "nfkc", None),
        ("lines", "nfkc", HoldOut(2, 600)),
        ("lines", None, None),
    ],
)
def test_units_of_every_format_count_as_the_corpus(tokenizer, tmp_path, documents, normalize, hold_out):
    folder = corpus_of_all_formats(tmp_path / "corpus")
    read_options = tg.ReadOptions(documents=documents, normalize=normalize, skip_bad=True)
    job = job_of(tokenizer, read_options, hold_out)
    expected = local(job, folder)
    assert expected[1].skipped > 3
    assert expected[1].replaced > 3
    inputs = open_corpus(folder, read_options)
    for size in (1, 700, 10_000, 10**9):
        assert in_units(job, work.units(inputs, size)) == expected


def test_rare_pretokens_are_left_out_after_all_units_are_added_up(byte_level, tmp_path):
    for number in range(4):
        (tmp_path / f"{number}.txt").write_text("cat " * (number % 2 + 1) + f"rare{number}")
    for hold_out in (None, HoldOut(1, 1000)):
        job = job_of(byte_level, LINES, hold_out, min_count=3)
        parts = [(source,) for source in open_corpus(tmp_path, LINES)]
        assert in_units(job, parts) == local(job, tmp_path)


def lines_of(blocks):
    return [(block.first, bytes(block.data)) for block in blocks]


@given(
    st.lists(st.binary(max_size=9).map(lambda data: data.replace(b"\n", b"x")), max_size=40),
    st.integers(1, 9),
    st.integers(1, 60),
    st.sampled_from([b"", b"\xef\xbb\xbf"]),
)
def test_ranges_have_the_blocks_of_the_whole_file(tmp_path_factory, lines, block, size, mark):
    """For blocks of every size, the ranges of a file together have its blocks, and the right numbers of lines."""
    path = tmp_path_factory.mktemp("ranges") / "c.txt"
    path.write_bytes(mark + b"\n".join(lines))
    (source,) = open_corpus(path, LINES)
    block = max(block, len(mark))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokengraft.corpus.blocks.BLOCK", block)
        whole = lines_of(source.blocks(Cut(lambda _: None)))
    parts = split_input(source, size, block=block)
    if len(parts) > 1:
        assert [each for part in parts for each in lines_of(numbered(part.part).blocks(Cut(lambda _: None)))] == whole
        assert sum(part.size for part in parts) == path.stat().st_size


@pytest.mark.parametrize("name", ["c.txt", "c.jsonl"])
def test_a_large_file_of_lines_is_cut_into_units(byte_level, tmp_path, monkeypatch, name):
    text = "".join(f"line {number} of the cat\n" * (number % 3) for number in range(2000))
    lines = text if name == "c.txt" else "".join(json.dumps({"text": line}) + "\n" for line in text.splitlines())
    (tmp_path / name).write_text(lines)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 512})
    job = job_of(byte_level, LINES, HoldOut(5, 4000))
    parts = work.units(open_corpus(tmp_path / name, LINES), 2000)
    assert len(parts) > 10
    assert in_units(job, parts) == local(job, tmp_path / name)
    assert work.units(open_corpus(tmp_path / name, LINES), 2000, whole=frozenset([str(tmp_path / name)])) != parts


def test_files_that_cannot_be_cut_are_one_unit(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"x\n" * 4_000_000)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"", mtime=0) * 400_000)
    files = open_corpus(tmp_path, tg.ReadOptions())
    assert [part.name for unit in work.units(files, 1 << 20) for part in unit] == [source.name for source in files]
    assert files[0].blocks.func is file_blocks


def test_an_error_in_a_range_has_the_line_number_of_the_file(byte_level, tmp_path, monkeypatch):
    path = tmp_path / "c.jsonl"
    path.write_text('{"text": "a"}\n' * 1200 + '{"text": 3}\n' + '{"text": "b"}\n' * 300)
    monkeypatch.setattr(split_input, "__kwdefaults__", {"block": 512})
    parts = work.units(open_corpus(path, tg.ReadOptions()), 4000)
    job = job_of(byte_level, tg.ReadOptions())
    with pytest.raises(errors.CorpusError) as found:
        in_units(job, parts)
    with pytest.raises(errors.CorpusError) as expected:
        local(job, path)
    assert str(found.value) == str(expected.value)
    assert "line 1,201" in str(found.value)


def test_a_line_that_is_too_long_is_found_in_ranges_too(byte_level, tmp_path):
    """With skip_bad, nothing after it is counted by the local engine, and the units say that they cannot know that."""
    path = tmp_path / "c.txt"
    path.write_bytes(b"cat\n" * 500_000 + b"x" * 6_000_000 + b"\ncat\n" + b"dog\n" * 500_000)
    read_options = replace(LINES, skip_bad=True)
    job = job_of(byte_level, read_options, memory=1 << 20)
    parts = work.units(open_corpus(path, read_options), 1 << 20)
    assert len(parts) > 8
    *_, cut_off = in_units(job, parts)
    assert cut_off == {str(path)}
    assert local(job, path)[1].skipped == 1
    with pytest.raises(errors.CorpusError, match="cannot be cut"):
        in_units(replace(job, read_options=LINES), parts)
    assert in_units(job, work.units(open_corpus(path, read_options), 1 << 20, whole=cut_off)) == local(job, path)


def test_a_file_that_changes_while_it_is_read_is_an_error(byte_level, tmp_path):
    path = tmp_path / "c.txt"
    path.write_bytes(b"cat\n" * 600_000)
    parts = work.units(open_corpus(path, LINES), 1 << 20)
    path.write_bytes(b"cat\n" * 600_001)
    with pytest.raises(errors.CorpusError, match="changed while it was read"):
        in_units(job_of(byte_level, LINES), parts)
