"""Word lists: the search for merges against all binary trees, and what holds for every list."""

import json
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice, pairwise, permutations
from random import Random

import builders
import pytest
import reference
from hypothesis import assume, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from test_bpe import LETTERS, merge_tables
from test_pieces import FILE, piece_scores, texts_over, tokenizer_of

import tokengraft as tg
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.learn.include import WordList, included_merges
from tokengraft.learn.word_merges import MergeBase, MergeLimits, WordMerges, replaced
from tokengraft.tokenizer.edit import add_tokens

WORDS = st.text(LETTERS, min_size=2, max_size=7)


def pieces_of(word, merges):
    return tuple(reference.merge_all(list(word), {pair: rank for rank, pair in enumerate(merges)})[0])


def generated(tokens, merges, words, limits=None, first=()):
    """The merges that are made for some words, and the words that cannot be made."""
    base = MergeBase(frozenset(tokens), lambda: {p: rank for rank, p in enumerate(merges)}, len(merges), {})
    todo = {word: pieces_of(word, merges) for word in words}
    made = WordMerges(base, {word: pieces for word, pieces in todo.items() if len(pieces) > 1}, limits or MergeLimits())
    stuck = made.make([word for word in first if len(todo[word]) > 1])
    return made.merges, stuck


def trees(pieces) -> Iterator[list[tuple[str, str]]]:
    """The merges of every binary tree over the pieces, parts before wholes."""
    if len(pieces) == 1:
        yield []
    for at in range(1, len(pieces)):
        for left in trees(pieces[:at]):
            for right in trees(pieces[at:]):
                yield [*left, *right, ("".join(pieces[:at]), "".join(pieces[at:]))]


def orders(tree) -> Iterator[tuple[tuple[str, str], ...]]:
    """The merges of a tree in every order in which parts are made before wholes, as in training and in rank files."""
    for order in permutations(dict.fromkeys(tree)):
        first: dict[str, int] = {}
        for at, (left, right) in enumerate(order):
            first.setdefault(left + right, at)
        if all(first.get(part, -1) < at for at, pair in enumerate(order) for part in pair):
            yield order


def fewest(tokens, merges, word, *, may_merge=lambda _: True) -> float:
    """The fewest new tokens that make a word one token, by trying all binary trees in all their orders."""
    best = float("inf")
    for tree in trees(pieces_of(word, merges)):
        new = {left + right for left, right in tree} - set(tokens)
        if len(new) < best and all(map(may_merge, tree)):
            usable = (order for order in orders(tree) if pieces_of(word, [*merges, *order]) == (word,))
            best = len(new) if next(usable, None) is not None else best
    return best


@given(merge_tables(), st.data())
def test_a_word_needs_as_few_new_tokens_as_the_best_of_all_binary_trees(table, data):
    tokens, merges = table
    word = data.draw(WORDS)
    assume(len(pieces_of(word, merges)) <= 5)
    made, stuck = generated(tokens, merges, [word])
    assert not stuck
    assert sum(merge.new for merge in made) == fewest(tokens, merges, word)


@given(merge_tables(), st.data())
def test_limits_are_kept_and_a_word_is_left_out_only_if_no_tree_makes_it(table, data):
    tokens, merges = table
    word = data.draw(WORDS)
    assume(len(pieces_of(word, merges)) <= 5)
    parts = st.sampled_from([word[start:end] for start in range(len(word)) for end in range(start + 1, len(word) + 1)])
    denied, kept_apart = data.draw(st.frozensets(parts)), data.draw(st.frozensets(st.tuples(parts, parts)))
    limits = MergeLimits(
        refusal=lambda string: "it is denied" if string in denied else None,
        allow_pair=lambda left, right: (left, right) not in kept_apart,
    )
    made, stuck = generated(tokens, merges, [word], limits)
    assert not {left + right for left, right, _ in made} & denied
    assert not {(left, right) for left, right, _ in made} & kept_apart
    possible = fewest(
        tokens, merges, word, may_merge=lambda pair: pair[0] + pair[1] not in denied and pair not in kept_apart
    )
    assert bool(stuck) == (possible == float("inf"))
    if not stuck:
        assert sum(merge.new for merge in made) == possible


@given(merge_tables(), st.lists(WORDS, max_size=8), st.data())
def test_every_word_and_every_token_in_between_encodes_to_itself(table, words, data):
    tokens, merges = table
    made, stuck = generated(tokens, merges, words, first=data.draw(st.permutations(words)) if words else ())
    assert not stuck
    pairs = [(left, right) for left, right, _ in made]
    for string in [*words, *(left + right for left, right in pairs)]:
        assert pieces_of(string, [*merges, *pairs]) == (string,)
    new = [left + right for left, right, is_new in made if is_new]
    assert len(set(new)) == len(new)
    assert not set(new) & set(tokens)


@given(merge_tables(), st.lists(WORDS, min_size=1, max_size=6), st.lists(WORDS, max_size=6))
def test_later_merges_never_break_earlier_words(table, earlier, later):
    tokens, merges = table
    made, _ = generated(tokens, merges, earlier)
    pairs = [*merges, *((left, right) for left, right, _ in made)]
    known = [*tokens, *(left + right for left, right, new in made if new)]
    more, _ = generated(known, pairs, later)
    for merge in more:
        pairs.append((merge.left, merge.right))
        assert [pieces_of(word, pairs) for word in earlier] == [(word,) for word in earlier]


@given(merge_tables(), st.lists(WORDS, min_size=1, max_size=6, unique=True), st.data())
def test_the_merges_do_not_depend_on_the_order_of_the_words(table, words, data):
    assert generated(*table, words) == generated(*table, data.draw(st.permutations(words)))


@given(merge_tables(), st.lists(st.text(LETTERS, min_size=10, max_size=40), min_size=1, max_size=3))
def test_long_words_are_made_too(table, words):
    made, stuck = generated(*table, words)
    assert not stuck
    pairs = [*table[1], *((left, right) for left, right, _ in made)]
    assert [pieces_of(word, pairs) for word in words] == [(word,) for word in words]


def fewest_for_list(words) -> int:
    """The fewest tokens that make all words, from single letters, by trying all merges (Dijkstra's algorithm)."""
    start = tuple(sorted(map(tuple, words)))
    best, heap = {start: 0}, [(0, start)]
    while True:
        cost, state = heappop(heap)
        if all(len(pieces) == 1 for pieces in state):
            return cost + len(words)
        for pair in {pair for pieces in state for pair in pairwise(pieces)}:
            after = tuple(sorted(replaced(pieces, pair) for pieces in state))
            total = cost + ("".join(pair) not in words)
            if total < best.get(after, 99):
                best[after] = total
                heappush(heap, (total, after))


@pytest.mark.parametrize("seed", range(40))
def test_short_lists_need_as_few_tokens_as_the_best_of_all_merges(seed):
    # Not a law: the search is greedy across words. It has found the fewest for every list tried so far.
    random = Random(seed)
    words = {"".join(random.choices("abcdef", k=random.randint(2, 5))) for _ in range(3)}
    made, _ = generated("abcdef", [], words)
    assert sum(merge.new for merge in made) == fewest_for_list(words)


def byte_level(table, **model):
    """A byte-level tokenizer with the merges of a table."""
    tokens, merges = table
    document = builders.document(
        {"vocab": {}, "merges": [list(pair) for pair in merges]} | model,
        [],
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    )
    strings = dict.fromkeys([*builders.byte_alphabet(), *tokens])
    document["model"]["vocab"] = {string: at for at, string in enumerate(strings)}
    return read_tokenizer_json(json.dumps(document).encode(), name="tokenizer.json", files={})


def check_extension(base, counts, words, data):
    """What must hold for any list on any tokenizer. Returns the extension and the tokenizer with it."""
    needed = len(included_merges(base, words, MergeLimits(made_for=(counts.fingerprint,))).tokens)
    n = needed + data.draw(st.integers(1, 6))
    options = {"character_coverage": 0, "limits": tg.Limits(min_count=1)}
    extension = tg.extend(base, counts, n, include=words, **options)
    extended = extension.apply(base)
    for token in extension.tokens:
        assert extended.core_model.encode(token, by_merges=True) == [extended.vocab[token]]
    for word in extension.included:
        assert (word.token is None) == (word.reason is not None)
        if word.token:
            assert extended.encode_pretoken(word.token) == [extended.vocab[word.token]]
    for size in range(max(needed, 1), n + 1):
        assert extension[:size] == tg.extend(base, counts, size, include=words, **options)
    listed, learned = extension[:needed], extension.merges[extension.list_merges :]
    pairs = [(merge.left, merge.right) for merge in learned]
    again = add_tokens(listed.apply(base), [a + b for a, b, _, new in learned if new], pairs)
    assert (again.vocab, again.merges, again.files) == (extended.vocab, extended.merges, extended.files)
    return extension, extended


@given(merge_tables(), st.lists(WORDS, min_size=1, max_size=5), st.booleans(), st.booleans(), st.data())
def test_a_list_on_a_byte_level_tokenizer(table, words, exact, ignore_merges, data):
    base = byte_level(table, ignore_merges=ignore_merges)
    texts = data.draw(st.lists(st.lists(WORDS, max_size=4).map(" ".join), min_size=1, max_size=6))
    assume(any(texts))
    extension, extended = check_extension(base, tg.count(base, iter(texts)), WordList(words, exact), data)
    library = extended.to_tokenizers()
    for word in extension.included:
        assert word.token
        text = word.word if exact or not word.token.startswith("Ġ") else f"x {word.word} x"
        ids = library.encode(text).ids
        assert extended.vocab[word.token] in ids
        assert ids == extended.encode(text)


@given(piece_scores(), st.lists(WORDS, min_size=1, max_size=5), st.booleans(), st.data())
def test_a_list_on_a_sentencepiece_model(learned, words, exact, data):
    base, texts = tokenizer_of(learned), data.draw(texts_over(learned))
    extension, extended = check_extension(base, tg.count(base, iter(texts)), WordList(words, exact), data)
    library = SentencePieceProcessor(model_proto=extended.files[FILE])
    for word in extension.included:
        if not exact:
            assert word.token
            assert extended.vocab[word.token] in library.encode(f"a {word.word} a")
    more = data.draw(texts_over([*learned, *(token.replace("▁", " ") for token in extension.tokens)]))
    for text in texts + more:
        assert extended.encode(text) == library.encode(text)


def test_the_oracle_knows_all_trees():
    assert [len(list(trees("abcde"[:size]))) for size in range(1, 6)] == [1, 1, 2, 5, 14]
    assert list(islice(trees(("a", "b", "c")), 2)) == [[("b", "c"), ("a", "bc")], [("a", "b"), ("ab", "c")]]
