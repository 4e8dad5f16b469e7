"""Model folders that are not trusted: nothing of them runs, and nothing is read or written outside."""

import json
import os
import sys
from pathlib import Path

import builders
import pytest
from checkpoints import ESTONIAN, checkpoint, set_config

import tokengraft as tg
from tokengraft import cli, errors

CODE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\nPath({!r}).touch()\n"


@pytest.fixture
def model(tmp_path):
    checkpoint(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def text(tmp_path):
    (tmp_path / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    return tmp_path / "et.txt"


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "{}/outside.safetensors", "sub/inside.safetensors", "..", ""]
)
def test_an_index_names_only_files_of_its_folder(model, tmp_path, name):
    (model / "sub").mkdir()
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").unlink()
    for place in (tmp_path / "outside.safetensors", model / "sub" / "inside.safetensors"):
        place.write_bytes(weights)
    names = ["model.embed_tokens.weight", "model.layers.0.weight", "lm_head.weight"]
    index = {"metadata": {}, "weight_map": dict.fromkeys(names, name.format(tmp_path))}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    before = content(tmp_path)
    with pytest.raises(errors.CheckpointError):
        tg.transplant(model, tg.load(model), out=tmp_path / "out")
    assert content(tmp_path) == before


def test_code_of_a_folder_is_copied_and_never_runs(model, text, tmp_path):
    code = CODE.format(str(tmp_path / "ran"))
    for name in ("tokenization_evil.py", "modeling_evil.py", "configuration_evil.py", "conftest.py", "setup.py"):
        (model / name).write_text(code)
    auto_map = {"AutoTokenizer": ["tokenization_evil.Evil", None], "AutoConfig": "configuration_evil.Evil"}
    settings = {"tokenizer_class": "Evil", "auto_map": auto_map}
    (model / "tokenizer_config.json").write_text(json.dumps(settings))
    set_config(model, auto_map=auto_map | {"AutoModelForCausalLM": "modeling_evil.Evil"})
    out = tmp_path / "out"
    for arguments in (
        ["inspect", str(model)],
        ["check", str(model), "--for", "transformers", "--for", "vllm"],
        ["adapt", str(model), "--target", f"et={text}", "--swap", "5", "--out", str(out), "--quiet"],
        ["check", str(out), "--base", str(model)],
    ):
        cli.main(arguments)
    assert not [*tmp_path.rglob("ran")]
    if out.exists():
        assert (out / "tokenization_evil.py").read_text() == code
    assert not [name for name in sys.modules if "evil" in name]


def test_chat_templates_are_copied_and_never_rendered(model, text, tmp_path):
    template = "{{ [].__class__.__base__.__subclasses__() }}{% for x in range(999999999) %}{{ x }}{% endfor %}"
    (model / "chat_template.jinja").write_text(template)
    tok = tg.load(model)
    new = tg.extend(tok, tg.count(tok, text), 3).apply(tok)
    assert (tg.save(new, tmp_path / "out", verify=False) / "chat_template.jinja").read_text() == template


def test_pickled_weights_are_never_opened(model, tmp_path):
    (model / "model.safetensors").unlink()
    code = f"cposix\nsystem\n(S'touch {tmp_path}/ran'\ntR."
    (model / "pytorch_model.bin").write_text(code)
    with pytest.raises(errors.CheckpointError, match="safetensors"):
        tg.transplant(model, tg.load(model), out=tmp_path / "out")
    assert not (tmp_path / "ran").exists()


def test_links_of_an_input_are_read_and_written_as_files(model, text, tmp_path):
    """As the cache of the hub has them; the target is never changed."""
    blob = tmp_path / "blob"
    (model / "tokenizer.json").rename(blob)
    (model / "tokenizer.json").symlink_to(blob)
    before = content(tmp_path)
    tok = tg.load(model)
    out = tg.save(tg.extend(tok, tg.count(tok, text), 3).apply(tok), tmp_path / "out", verify=False)
    assert not (out / "tokenizer.json").is_symlink()
    assert {path: raw for path, raw in content(tmp_path).items() if path in before} == before


@pytest.mark.parametrize("kind", ["dangling", "loop", "folder", "pipe", "device"])
def test_a_tokenizer_file_that_is_no_file_is_refused(tmp_path, kind):
    folder = tmp_path / "model"
    folder.mkdir()
    main = folder / "tokenizer.json"
    if kind == "pipe":
        os.mkfifo(main)
    elif kind == "folder":
        main.mkdir()
    else:
        main.symlink_to({"dangling": folder / "none", "loop": main, "device": Path("/dev/zero")}[kind])
    with pytest.raises(errors.SourceNotFoundError):
        tg.load(folder)


def test_other_tokenizer_files_that_are_no_files_are_left_out(tmp_path):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    os.mkfifo(folder / "merges.txt")
    (folder / "vocab.json").symlink_to("/dev/zero")
    (folder / "chat_template.jinja").symlink_to(folder / "none")
    assert {*tg.load(folder).files} == {"tokenizer_config.json"}


def test_a_device_without_end_is_refused(monkeypatch):
    from tokengraft.formats import sources as files

    monkeypatch.setattr(files, "MAX_BYTES", 1 << 25)
    with pytest.raises(errors.UnreadableFileError, match="more than 33,554,432 bytes"):
        tg.load("/dev/zero")


@pytest.mark.parametrize("force", [False, True])
def test_an_output_that_is_a_link_is_not_written_through(model, tmp_path, force):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "tokenizer.json").write_text("mine")
    (tmp_path / "out").symlink_to(victim)
    (tmp_path / "counts").symlink_to(victim / "tokenizer.json")
    tok = tg.load(model)
    with pytest.raises(errors.OutputError):
        tg.save(tok, tmp_path / "out", force=force, verify=False)
    counts = tg.count(tok, iter(["the cat"]))
    with pytest.raises(errors.OutputError):
        counts.save(tmp_path / "counts", force=force)
    assert (victim / "tokenizer.json").read_text() == "mine"


def test_an_output_replaces_a_hard_link_to_an_input_and_not_the_input(model, tmp_path):
    tok = tg.load(model)
    counts = tg.count(tok, iter(["the cat"]))
    first = counts.save(tmp_path / "first.parquet")
    raw = first.read_bytes()
    os.link(first, tmp_path / "second.parquet")
    tg.count(tok, iter(["other text"])).save(tmp_path / "second.parquet", force=True)
    assert first.read_bytes() == raw


def test_a_record_cannot_name_another_output_or_unknown_options(model, text, tmp_path):
    out = tmp_path / "out"
    assert cli.main(["adapt", str(model), "--target", f"et={text}", "--swap", "3", "--out", str(out), "--quiet"]) == 0
    record = json.loads((out / "adaptation.json").read_text())
    for name, value in {"options": {"out": "/evil"}, "only_in_python": ["evil"], "step": "evil"}.items():
        changed = record | {"request": record["request"] | {name: value}}
        (tmp_path / "record.json").write_text(json.dumps(changed))
        again = tmp_path / f"again-{name}"
        arguments = ["adapt", "--recipe", str(tmp_path / "record.json"), "--out", str(again), "--quiet"]
        assert cli.main(arguments) == 2
        assert not again.exists()
