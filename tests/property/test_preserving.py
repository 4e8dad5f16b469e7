"""Preserved text and languages in balance: the core against the obvious trainer, on words drawn at random."""

import json
from fractions import Fraction
from functools import cache

import builders
import reference
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from test_bpe import core_of, merge_tables
from test_pieces import FILE, piece_scores, texts_over, tokenizer_of
from test_training import UNBOUNDED, counts_of, words_over

import tokengraft as tg
from tokengraft import _core
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.formats.vocabulary_files import read_piece_model
from tokengraft.learn.preserve import preserved_text

SETTINGS = {"max_token_bytes": UNBOUNDED, "forbidden": [], "rules": None, "unreachable_ranks": []}
NAMES = ("et", "hi", "lv")


def trained(
    bpe, texts, n, *, min_count, max_candidates=UNBOUNDED, denied="", preserved=(), parallel=None, max_share=Fraction(1)
):
    """What the core learns, with the names of the languages."""
    names = sorted(texts)
    both = ([counts_of(parallel[0][name]) for name in names], counts_of(parallel[1])) if parallel else None
    merges, refused, languages = _core.extend(
        bpe,
        [counts_of(texts[name]) for name in names],
        n,
        min_count=min_count,
        max_candidates=max_candidates,
        allow=(lambda string: string != denied) if denied else None,
        preserved=counts_of(dict.fromkeys(preserved, 1)) if preserved else None,
        parallel=both,
        max_share=max_share.as_integer_ratio(),
        **SETTINGS,
    )
    return merges, refused, [names[language] for language in languages]


@given(merge_tables(), st.data(), st.integers(1, 10), st.integers(1, 3), st.booleans(), st.integers(1, 9))
def test_training_beside_preserved_text_equals_the_obvious_trainer(table, data, n, min_count, skip, max_candidates):
    tokens, merges = table
    words, preserved = data.draw(words_over(tokens)), [*data.draw(words_over(tokens))]
    bpe = core_of(tokens, merges, ignore_merges=skip)
    ours = trained(bpe, {"et": words}, n, min_count=min_count, preserved=preserved, max_candidates=max_candidates)
    model = reference.ByMerges(tokens, merges, ignore_merges=skip)
    assert ours == reference.trained({"et": words}, model, n, min_count=min_count, preserved=preserved)


@given(merge_tables(), st.data(), st.integers(1, 10), st.booleans())
def test_preserved_words_keep_their_tokens_and_none_becomes_a_token(table, data, n, skip):
    tokens, merges = table
    words, preserved = data.draw(words_over(tokens)), [*data.draw(words_over(tokens))]
    found, *_ = trained(core_of(tokens, merges, ignore_merges=skip), {"et": words}, n, min_count=1, preserved=preserved)
    new = [left + right for left, right, _, is_new in found if is_new]
    assert not set(new) & set(preserved)
    every = [*merges, *((left, right) for left, right, *_ in found)]
    before, after = core_of(tokens, merges, ignore_merges=skip), core_of([*tokens, *new], every, ignore_merges=skip)
    for word in preserved:
        assert before.encode(word) == after.encode(word)
    for token in new:
        assert after.encode(token, by_merges=True) == [(tokens + new).index(token)]


def languages_over(tokens):
    return st.dictionaries(st.sampled_from(NAMES), words_over(tokens), min_size=1, max_size=3)


@given(merge_tables(), st.data(), st.integers(1, 10), st.integers(1, 3), st.booleans())
def test_languages_in_balance_equal_the_obvious_trainer(table, data, n, min_count, skip):
    tokens, merges = table
    texts = data.draw(languages_over(tokens))
    preserved = [*data.draw(words_over(tokens))][: data.draw(st.integers(0, 2))]
    denied = data.draw(st.sampled_from(["", "ab", "ba"]))
    parallel = None
    if data.draw(st.booleans()):
        parallel = ({name: data.draw(words_over(tokens)) for name in texts}, data.draw(words_over(tokens)))
    model = reference.ByMerges(tokens, merges, ignore_merges=skip)
    bpe = core_of(tokens, merges, ignore_merges=skip)
    max_share = data.draw(st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(2, 5), Fraction(1, 9)]))
    options = {"min_count": min_count, "preserved": preserved, "parallel": parallel, "max_share": max_share}
    expected = reference.trained(texts, model, n, may_merge=lambda a, b: a + b != denied, **options)
    ours = trained(bpe, texts, n, denied=denied, **options)
    assert ours == expected
    for size in range(n):
        merges_of_size, refused, languages = trained(bpe, texts, size, denied=denied, **options)
        end = len(merges_of_size)
        assert (merges_of_size, languages) == (ours[0][:end], ours[2][:end])
        assert refused == ours[1][: len(refused)]


@given(piece_scores(), st.data(), st.integers(1, 8), st.integers(1, 3))
def test_pieces_learned_beside_preserved_text_equal_those_of_the_obvious_trainer(learned, data, n, min_count):
    base = tokenizer_of(learned)
    names = data.draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    texts = {name: data.draw(texts_over(learned)) for name in names or ["et"]}
    kept = data.draw(st.one_of(st.just([]), texts_over(learned)))
    counted = {name: tg.count(base, iter(lines)) for name, lines in texts.items()}
    counts = tg.learn.Parity(counted) if names else counted["et"]
    options = {"limits": tg.Limits(min_count=min_count), "character_coverage": 0}
    options["preserve"] = tg.count(base, iter(kept)) if kept else None
    found = tg.extend(base, counts, n, **options)
    words = {name: as_words(lines) for name, lines in texts.items()}
    merges, refused, languages = reference.trained(
        words,
        reference.ByScore(base.piece_model.normal),
        n,
        min_count=min_count,
        may_merge=reference.may_be_piece,
        preserved=as_words(kept),
    )
    assert [merge for merge in found.merges if merge.new] == merges
    new_before = [sum(merge.new for merge in found.merges[: pair.place]) for pair in found.refused]
    assert [(*pair[:3], place) for pair, place in zip(found.refused, new_before, strict=True)] == refused
    if names:
        assert [name for name, merge in zip(found.languages, found.merges, strict=True) if merge.new] == languages
    else:
        assert found.languages == ()
    for size in range(1, n + 1):
        assert found[:size] == tg.extend(base, counts, size, **options)
    extended = found.apply(base)
    library = SentencePieceProcessor(model_proto=extended.files[FILE])
    for text in kept:
        assert extended.encode(text) == base.encode(text) == library.encode(text)


def as_words(lines):
    return {"▁" + line.replace(" ", "▁"): lines.count(line) for line in lines}


@cache
def base_of(kind):
    if kind == "model":
        return read_piece_model({FILE: builders.llama2_like()}, FILE)
    document = builders.byte_level(ignore_merges=kind == "skipping") if kind != "pieces" else builders.sentencepiece()
    return read_tokenizer_json(json.dumps(document).encode(), name="tokenizer.json", files={})


TEXTS = ["kass ja koer", "مرحبا، عالم", "नमस्ते दुनिया।", "e\u0301 o\u0301le 123", "猫が座る", "x = {'a': [1]}\n"]


WORDS = ["koer", "koerad", "kass", "دنيا", "नमस्ते", "x1", "猫が", "ja", "unustamatu"]


def needed_tokens(base, counts, options):
    """How many tokens a word list needs; `extend` refuses fewer."""
    if options["include"] is None:
        return 0
    return tg.extend(base, counts, 1000, **options).n_listed


@given(st.data(), st.integers(1, 25), st.sampled_from(["bytes", "skipping", "pieces", "model"]))
def test_the_laws_hold_for_every_combination_of_options(data, n, kind):
    base = base_of(kind)
    lines = st.lists(st.sampled_from(TEXTS), min_size=1, max_size=8)
    names = data.draw(st.lists(st.sampled_from(NAMES), max_size=3, unique=True))
    counted = {name: tg.count(base, iter(data.draw(lines))) for name in names or ["et"]}
    counts, shuffled = counted["et"] if not names else tg.learn.Parity(counted), None
    if names:
        both = {}
        if data.draw(st.booleans()):
            parallel = {name: tg.count(base, iter(data.draw(lines))) for name in names}
            both = {"parallel": parallel, "reference": tg.count(base, iter(data.draw(lines)))}
        both["max_share"] = data.draw(st.sampled_from([1, 0.5]))
        counts = tg.learn.Parity(counted, **both)
        shuffled = tg.learn.Parity(dict(reversed(counted.items())), **both)
    kept = data.draw(st.one_of(st.just([]), lines))
    scripts = data.draw(st.lists(st.sampled_from(["Latin", "arab", "Deva", "Common", "Han"]), max_size=2))
    limits = tg.Limits(
        min_count=data.draw(st.integers(1, 3)),
        max_token_bytes=data.draw(st.sampled_from([None, 5])),
        deny=data.draw(st.sampled_from([(), ("ja", " koer")])),
        scripts=scripts,
    )
    options = {
        "limits": limits,
        "character_coverage": data.draw(st.sampled_from([0, 0.9, 1])),
        "preserve": tg.count(base, iter(kept)) if kept else None,
        "include": data.draw(st.one_of(st.none(), st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))),
    }
    needed = needed_tokens(base, counts, options)
    n = max(n, needed)
    found = tg.extend(base, counts, n, **options)
    if shuffled:
        assert tg.extend(base, shuffled, n, **options) == found
    for size in {max(1, needed), max(n // 2, 1, needed), n}:
        assert found[:size] == tg.extend(base, counts, size, **options)
    extended = found.apply(base)
    for text in kept:
        assert extended.encode(text) == base.encode(text)
    for token in found.tokens:
        assert extended.core_model.encode(token, by_merges=True) == [extended.vocab[token]]
    for word in found.included:
        assert (word.token is None) == (word.reason is not None)
        if word.token is not None:
            assert extended.core_model.encode(word.token) == [extended.vocab[word.token]]


@given(
    st.lists(st.tuples(st.text("aбλ猫ー\u0301 1", max_size=5), st.integers(1, 300)), min_size=1, max_size=30),
    st.one_of(st.none(), st.lists(st.sampled_from(["aaaa", "бббб", "猫猫ーー"]), max_size=2)),
    st.sampled_from(["bytes", "model"]),
)
def test_preserved_and_other_pretokens_are_the_text_and_differ_by_scripts(words, targets, kind):
    base = base_of(kind)
    text = tg.count(base, (word for word, count in words for _ in range(count)))
    learned = None if targets is None else [tg.count(base, iter([target])) for target in targets]
    found = preserved_text([text], learned)
    left_out = found.left_out.table if found.left_out else counts_of({})
    assert found.counts.table.plus(left_out) == text.table
    named = [set(_core.scripts([word.decode()])[0]) & {*found.scripts} for word, _ in found.counts.top(999)]
    assert not any(named)
    for name in found.scripts:
        words = [
            (word.decode(), count) for word, count in left_out.top(999) if name in _core.scripts([word.decode()])[0]
        ]
        assert words
        assert _letters(words) * 100 < _letters((word.decode(), count) for word, count in text.top(9999))
        assert targets is None or name in _core.scripts(["".join(targets)])[0]


def _letters(words):
    return sum(count * sum(character in "aбλ猫" for character in word) for word, count in words)
