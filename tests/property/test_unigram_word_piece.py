"""Unigram and WordPiece: encoding against `tokenizers` and the obvious versions, and the laws of pruning."""

import json
import random

import builders
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft.formats.huggingface import read_tokenizer_json, write_tokenizer_json

LETTERS = "abcкõ猫"
WORDS = st.text(LETTERS, min_size=1, max_size=9)
TEXTS = st.lists(WORDS | st.sampled_from(["<unk>", "[UNK]", "##a", "a▁b"]), min_size=1, max_size=6).map(" ".join)


def read(document):
    return read_tokenizer_json(json.dumps(document).encode(), name="tiny", files={})


@st.composite
def unigrams(draw):
    """A Unigram tokenizer over a few letters. Few different scores, so that many paths are equally good."""
    pieces = draw(st.lists(st.text("▁" + LETTERS, min_size=1, max_size=4), min_size=1, max_size=25, unique=True))
    scores = {piece: draw(st.sampled_from([-1.0, -2.0, -2.5, -4.0])) for piece in pieces}
    return read(builders.unigram(scores))


@st.composite
def word_pieces(draw):
    """A WordPiece tokenizer over a few letters."""
    words = draw(st.lists(st.text(LETTERS, min_size=1, max_size=4), min_size=1, max_size=20, unique=True))
    inside = draw(st.lists(st.text(LETTERS, min_size=1, max_size=3), max_size=15, unique=True))
    return read(builders.word_piece([*words, *(f"##{text}" for text in inside)], max_input_chars_per_word=6))


MODELS = unigrams() | word_pieces()


@given(MODELS, TEXTS)
def test_texts_are_split_as_by_the_library_and_by_the_obvious_version(tokenizer, text):
    upstream = Upstream.from_str(write_tokenizer_json(tokenizer).decode())
    assert tokenizer.encode(text) == upstream.encode(text, add_special_tokens=False).ids
    for pretoken in tokenizer.pretokenize(text):
        if isinstance(pretoken, int):
            continue
        tokens = [tokenizer.strings[i] for i in tokenizer.encode_pretoken(pretoken)]
        if tokenizer.algorithm == "WordPiece":
            assert tokens == (reference.word_pieces(pretoken, tokenizer.vocab, 6) or ["[UNK]"])
        elif "<unk>" not in tokens:
            assert sum(tokenizer.scores[token] for token in tokens) == reference.best_score(pretoken, tokenizer.scores)


def test_equal_paths_are_chosen_as_by_the_library_whatever_digits_the_scores_have():
    # The library reads many numbers of 17 digits as a neighbour, and rounding decides between paths of one sum.
    numbers = random.Random(5)
    for _ in range(300):
        scores = {token: numbers.uniform(-16, -1) for token in ("▁", "a", "aa", "aaa", "b", "ab")}
        document = builders.unigram(scores)
        tokenizer, upstream = read(document), Upstream.from_str(json.dumps(document))
        texts = ["a" * length for length in range(2, 20)] + ["".join(numbers.choices("ab", k=15)) for _ in range(10)]
        expected = [encoding.ids for encoding in upstream.encode_batch(texts, add_special_tokens=False)]
        assert tokenizer.encode_batch(texts) == expected


@given(MODELS, st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_what_used_only_kept_tokens_is_split_as_before(tokenizer, corpus, data):
    order = tg.prune_order(tokenizer, tg.count(tokenizer, iter(corpus)), protection=tg.Protection(defaults=False))
    n = data.draw(st.integers(0, len(order)))
    small = order[:n].apply(tokenizer).compact()
    gone = set(order[:n].tokens)
    upstream = Upstream.from_str(write_tokenizer_json(small).decode())
    for text in [*corpus, *data.draw(st.lists(TEXTS, max_size=5))]:
        before = [tokenizer.strings[i] for i in tokenizer.encode(text)]
        after = [small.strings[i] for i in small.encode(text)]
        assert upstream.encode(text, add_special_tokens=False).ids == small.encode(text)
        if gone.isdisjoint(before):
            assert after == before
    reachable = {*tokenizer.ids} - {tokenizer.strings[i] for i in tokenizer.structure.unreachable}
    assert reachable.isdisjoint(small.strings[i] for i in small.structure.unreachable)


@given(MODELS, st.lists(TEXTS, min_size=1, max_size=4), st.data())
def test_text_of_the_same_characters_gets_no_new_unknown_token(tokenizer, corpus, data):
    protection = tg.Protection(defaults=False, characters=True)
    small = tg.prune_order(tokenizer, tg.count(tokenizer, iter(corpus)), protection=protection)
    small = small[: data.draw(st.integers(0, len(small)))].apply(tokenizer)
    alphabet = sorted({character for text in corpus for character in text if character in LETTERS})
    texts = st.lists(st.text(alphabet or "a", min_size=1, max_size=6), min_size=1, max_size=4).map(" ".join)
    for text in [*corpus, data.draw(texts)]:
        unknown = [tok.encode(text).count(tok.ids[tok.unknown]) for tok in (tokenizer, small)]
        assert unknown[1] <= unknown[0] or not alphabet


@given(MODELS, st.lists(TEXTS, min_size=1, max_size=4))
def test_the_rarest_are_removed_first(tokenizer, corpus):
    counts = tg.count(tokenizer, iter(corpus))
    order = tg.prune_order(tokenizer, counts, protection=tg.Protection(defaults=False, characters=True))
    found = counts.tokens(tokenizer)
    unseen = [removal for removal in order.removals if not found.get(removal.id)]
    first = [removal for removal in order.removals if not removal.decided_by]
    assert {removal.id for removal in first} <= {removal.id for removal in unseen}
    assert order.removals[: len(first)] == tuple(first)


@given(MODELS, st.lists(TEXTS, min_size=1, max_size=4))
def test_counts_are_those_of_the_encoded_text(tokenizer, corpus):
    found: dict[int, int] = {}
    for text in corpus:
        for token_id in tokenizer.encode(text):
            found[token_id] = found.get(token_id, 0) + 1
    assert tg.count(tokenizer, iter(corpus)).tokens(tokenizer) == dict(sorted(found.items()))


@pytest.mark.parametrize("document", [builders.unigram(), builders.word_piece()], ids=["unigram", "word-piece"])
def test_a_folder_is_written_back_byte_for_byte(tmp_path, document):
    folder = builders.write(tmp_path / "model", document)
    tg.save(tg.load(folder), tmp_path / "same")
    for path in (tmp_path / "same").iterdir():
        assert path.read_bytes() == (folder / path.name).read_bytes()


@given(MODELS, st.lists(TEXTS, min_size=2, max_size=6), st.lists(TEXTS, max_size=2), st.integers(1, 6))
def test_new_tokens_are_reachable_and_preserved_text_is_split_as_before(tokenizer, corpus, kept, n):
    counts = tg.count(tokenizer, iter([*corpus * 3, "aab"]))
    preserve = tg.count(tokenizer, iter([*kept, "ac"])) if kept else None
    extension = tg.extend(tokenizer, counts, n, preserve=preserve)
    assert extension[: n // 2] == (tg.extend(tokenizer, counts, n // 2, preserve=preserve) if n > 1 else extension[:0])
    new = extension.apply(tokenizer)
    assert {*new.structure.unreachable} == {*tokenizer.structure.unreachable}
    assert new.strings.items() >= tokenizer.strings.items()
    upstream = Upstream.from_str(write_tokenizer_json(new).decode())
    for text in [*corpus, *kept]:
        assert new.encode(text) == upstream.encode(text, add_special_tokens=False).ids
    if preserve:
        assert new.encode_batch(kept) == tokenizer.encode_batch(kept)
    lost = [tg.count(tokenizer, iter(corpus)).lost(one) for one in (tokenizer, new)]
    assert sum(lost[1].values()) <= sum(lost[0].values())


@given(MODELS, st.lists(TEXTS, min_size=2, max_size=6), st.lists(TEXTS, max_size=2), st.data())
def test_pruning_and_extending_by_as_many_gives_the_old_size_and_old_ids(tokenizer, corpus, kept, data):
    keep = tg.count(tokenizer, iter([*kept, "ac"]))
    used = [tokenizer.strings[i] for i in keep.tokens(tokenizer)]
    order = tg.prune_order(tokenizer, keep, protection=tg.Protection(defaults=False, tokens=used))
    n = data.draw(st.integers(0, len(order)))
    first = data.draw(st.integers(0, n))
    small = order[:first].apply(tokenizer)
    rest = tg.PruneOrder(order.method, order.removals[first:n], small.content_hash)
    small = rest.apply(small) if n > first else small  # in one step or in two
    extension = tg.extend(small, tg.count(tokenizer, iter([*corpus * 3, "aab"])), max(n, 1), preserve=keep)
    new = extension.apply(small)
    assert [*new.vocab.items()] == [*new.core_vocabulary.vocab().items()]  # in the same order
    if len(extension) < n:
        assert [token.id for token in new.tokens] == [*range(len(tokenizer) - n + len(extension))]
        return
    gone = {*order[:n].tokens}
    assert {string: i for string, i in tokenizer.ids.items() if string not in gone}.items() <= new.ids.items()
    assert new.n_rows == tokenizer.n_rows + len(extension) - n
    again = gone & {*extension.tokens}
    assert {string: new.ids[string] for string in again} == {string: tokenizer.ids[string] for string in again}
    assert new.encode_batch(kept) == tokenizer.encode_batch(kept)
    upstream = Upstream.from_str(write_tokenizer_json(new).decode())
    for text in [*corpus, *kept]:
        assert new.encode(text) == upstream.encode(text, add_special_tokens=False).ids
