"""The files of a transplanted checkpoint that hold no weights: tokenizer files, configs, what earlier runs wrote."""

import json
from importlib import import_module
from pathlib import Path

import builders
import pytest
from checkpoints import changed, checkpoint, set_config, tables

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.folder import has_weights
from tokengraft.checkpoint.model_job import ModelJob

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
    return tg.save(small, tmp_path / "new", verify=False) / "tokenizer.json"


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


def test_lists_of_tokens_that_the_new_tokenizer_does_not_bring_are_rewritten(base, small, alone, tmp_path):
    strings = {token.string: token.id for token in base.tokens}
    (tmp_path / "model" / "vocab.json").write_text(json.dumps(strings, ensure_ascii=False), encoding="utf-8")
    (tmp_path / "model" / "merges.txt").write_text("#version: 0.2\n", encoding="utf-8")
    tg.transplant(tmp_path / "model", alone, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "vocab.json").read_text(encoding="utf-8")) == dict(small.ids)
    lines = (tmp_path / "out" / "merges.txt").read_text(encoding="utf-8").splitlines()
    assert lines == ["#version: 0.2", *(" ".join(pair) for pair in small.merge_strings())]


def test_settings_of_another_kind_of_tokenizer_are_left_out_and_named(tmp_path):
    checkpoint(tmp_path / "model")
    set_config(tmp_path / "model", eos_token_id=None, bos_token_id=None)
    (tmp_path / "model" / "generation_config.json").unlink()
    pieces = builders.write(tmp_path / "pieces", builders.sentencepiece())
    done = tg.transplant(tmp_path / "model", pieces / "tokenizer.json", tmp_path / "out")
    assert "tokenizer_config.json" in done.left_out
    assert not (tmp_path / "out" / "tokenizer_config.json").exists()


def test_the_id_of_a_hole_stays_while_it_is_one_and_is_refused_once_a_token_has_it(tmp_path):
    first = checkpoint(tmp_path / "model")
    order = tg.prune_order(first, None, "last-id")[:9]
    base = order.apply(first)
    hole = order.removals[4].id
    tg.transplant(tmp_path / "model", base, tmp_path / "holes")
    set_config(tmp_path / "holes", pad_token_id=hole)
    tg.transplant(tmp_path / "holes", base, tmp_path / "same")
    assert json.loads((tmp_path / "same" / "config.json").read_text())["pad_token_id"] == hole
    for new in (base.compact(), changed(base, add=9)):
        with pytest.raises(errors.CheckpointError, match="a row without a token"):
            tg.transplant(tmp_path / "holes", new, tmp_path / "out")


def test_a_folder_with_safetensors_has_weights_and_a_tokenizer_has_none(small, tmp_path):
    assert has_weights(tmp_path / "model")
    folder = tg.save(small, tmp_path / "new", verify=False)
    (folder / "config.json").write_text("{}")
    (folder / "training_args.bin").write_bytes(b"x")
    for source in (folder, str(folder), folder / "tokenizer.json", "meta-llama/Llama-3.2-1B", "x" * 5000):
        assert not has_weights(source)


@pytest.mark.parametrize(
    "name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.gguf", "tf_model.h5", "other.safetensors"]
)
def test_weights_that_transplant_refuses_are_refused_with_its_words(base, small, tmp_path, name):
    folder = tg.save(small, tmp_path / "new", verify=False)
    (folder / "config.json").write_text("{}")
    (folder / name).write_bytes(b"x")
    with pytest.raises(errors.CheckpointError, match="weights") as asked:
        has_weights(folder)
    with pytest.raises(errors.CheckpointError) as done:
        tg.transplant(folder, base, tmp_path / "out")
    assert str(asked.value) == str(done.value)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"])
def test_a_model_with_an_adapter_is_refused_with_how_to_merge_it(small, tmp_path, name):
    checkpoint(tmp_path / "model")
    (tmp_path / "model" / name).write_bytes(b"{}")
    with pytest.raises(errors.CheckpointError, match=rf"adapter of PEFT \(`{name}`\)") as caught:
        tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert "merge_and_unload" in caught.value.hint
    assert not (tmp_path / "out").exists()


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


def test_an_index_of_one_file_is_no_second_set_of_weights(tmp_path):
    base = checkpoint(tmp_path / "model")
    names = dict.fromkeys(tables(tmp_path / "model"), "model.safetensors")
    (tmp_path / "model" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert tables(tmp_path / "out").keys() == names.keys()


START, END, ROWS = 395, 396, 397
ID, SIZE = "the id of <|end|>", "the number of rows"
NESTED = {"vocab_size": SIZE, "hidden_size": 16}
FOLLOW = {
    "ids": ("config.json", {"image_token_index": ID, "eos_token_id": [ID], "pad_token_id": -1}),
    "nested ids": ("config.json", {"text_config": {"pad_token_id": ID, "vocab_size": SIZE}}),
    "id and position": ("config.json", {"forced_decoder_ids": [[1, ID]]}),
    "sizes": ("config.json", {"padded_vocab_size": SIZE, "n_vocab": SIZE, "llm_config": NESTED, "text_config": NESTED}),
    "other sizes": ("config.json", {"vision_config": {"vocab_size": ROWS}, "layer_types": [ROWS]}),
    "another vocabulary": (
        "config.json",
        {"audio_config": {"vocab_size": 51866, "bos_token_id": END, "pad_token_id": 6}},
    ),
    "numbers of tokens": (
        "config.json",
        {"im_patch_token": ID, "bos_token": ID, "bytes_per_token": END, "eos_token": "6"},
    ),
    "words to stop at": ("generation_config.json", {"stop_words_ids": [[ID], [65, ID]]}),
    "codes of sound": ("config.json", {"codebook_eos_token_id": END, "audio_stream_bos_id": END, "codec_bos_id": END}),
    "lists": ("generation_config.json", {"suppress_tokens": [65, ID], "bad_words_ids": [[ID], [ID, ID]]}),
    "words": ("generation_config.json", {"sequence_bias": [[[ID, 65], -10.0]], "force_words_ids": [[ID]]}),
    "odd lists": ("generation_config.json", {"forced_decoder_ids": [5, [1]]}),
    "settings": ("tokenizer_config.json", {"image_token_index": [65, ID], "stop_token_ids": [ID], "pad_token_id": ID}),
    "Mistral": ("params.json", {"vocab_size": SIZE, "model": {"eos_token_id": [ID], "dim": 4096}}),
    "ONNX Runtime": ("genai_config.json", {"model": {"vocab_size": SIZE, "decoder": {"image_token_id": ID}}}),
    **{
        f"{name} in {file}": (file, {name: ID})
        for name in (
            "eos_id",
            "pad_id",
            "image_patch_id",
            "im_start_id",
            "img_context_token_id",
            "slice_end_id",
            "newline_id",
        )
        for file in ("config.json", "video_preprocessor_config.json")
    },
}


def filled(value, token_id, size):
    """A value with ids and sizes in their places."""
    if isinstance(value, dict):
        return {name: filled(part, token_id, size) for name, part in value.items()}
    if isinstance(value, list):
        return [filled(part, token_id, size) for part in value]
    return {ID: token_id, SIZE: size}.get(value, value) if isinstance(value, str) else value


@pytest.mark.parametrize(("name", "fields"), FOLLOW.values(), ids=FOLLOW)
def test_ids_and_sizes_follow_wherever_a_config_has_them(alone, tmp_path, name, fields):
    path = tmp_path / "model" / name
    before = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(before | filled(fields, END, ROWS), indent=4))
    tg.transplant(tmp_path / "model", alone, tmp_path / "out")
    written = (tmp_path / "out" / name).read_text()
    after = json.loads(written)
    assert {name: after[name] for name in fields} == filled(fields, END - 9, ROWS - 9)
    assert written.startswith('{\n    "')


def test_a_file_of_another_program_that_names_a_changed_id_gets_a_warning(alone, tmp_path):
    model = tmp_path / "model"
    (model / "chat_config.json").write_text(json.dumps({"eos_token_id": END, "hidden_size": END}))
    (model / "other.json").write_text(json.dumps({"eos_token_id": 5, "size": END}))
    (model / "broken.json").write_text("{")
    done = tg.transplant(model, alone, tmp_path / "out")
    (warning,) = done.warnings
    assert (
        f"`chat_config.json` is copied as it is, and `eos_token_id` in it is {END}, an id that is {END - 9}" in warning
    )
    assert (tmp_path / "out" / "chat_config.json").read_bytes() == (model / "chat_config.json").read_bytes()


@pytest.mark.parametrize("nested", [{"vocab_size": ROWS, "eos_token_id": END}, {"hidden_size": 16}])
def test_the_size_of_the_vocabulary_in_a_nested_config_is_enough(small, tmp_path, nested):
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["vocab_size"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"text_config": nested}))
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["text_config"]["vocab_size"] == ROWS - 9
    assert "vocab_size" not in config


@pytest.mark.parametrize("compact", [False, True])
@pytest.mark.parametrize("file", ["config.json", "generation_config.json", "tokenizer_config.json"])
def test_an_id_of_a_removed_token_is_refused_before_any_weight_is_written(base, tmp_path, monkeypatch, file, compact):
    order = tg.prune_order(base, None, "last-id")[:9]
    pruned = order.apply(base)
    folder = tg.save(pruned.compact() if compact else pruned, tmp_path / "new", verify=False)
    for path in (tmp_path / "model" / file, folder / file):
        if path.exists():
            set_config(path.parent, file, pad_token_id=order.removals[3].id)
    monkeypatch.setattr(import_module("tokengraft.checkpoint.model_job"), "new_folder", None)
    for new in (folder, folder / "tokenizer.json"):
        for out in (tmp_path / "out", None):
            with pytest.raises(errors.CheckpointError, match=rf"`pad_token_id` in `{file}` is .*does not have"):
                tg.transplant(tmp_path / "model", new, out)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("listed", [False, True])
def test_the_text_of_a_removed_token_in_the_settings_is_refused(tmp_path, file, listed):
    base = checkpoint(tmp_path / "model")
    order = tg.prune_order(base, None, "last-id")[:9]
    gone = order.removals[0].token
    alone = tg.save(order.apply(base), tmp_path / "new", verify=False) / "tokenizer.json"
    field = {"additional_special_tokens": [gone]} if listed else {"pad_token": gone}
    (tmp_path / "model" / file).write_text(json.dumps(field))
    with pytest.raises(errors.TokengraftError, match=r"the new tokenizer does not have|cannot be removed"):
        tg.transplant(tmp_path / "model", alone, tmp_path / "out")


def test_the_id_of_a_padding_row_follows_unless_the_row_is_gone(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448, config={"pad_token_id": 420})
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 4).apply(base)
    for tokenizer, pad in ((base, 420), (new, 424)):
        tg.transplant(tmp_path / "model", tokenizer, tmp_path / "out", force=True)
        assert json.loads((tmp_path / "out" / "config.json").read_text())["pad_token_id"] == pad
    with pytest.raises(errors.CheckpointError, match=r"`pad_token_id` in `config\.json` is 420, a row without a token"):
        tg.transplant(tmp_path / "model", base, tmp_path / "tight", options=tg.TransplantOptions(pad_multiple=1))


def test_an_id_beyond_the_table_that_a_new_token_would_get_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", config={"pad_token_id": ROWS})
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 4).apply(base)
    with pytest.raises(errors.CheckpointError, match=r"`pad_token_id` in `config\.json` is 397"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e999"])
@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
def test_a_config_with_numbers_that_only_python_reads_keeps_them(small, tmp_path, number, name):
    path = tmp_path / "model" / name
    path.write_text(path.read_text().replace("{", f'{{"limit": {number}, ', 1))
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    before, after = (json.loads((tmp_path / folder / name).read_text()) for folder in ("model", "out"))
    assert before["eos_token_id"] != after["eos_token_id"]
    assert repr(after["limit"]) == repr(before["limit"])


@pytest.mark.parametrize(("template", "carried"), [("mine", False), (None, True)])
def test_only_a_template_of_the_new_tokenizer_replaces_that_of_the_source(small, tmp_path, template, carried):
    folder = tg.save(small, tmp_path / "new", verify=False)
    (folder / "chat_template.jinja").unlink()
    set_config(folder, "tokenizer_config.json", chat_template=template)
    done = tg.transplant(tmp_path / "model", folder, tmp_path / "out")
    assert ("chat_template.jinja" in done.carried, "chat_template.jinja" in done.left_out) == (carried, not carried)
    assert (tmp_path / "out" / "chat_template.jinja").exists() == carried


def test_the_command_names_the_files_that_it_keeps_and_leaves_out(alone, tmp_path, tokengraft):
    (tmp_path / "model" / "tekken.json").write_text("{}")
    shown = " ".join(tokengraft("transplant", tmp_path / "model", alone, "--out", tmp_path / "out").out.split())
    assert "kept files `chat_template.jinja`, `special_tokens_map.json`, `tokenizer_config.json`" in shown
    assert "left out `tekken.json`" in shown
    assert not (tmp_path / "out" / "tekken.json").exists()


def test_what_an_earlier_run_wrote_about_its_result_is_not_copied_and_other_files_may_be_replaced(base, tmp_path):
    reports = {"report.html", "adaptation.json", "training_log.json", "training.svg", "training.html"}
    for name in (*reports, "tokengraft.json", "notes.txt"):
        (tmp_path / "model" / name).write_text("old")
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert reports <= {*done.left_out}
    assert not [name for name in reports if (tmp_path / "out" / name).exists()]
    assert json.loads((tmp_path / "out" / "tokengraft.json").read_text())["source"] == "model"
    others = dict.fromkeys((*reports, "notes.txt", "LICENSE"), b"new")
    job = ModelJob.prepare(tmp_path / "model", base, tg.TransplantOptions())
    job.write(tmp_path / "out", force=True, others=others)
    assert {name: (tmp_path / "out" / name).read_bytes() for name in others} == others


def test_every_file_that_names_tokens_or_ids_follows(base, small, tmp_path):
    """All of them at once, as a folder of transformers 4 has them, with chat templates as files."""
    folder, out = tmp_path / "model", tmp_path / "out"
    ids = {token.content: token.id for token in base.added}
    (folder / "added_tokens.json").write_text(json.dumps(ids))
    (folder / "additional_chat_templates").mkdir()
    same = ("chat_template.jinja", "chat_template.json", "additional_chat_templates/tools.jinja")
    for name in same:
        (folder / name).write_text('{"chat_template": "<|start|>{{ text }}<|end|>"}')
    tg.transplant(folder, tg.load(folder).with_tokens(small.ids, small.merge_strings()), out)
    after = {token: small.ids[token] for token in ids}
    assert json.loads((out / "added_tokens.json").read_text()) == after
    decoder = json.loads((out / "tokenizer_config.json").read_text())["added_tokens_decoder"]
    assert {entry["content"]: int(i) for i, entry in decoder.items()} == after
    assert {token.content: token.id for token in tg.load(out).added} == after
    for name in (*same, "special_tokens_map.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
