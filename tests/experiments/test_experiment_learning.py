"""Tokenizers of several sizes are learned once, and are those that would be learned for each size alone."""

import pytest
from small_corpora import documents

import tokengraft as tg
from lab.experiments.learn import extended, naive, train_fresh
from lab.experiments.prune import mixed

SIZES = (4, 16)


@pytest.fixture(params=["tiny", "skipping", "pieces"])
def base(request, data_folder):
    return tg.load(data_folder / "tokenizers" / request.param)


@pytest.fixture
def counts(base):
    return tg.count(base, iter(documents("et")))


def test_an_extension_is_cut_to_every_size(base, counts):
    for size, tokenizer in extended(base, tg.extend(base, counts, max(SIZES)), SIZES).items():
        assert tokenizer.ids == tg.extend(base, counts, size).apply(base).ids


def test_one_fresh_tokenizer_gives_the_naive_extension_of_every_size(base, counts):
    made = naive(base, train_fresh(base, counts, max(SIZES)), SIZES)
    assert [*made] == [*SIZES]
    for size, tokenizer in made.items():
        alone = tg.learn.extend_naively(base, counts, size)
        assert (tokenizer.ids, tokenizer.merge_strings()) == (alone.ids, alone.merge_strings())


def test_sizes_beyond_the_text_are_left_out(base, counts):
    extension = tg.extend(base, counts, 100_000)
    assert [*extended(base, extension, (4, 100_000))] == [4]
    assert [*naive(base, train_fresh(base, counts, 4), (4, 100_000))] == [4]


def test_both_languages_of_a_mix_have_the_same_weight(data_folder):
    from lab.experiments.data import open_data
    from lab.experiments.experiment import Cell, Setup

    setup = Setup(open_data(str(data_folder)), (8,))
    mix = mixed(setup, Cell("tiny", "et"))
    parts = [setup.train_counts("tiny", language) for language in ("et", "en")]
    weights = [max(part.totals.bytes for part in parts) / part.totals.bytes for part in parts]
    expected = sum(part.table.total() * weight for part, weight in zip(parts, weights, strict=True))
    assert mix.table.total() == pytest.approx(expected, rel=0.05)
