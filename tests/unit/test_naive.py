"""The baselines `two-piece` and `scaffold`, by their definitions."""

import builders
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor

import tokengraft as tg
from tokengraft import errors
from tokengraft.formats.vocabulary_files import read_piece_model
from tokengraft.learn.naive import fresh_tokens

TEXT = ["kassid ja koerad jooksevad, kassipojad ja kutsikad magavad ja mängivad õues"] * 4 + ["猫が座る ежик"] * 4
FILE = "tokenizer.model"


@pytest.fixture
def base(tmp_path):
    return tg.load(builders.write(tmp_path / "base", builders.byte_level()))


@pytest.fixture
def pieces(tmp_path):
    return tg.load(builders.write_pieces(tmp_path / "pieces"))


def new_tokens(base, extended):
    return [token.string for token in extended.tokens if token.string not in base.ids]


def spelled(tokenizer, token):
    return [tokenizer.strings[token_id] for token_id in tokenizer.core_model.encode(token, by_merges=True)]


def unreachable(base, extended):
    return {extended.strings[i] for i in extended.structure.unreachable} - set(base.ids)


def test_two_piece_takes_the_first_tokens_that_the_base_spells_in_two(base):
    counts = tg.count(base, iter(TEXT))
    extended = tg.learn.extend_naively(base, counts, 12, "two-piece")
    fresh = fresh_tokens(base, counts, 200).tokens
    expected = [token for token in fresh if len(spelled(base, token)) == 2][:12]
    assert new_tokens(base, extended) == expected
    assert fresh[:12] != expected
    assert extended.merge_strings() == [*base.merge_strings(), *(tuple(spelled(base, token)) for token in expected)]
    assert not unreachable(base, extended)


def test_scaffold_merges_the_pieces_of_each_token_from_left_to_right(base):
    counts = tg.count(base, iter(TEXT))
    extended = tg.learn.extend_naively(base, counts, 12, "scaffold")
    tokens, merges = [], []
    for token in fresh_tokens(base, counts, 12).tokens:
        parts = spelled(base, token)
        for at in range(1, len(parts)):
            if "".join(parts[: at + 1]) not in tokens:
                tokens.append("".join(parts[: at + 1]))
                merges.append(("".join(parts[:at]), parts[at]))
    assert new_tokens(base, extended) == tokens[:12]
    assert extended.merge_strings() == [*base.merge_strings(), *merges[:12]]
    fresh = fresh_tokens(base, counts, 12).tokens
    assert set(tokens[:12]) - set(fresh[:12])  # tokens in between


def test_scaffolded_tokens_may_be_unreachable(tmp_path):
    # `bcd` brings the merge of `bc`. After that, `abc` is split as `a`, `bc`, and its own merge finds no `ab`.
    document = builders.byte_level()
    document["model"] |= {"vocab": {c: i for i, c in enumerate(builders.byte_alphabet())}, "merges": []}
    base = tg.load(builders.write(tmp_path, document | {"added_tokens": []}))
    tokens = {"bcd": 300, "abc": 301}
    document["model"]["vocab"] |= tokens
    donor = tg.load(builders.write(tmp_path / "donor", document | {"added_tokens": []}))
    extended = tg.learn.extend_naively(base, None, 4, "scaffold", donor=donor)
    assert new_tokens(base, extended) == ["bc", "bcd", "ab", "abc"]
    assert unreachable(base, extended) == {"abc"}


def test_both_work_for_sentencepiece_types_with_missing_characters_first(pieces, tmp_path):
    counts = tg.count(pieces, iter(TEXT))
    alone = tg.load(tmp_path / "pieces" / "tokenizer.json")
    for method in ("two-piece", "scaffold"):
        extended = tg.learn.extend_naively(alone, tg.count(alone, iter(TEXT)), 15, method)
        new = new_tokens(alone, extended)
        assert len(new) == 15
        missing = fresh_tokens(alone, tg.count(alone, iter(TEXT)), 5).characters
        assert new[: len(missing)] == missing
        assert len(tg.learn.extend_naively(alone, tg.count(alone, iter(TEXT)), 2, method).ids) == len(alone.ids) + 2
    two_piece = tg.learn.extend_naively(pieces, counts, 15, "two-piece")
    assert not unreachable(pieces, two_piece)
    tg.save(two_piece, tmp_path / "out")  # compares both forms and the libraries
    with pytest.raises(errors.UnsupportedTokenizerError, match=r"scaffold cannot be written to `tokenizer\.model`"):
        tg.learn.extend_naively(pieces, counts, 15, "scaffold")


def test_tokens_that_run_out_are_an_error(base):
    counts = tg.count(base, iter(["xyzzy xyzzy"]))
    for method in ("two-piece", "scaffold"):
        with pytest.raises(errors.CountsError, match="the fresh tokenizer has"):
            tg.learn.extend_naively(base, counts, 500, method)


@given(
    st.lists(st.text("abcd", min_size=2, max_size=5), max_size=14, unique=True),
    st.lists(st.text("abcd", min_size=2, max_size=6), min_size=1, max_size=12, unique=True),
    st.lists(st.text("abcd ", max_size=12), max_size=8),
)
def test_a_model_of_two_piece_tokens_splits_as_its_tokenizer_json(learned, donated, texts):
    runs = ("▁", "▁▁", "▁▁▁▁", "▁▁▁")
    base, donor = (
        read_piece_model({FILE: builders.piece_model(builders.pieces_of(words, "abcd", runs=runs))}, FILE)
        for words in (learned, donated)
    )
    usable = [token for token in donated if token not in base.ids and len(spelled(base, token)) == 2]
    if not usable:
        return
    extended = tg.learn.extend_naively(base, None, len(usable), "two-piece", donor=donor)
    assert not unreachable(base, extended)
    library = SentencePieceProcessor(model_proto=extended.files[FILE])
    for text in (*texts, *donated, *learned, "".join(donated)):
        assert extended.encode(text) == library.encode(text)
