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


def test_a_tokenizers_object_gives_the_same_ids(tokenizer):
    pytest.importorskip("tokenizers")
    loaded = tokenizer.to_tokenizers()
    for text in [*TEXTS, *(f"the {token.content} cat{token.content}" for token in tokenizer.added)]:
        assert loaded.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)


def test_a_transformers_object_gives_the_same_ids(tokenizer):
    pytest.importorskip("transformers")
    loaded = tokenizer.to_transformers()
    for text in [*TEXTS, *(f"the {token.content} cat{token.content}" for token in tokenizer.added)]:
        assert loaded.encode(text, add_special_tokens=False) == tokenizer.encode(text)


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
    for text in TEXTS:
        assert tokenizer.to_tokenizers().encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
        assert tokenizer.to_transformers().encode(text, add_special_tokens=False) == tokenizer.encode(text)


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
