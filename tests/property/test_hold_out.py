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


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("tok"), builders.byte_level()))


def held(tokenizer, corpus, hold_out, read_options=LINES, **count_options):
    return count_with_hold_out(
        tokenizer, corpus, read_options=read_options, count_options=tg.CountOptions(**count_options), hold_out=hold_out
    )


texts = st.text(st.sampled_from("abõ猫 \u00a0\x1c"), max_size=12)


@given(st.lists(texts, min_size=1, max_size=60), st.integers(1, 4), st.integers(8, 200), st.sampled_from([1, 3]))
def test_hold_out_equals_the_slow_version(tokenizer, documents, one_in, max_bytes, workers):
    expected, counted = slow_hold_out(documents, one_in, max_bytes)
    found = held(tokenizer, iter(documents), HoldOut(one_in, max_bytes), workers=workers)
    assert list(found.held_out) == expected
    assert found.counts == tg.count(tokenizer, dict(enumerate(counted)).values())


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
    expected, counted = slow_hold_out(lines, 2, 400)
    assert 5 < len(expected) < len({*lines}) / 3  # documents were evicted
    random.Random(block + workers).shuffle(paths)
    monkeypatch.setattr(blocks, "BLOCK", block)
    found = held(tokenizer, paths, HoldOut(2, 400), workers=workers)
    assert list(found.held_out) == expected
    assert found.counts == tg.count(tokenizer, dict(enumerate(counted)).values())


@pytest.mark.parametrize("block", [8, 16, 1 << 20])
def test_a_file_is_held_out_whole_however_it_is_read(tokenizer, tmp_path, monkeypatch, block):
    documents = [f"kass {n} koer {n} õun" for n in range(20)] + ["suur fail " * 20]
    for number, text in enumerate(documents):
        (tmp_path / f"{number:02}.txt").write_text(text, encoding="utf-8")
    monkeypatch.setattr(blocks, "BLOCK", block)
    expected, counted = slow_hold_out(documents, 2, 800)
    assert expected
    found = held(tokenizer, tmp_path, HoldOut(2, 800), read_options=tg.ReadOptions(), workers=2)
    assert list(found.held_out) == expected
    assert found.counts == tg.count(tokenizer, dict(enumerate(counted)).values())


def test_limits_apply_to_what_is_read_and_a_document_cut_short_is_counted(tokenizer):
    documents = [f"document {n}" for n in range(100)]
    expected, counted = slow_hold_out(documents[:40], 3, 10_000)
    found = held(tokenizer, iter(documents), HoldOut(3, 10_000), max_documents=40, workers=2)
    assert list(found.held_out) == expected
    assert found.counts.totals.documents == len(counted) == 40 - len(expected)
    short = held(tokenizer, iter(["abcdef", "gh"]), HoldOut(1, 10_000), max_bytes=4)
    assert short.held_out == ()
    assert short.counts == tg.count(tokenizer, iter(["abcd"]))


def test_what_is_replaced_and_skipped_is_reported_for_all_that_is_read(tokenizer, tmp_path):
    path = tmp_path / "c.jsonl"
    path.write_bytes(b'{"text": "a\xff"}\n{"text": null}\n{"text": "b"}\n')
    found = held(tokenizer, path, HoldOut(1), read_options=tg.ReadOptions(skip_bad=True))
    assert sorted(found.held_out) == ["a\ufffd", "b"]
    assert found.counts.totals == tg.Totals(replaced=1, skipped=1)


def test_the_text_before_damage_is_counted_with_hold_out_too(tokenizer, tmp_path):
    import gzip

    path = tmp_path / "c.txt.gz"
    path.write_bytes(gzip.compress(b"kass koer " * 50_000)[:-300])
    read_options = tg.ReadOptions(skip_bad=True)
    found = held(tokenizer, path, HoldOut(1, 1 << 30), read_options=read_options)
    assert found == (tg.count(tokenizer, path, read_options=read_options), ())
    assert found.counts.totals.skipped == 1


@pytest.mark.parametrize("name", ["one_in", "max_bytes"])
def test_a_hold_out_of_nothing_is_refused(name):
    with pytest.raises(errors.OptionError, match=f"{name} is 0"):
        replace(HoldOut(), **{name: 0})
