"""Prune orders against the obvious version, and the laws they hold, on tokenizers and words drawn at random."""

import json
from collections import Counter
from dataclasses import replace
from itertools import accumulate

import builders
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from test_bpe import LETTERS, merge_tables
from test_training import words_over

import tokengraft as tg
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.pruning.methods import METHODS, Expected, usefulness

BARE = tg.Protection(defaults=False)
SAFE = ["leaf-expected", "leaf-frequency", "merge", "last-id-leaf"]


def tokenizer_of(tokens, merges, **settings):
    """A byte-level tokenizer over a few letters whose pretokens are whole texts."""
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": [list(pair) for pair in merges]}
    end = [builders.added(len(tokens), "<end>")]
    document = builders.document(model | settings, end, pre_tokenizer=step, decoder=step)
    return read_tokenizer_json(json.dumps(document).encode(), name="tiny", files={})


@st.composite
def questions(draw):
    """A tokenizer, often with tokens that merges do not make, and words, many of which are single tokens."""
    tokens, merges = draw(merge_tables())
    joined = st.lists(st.sampled_from(tokens), min_size=2, max_size=4).map("".join)
    tokens = [*dict.fromkeys([*tokens, *draw(st.lists(joined, max_size=6))])]
    base = tokenizer_of(tokens, merges, ignore_merges=draw(st.booleans()))
    whole = st.dictionaries(st.sampled_from(tokens), st.integers(1, 9), max_size=12)
    words = Counter(draw(words_over(tokens))) + Counter(draw(whole))
    return base, tokens, merges, words, tg.count(base, (word for word, count in words.items() for _ in range(count)))


def occurrences(words, tokens, merges, *, ignore_merges):
    """How often each token occurs: every word encoded by the obvious version."""
    found = Counter()
    for word, count in words.items():
        for token in reference.encode(word, tokens, merges, ignore_merges=ignore_merges):
            found[token] += count
    return found


def steps(order):
    return [(removal.token, removal.decided_by) for removal in order.removals]


@given(questions(), st.booleans(), st.data())
def test_leaf_orders_equal_the_obvious_version_in_both_ways_of_counting(question, by_merges, data):
    base, tokens, merges, words, counts = question
    counted = occurrences(words, tokens, merges, ignore_merges=base.ignore_merges and not by_merges)
    long = [token for token in tokens if len(token) > 1]
    wanted = set(data.draw(st.lists(st.sampled_from(long), max_size=2))) if long else set()
    protection = replace(BARE, tokens=sorted(wanted))
    order = tg.prune_order(base, counts, "leaf-frequency", protection=protection, by_merges=by_merges)
    assert steps(order) == reference.leaf_order(tokens, merges, counted, wanted)
    order = tg.prune_order(base, counts, protection=protection, by_merges=by_merges)
    expected = usefulness(base, {base.ids[token]: count for token, count in counted.items()})
    unreachable = tg.prune_order(base, None, "unreachable", protection=BARE).tokens
    named = {token: 0.0 if token in unreachable else expected.get(base.ids[token], 0.0) for token in tokens}
    assert steps(order) == reference.leaf_order(tokens, merges, counted, wanted, named)


@given(questions())
def test_expected_counts_are_those_of_the_obvious_version(question):
    base, tokens, merges, words, _ = question
    counted = occurrences(words, tokens, merges, ignore_merges=base.ignore_merges)
    expected = Expected.of(base, {base.ids[token]: count for token, count in counted.items()}).counts
    for token in (token for token in tokens if len(token) > 1):
        by_hand = float(reference.expected_count(token, tokens, merges, counted))
        assert expected[base.ids[token]] == pytest.approx(by_hand, rel=1e-9)


@given(questions(), st.booleans())
def test_merge_equals_the_obvious_version_in_both_ways_of_counting(question, by_merges):
    base, tokens, merges, words, counts = question
    order = tg.prune_order(base, counts, "merge", protection=BARE, by_merges=by_merges)
    skips = base.ignore_merges and not by_merges
    assert steps(order) == reference.merge_order(tokens, merges, words, ignore_merges=skips)


@given(questions(), st.booleans())
def test_frequency_goes_by_counts_alone(question, by_merges):
    base, tokens, merges, words, counts = question
    counted = occurrences(words, tokens, merges, ignore_merges=base.ignore_merges and not by_merges)
    expected = sorted((counted[t], -tokens.index(t), t) for t in tokens if len(t) > 1)
    order = tg.prune_order(base, counts, "frequency", protection=BARE, by_merges=by_merges)
    assert steps(order) == [(token, count) for count, _, token in expected]


def edges(pieces):
    return set(accumulate(map(len, pieces), initial=0))


@given(questions())
def test_the_flow_of_a_removal_is_what_reencoding_the_text_gives_unless_a_token_crosses_the_removed_one(question):
    base, tokens, merges, words, counts = question
    order, left = tg.prune_order(base, counts, protection=BARE), list(tokens)
    strings = {token.id: token.string for token in base.tokens}
    # Tokens that only merge skipping makes in the base: merges may make one in a text once another token is removed.
    skipped = {strings[token_id] for token_id in base.structure.unreachable}
    for size, removed in enumerate(order.tokens, start=1):
        pruned = order[:size].apply(base)
        before = {w: reference.encode(w, left, merges, ignore_merges=base.ignore_merges) for w in [*words, *tokens]}
        left.remove(removed)
        parts = reference.encode(removed, left, merges, ignore_merges=False)
        for word, pieces in before.items():
            flowed = [part for piece in pieces for part in (parts if piece == removed else [piece])]
            after = [strings[i] for i in pruned.encode(word)]
            is_known = not skipped.intersection(pieces) or pieces == [removed]
            assert after == flowed or not is_known or (pieces != [removed] and not edges(pieces) <= edges(after))


def test_a_neighbour_can_merge_with_a_part_of_a_removed_token_and_the_flow_does_not_see_it():
    base = tokenizer_of([*LETTERS, "ab", "bc"], [("a", "b"), ("b", "c")])
    counts = tg.count(base, iter(["abc", "bc", "bc"]))
    order = tg.prune_order(base, counts, protection=BARE)
    assert steps(order) == [("ab", 1), ("bc", 2)]
    pruned = order[:1].apply(base)
    assert counts.tokens(pruned)[base.vocab["bc"]] == 3


@given(questions(), st.sampled_from(SAFE), st.data())
def test_what_stays_stays_reachable_and_what_used_nothing_pruned_encodes_as_before(question, method, data):
    base, tokens, _, words, counts = question
    order = tg.prune_order(base, counts, method, protection=BARE)
    size = data.draw(st.integers(0, len(order)))
    chosen = order[:size]
    assert order[: len(order)][:size] == chosen
    pruned = chosen.apply(base)
    gone = {removal.id for removal in chosen.removals}
    assert not set(pruned.structure.unreachable) - set(base.structure.unreachable)
    for word in [*words, *tokens]:
        before = base.encode(word)
        after = pruned.encode(word)
        assert after == before or gone.intersection(before)
        assert b"".join(t.bytes for i in after for t in pruned.tokens if t.id == i) == word.encode()
    assert {t.string: t.id for t in pruned.tokens} == {t.string: t.id for t in base.tokens if t.id not in gone}


@given(questions(), st.sampled_from(sorted(set(METHODS) - {"script", "script-leaf", "unreachable"})))
def test_pruning_everything_leaves_the_protected_and_any_text_survives(question, method):
    base, tokens, _, words, counts = question
    pruned = tg.prune_order(base, counts, method, protection=BARE).apply(base)
    assert [t.string for t in pruned.tokens] == [*LETTERS, "<end>"]
    for word in words:
        assert [t.string for i in pruned.encode(word) for t in pruned.tokens if t.id == i] == list(word)
    assert len(tokens) + 1 == len(base.tokens)


@given(questions(), st.sampled_from(SAFE), st.data())
def test_pruning_and_extending_by_as_many_gives_the_old_size_and_old_ids(question, method, data):
    base, _, _, _, counts = question
    order = tg.prune_order(base, counts, method, protection=BARE)
    size = data.draw(st.integers(0, len(order)))
    pruned = order[:size].apply(base)
    if not size:
        return
    extension = tg.extend(pruned, counts, size, limits=tg.Limits(min_count=1))
    new = extension.apply(pruned)
    assert [*new.vocab.items()] == [*new.core_vocabulary.vocab().items()]  # in the same order
    old = {t.string: t.id for t in base.tokens}
    if len(extension) == size:
        assert new.n_rows == base.n_rows
        assert sorted(t.id for t in new.tokens) == sorted(old.values())
    for token in new.tokens:
        if token.string in old:
            assert token.id == old[token.string]


@given(questions(), st.sampled_from(SAFE), st.data())
def test_a_plan_says_where_every_row_comes_from(question, method, data):
    base, _, _, _, counts = question
    order = tg.prune_order(base, counts, method, protection=BARE)
    pruned = order[: data.draw(st.integers(0, len(order)))].apply(base)
    new = tg.extend(pruned, counts, 4, limits=tg.Limits(min_count=1)).apply(pruned)
    for tokenizer in (pruned, pruned.compact(), new, new.compact()):
        found = tg.plan(base, tokenizer)
        strings = {t.id: t.string for t in base.tokens}
        for token in tokenizer.tokens:
            source = found.sources[token.id]
            pieces = [source] if isinstance(source, int) else source
            assert "".join(strings[i] for i in pieces) == token.string
        assert len(found.sources) == tokenizer.n_rows
        assert {strings[i] for i in found.removed} == set(strings.values()) - {t.string for t in tokenizer.tokens}
