"""Hold-out inside the core against the slow version, on random corpora."""

import random
from dataclasses import replace

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import hold_out as slow_hold_out

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus import blocks
from tokengraft.counts.count import HoldOut, count_with_hold_out

LINES = tg.ReadOptions(documents="lines")


def held(tokenizer, corpus, hold_out, read_options=LINES, **count_options):
    return count_with_hold_out(
        tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(**count_options), hold_out=hold_out
    )


def assert_slow(tokenizer, found, documents, hold_out):
    """What is held out of documents, and what is counted, is as the slow version says. Returns the held-out texts."""
    expected, counted, n_documents = slow_hold_out(documents, hold_out.one_in, hold_out.max_bytes)
    assert list(found.held_out) == expected
    assert found.held_out_documents == n_documents
    totals = replace(found.counts.totals, documents=len(counted))
    assert replace(found.counts, totals=totals) == tg.count(tokenizer, dict(enumerate(counted)).values())
    assert found.counts.totals.documents + n_documents == len(documents)
    return expected


texts = st.text(st.sampled_from("abõ猫 \u00a0\x1c"), max_size=40)


@given(
    st.lists(texts, min_size=1, max_size=60),
    st.sampled_from([1, 2, 3, 4, 10**9]),
    st.integers(1, 200),
    st.sampled_from([1, 3]),
)
def test_hold_out_equals_the_slow_version(tokenizer, documents, one_in, max_bytes, workers):
    hold_out = HoldOut(one_in, max_bytes)
    assert_slow(tokenizer, held(tokenizer, iter(documents), hold_out, workers=workers), documents, hold_out)


@given(texts, st.sampled_from([1, 2, 10**9]), st.integers(1, 200), st.sampled_from([1, 5, 16, 1 << 20]))
def test_a_file_is_cut_into_the_same_pieces_however_it_is_read(
    tokenizer, tmp_path_factory, text, one_in, max_bytes, block
):
    path = tmp_path_factory.mktemp("hold") / "a.txt"
    path.write_text(text + "x", encoding="utf-8")
    hold_out = HoldOut(one_in, max_bytes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", block)
        found = held(tokenizer, path, hold_out, read_options=tg.ReadOptions(), workers=2)
    assert_slow(tokenizer, found, [text + "x"], hold_out)


@pytest.mark.parametrize("max_bytes", [64, 400, 10**6])
def test_pieces_of_a_document_that_are_held_out_and_counted_make_the_document(tmp_path, max_bytes):
    """For a pipeline that puts a space before every document, but not before the pieces after the first."""
    tokenizer = tg.load(builders.write(tmp_path, builders.TINY["sentencepiece"]()))
    documents = [" ".join(f"cat{n}x{k}" for k in range(40)) for n in range(3)]  # no piece occurs twice
    found = held(tokenizer, iter(documents), HoldOut(2, max_bytes))
    first = [text for text in found.held_out if not text.startswith(" ")]
    later = [text.removeprefix(" ") for text in found.held_out if text.startswith(" ")]
    rest = sum((tg.count(tokenizer, iter([text])) for text in (*first, *later)), found.counts)
    assert rest.table == tg.count(tokenizer, iter(documents)).table
    assert found.held_out


@pytest.mark.parametrize("text", ["the cat sat\n", "the dog ran\n\n    away\n"])
@pytest.mark.parametrize("read_options", [tg.ReadOptions(), LINES])
def test_something_is_held_out_of_every_corpus_of_a_few_kilobytes(tokenizer, tmp_path, text, read_options):
    lines = [text.replace("the", f"w{n}") for n in range(20_000 // len(text))]
    (tmp_path / "a.txt").write_text("".join(lines))
    found = held(tokenizer, tmp_path / "a.txt", HoldOut(), read_options=read_options)
    assert found.held_out
    assert found.counts.totals.bytes > 10_000


def corpus_files(folder, seed=7):
    """Files of lines with many copies, and all their lines."""
    generator = random.Random(seed)
    lines = [
        " ".join(generator.choices(["kass", "koer", "õun", "cat"], k=generator.randrange(1, 6))) for _ in range(900)
    ]
    paths = []
    for number in range(5):
        paths.append(folder / f"{number}.txt")
        paths[-1].write_text("\n".join(lines[number::5]), encoding="utf-8")
    return paths, lines


@pytest.mark.parametrize(("block", "workers"), [(64, 1), (64, 4), (1000, 3), (1 << 20, 2)])
def test_hold_out_does_not_depend_on_threads_blocks_or_the_order_of_files(
    tokenizer, tmp_path, monkeypatch, block, workers
):
    paths, lines = corpus_files(tmp_path)
    random.Random(block + workers).shuffle(paths)
    monkeypatch.setattr(blocks, "BLOCK", block)
    found = held(tokenizer, paths, HoldOut(2, 400), workers=workers)
    expected = assert_slow(tokenizer, found, lines, HoldOut(2, 400))
    assert 5 < len(expected) < len({*lines}) / 3  # documents were evicted
    assert found.held_out_documents > len(expected)  # copies are counted


@pytest.mark.parametrize("block", [8, 16, 1 << 20])
def test_small_files_are_held_out_whole_however_they_are_read(tokenizer, tmp_path, monkeypatch, block):
    documents = [f"kass {n} koer {n} õun" for n in range(20)] + ["suur fail " * 20]
    for number, text in enumerate(documents):
        (tmp_path / f"{number:02}.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(blocks, "BLOCK", block)
    found = held(tokenizer, tmp_path, HoldOut(2, 800), read_options=tg.ReadOptions(), workers=2)
    expected = assert_slow(tokenizer, found, documents, HoldOut(2, 800))
    assert set(expected) & set(documents)


def test_limits_apply_to_what_is_read_and_a_document_cut_short_is_counted(tokenizer, tmp_path):
    documents = [f"document {n}" for n in range(100)]
    found = held(tokenizer, iter(documents), HoldOut(3, 10_000), max_documents=40, workers=2)
    assert assert_slow(tokenizer, found, documents[:40], HoldOut(3, 10_000))
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("a longer document " * 9, encoding="utf-8")
    found = held(tokenizer, tmp_path, HoldOut(2, 200), read_options=tg.ReadOptions(), max_documents=1)
    assert assert_slow(tokenizer, found, ["a longer document " * 9], HoldOut(2, 200))
    short = held(tokenizer, iter(["abcdef", "gh"]), HoldOut(1, 10_000), max_bytes=4)
    assert short.held_out == ()
    assert short.counts == tg.count(tokenizer, iter(["abcd"]))


def test_what_is_replaced_and_skipped_is_reported_for_all_that_is_read(tokenizer, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "a\xff"}\n{"text": null}\n{"text": "b"}\n')
    found = held(tokenizer, path, HoldOut(1), read_options=tg.ReadOptions(skip_bad=True))
    assert sorted(found.held_out) == ["a\ufffd", "b"]
    assert found.counts.totals == tg.corpus.options.Totals(replaced=1, skipped=1)


def test_the_text_before_damage_is_counted_with_hold_out_too(tokenizer, tmp_path):
    import gzip

    path = tmp_path / "c.txt.gz"
    path.write_bytes(gzip.compress(b"kass koer " * 300_000)[:-300])
    read_options = tg.ReadOptions(skip_bad=True)
    found = held(tokenizer, path, HoldOut(10**9), read_options=read_options)
    whole = tg.count(tokenizer, path, read_options=read_options)
    assert found.counts.totals.skipped == 1
    (piece,) = found.held_out
    n_copies, left = divmod(whole.totals.bytes - found.counts.totals.bytes, len(piece))
    assert (n_copies > 0, left) == (True, 0)
    assert found.counts + tg.count(tokenizer, iter([piece])).scale(n_copies) == replace(
        whole, totals=replace(whole.totals, documents=found.counts.totals.documents + n_copies)
    )


@pytest.mark.parametrize("name", ["one_in", "max_bytes"])
def test_a_hold_out_of_nothing_is_refused(name):
    with pytest.raises(errors.OptionError, match=f"`{name}` is 0"):
        replace(HoldOut(), **{name: 0})
