"""Which tokens an edit learned: the check compares numbers, and the obvious version strings."""

from hypothesis import given
from hypothesis import strategies as st
from test_bpe import merge_tables
from test_pruning import tokenizer_of

from tokengraft.tokenizer.kind import SPACE
from tokengraft.verify.against_base import learned


def applied(tokenizer):
    """The tokens that merges make, each with its merge, in the order of the merges."""
    splits, strings = tokenizer.structure.splits, tokenizer.strings
    ranks = {pair: rank for rank, pair in enumerate(tokenizer.merges)}
    in_order = sorted(splits, key=lambda made: ranks[splits[made]])
    return {strings[i]: tuple(strings[part] for part in splits[i]) for i in in_order}


def obvious(tokenizer, base):
    """The learned tokens, those of the base among them, and the number of merges before them."""
    before, after = applied(base), applied(tokenizer)
    ranks = {pair: rank for rank, pair in enumerate(before.values())}
    products, places = [*after], [ranks.get(pair, -1) for pair in after.values()]
    start, end, highest = 0, len(products), -1
    for string, place in zip(products, places, strict=True):
        if string not in base.ids or (place < 0 and string in before) or 0 <= place < highest:
            break
        start, highest = start + 1, max(highest, place)
    following = len(ranks)
    while end > start and not products[end - 1].strip(SPACE) and highest < places[end - 1] < following:
        end, following = end - 1, places[end - 1]
    tokens = [string for string in products[start:end] if string not in base.ids or string in before]
    return before, after, tokens, [string for string in tokens if string in before], start


@st.composite
def two_tables(draw):
    """A table of merges, and one with some of its tokens, other tokens, and merges in another order."""
    tokens, merges = draw(merge_tables())
    others, more = draw(merge_tables())
    gone = draw(st.sets(st.sampled_from([token for token in tokens if len(token) > 1] or [""]), max_size=3))
    new = [token for token in [*tokens, *others] if token not in gone]
    kept = [pair for pair in [*merges, *more] if {*pair, "".join(pair)} <= {*new}]
    order = draw(st.one_of(st.just(kept), st.permutations(kept)))
    return (tokens, merges), ([*dict.fromkeys(draw(st.permutations(new)))], [*dict.fromkeys(order)])


@given(two_tables())
def test_what_was_learned_is_what_the_obvious_version_finds(tables):
    base, tokenizer = (tokenizer_of(*table) for table in tables)
    found = learned(tokenizer, base)
    result = found.before.pairs, found.after.pairs, found.tokens, found.again, found.start
    assert result == obvious(tokenizer, base)
    assert [found.after.pair(place) for place in range(len(found.after.rows))] == [*found.after.pairs.values()]
    asked = [*base.ids, *tokenizer.ids, "no token"]
    assert [found.after.merge_of(token) for token in asked] == [found.after.pairs.get(token) for token in asked]
