"""The files of a transplanted checkpoint that hold no weights: tokenizer files, configs, what earlier runs wrote."""

import json
from importlib import import_module
from pathlib import Path

import builders
import pytest
from checkpoints import checkpoint, set_config, tables

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.ids import named_ids
from tokengraft.checkpoint.layout import has_weights

TEMPLATE = "{{ messages }}<|end|>"


@pytest.fixture
def base(tmp_path):
    """A checkpoint with a chat template and settings that name tokens by id and by text."""
    base = checkpoint(tmp_path / "model")
    start, end = base.added
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|end|>",
        "eos_token_id": end.id,
        "added_tokens_decoder": {
            str(token.id): {"content": token.content, "special": True, "normalized": False} for token in (start, end)
        },
    }
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(settings))
    (tmp_path / "model" / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "<|end|>"}}))
    (tmp_path / "model" / "chat_template.jinja").write_text(TEMPLATE)
    return tg.load(tmp_path / "model")


@pytest.fixture
def small(base):
    """Nine tokens pruned, ids closed up: the specials move."""
    return tg.prune_order(base, None, "last-id")[:9].apply(base).compact()


@pytest.fixture
def alone(small, tmp_path):
    """The path of the same tokenizer as a `tokenizer.json` and nothing else."""
    return tg.save(small, tmp_path / "new") / "tokenizer.json"


def test_a_tokenizer_json_alone_keeps_the_settings_and_the_template_of_the_source(base, small, alone, tmp_path):
    done = tg.transplant(tmp_path / "model", alone, tmp_path / "out")
    assert done.carried == ("chat_template.jinja", "special_tokens_map.json", "tokenizer_config.json")
    assert tg.load(tmp_path / "out") == small
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == TEMPLATE
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings["eos_token_id"] == small.ids["<|end|>"] == base.ids["<|end|>"] - 9
    assert {int(key): entry["content"] for key, entry in settings["added_tokens_decoder"].items()} == {
        small.ids[name]: name for name in ("<|start|>", "<|end|>")
    }


def test_the_command_names_the_files_that_it_keeps_and_leaves_out(base, alone, tmp_path, capsys):
    (tmp_path / "model" / "tekken.json").write_text("{}")
    assert cli.main(["transplant", str(tmp_path / "model"), str(alone), "--out", str(tmp_path / "out")]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "kept files `chat_template.jinja`, `special_tokens_map.json`, `tokenizer_config.json`" in shown
    assert "left out `tekken.json`" in shown
    assert not (tmp_path / "out" / "tekken.json").exists()
    assert base.n_rows


def test_lists_of_tokens_that_the_new_tokenizer_does_not_bring_are_rewritten(base, small, alone, tmp_path):
    strings = {token.string: token.id for token in base.tokens}
    (tmp_path / "model" / "vocab.json").write_text(json.dumps(strings, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "model" / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    tg.transplant(tmp_path / "model", alone, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "vocab.json").read_text(encoding="utf-8")) == dict(small.ids)
    lines = (tmp_path / "out" / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["#version: 0.2", *(" ".join(pair) for pair in small.merge_strings())]


def test_a_template_that_the_new_tokenizer_brings_replaces_all_of_the_source(base, small, tmp_path):
    folder = tg.save(small, tmp_path / "new")
    (folder / "chat_template.jinja").unlink()
    set_config(folder, "tokenizer_config.json", chat_template="mine")
    done = tg.transplant(tmp_path / "model", folder, tmp_path / "out")
    assert "chat_template.jinja" in done.left_out
    assert not (tmp_path / "out" / "chat_template.jinja").exists()
    assert base.n_rows


def test_settings_of_another_kind_of_tokenizer_are_left_out_and_named(tmp_path):
    checkpoint(tmp_path / "model")
    set_config(tmp_path / "model", eos_token_id=None, bos_token_id=None)
    (tmp_path / "model" / "generation_config.json").unlink()
    pieces = builders.write(tmp_path / "pieces", builders.sentencepiece())
    done = tg.transplant(tmp_path / "model", pieces / "tokenizer.json", tmp_path / "out")
    assert "tokenizer_config.json" in done.left_out
    assert not (tmp_path / "out" / "tokenizer_config.json").exists()


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("as_file", [False, True])
def test_an_id_of_a_removed_token_in_the_settings_is_refused(base, tmp_path, as_file, compact):
    order = tg.prune_order(base, None, "last-id")[:9]
    set_config(tmp_path / "model", "tokenizer_config.json", unk_token_id=order.removals[3].id)
    pruned = order.apply(base)
    folder = tg.save(pruned.compact() if compact else pruned, tmp_path / "new")
    set_config(folder, "tokenizer_config.json", unk_token_id=order.removals[3].id)
    with pytest.raises(errors.CheckpointError, match=r"`unk_token_id` in `tokenizer_config\.json` is .*does not have"):
        tg.transplant(tmp_path / "model", folder / "tokenizer.json" if as_file else folder, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("listed", [False, True])
def test_the_text_of_a_removed_token_in_the_settings_is_refused(tmp_path, file, listed):
    base = checkpoint(tmp_path / "model")
    order = tg.prune_order(base, None, "last-id")[:9]
    gone = next(removal.token for removal in order.removals)
    alone = tg.save(order.apply(base), tmp_path / "new") / "tokenizer.json"
    field = {"additional_special_tokens": [gone]} if listed else {"pad_token": gone}
    (tmp_path / "model" / file).write_text(json.dumps(field))
    with pytest.raises(errors.TokengraftError, match=r"the new tokenizer does not have|cannot be removed"):
        tg.transplant(tmp_path / "model", alone, tmp_path / "out")


def test_more_files_replace_those_of_the_source(base, tmp_path):
    (tmp_path / "model" / "notes.txt").write_text("old")
    others = {"report.html": b"new", "adaptation.json": b"{}", "notes.txt": b"new", "LICENSE": b"new"}
    for name in ("report.html", "adaptation.json"):
        (tmp_path / "model" / name).write_text("old")
    tg.transplant(tmp_path / "model", base, tmp_path / "out", others=others)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in others} == others


def test_what_an_earlier_run_wrote_about_its_result_is_not_copied(base, tmp_path):
    for name in ("report.html", "adaptation.json", "tokengraft.json"):
        (tmp_path / "model" / name).write_text("old")
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert {"report.html", "adaptation.json"} <= {*done.left_out}
    assert not (tmp_path / "out" / "report.html").exists()
    assert not (tmp_path / "out" / "adaptation.json").exists()
    assert json.loads((tmp_path / "out" / "tokengraft.json").read_text())["source"] == "model"


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
def test_a_config_with_numbers_that_only_python_reads_keeps_them(tmp_path, number):
    base = checkpoint(tmp_path / "model")
    for name in ("config.json", "generation_config.json"):
        path = tmp_path / "model" / name
        path.write_text(path.read_text().replace("{", f'{{"limit": {number}, ', 1))
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    for name in ("config.json", "generation_config.json"):
        before, after = (json.loads((tmp_path / folder / name).read_text()) for folder in ("model", "out"))
        assert repr(after["limit"]) == repr(before["limit"])
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == new.n_rows


@pytest.mark.parametrize("dry", [False, True])
def test_a_config_that_cannot_follow_is_refused_before_any_weight_is_written(tmp_path, monkeypatch, dry):
    base = checkpoint(tmp_path / "model")
    order = tg.prune_order(base, None, "last-id")[:5]
    set_config(tmp_path / "model", "generation_config.json", pad_token_id=order.removals[0].id)
    monkeypatch.setattr(import_module("tokengraft.checkpoint.transplant"), "new_folder", None)
    with pytest.raises(errors.CheckpointError, match="does not have"):
        tg.transplant(tmp_path / "model", order.apply(base), None if dry else tmp_path / "out")


def test_the_id_of_a_padding_row_that_is_gone_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448, config={"pad_token_id": 440})
    with pytest.raises(errors.CheckpointError, match=r"`pad_token_id` in `config\.json` is 440, a row without a token"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out", pad_multiple=1)
    tg.transplant(tmp_path / "model", base, tmp_path / "kept")
    assert json.loads((tmp_path / "kept" / "config.json").read_text())["pad_token_id"] == 440


def test_the_id_of_a_hole_stays_while_it_is_one_and_is_refused_once_a_token_has_it(tmp_path):
    first = checkpoint(tmp_path / "model")
    order = tg.prune_order(first, None, "last-id")[:9]
    base = order.apply(first)
    hole = order.removals[4].id
    tg.transplant(tmp_path / "model", base, tmp_path / "holes")
    set_config(tmp_path / "holes", pad_token_id=hole)
    tg.transplant(tmp_path / "holes", base, tmp_path / "same")
    assert json.loads((tmp_path / "same" / "config.json").read_text())["pad_token_id"] == hole
    for new in (base.compact(), tg.extend(base, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 9).apply(base)):
        with pytest.raises(errors.CheckpointError, match="a row without a token"):
            tg.transplant(tmp_path / "holes", new, tmp_path / "out")


def test_an_id_beyond_the_table_that_a_new_token_would_get_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", config={"pad_token_id": 397})
    assert base.n_rows == 397
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 4).apply(base)
    with pytest.raises(errors.CheckpointError, match=r"`pad_token_id` in `config\.json` is 397"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")


def test_the_size_of_the_vocabulary_follows_wherever_the_config_has_it(tmp_path):
    nested = {"vocab_size": 397, "hidden_size": 16}
    base = checkpoint(
        tmp_path / "model",
        config={"padded_vocab_size": 397, "llm_config": nested, "vision_config": nested, "text_config": nested},
    )
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["padded_vocab_size"] == config["vocab_size"] == 388
    assert config["llm_config"]["vocab_size"] == config["text_config"]["vocab_size"] == 388
    assert config["vision_config"]["vocab_size"] == 397


def test_the_size_of_the_vocabulary_in_a_nested_config_alone_is_enough(tmp_path):
    base = checkpoint(tmp_path / "model", config={"text_config": {"vocab_size": 397, "eos_token_id": 396}})
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["vocab_size"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["text_config"] == {"vocab_size": 388, "eos_token_id": 387}
    assert "vocab_size" not in config


def test_the_ids_that_a_config_names_are_those_that_are_rewritten():
    config = {
        "eos_token_id": [2, 3],
        "image_token_index": 4,
        "text_config": {"pad_token_id": 5, "hidden_size": 99},
        "suppress_tokens": [6],
        "forced_decoder_ids": [[99, 7]],
        "sequence_bias": [[[8, 9], 99]],
        "bad_words_ids": [[10], [11]],
        "layer_types": [99, 99],
    }
    assert named_ids(config) == {*range(2, 12)}


def test_a_folder_with_safetensors_has_weights_and_a_tokenizer_has_none(base, small, tmp_path):
    assert has_weights(tmp_path / "model")
    folder = tg.save(small, tmp_path / "new")
    (folder / "config.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"x")
    for source in (folder, str(folder), folder / "tokenizer.json", "meta-llama/Llama-3.2-1B", "x" * 5000):
        assert not has_weights(source)
    assert base.n_rows


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.gguf", "tf_model.h5", "other.safetensors"]
)
def test_weights_that_transplant_refuses_are_refused_with_its_words(base, small, tmp_path, name):
    folder = tg.save(small, tmp_path / "new")
    (folder / "config.json").write_text("{}")
    (folder / name).write_bytes(b"x")
    with pytest.raises(errors.CheckpointError, match="weights") as asked:
        has_weights(folder)
    with pytest.raises(errors.CheckpointError) as done:
        tg.transplant(folder, base, tmp_path / "out")
    assert str(asked.value) == str(done.value)


def test_files_that_are_links_into_a_cache_are_followed(tmp_path):
    base = checkpoint(tmp_path / "model", shards=3)
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (tmp_path / "model").rename(blobs)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    (snapshot / "gone.txt").symlink_to("nowhere")
    done = tg.transplant(snapshot, base, tmp_path / "out")
    assert "gone.txt" in done.left_out
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))
    assert (tmp_path / "out" / "LICENSE").read_text() == "yours"
    assert tables(tmp_path / "out").keys() == tables(blobs).keys()


@pytest.mark.parametrize("name", ["params.json", "genai_config.json"])
def test_configs_of_other_formats_follow(base, small, tmp_path, name):
    """Mistral's `params.json`, and `genai_config.json` of ONNX Runtime GenAI."""
    ids = [base.ids["<|start|>"], base.ids["<|end|>"]]
    model = {"vocab_size": base.n_rows, "eos_token_id": ids, "pad_token_id": ids[1], "decoder": {"hidden_size": 16}}
    content = {"model": model, "vocab_size": base.n_rows, "vision_encoder": {"image_token_id": ids[0]}, "dim": 4096}
    (tmp_path / "model" / name).write_text(json.dumps(content, indent=4))
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert name not in done.left_out
    new = [small.ids["<|start|>"], small.ids["<|end|>"]]
    assert ids != new
    model |= {"vocab_size": small.n_rows, "eos_token_id": new, "pad_token_id": new[1]}
    written = (tmp_path / "out" / name).read_text()
    assert json.loads(written) == content | {"vocab_size": small.n_rows, "vision_encoder": {"image_token_id": new[0]}}
    assert written.startswith('{\n    "model"')


def test_every_file_that_names_tokens_or_ids_follows(base, small, tmp_path):
    """All of them at once, as a folder of transformers 4 has them, with chat templates as files."""
    folder = tmp_path / "model"
    ids = {token: base.ids[token] for token in ("<|start|>", "<|end|>")}
    listed = {str(i): builders.added(0, token) for token, i in ids.items()}
    set_config(folder, "tokenizer_config.json", added_tokens_decoder=listed, eos_token="<|end|>")
    (folder / "added_tokens.json").write_text(json.dumps(ids))
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|end|>"}))
    (folder / "additional_chat_templates").mkdir()
    templates = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/tools.jinja")
    for name in templates:
        (folder / name).write_text('{"chat_template": "<|start|>{{ text }}<|end|>"}')
    old = tg.load(folder)
    new = tg.load(folder).with_tokens(small.ids, small.merge_strings())
    tg.transplant(folder, new, tmp_path / "out")
    out = tmp_path / "out"
    after = {token: small.ids[token] for token in ids}
    assert json.loads((out / "added_tokens.json").read_text()) == after
    assert (out / "special_tokens_map.json").read_bytes() == (folder / "special_tokens_map.json").read_bytes()
    decoder = json.loads((out / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert {entry["content"]: int(i) for i, entry in decoder.items()} == after
    assert {token.content: token.id for token in tg.load(out).added} == after
    for name in templates:
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert {token.content for token in old.added} == set(after)


@pytest.mark.parametrize("field", ["image_token_index", "stop_token_ids", "pad_token_id"])
def test_every_id_in_the_settings_follows(base, small, alone, tmp_path, field):
    ids = [base.ids["<|start|>"], base.ids["<|end|>"]]
    set_config(tmp_path / "model", "tokenizer_config.json", **{field: ids})
    tg.transplant(tmp_path / "model", alone, tmp_path / "out")
    settings = json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())
    assert settings[field] == [small.ids["<|start|>"], small.ids["<|end|>"]]


@pytest.mark.parametrize("field", ["eos_id", "pad_id", "image_patch_id", "im_start_id", "img_context_token_id"])
@pytest.mark.parametrize("name", ["config.json", "video_preprocessor_config.json"])
def test_ids_under_less_common_names_follow(base, small, tmp_path, name, field):
    path = tmp_path / "model" / name
    path.write_text(json.dumps(json.loads(path.read_text() if path.exists() else "{}") | {field: base.ids["<|end|>"]}))
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert json.loads((tmp_path / "out" / name).read_text())[field] == small.ids["<|end|>"]


@pytest.mark.parametrize("value", ["396", 396.0, [395, "396"]])
def test_an_id_that_is_no_whole_number_is_refused(base, small, tmp_path, value):
    set_config(tmp_path / "model", eos_token_id=value)
    with pytest.raises(errors.CheckpointError, match=r"`eos_token_id` .*396.*whole number"):
        tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert base.n_rows


def test_settings_with_an_empty_template_leave_that_of_the_source(base, small, tmp_path):
    folder = tg.save(small, tmp_path / "new")
    (folder / "chat_template.jinja").unlink()
    set_config(folder, "tokenizer_config.json", chat_template=None)
    done = tg.transplant(tmp_path / "model", folder, tmp_path / "out")
    assert "chat_template.jinja" in done.carried
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == TEMPLATE
    assert base.n_rows


def test_one_file_of_weights_beside_an_index_of_others_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", shards=3)
    checkpoint(tmp_path / "other")
    (tmp_path / "other" / "model.safetensors").rename(tmp_path / "model" / "model.safetensors")
    with pytest.raises(
        errors.CheckpointError, match=r"both `model\.safetensors` and `model\.safetensors\.index\.json`"
    ):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")


def test_an_index_of_one_file_is_no_second_set_of_weights(tmp_path):
    base = checkpoint(tmp_path / "model")
    names = dict.fromkeys(tables(tmp_path / "model"), "model.safetensors")
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert tables(tmp_path / "out").keys() == names.keys()


def test_the_size_of_the_vocabulary_under_its_older_name_follows(base, small, tmp_path):
    set_config(tmp_path / "model", n_vocab=base.n_rows)
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["n_vocab"] == small.n_rows
