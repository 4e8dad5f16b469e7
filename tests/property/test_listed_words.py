"""Word lists: what holds for every list on every tokenizer."""

import json

import builders
from hypothesis import assume, given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from test_bpe import LETTERS, merge_tables
from test_pieces import FILE, piece_scores, texts_over, tokenizer_of

import tokengraft as tg
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.learn.include import WordList, listed_words
from tokengraft.tokenizer.edit import add_tokens

WORDS = st.text(LETTERS, min_size=2, max_size=7)


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


@given(merge_tables(), st.lists(WORDS, min_size=1, max_size=6, unique=True), st.booleans(), st.data())
def test_every_word_is_one_token_and_the_merges_do_not_depend_on_their_order(table, words, ignore_merges, data):
    base = byte_level(table, ignore_merges=ignore_merges)
    listed = listed_words(base, WordList(words, exact=True), tg.Limits())
    assert [(word.word, word.token) for word in listed.words] == [(word, word) for word in words]
    extended = add_tokens(base, listed.learned.tokens, listed.learned.pairs)
    for word in words:
        assert extended.encode_pretoken(word) == [extended.vocab[word]]
    shuffled = listed_words(base, WordList(data.draw(st.permutations(words)), exact=True), tg.Limits())
    assert shuffled.learned == listed.learned


@given(merge_tables(), st.lists(WORDS, min_size=1, max_size=5, unique=True), st.data())
def test_limits_and_preserved_text_are_kept_and_words_that_they_forbid_are_listed(table, words, data):
    base = byte_level(table)
    parts = sorted({word[start:end] for word in words for start in range(len(word)) for end in range(start + 2, 8)})
    limits = tg.Limits(deny=data.draw(st.sets(st.sampled_from(parts), max_size=4)))
    preserve = tg.count(base, iter(data.draw(st.lists(WORDS, min_size=1, max_size=3))))
    listed = listed_words(base, WordList(words, exact=True), limits, preserve=preserve)
    extended = add_tokens(base, listed.learned.tokens, listed.learned.pairs)
    assert not {left + right for left, right in listed.learned.pairs} & set(limits.deny)
    assert not len(preserve.changed(base, extended))
    for word in listed.words:
        assert (word.token is None) == (word.reason is not None)
        assert word.token is None or extended.encode_pretoken(word.word) == [extended.vocab[word.word]]


def check_extension(base, counts, words, data):
    """What must hold for any list on any tokenizer. Returns the extension and the tokenizer with it."""
    needed = len(listed_words(base, words, tg.Limits(), counted=[counts]).learned.tokens)
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
