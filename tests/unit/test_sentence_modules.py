"""Folders of sentence-transformers stay complete, and parts that depend on the vocabulary are refused."""

import json

import numpy as np
import pytest
from checkpoints import WIDTH, changed, checkpoint, tensor, write_safetensors, write_texts

import tokengraft as tg
from tokengraft import errors

TRANSFORMER = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
PARTS = ("1_Pooling", "2_Dense", "3_Normalize")
SAME = ("modules.json", "sentence_bert_config.json", "1_Pooling/config.json", "2_Dense/config.json")
SAME += ("2_Dense/model.safetensors", "2_Dense/inner/pytorch_model.bin")


def module(path):
    return {"idx": 1, "name": path, "path": path, "type": f"sentence_transformers.models.{path[2:]}"}


def write_modules(folder, *modules):
    (folder / "modules.json").write_text(json.dumps(modules), encoding="utf-8")


@pytest.fixture
def base(tmp_path):
    """A model with pooling, a dense layer and a module without files; and folders that no module has."""
    folder = tmp_path / "model"
    base = checkpoint(folder)
    write_modules(folder, TRANSFORMER, *map(module, PARTS))
    for name in (*SAME, "onnx/model.onnx", "2_Dense/.git/HEAD"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).write_text('{"in_features": 16, "out_features": 8}')
    dense = {"linear.weight": tensor((8, WIDTH), "F32", np.random.default_rng(3))}
    write_safetensors(dense, folder / "2_Dense" / "model.safetensors", None)
    return base


@pytest.fixture
def small(base):
    return changed(base, remove=30, compact=True)


def test_folders_that_a_module_names_are_copied_byte_for_byte(small, tmp_path):
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    for name in SAME:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert done.left_out == ("onnx/", "pytorch_model.bin")
    assert not (tmp_path / "out" / "2_Dense" / ".git").exists()
    assert {*SAME} <= {*json.loads((tmp_path / "out" / "tokengraft.json").read_text())["files"]}
    tg.transplant(tmp_path / "model", small, tmp_path / "out", force=True)


@pytest.mark.usefixtures("base")
def test_adapt_prints_the_class_of_sentence_transformers(tmp_path, tokengraft, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(tmp_path)
    err = tokengraft("adapt", "model", "--target", "et.txt", "--swap", "3", "--no-report", "--out", "out").err
    assert "load it: `SentenceTransformer('out')`" in err
    assert "continue_pretraining" not in err


@pytest.mark.usefixtures("base")
def test_a_transformer_in_a_folder_of_its_own_is_refused_with_where_it_is(small, tmp_path):
    write_modules(tmp_path / "model", TRANSFORMER | {"path": "0_Transformer"}, module("1_Pooling"))
    with pytest.raises(errors.CheckpointError, match="whose transformer is in `0_Transformer`") as caught:
        tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert "0_Transformer`, then" in caught.value.hint


@pytest.mark.parametrize("path", ["..", "../other", "1_Pooling/../../other", "/etc", "..\\other", "a\0b"])
def test_a_module_outside_of_the_folder_is_refused(small, tmp_path, path):
    write_modules(tmp_path / "model", TRANSFORMER, module("1_Pooling") | {"path": path})
    with pytest.raises(errors.CheckpointError, match="which is not inside"):
        tg.transplant(tmp_path / "model", small, tmp_path / "out")


def test_a_folder_that_is_a_link_is_not_followed(small, tmp_path):
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key").write_text("x")
    (tmp_path / "model" / "4_Link").symlink_to(tmp_path / "secret")
    (tmp_path / "model" / "2_Dense" / "link").symlink_to(tmp_path / "secret")
    write_modules(tmp_path / "model", TRANSFORMER, *map(module, (*PARTS, "4_Link")))
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert "4_Link/" in done.left_out
    assert not [*(tmp_path / "out").rglob("key")]


def sized(folder, base):
    (folder / "config.json").write_text(json.dumps({"pooling": {"word_embedding_dimension": base.n_rows}}))


def table(folder, base):
    weights = {"weight": tensor((base.n_rows, 1), "F32", np.random.default_rng(3))}
    write_safetensors(weights, folder / "model.safetensors", None)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (sized, r"`1_Pooling/config.json`.* has the number 397"),
        (table, r"`1_Pooling/model.safetensors`.* an axis of 397"),
        (lambda folder, _: (folder / "tokenizer.json").write_text("{}"), "is a tokenizer of its own"),
    ],
)
def test_a_module_that_depends_on_the_vocabulary_is_refused(base, small, tmp_path, change, match):
    """As SPLADE's pooling, weights of tokens, and static embeddings do."""
    change(tmp_path / "model" / "1_Pooling", base)
    with pytest.raises(errors.CheckpointError, match=match):
        tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["{}", "[]", "[1]", '[{"path": 3}]', '"x"'])
def test_a_list_of_modules_that_is_none_is_a_file_like_others(small, tmp_path, content):
    (tmp_path / "model" / "modules.json").write_text(content)
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert (tmp_path / "out" / "modules.json").read_text() == content
    assert {"1_Pooling/", "2_Dense/"} <= {*done.left_out}
