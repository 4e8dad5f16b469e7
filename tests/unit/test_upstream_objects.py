"""A tokenizer as the objects of other libraries that training code takes: the same ids as `Tokenizer.encode`."""

import json
import sys

import builders
import pytest

import tokengraft as tg
from tokengraft import errors

TEXTS = ["the cat sat<|end|>on the  mat", "<|end|>", "põder<extra>õues \n a<extra>", "", "  cat cat<s>the</s>"]


@pytest.fixture(params=builders.TINY)
def tokenizer(request, tmp_path):
    return tg.load(builders.write(tmp_path / "model", builders.TINY[request.param]()))


@pytest.fixture
def with_settings(tmp_path):
    """With an added token that only `tokenizer_config.json` names."""
    entry = builders.added(0, "<extra>", special=True)
    entry.pop("id")
    known = json.loads(builders.settings())
    listed = known.get("added_tokens_decoder", {}) | {"9000": entry}
    known["added_tokens_decoder"] = listed
    files = {"tokenizer_config.json": json.dumps(known)}
    return tg.load(builders.write(tmp_path / "model", builders.byte_level(), **files))


def test_objects_of_other_libraries_give_the_same_ids_and_text(tokenizer):
    pytest.importorskip("transformers")
    loaded, by_transformers = tokenizer.to_tokenizers(), tokenizer.to_transformers()
    for text in [*TEXTS, *(f"the {token.content} cat{token.content}" for token in tokenizer.added)]:
        ids = tokenizer.encode(text)
        assert loaded.encode(text, add_special_tokens=False).ids == ids
        assert by_transformers.encode(text, add_special_tokens=False) == ids
        assert tokenizer.decode(ids) == loaded.decode(ids, skip_special_tokens=False)


def test_added_tokens_that_only_the_settings_name_are_in_both_objects(with_settings):
    pytest.importorskip("transformers")
    assert "<extra>" in with_settings.ids
    for text in TEXTS:
        assert with_settings.to_tokenizers().encode(text, add_special_tokens=False).ids == with_settings.encode(text)
        assert with_settings.to_transformers().encode(text, add_special_tokens=False) == with_settings.encode(text)


def test_a_sentencepiece_model_alone_becomes_both_objects(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "tokenizer.model").write_bytes(builders.llama2_like())
    tokenizer = tg.load(tmp_path)
    loaded = tokenizer.to_tokenizers()
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert loaded.encode(text, add_special_tokens=False).ids == ids
        assert tokenizer.to_transformers().encode(text, add_special_tokens=False) == ids
        assert tokenizer.decode(ids) == loaded.decode(ids, skip_special_tokens=False)
    for ids in ([token.id] for token in tokenizer.tokens):  # bytes, controls, and pieces that begin with a space
        assert tokenizer.decode(ids) == loaded.decode(ids, skip_special_tokens=False)


def test_a_class_that_builds_another_tokenizer_is_refused(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    tokenizer = tg.load(builders.write(tmp_path / "model", builders.byte_level()))
    builders.write(tmp_path / "other", builders.specials_first())
    other = transformers.PreTrainedTokenizerFast(tokenizer_file=f"{tmp_path}/other/tokenizer.json")
    monkeypatch.setattr(transformers.PreTrainedTokenizerFast, "from_pretrained", lambda *_, **__: other)
    with pytest.raises(errors.InvalidTokenizerError, match="sample texts"):
        tokenizer.to_transformers()


@pytest.mark.parametrize("library", ["tokenizers", "transformers"])
def test_a_library_that_is_not_installed_is_named_with_the_way_to_install_it(tmp_path, monkeypatch, library):
    tokenizer = tg.load(builders.write(tmp_path / "model", builders.byte_level()))
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(errors.OptionError, match=f"pip install {library}"):
        getattr(tokenizer, f"to_{library}")()


def test_ids_of_any_integer_type_are_decoded_and_ids_without_a_token_are_refused(tmp_path):
    numpy = pytest.importorskip("numpy")
    tokenizer = tg.load(builders.write(tmp_path, builders.TINY["specials-first-with-holes"]()))
    ids = tokenizer.encode("the cat")
    assert tokenizer.decode(iter(ids)) == tokenizer.decode(numpy.array(ids)) == tokenizer.decode(tuple(ids))
    assert tokenizer.decode([]) == ""
    hole = next(i for i in range(tokenizer.n_rows) if i not in tokenizer.strings)
    for wrong in (hole, -1, tokenizer.n_rows):
        with pytest.raises(errors.OptionError, match=f"no token with the id {wrong:,}"):
            tokenizer.decode([*ids, wrong])
    for wrong in (["the"], [1.0], 3, "the", iter(["the"])):
        with pytest.raises(errors.ArgumentError):
            tokenizer.decode(wrong)


def test_without_a_decoder_the_bytes_of_the_tokens_are_joined(tmp_path):
    document = builders.byte_level() | {"decoder": None}
    tokenizer = tg.load(builders.write(tmp_path, document))
    assert tokenizer.decode(tokenizer.encode("põder ja kass")) == "põder ja kass"
    assert tokenizer.decode([tokenizer.ids["p"], tokenizer.ids["Ã"]]) == "p\ufffd"


def test_the_length_is_the_number_of_tokens(tokenizer, with_settings):
    for tok in (tokenizer, with_settings):
        assert len(tok) == len(tok.tokens) == len(tok.ids)
