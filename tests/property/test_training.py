"""Continued training in the core against the obvious version, on tokenizers and words drawn at random."""

from array import array
from itertools import accumulate

import reference
from hypothesis import given
from hypothesis import strategies as st
from test_bpe import LETTERS, core_of, merge_tables

from tokengraft import _core

UNBOUNDED = 2**40


def counts_of(words):
    data = [word.encode() for word in words]
    offsets = array("q", accumulate(map(len, data), initial=0))
    return _core.Counts(b"".join(data), offsets.tobytes(), array("q", words.values()).tobytes())


def learned(tokens, merges, words, n, *, min_count=1, ignore_merges=False, **options):
    """The merges that the core learns, as strings."""
    settings = {"max_token_bytes": UNBOUNDED, "forbidden": [], "rules": None, "unreachable_ranks": []}
    settings |= {"allow": None, "max_candidates": UNBOUNDED} | options
    bpe = core_of(tokens, merges, ignore_merges=ignore_merges)
    return _core.extend(bpe, [counts_of(words)], n, min_count=min_count, **settings)[0]


def words_over(tokens):
    """Words of joined tokens, so that merges compete; few enough counts for ties to be common."""
    joined = st.lists(st.sampled_from(tokens), min_size=1, max_size=8).map("".join)
    return st.dictionaries(joined, st.integers(1, 4), min_size=1, max_size=12)


@given(merge_tables(), st.data(), st.integers(1, 12), st.integers(1, 3), st.booleans(), st.integers(1, 9))
def test_merges_equal_those_of_the_obvious_trainer(table, data, n, min_count, ignore_merges, max_candidates):
    tokens, merges = table
    words = data.draw(words_over(tokens))
    ours = learned(
        tokens, merges, words, n, min_count=min_count, ignore_merges=ignore_merges, max_candidates=max_candidates
    )
    theirs = reference.continued(words, tokens, merges, n, min_count=min_count, ignore_merges=ignore_merges)
    assert ours == theirs


@given(st.data(), st.integers(1, 15))
def test_training_from_the_bare_alphabet_equals_training_from_scratch(data, n):
    words = data.draw(words_over(list(LETTERS)))
    assert learned(list(LETTERS), [], words, n) == reference.continued(words, list(LETTERS), [], n, min_count=1)


@given(merge_tables(), st.data(), st.integers(1, 10), st.integers(0, 10))
def test_an_extension_of_smaller_size_is_a_prefix(table, data, n, smaller):
    tokens, merges = table
    words = data.draw(words_over(tokens))
    whole, part = learned(tokens, merges, words, n), learned(tokens, merges, words, min(smaller, n))
    assert whole[: len(part)] == part


@given(merge_tables(), st.data(), st.integers(1, 10))
def test_every_new_token_encodes_to_itself_and_tokens_never_rise(table, data, n):
    tokens, merges = table
    words = data.draw(words_over(tokens))
    found = learned(tokens, merges, words, n)
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    before = sum(count * len(reference.merge_all(list(word), ranks)[0]) for word, count in words.items())
    for left, right, _, new in found:
        ranks[left, right] = len(ranks)
        if new:
            assert reference.merge_all(list(left + right), ranks)[0] == [left + right]
        after = sum(count * len(reference.merge_all(list(word), ranks)[0]) for word, count in words.items())
        assert after <= before
        before = after
    for left, right, _, new in found:
        if new:
            assert reference.merge_all(list(left + right), ranks)[0] == [left + right]


@given(merge_tables(), st.data(), st.integers(1, 10))
def test_a_denied_token_is_never_made_and_the_next_best_takes_its_place(table, data, n):
    tokens, merges = table
    words = data.draw(words_over(tokens))
    free = learned(tokens, merges, words, n)
    new = [left + right for left, right, _, is_new in free if is_new]
    if not new:
        return
    denied = data.draw(st.sampled_from(new))
    by_set = learned(tokens, merges, words, n, forbidden=[denied])
    assert by_set == learned(tokens, merges, words, n, allow=lambda string: string != denied)
    assert all(left + right != denied for left, right, *_ in by_set)
    until = next(at for at, merge in enumerate(free) if merge[0] + merge[1] == denied)
    assert by_set[:until] == free[:until]


@given(merge_tables(), st.data(), st.integers(1, 10), st.integers(1, 5))
def test_no_token_is_longer_than_allowed(table, data, n, longest):
    tokens, merges = table
    words = data.draw(words_over(tokens))
    for left, right, *_ in learned(tokens, merges, words, n, max_token_bytes=longest):
        assert len(left + right) <= longest


def test_a_token_that_comes_alive_fires_the_merges_that_are_listed_for_it():
    # `ab` cannot be reached: a+b is not listed. Once it is learned, ab+c applies at once.
    tokens, merges = ["a", "b", "c", "ab", "abc"], [("ab", "c")]
    words = {"ab": 5, "abca": 2}
    after = ("abc", "a", 2, True)
    assert learned(tokens, merges, words, 1, ignore_merges=True) == [("a", "b", 2, False), after]
    assert learned(tokens, merges, words, 1, ignore_merges=False) == [("a", "b", 7, False), after]
