"""Prune orders against the obvious version, and the laws they hold, on tokenizers and words drawn at random."""

import json
from collections import Counter

import builders
import reference
from hypothesis import given
from hypothesis import strategies as st
from test_bpe import LETTERS, merge_tables
from test_training import words_over

import tokengraft as tg
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.prune import METHODS

SAFE = ["leaf-frequency", "merge", "last-id-leaf"]


def tokenizer_of(tokens, merges):
    """A byte-level tokenizer over a few letters whose pretokens are whole texts."""
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    model = {"vocab": {token: i for i, token in enumerate(tokens)}, "merges": [list(pair) for pair in merges]}
    document = builders.document(model, [builders.added(len(tokens), "<end>")], pre_tokenizer=step, decoder=step)
    return read_tokenizer_json(json.dumps(document).encode(), name="tiny", files={})


@st.composite
def questions(draw):
    tokens, merges = draw(merge_tables())
    base = tokenizer_of(tokens, merges)
    words = draw(words_over(tokens))
    return base, tokens, merges, words, tg.count(base, (word for word, count in words.items() for _ in range(count)))


@given(questions(), st.data())
def test_leaf_frequency_equals_the_obvious_version(question, data):
    base, tokens, merges, words, counts = question
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    occurrences = Counter()
    for word, count in words.items():
        for token in reference.merge_all(list(word), ranks)[0]:
            occurrences[token] += count
    long = [token for token in tokens if len(token) > 1]
    keep = set(data.draw(st.lists(st.sampled_from(long), max_size=2))) if long else set()
    order = tg.prune_order(base, counts, protection=tg.Protection(tokens=sorted(keep)))
    assert list(order.tokens) == reference.leaf_order(tokens, merges, occurrences, keep)


@given(questions())
def test_merge_counts_final_occurrences_and_uses(question):
    base, tokens, merges, words, counts = question
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    total = Counter()
    for word, count in words.items():
        final, used = reference.merge_all(list(word), ranks)
        for token in [*final, *(part for pair in used for part in pair)]:
            total[token] += count
    expected = sorted((t for t in tokens if len(t) > 1), key=lambda t: (total[t], -len(t), -tokens.index(t)))
    assert list(tg.prune_order(base, counts, "merge").tokens) == expected


@given(questions(), st.sampled_from(SAFE), st.data())
def test_what_stays_stays_reachable_and_what_used_nothing_pruned_encodes_as_before(question, method, data):
    base, tokens, _, words, counts = question
    order = tg.prune_order(base, counts, method)
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
    pruned = tg.prune_order(base, counts, method).apply(base)
    assert [t.string for t in pruned.tokens] == [*LETTERS, "<end>"]
    for word in words:
        assert [t.string for i in pruned.encode(word) for t in pruned.tokens if t.id == i] == list(word)
    assert len(tokens) + 1 == len(base.tokens)


@given(questions(), st.sampled_from(SAFE), st.data())
def test_pruning_and_extending_by_as_many_gives_the_old_size_and_old_ids(question, method, data):
    base, _, _, _, counts = question
    order = tg.prune_order(base, counts, method)
    size = data.draw(st.integers(0, len(order)))
    pruned = order[:size].apply(base)
    if not size:
        return
    extension = tg.extend(pruned, counts, size, limits=tg.Limits(min_count=1))
    new = extension.apply(pruned)
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
    order = tg.prune_order(base, counts, method)
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
