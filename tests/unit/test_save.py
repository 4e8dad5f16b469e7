"""Output appears whole or not at all, and never over something it did not make."""

import builders
import pytest

import tokengraft as tg
from tokengraft import errors


@pytest.fixture
def tokenizer(tmp_path):
    return tg.load(builders.write(tmp_path / "model", builders.byte_level()))


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_force_replaces_a_folder_of_tokenizer_files(tokenizer, tmp_path):
    out = tg.save(tokenizer, tmp_path / "out", verify=False)
    (out / "merges.txt").write_text("stale")
    tg.save(tokenizer, out, force=True, verify=False)
    assert names(out) == ["tokenizer.json", "tokenizer_config.json"]
    assert names(tmp_path) == ["model", "out"]


def test_force_does_not_delete_weights(tokenizer, tmp_path):
    out = tg.save(tokenizer, tmp_path / "out", verify=False)
    (out / "model.safetensors").write_text("paid for")
    with pytest.raises(errors.OutputError, match=r"model\.safetensors.* `force=True` would delete"):
        tg.save(tokenizer, out, force=True, verify=False)
    assert (out / "model.safetensors").read_text() == "paid for"


def test_force_does_not_reach_into_folders_or_through_links(tokenizer, tmp_path):
    out = tg.save(tokenizer, tmp_path / "out", verify=False)
    (out / "tokenizer.model_backup").mkdir()
    (out / "tokenizer.model_backup" / "weights").write_text("paid for")
    with pytest.raises(errors.OutputError, match="`force=True` would delete"):
        tg.save(tokenizer, out, force=True, verify=False)
    other = tg.save(tokenizer, tmp_path / "other", verify=False)
    (other / "tokenizer.model").symlink_to(tmp_path / "model")
    with pytest.raises(errors.OutputError, match="`force=True` would delete"):
        tg.save(tokenizer, other, force=True, verify=False)


def test_save_verifies_and_keeps_nothing_that_a_loader_reads_differently(tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    base = tg.load(builders.write(tmp_path / "model", builders.byte_level()))

    def damaged(*_, **__):
        return transformers.PreTrainedTokenizerFast(tokenizer_file=f"{tmp_path}/other/tokenizer.json")

    builders.write(tmp_path / "other", builders.specials_first())
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", damaged)
    with pytest.raises(errors.InvalidTokenizerError, match="verify=False"):
        tg.save(base, tmp_path / "out")
    assert names(tmp_path) == ["model", "other"]
    assert tg.save(base, tmp_path / "unverified", verify=False).is_dir()
    assert tg.save(base, tmp_path / "as the base", base=base).is_dir()


def test_a_base_that_nothing_is_compared_with_is_refused(tokenizer, tmp_path):
    with pytest.raises(errors.OptionError, match="no effect"):
        tg.save(tokenizer, tmp_path / "out", base=tokenizer, verify=False)
    assert not (tmp_path / "out").exists()


def test_an_unchanged_file_without_a_uniform_layout_is_written_as_it_was(tmp_path):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    file = folder / "tokenizer.json"
    by_hand = file.read_bytes().replace(b'\n      "content"', b'\n     "content"', 1).replace(b'"e"', b'"\\u0065"', 1)
    file.write_bytes(by_hand)
    loaded = tg.load(folder)
    assert (tg.save(loaded, tmp_path / "saved", verify=False) / "tokenizer.json").read_bytes() == by_hand
    changed = tg.prune_order(loaded, method="last-id-leaf")[:1].apply(loaded)
    assert changed.original is None
    assert len(tg.load(tg.save(changed, tmp_path / "changed", verify=False)).tokens) == len(loaded.tokens) - 1
