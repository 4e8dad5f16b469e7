"""The core's BPE against the obvious version and against the upstream library, on tokenizers drawn at random."""

import reference
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

from tokengraft import _core

LETTERS = "abcd"


@st.composite
def merge_tables(draw):
    """A vocabulary over four letters grown by random merges in random order, and its merges."""
    tokens = list(LETTERS)
    merges = []
    for _ in range(draw(st.integers(0, 14))):
        pair = (draw(st.sampled_from(tokens)), draw(st.sampled_from(tokens)))
        if pair not in merges and len(pair[0] + pair[1]) <= 12:
            merges.append(pair)
            tokens += [pair[0] + pair[1]] if pair[0] + pair[1] not in tokens else []
    return tokens, draw(st.permutations(merges))


def core_of(tokens, merges, *, ignore_merges=False):
    vocab = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    return _core.Model.bpe(
        _core.Vocabulary(vocab, pairs),
        byte_level=True,
        ignore_merges=ignore_merges,
        byte_fallback=False,
        unk_token=None,
        fuse_unk=False,
    )


@given(merge_tables(), st.data())
def test_encode_equals_upstream_on_strings_of_joined_tokens(table, data):
    tokens, merges = table
    text = "".join(data.draw(st.lists(st.sampled_from(tokens), max_size=30)))
    for ignore_merges in (False, True):
        vocab = {token: token_id for token_id, token in enumerate(tokens)}
        upstream = models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore_merges)
        ours = core_of(tokens, merges, ignore_merges=ignore_merges).encode(text)
        assert ours == [token.id for token in upstream.tokenize(text)]


@given(merge_tables(), st.data())
def test_encode_by_merges_equals_the_obvious_version(table, data):
    tokens, merges = table
    text = "".join(data.draw(st.lists(st.sampled_from(tokens), max_size=40)))
    expected, _ = reference.merge_all(list(text), {pair: rank for rank, pair in enumerate(merges)})
    ids = core_of(tokens, merges, ignore_merges=True).encode(text, by_merges=True)
    assert [tokens[token_id] for token_id in ids] == expected


@given(merge_tables())
def test_structure_has_the_last_merge_of_every_token_and_the_unreachable_ones(table):
    tokens, merges = table
    merged, atomic, unreachable = core_of(tokens, merges).structure()
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    assert [tokens[token_id] for token_id in atomic] == list(LETTERS)
    assert [tokens[token_id] for token_id in unreachable] == reference.unreachable(tokens, merges)
    for token_id, (left, right) in merged.items():
        assert reference.merge_all(list(tokens[token_id]), ranks)[1][-1] == (tokens[left], tokens[right])
