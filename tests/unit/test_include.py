"""Word lists in `extend`: what becomes a token, what does not and why, and what is refused."""

import json
from collections import Counter
from dataclasses import replace

import builders
import pytest
import reference
from sentencepiece import SentencePieceProcessor

import tokengraft as tg
from tokengraft import errors
from tokengraft.learn.include import WordList, listed_words
from tokengraft.tokenizer.kind import spell

TEXT = ["kassid ja koerad jooksevad, kassipojad magavad", "ibuprofen ja ibuprofeen, 123 tabletti"] * 3
DRUGS = ("ibuprofen", "ketoprofen", "naproxen", "the", "prokase")


def extend(base, n, words, *, exact=False, texts=TEXT, **options):
    return tg.extend(base, tg.count(base, iter(texts)), n, include=WordList(words, exact), **options)


def found(extension):
    return {(word.word, word.token) for word in extension.included}


def reasons(extension):
    return {word.word: word.reason for word in extension.included if word.reason}


def test_every_word_is_a_token_in_running_text(tiny_folder):
    base = tg.load(tiny_folder)
    extension = extend(base, 90, DRUGS)
    extended = extension.apply(base)
    library = extended.to_tokenizers()
    assert {word.word for word in extension.included} == set(DRUGS)
    for word in extension.included:
        text = f"a {word.word} a" if word.token.startswith(("Ġ", "▁")) else f"{word.word} ja"
        for tokenizer in (extended.encode, lambda text: library.encode(text, add_special_tokens=False).ids):
            assert extended.ids[word.token] in tokenizer(text)
    assert not set(extended.structure.unreachable) & {extended.ids[token] for token in extension.tokens}


def test_words_come_before_learned_tokens_and_both_count(base):
    extension = extend(base, 60, DRUGS)
    assert len(extension) == 60
    listed = extension.merges[: extension.list_merges]
    made = {merge.left + merge.right for merge in listed}
    words = {word.token for word in extension.included} - set(base.ids)
    assert words <= made
    assert set(extension.intermediates) == made - words
    assert extension.tokens[: len(made)] == tuple(merge.left + merge.right for merge in listed)
    assert len(extension.merges) > len(listed)


def test_a_word_is_taken_after_a_space_and_at_the_start_of_a_text_and_an_exact_one_literally(base, pieces, tmp_path):
    document = builders.byte_level()
    document["pre_tokenizer"]["add_prefix_space"] = True
    spaced = tg.load(builders.write(tmp_path, document))
    for tokenizer, word, exact, tokens in (
        (base, "ibuprofen", False, {"Ġibuprofen", "ibuprofen"}),
        (base, " ibuprofen  ", False, {"Ġibuprofen", "ibuprofen"}),
        (spaced, "ibuprofen", False, {"Ġibuprofen"}),  # the pipeline puts a space first
        (pieces, "ibuprofen", False, {"▁ibuprofen"}),
        (base, "ibuprofen", True, {"ibuprofen"}),
        (base, " ibuprofen", True, {"Ġibuprofen"}),
        (spaced, "ibuprofen", True, {"ibuprofen"}),
        (pieces, "ibuprofen", True, {"ibuprofen"}),
        (pieces, " ibuprofen", True, {"▁ibuprofen"}),
        (pieces, "  ibuprofen", True, {"▁▁ibuprofen"}),
    ):
        assert found(extend(tokenizer, 50, [word], exact=exact)) == {(word, token) for token in tokens}


@pytest.mark.parametrize("word", [" ibuprofen", "  ibuprofen"])
def test_a_word_after_spaces_is_split_alike_in_both_forms(pieces, word):
    extended = extend(pieces, 50, [word], exact=True).apply(pieces)
    library = SentencePieceProcessor(model_proto=extended.files["tokenizer.model"])
    for spaces in range(1, 7):
        text = f"ja{' ' * spaces}ibuprofen{' ' * spaces}"
        assert extended.encode(text) == library.encode(text)
        assert word.startswith("  ") or extended.ids["▁ibuprofen"] in extended.encode(text)


def test_the_normalized_form_becomes_the_token(tmp_path):
    document = builders.byte_level() | {"normalizer": {"type": "NFC"}}
    base = tg.load(builders.write(tmp_path, document))
    for exact in (False, True):
        extension = extend(base, 50, ["põ\u0303du", "po\u0303du"], exact=exact)
        extended = extension.apply(base)
        assert extended.encode("põdu") == [extended.ids["pÃµdu"]]
        assert ("po\u0303du", "pÃµdu") in found(extension)


def test_words_that_are_split_are_listed_with_the_reason(base):
    extension = extend(base, 50, ["COX-2", "New York", "ibuprofen"])
    assert reasons(extension) == {
        "COX-2": "the pre-tokenizer splits it into `COX`, `-`, `2`",
        "New York": "the pre-tokenizer splits it into `New`, ` York`",
    }
    assert reasons(extend(base, 50, ["a-b-c-d-e"]))["a-b-c-d-e"].endswith("`a`, `-`, `b`, `-`, `c`, `-`, …")


def test_added_tokens_and_bytes_are_no_words(base, pieces):
    assert reasons(extend(base, 50, ["<|end|>", "x<|end|>"])) == {
        "<|end|>": "it is an added token",
        "x<|end|>": "it has the added token `<|end|>`",
    }
    assert reasons(extend(pieces, 9, ["<0x41>", "<s>"], exact=True)) == {
        "<0x41>": "it is spelled like an added token or a byte",
        "<s>": "it is an added token",
    }


def test_words_that_are_tokens_already_cost_nothing(base):
    extension = extend(base, 5, ["the", "cat"], texts=["x"])
    assert ("the", "Ġthe") in found(extension)
    assert "Ġthe" not in extension.tokens
    assert ("cat", "Ġcat") in found(extension)


def test_a_token_that_cannot_be_reached_becomes_reachable(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"] |= {"ibuprofen": 900}
    base = tg.load(builders.write(tmp_path, document))
    extension = extend(base, 30, ["ibuprofen"], exact=True)
    extended = extension.apply(base)
    assert extended.encode("ibuprofen") == [900]
    assert "ibuprofen" not in extension.tokens


def test_parts_that_words_share_are_made_once(base):
    alone = [len(listed_words(base, WordList([word]), tg.Limits()).learned.tokens) for word in DRUGS]
    assert len(listed_words(base, WordList(DRUGS), tg.Limits()).learned.tokens) < sum(alone)
    inside = listed_words(base, WordList(["profen", "ibuprofen"], exact=True), tg.Limits()).learned
    assert "profen" in inside.tokens
    assert "profen" in {part for pair in inside.pairs for part in pair}


def test_frequencies_are_those_of_the_training_text(base):
    counts = tg.count(base, iter(TEXT))
    extension = tg.extend(base, counts, 60, include=DRUGS)
    listed = extension.merges[: extension.list_merges]
    ranks = {pair: at for at, pair in enumerate([*base.merge_strings(), *(merge[:2] for merge in listed)])}
    applied = Counter()
    for pretoken, count in counts.top(len(counts)):
        for pair in reference.merge_all(list(spell(pretoken, "byte-level")), ranks)[1]:
            applied[pair] += count
    assert [merge.frequency for merge in listed] == [applied[merge[:2]] for merge in listed]
    assert {merge.left + merge.right: merge.frequency for merge in listed}["ibuprofen"] == 3


def test_limits_hold_for_words_and_for_tokens_in_between(base):
    limits = tg.Limits(deny=["naproxen", " naproxen"], max_token_bytes=10)
    extension = extend(base, 60, DRUGS, limits=limits)
    assert reasons(extension) == {
        "naproxen": "the text 'naproxen' is denied",
        "ketoprofen": "it has 11 bytes, and 10 are allowed",
    }
    assert ("ketoprofen", "ketoprofen") in found(extension)
    parts = extend(base, 60, ["ibuprofen"], exact=True, limits=tg.Limits(deny_pattern="^[a-z]{2,8}$"))
    assert reasons(parts) == {"ibuprofen": "the limits allow none of the tokens that it could be merged from"}
    some = tg.Limits(deny_pattern="^(ib|bup|of|en)$")
    around = extend(base, 60, ["ibuprofen"], exact=True, limits=some)
    assert found(around) == {("ibuprofen", "ibuprofen")}
    assert not {"ib", "bup", "of", "en"} & set(around.tokens)


def test_pairs_of_text_that_must_not_change_are_not_merged(base):
    words = WordList(["xyz", "qrs"], exact=True)
    listed = listed_words(base, words, tg.Limits(), preserve=tg.count(base, iter(["xy yz"])))
    assert [(word.word, word.reason) for word in listed.words] == [
        ("xyz", "its merges would change text that must not change"),
        ("qrs", None),
    ]
    listed = listed_words(base, words, tg.Limits(), preserve=tg.count(base, iter(["xy"])))
    assert {*listed.learned.pairs} >= {("y", "z"), ("x", "yz")}


def test_a_word_that_cannot_be_made_costs_no_tokens(base):
    limits = tg.Limits(deny=["ibuprofen"])
    without = listed_words(base, WordList(["wxyz"], exact=True), limits)
    for word in ("ibuprofen", "COX-2"):
        assert listed_words(base, WordList([word, "wxyz"], exact=True), limits).learned == without.learned
    stuck = tg.Limits(deny_pattern="^[b-u]{2,8}$")  # nothing that `ibuprofen` could be merged from
    listed = listed_words(base, WordList(["ibuprofen", "wxyz"], exact=True), stuck)
    assert [word.token for word in listed.words] == [None, "wxyz"]
    assert listed.learned == without.learned


def test_missing_characters_of_words_are_added_and_count(pieces):
    extension = extend(pieces, 40, ["猫薬", "ibuprofen"])
    assert {"猫", "薬"} <= set(extension.characters)
    assert len(extension) <= 40
    extended = extension.apply(pieces)
    library = SentencePieceProcessor(model_proto=extended.files["tokenizer.model"])
    assert extended.ids["▁猫薬"] in library.encode("ja 猫薬 ja")
    assert extension.tokens[: len(extension.characters)] == extension.characters
    some = extend(pieces, 40, ["猫", "kass\u0007x"])
    assert reasons(some) == {"kass\u0007x": "it has a character that the vocabulary cannot spell"}
    assert "\u0007" not in some.characters
    left_out = extend(pieces, 40, ["猫薬", "ibuprofen"], limits=tg.Limits(deny=["猫薬", " 猫薬"]))
    assert "薬" not in left_out.characters


def test_bytes_that_the_vocabulary_lacks_are_a_reason(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"]["unused"] = document["model"]["vocab"].pop("@")
    base = tg.load(builders.write(tmp_path, document))
    assert reasons(extend(base, 40, ["@@"]))["@@"] == "it has a character that the vocabulary cannot spell"


def test_a_word_may_be_longer_than_sentencepieces_trainer_would_make(pieces, tmp_path):
    word = "kopsupõletikuravimid"
    extension = extend(pieces, 60, [word])
    extended = extension.apply(pieces)
    assert extended.ids["▁" + word] in extended.encode(f"ja {word} ja")
    tg.save(extended, tmp_path / "out")  # compares both forms and the libraries


def test_a_word_across_a_cut_of_the_text_needs_counts_of_other_rules(pieces, tmp_path):
    words = ["B12", "a-b", "New York"]
    assert reasons(extend(pieces, 40, words)) == {
        "B12": "SentencePiece's rules split text between `B` and `1` (--rule changes them)",
        "a-b": "SentencePiece's rules split text between `a` and `-` (--rule changes them)",
        "New York": "SentencePiece's rules split text between `w` and `▁` (--rule changes them)",
    }
    free = {"split_by_unicode_script": False, "split_digits": False, "split_by_number": False}
    rules = replace(pieces.piece_model.rules, **free, split_by_whitespace=False)
    counts = tg.count(pieces, iter(TEXT), read_options=tg.ReadOptions(rules=rules))
    extension = tg.extend(pieces, counts, 40, include=words)
    assert not reasons(extension)
    extended = extension.apply(pieces)
    counts.require(extended)
    library = SentencePieceProcessor(model_proto=extended.files["tokenizer.model"])
    for word in extension.included:
        assert extended.ids[word.token] in library.encode(f"ja {word.word} ja")
    tg.save(extended, tmp_path / "out")


def test_a_word_whose_edge_a_token_spans_is_listed(tmp_path):
    base = tg.load(builders.write(tmp_path, builders.sentencepiece()))  # it has the tokens `at▁` and `s▁`
    extension = extend(base, 40, ["kassat"])
    assert reasons(extension) == {"kassat": "in `a kassat a`, a token of the tokenizer spans its edge"}


def test_an_extension_with_a_list_survives_saving_and_cutting(base, tmp_path):
    extension = extend(base, 60, [*DRUGS, "COX-2"])
    assert tg.Extension.load(extension.save(tmp_path / "e.json")) == extension
    needed = sum(merge.new for merge in extension.merges[: extension.list_merges])
    for size in (needed, needed + 1, 59):
        assert extension[:size] == extend(base, size, [*DRUGS, "COX-2"])
    cut = extension[: needed - 1]
    assert cut.list_merges == len(cut.merges)
    gone = [word for word in cut.included if word.reason == "the extension was cut before it"]
    assert len(gone) == 1
    assert {word.token for word in cut.included if word.token} <= set(cut.apply(base).ids)
    document = json.loads((tmp_path / "e.json").read_bytes())
    document["included"][0] = [1, None, None]
    (tmp_path / "bad.json").write_text(json.dumps(document))
    with pytest.raises(errors.CountsError, match="not a file of an extension"):
        tg.Extension.load(tmp_path / "bad.json")


def test_too_few_tokens_for_the_list_say_how_many_it_needs(base, pieces):
    needed = sum(merge.new for merge in extend(base, 99, DRUGS).merges[: extend(base, 99, DRUGS).list_merges])
    assert len(extend(base, needed, DRUGS)) == needed
    with pytest.raises(errors.OptionError, match=rf"needs {needed} new tokens \(\d+ words, \d+ tokens in between\), 3"):
        extend(base, 3, DRUGS)
    with pytest.raises(errors.OptionError, match=r"\d+ characters\), 3 were asked for"):
        extend(pieces, 3, ["猫薬"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is empty"),
        ("ibuprofen", "is 'ibuprofen', a str; it must be a list of strings"),
        (["a", "  "], "blank word"),
        (["a\nb"], "line break"),
        (["a", 3], "an item of `words` is 3, an int"),
        (["a\ud800"], "not valid Unicode"),
    ],
)
def test_bad_lists_are_refused(base, words, message):
    with pytest.raises(errors.OptionError, match=message):
        tg.extend(base, tg.count(base, iter(TEXT)), 9, include=words)


def test_duplicates_and_order_do_not_matter(base):
    once = extend(base, 60, DRUGS)
    assert extend(base, 60, [*DRUGS, *DRUGS[::-1]]) == once
    assert extend(base, 60, DRUGS[::-1]).merges == once.merges
    assert tg.extend(base, tg.count(base, iter(TEXT)), 60, include=list(DRUGS)) == once


def test_a_single_character_may_be_a_word(pieces):
    extension = extend(pieces, 9, ["猫", "薬"], exact=True)
    assert found(extension) == {("猫", "猫"), ("薬", "薬")}
    assert extension[:1].included[1].reason == "the extension was cut before it"
    with pytest.raises(errors.OptionError, match="the word list needs 2 new tokens"):
        extend(pieces, 1, ["猫", "薬"], exact=True)


def test_a_very_long_word_is_listed_and_takes_no_time(base):
    word = "".join("qxzjv"[at * at % 5] for at in range(200_000))
    assert reasons(extend(base, 9, [word], exact=True))[word].endswith("at most 256 are merged into one token")
    middle = "".join("qxzjvkw"[at**3 % 7] for at in range(250))
    assert found(extend(base, 300, [middle], exact=True)) == {(middle, middle)}


COMPOUNDS = [f"{first}{last}" for first in ("kassi", "pro", "mato", "tele", "õhtu") for last in ("fen", "kaas", "lik")]
INCLUDED = builders.TINY | {"unigram": builders.unigram, "word-piece": builders.word_piece}


@pytest.mark.parametrize("shape", INCLUDED)
def test_words_become_tokens_without_a_text_and_every_reason_is_told(shape, tmp_path):
    base = tg.load(builders.write(tmp_path / "base", INCLUDED[shape]()))
    extension = tg.learn.include_words(base, WordList((*COMPOUNDS, "in vitro")), tg.Limits())
    new = tg.include(base, [*COMPOUNDS, "in vitro"])
    assert new == extension.apply(base)
    reasons = {word.word: word.reason for word in extension.included if word.token is None}
    for word in (word for word in COMPOUNDS if word not in reasons):
        for text in (f"a {word}", word):
            made = {each.token for each in extension.included if each.word == word}
            assert made & {new.strings[i] for i in new.encode(text)}
    assert all(reasons.values())
    assert len(reasons) < len(COMPOUNDS)
    assert tg.check(new, base=base).passed


def test_words_alone_are_an_extension_by_the_command_line(tmp_path, folder, tokengraft):
    (tmp_path / "words.txt").write_text("\n".join([*COMPOUNDS, "COX-2"]), encoding="utf-8")
    run = ["extend", folder, "--include", tmp_path / "words.txt", "--out"]
    data = tokengraft(*run, tmp_path / "out", "--json").json
    made = [word["token"] for word in data["included"] if word["token"]]
    assert data["added"] == len(made) + data["intermediates"] == len(tg.load(tmp_path / "out")) - len(tg.load(folder))
    assert [word["reason"] for word in data["included"] if not word["token"]] == [
        "the pre-tokenizer splits it into `COX`, `-`, `2`"
    ]


def test_the_words_that_cost_the_most_helpers_are_left_out_by_name(base):
    words = WordList((*COMPOUNDS, "qzxqzjxqwvzx"))
    whole = tg.learn.include_words(base, words, tg.Limits())
    assert len(whole.intermediates) > 5
    for most in (len(whole.intermediates) - 1, 5, 0):
        limited = tg.learn.include_words(base, words, tg.Limits(), max_helpers=most)
        dropped = {word.word for word in limited.included if word.token is None}
        assert len(limited.intermediates) <= most
        assert "qzxqzjxqwvzx" in dropped  # all its helpers are for it alone
        assert [*dict.fromkeys(word.word for word in limited.included)] == [*words.words]
    assert "helper tokens, and 0 are allowed" in limited.included[0].reason


@pytest.mark.parametrize("shape", ["byte-level", "ignore-merges"])
def test_words_that_are_split_become_added_tokens_and_decode_to_their_text(shape, tmp_path):
    base = tg.load(builders.write(tmp_path / "base", builders.TINY[shape]()))
    new = tg.include(base, ["COX-2", "in vitro", "IL-6", "ibuprofen"], added=True)
    added = {token.content: token for token in new.added if token.content not in base.ids}
    assert all(token.single_word and not token.special for token in added.values())
    assert {*added} == {"COX-2", "in vitro", "IL-6"}
    for text in ("a COX-2 in vitro, IL-6 a", "COX-2", "aIL-6b IL-60"):
        assert new.decode(new.encode(text)) == base.decode(base.encode(text)) == text
    inside = new.encode("xIL-6y")
    assert not {new.ids[content] for content in added} & {*inside}
