"""Reading a written tokenizer back: what is compared, and what is damage and what was so before."""

import json

import builders
import pytest
from checkpoints import changed

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.edit import remove_tokens
from tokengraft.verify.loaders import Verification, verify_folder

transformers = pytest.importorskip("transformers")


@pytest.fixture
def base(tmp_path):
    settings = {"tokenizer_config.json": builders.settings()}
    return tg.load(builders.write(tmp_path / "base", builders.byte_level(), **settings))


@pytest.fixture
def extended(base):
    return changed(base, add=10)


class Loader:
    """Stands in for `AutoTokenizer`; knows nothing, or fails, wherever ``wrong`` is true of the folder."""

    def __init__(self, wrong, error=None):
        self.wrong, self.error, self.real = wrong, error, transformers.AutoTokenizer

    def from_pretrained(self, folder, **options):
        if not self.wrong(folder):
            return self.real.from_pretrained(folder, **options)
        if self.error:
            raise self.error
        return Wrong()


class Wrong:
    def __call__(self, texts, **_):
        return {"input_ids": [[0]] * len(texts)}

    def get_added_vocab(self):
        return {}

    def convert_ids_to_tokens(self, ids):
        return [str(token_id) for token_id in ids]


def test_a_changed_tokenizer_is_read_alike_by_every_loader(base, extended, tmp_path):
    out = tg.save(extended, tmp_path / "out", verify=False)
    assert verify_folder(out, extended, base=base) == Verification(("tokenizers", "transformers"), ())


def test_tokens_that_tokenizer_json_lacks_are_noted_and_no_damage(base, tmp_path):
    found = verify_folder(tg.save(base, tmp_path / "same"), base, base=base)
    assert found.loaders == ("transformers",)
    assert "lacks 5 added tokens" in found.notes[0]
    assert not found.failures


def test_an_added_token_of_the_base_that_became_text_is_damage(base, tmp_path):
    plain = tg.load(builders.write(tmp_path / "plain", builders.byte_level()))
    ids = plain.ids | {"<|think|>": 397}
    learned = plain.with_tokens(ids, plain.merge_strings())
    with pytest.raises(errors.InvalidTokenizerError, match=r"the base finds the added tokens \['<\|think\|>'\]"):
        verify_folder(tg.save(learned, tmp_path / "out", verify=False), learned, base=base)


def test_a_loader_that_differs_only_after_the_change_is_damage(base, extended, tmp_path, monkeypatch):
    out = tg.save(extended, tmp_path / "out", verify=False)
    monkeypatch.setattr("transformers.AutoTokenizer", Loader(lambda folder: folder == str(out)))
    found = verify_folder(out, extended, base=base)
    assert found.loaders == ("tokenizers",)
    assert found.failures == found.notes
    with pytest.raises(errors.InvalidTokenizerError, match="transformers reads the folder differently"):
        found.raise_for_failures()


def test_a_loader_that_differed_before_is_a_note(base, extended, tmp_path, monkeypatch):
    out = tg.save(extended, tmp_path / "out", verify=False)
    monkeypatch.setattr("transformers.AutoTokenizer", Loader(bool))
    found = verify_folder(out, extended, base=base)
    assert "transformers reads the folder differently" in found.notes[0]
    assert not found.failures
    found.raise_for_failures()


def test_an_error_without_a_message_is_an_answer_too(base, extended, tmp_path, monkeypatch):
    out = tg.save(extended, tmp_path / "out", verify=False)
    monkeypatch.setattr("transformers.AutoTokenizer", Loader(bool, RuntimeError()))
    found = verify_folder(out, extended, base=base)
    assert found.notes == ("transformers cannot load the folder: RuntimeError",)
    assert found.loaders == ("tokenizers",)


def test_a_folder_that_can_no_longer_be_loaded_is_damage(base, extended, tmp_path, monkeypatch):
    out = tg.save(extended, tmp_path / "out", verify=False)
    monkeypatch.setattr("transformers.AutoTokenizer", Loader(lambda folder: folder == str(out), ValueError("no")))
    assert verify_folder(out, extended, base=base).failures == ("transformers cannot load the folder: ValueError: no",)


def test_a_token_of_the_class_that_takes_a_learned_id_is_damage(tmp_path):
    """The class of Qwen2 adds `<|endoftext|>` by itself, with the id after the number of tokens: here one in use."""
    config = {"tokenizer_config.json": json.dumps({"tokenizer_class": "Qwen2Tokenizer"})}
    base = tg.load(builders.write(tmp_path / "base", builders.specials_first(), **config)).compact()
    gone = remove_tokens(base, ["Ġthe"])
    found = verify_folder(tg.save(gone, tmp_path / "out", verify=False), gone, base=base)
    assert any("adds the token '<|endoftext|>'" in failure for failure in found.failures)


def test_a_model_that_sentencepiece_refuses_is_named(tmp_path, monkeypatch):
    sentencepiece = pytest.importorskip("sentencepiece")

    def refuse(**_):
        raise RuntimeError("Internal: could not parse ModelProto")

    (tmp_path / "tokenizer.model").write_bytes(builders.llama2_like())
    tokenizer = tg.load(tmp_path)
    monkeypatch.setattr(sentencepiece, "SentencePieceProcessor", refuse)
    found = verify_folder(tg.save(tokenizer, tmp_path / "out", verify=False), tokenizer)
    assert found.failures == ("sentencepiece refuses the model: RuntimeError: Internal: could not parse ModelProto",)
    assert not tg.check(tokenizer).passed
