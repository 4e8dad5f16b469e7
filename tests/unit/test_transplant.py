"""Transplanting checkpoints, without torch: rows, shards, configs, refusals, crashes, the command."""

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import builders
import numpy as np
import pytest
from checkpoints import WIDTH, add_tensor, checkpoint, init_options, set_config, tables, write_safetensors

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.padding import padded_rows
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.checkpoint.tensors import TensorFile, narrow, widen


@pytest.fixture
def base(tmp_path):
    return checkpoint(tmp_path / "model", shards=3)


@pytest.fixture
def swapped(base):
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    return tg.extend(pruned, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 14).apply(pruned)


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("head", [False, True])
def test_kept_rows_are_bit_equal_and_new_ones_the_mean_of_their_pieces(tmp_path, dtype, shards, head):
    base = checkpoint(tmp_path / "model", dtype=dtype, shards=shards, head=head, bias=head)
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    new = tg.extend(pruned, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 14).apply(pruned).compact()
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    plan = tg.plan(base, new)
    for name in ["model.embed_tokens.weight", *(["lm_head.weight", "lm_head.bias"] if head else [])]:
        assert len(after[name]) == new.n_rows
        for row, source in zip(after[name], plan.sources, strict=True):
            if isinstance(source, int):
                assert np.array_equal(row, before[name][source])
            else:
                mean = before[name][list(source)].mean(axis=0, dtype=np.float64).astype(np.float32)
                assert np.array_equal(row, widen(narrow(mean[None], dtype), dtype)[0])
    assert done.compared.kept_rows == (2 * head + 1) * (new.n_rows - 14)
    assert done.tied is not head
    untouched = [name for name in before if "layers" in name or "norm" in name]
    assert all(np.array_equal(before[name], after[name]) for name in untouched)
    assert done.compared.untouched_tensors == len(untouched) == 3


def test_only_shards_with_a_table_are_rewritten(base, swapped, tmp_path):
    done = tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    for name in done.copied:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert len(done.copied) == 1
    old, new = (json.loads((tmp_path / f / "model.safetensors.index.json").read_text()) for f in ("model", "out"))
    assert new["weight_map"] == old["weight_map"]
    sizes = [sum(t.size for t in TensorFile.open(p).tensors.values()) for p in (tmp_path / "out").glob("*.safetensors")]
    assert new["metadata"]["total_size"] == sum(sizes)
    assert base.n_rows >= swapped.n_rows


def test_every_id_in_every_config_follows(tmp_path):
    base = checkpoint(
        tmp_path / "model",
        config={
            "text_config": {"pad_token_id": 300, "vocab_size": 397},
            "vision_config": {"vocab_size": 9},
            "image_token_index": 301,
            "forced_decoder_ids": [[1, 300]],
        },
    )
    order = tg.prune_order(
        base,
        tg.count(base, iter(builders.TEXT)),
        protection=tg.Protection(tokens=[t.string for t in base.tokens if t.id in (300, 301)]),
    )
    new = order[:40].apply(base).compact()
    moved = tg.plan(base, new).moved
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["vocab_size"] == new.n_rows
    assert config["eos_token_id"] == moved[base.added[-1].id] != base.added[-1].id
    assert config["bos_token_id"] == [moved[base.added[0].id]]
    assert config["pad_token_id"] == -1
    assert config["text_config"] == {"pad_token_id": moved[300], "vocab_size": new.n_rows}
    assert config["vision_config"] == {"vocab_size": 9}
    assert config["image_token_index"] == moved[301]
    assert config["forced_decoder_ids"] == [[1, moved[300]]]
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation == {
        "eos_token_id": [config["eos_token_id"]],
        "suppress_tokens": [moved[65], config["eos_token_id"]],
    }


def test_a_config_that_names_a_token_that_is_gone_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model")
    order = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:5]
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"pad_token_id": order.removals[0].id}))
    with pytest.raises(errors.CheckpointError, match="does not have"):
        tg.transplant(tmp_path / "model", order.apply(base), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".tokengraft-*"))


def test_other_files_come_along_and_old_weights_do_not(base, swapped, tmp_path):
    (tmp_path / "model" / "original").mkdir()
    done = tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    out = {path.name for path in (tmp_path / "out").iterdir()}
    assert "LICENSE" in out
    assert not {"pytorch_model.bin", "original"} & out
    assert done.left_out == ("original/", "pytorch_model.bin")
    assert tg.load(tmp_path / "out") == swapped
    report = json.loads((tmp_path / "out" / "tokengraft.json").read_text())
    assert report["transplant"]["added"] == 14
    assert report["transplant"]["compared"]["kept_rows"] > 0
    assert base.n_rows == done.rows_before


def test_the_source_is_never_changed_and_a_result_is_never_overwritten_by_accident(base, swapped, tmp_path):
    def content():
        return {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}

    before = content()
    tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    with pytest.raises(errors.OutputError, match="exists"):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    with pytest.raises(errors.OutputError):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "model", force=True)
    tg.transplant(tmp_path / "model", base, tmp_path / "out", force=True)
    assert content() == before
    assert tg.load(tmp_path / "out") == base


def test_the_identity_gives_the_same_weights(base, tmp_path):
    tg.transplant(tmp_path / "model", base, tmp_path / "out")
    for path in (tmp_path / "model").glob("*.safetensors"):
        assert TensorFile.open(tmp_path / "out" / path.name).tensors.keys() == TensorFile.open(path).tensors.keys()
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_padding_stays_and_new_tokens_that_land_on_it_get_rows(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448)
    padding = 448 - base.n_rows
    extended = tg.extend(base, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 14).apply(base)
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out")
    assert (done.rows_before, done.rows_after) == (448, 448)
    before, after = (tables(tmp_path / name)["model.embed_tokens.weight"] for name in ("model", "out"))
    for new_id in range(base.n_rows, extended.n_rows):
        assert not np.array_equal(after[new_id], before[new_id])
    assert np.array_equal(after[extended.n_rows :][: padding - 14], before[base.n_rows :][: padding - 14])
    pruned = tg.prune_order(base, None, "last-id")[:70].apply(base).compact()
    done = tg.transplant(tmp_path / "model", pruned, tmp_path / "small")
    assert done.rows_after == -(-pruned.n_rows // 64) * 64
    done = tg.transplant(tmp_path / "model", pruned, tmp_path / "tight", pad_multiple=1)
    assert done.rows_after == pruned.n_rows
    assert json.loads((tmp_path / "tight" / "config.json").read_text())["vocab_size"] == pruned.n_rows


def test_rows_are_rounded_up_to_the_multiple():
    plan = tg.VocabPlan(100, (None,) * 90, ())
    assert padded_rows(plan, 100, "keep") == 90
    assert padded_rows(plan, 128, "keep") == 128
    assert padded_rows(plan, 192, "keep") == 128
    assert padded_rows(plan, 100, 64) == 128
    for wrong in (0, -1, "x", 1 << 30):
        with pytest.raises(errors.OptionError, match="multiple"):
            padded_rows(plan, 100, wrong)


@pytest.mark.parametrize("init", INITIALISERS)
def test_two_tables_that_are_tied_stay_equal(tmp_path, init):
    base = checkpoint(tmp_path / "model", config={"tie_word_embeddings": True})
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out", **init_options(init, base))
    assert done.tied
    after = tables(tmp_path / "out")
    assert len(after["lm_head.weight"]) == new.n_rows > base.n_rows
    assert np.array_equal(after["lm_head.weight"], after["model.embed_tokens.weight"])


@pytest.mark.parametrize("init", INITIALISERS)
def test_two_equal_tables_stay_equal_where_the_config_leaves_tying_to_its_class(tmp_path, init):
    base = checkpoint(tmp_path / "model", shards=3, config={"tie_word_embeddings": True})
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["tie_word_embeddings"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(base)
    assert tg.transplant(tmp_path / "model", new, tmp_path / "out", **init_options(init, base)).tied
    after = tables(tmp_path / "out")
    assert np.array_equal(after["lm_head.weight"], after["model.embed_tokens.weight"])


def test_two_tables_that_differ_are_untied_where_the_config_leaves_tying_to_its_class(tmp_path):
    base = checkpoint(tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["tie_word_embeddings"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    assert not tg.transplant(tmp_path / "model", base, None).tied


def test_other_seeds_give_other_rows_and_the_same_seed_the_same(base, swapped, tmp_path):
    found = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tg.transplant(tmp_path / "model", swapped, tmp_path / name, init="random", seed=seed)
        found[name] = {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.safetensors")}
    assert found["a"] == found["b"] != found["c"]
    assert base != swapped


def test_numbers_are_widened_exactly_and_rounded_to_the_nearest_even():
    for dtype in ("BF16", "F16"):
        every = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(-1, 2)
        values = widen(every, dtype)
        again = narrow(values, dtype)
        nan = np.isnan(values[:, 0])
        assert np.array_equal(again[~nan], every[~nan])
        assert np.isnan(widen(again[nan], dtype)).all()
    halves = np.array([[1 + 2**-8], [1 + 3 * 2**-8], [np.inf], [3.4e38]], np.float32)
    assert widen(narrow(halves, "BF16"), "BF16").ravel().tolist() == [1.0, 1 + 2**-6, np.inf, np.inf]


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda f: (f / "config.json").unlink(), errors.SourceNotFoundError, "no `config.json`"),
        (lambda f: (f / "model.safetensors").unlink(), errors.CheckpointError, "are pickled"),
        (lambda f: (f / "config.json").write_text("[]"), errors.CheckpointError, "not a JSON object"),
        (
            lambda f: (f / "model.safetensors").write_bytes(b"x" * 50),
            errors.CheckpointError,
            "not a complete safetensors",
        ),
        (
            lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:-9]),
            errors.CheckpointError,
            "not a complete safetensors",
        ),
        (lambda f: set_config(f, is_encoder_decoder=True), errors.CheckpointError, "encoder-decoder"),
        (lambda f: set_config(f, vocab_size=5), errors.CheckpointError, "config.json says 5"),
        (lambda f: set_config(f, architectures=["T5"], vocab_size=16), errors.CheckpointError, "cannot be determined"),
    ],
)
def test_what_cannot_be_transplanted_is_refused(tmp_path, change, error, match):
    base = checkpoint(tmp_path / "model")
    change(tmp_path / "model")
    with pytest.raises(error, match=match):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "dtype", "match"),
    [
        ("model.embed_tokens_per_layer.weight", "BF16", "`vocab_size_per_layer_input` in config.json is None"),
        ("model.embeddings_per_layer.weight", "BF16", "for each layer"),
        ("model.d2t", "BF16", "name ids"),
        ("lm_head.qweight", "F32", "quantised"),
        ("model.embed_tokens.weight_scale_inv", "F32", "quantised"),
    ],
)
def test_strange_tables_are_refused(tmp_path, name, dtype, match):
    base = checkpoint(tmp_path / "model")
    add_tensor(tmp_path / "model", name, (2, 2), dtype)
    with pytest.raises(errors.CheckpointError, match=match):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")


def test_an_embedding_of_eight_bits_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model")
    data = {"dtype": "I8", "shape": [base.n_rows, WIDTH], "data": bytes(base.n_rows * WIDTH)}
    write_safetensors({"model.embed_tokens.weight": data}, tmp_path / "model" / "model.safetensors", None)
    with pytest.raises(errors.CheckpointError, match="quantised"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")


def test_an_unknown_architecture_is_handled_by_shape_and_says_so(tmp_path):
    base = checkpoint(tmp_path / "model", config={"architectures": ["NovelForCausalLM"]}, prefix="net.")
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert "not in the table" in done.found_by
    assert [role for _, role, *_ in done.tensors] == ["input", "output"]


def test_fewer_rows_than_tokens_are_refused(tmp_path):
    base = checkpoint(tmp_path / "model", rows=300)
    with pytest.raises(errors.CheckpointError, match="300 rows and the tokenizer in its folder needs"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")


def test_an_unknown_initialiser_is_refused(base, swapped, tmp_path):
    with pytest.raises(errors.OptionError, match="no initialiser 'magic'"):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out", init="magic")
    assert base != swapped


def test_a_read_only_target_gives_a_clear_error(base, swapped, tmp_path):
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)
    if os.access(locked, os.W_OK):
        locked = Path("/proc/tokengraft")  # root may write everywhere else
    with pytest.raises(errors.OutputError, match="cannot write"):
        tg.transplant(tmp_path / "model", swapped, locked / "out")
    assert base != swapped


def test_a_full_disk_gives_a_clear_error_and_leaves_nothing(base, swapped, tmp_path, monkeypatch):
    module = import_module("tokengraft.checkpoint.weights")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "copy_bytes", full)
    with pytest.raises(errors.OutputError, match="No space left"):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    assert not list(tmp_path.glob(".tokengraft-*"))
    assert not (tmp_path / "out").exists()
    assert base != swapped


def test_damage_after_writing_is_found(base, swapped, tmp_path, monkeypatch):
    module = import_module("tokengraft.checkpoint.weights")

    write = module.CheckpointWriter.write

    def damaged(self, file, folder, *options):
        write(self, file, folder, *options)
        path = folder / file.path.name
        raw = bytearray(path.read_bytes())
        raw[-1] ^= 1
        path.write_bytes(raw)

    monkeypatch.setattr(module.CheckpointWriter, "write", damaged)
    with pytest.raises(errors.CheckpointError, match="after writing"):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert base != swapped


KILLED = """
import json, os, sys
from pathlib import Path
import tokengraft as tg

model, new, outs = sys.argv[1:]

def run(out, point):
    seen = 0
    def hook(event, arguments):
        nonlocal seen
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if (writes or event in ("os.mkdir", "os.rename", "os.rmdir")) and outs in str(arguments[0]):
            seen += 1
            if seen == point:
                os._exit(9)
    sys.addaudithook(hook)
    tg.transplant(model, new, out)
    os._exit(0)

# Forked before a thread is started: each child is killed as it begins its n-th write, in a folder of its own.
point, codes = 0, []
while (not codes or codes[-1] == 9) and point < 500:
    point += 1
    os.mkdir(f"{outs}/{point}")
    child = os.fork()
    if not child:
        run(f"{outs}/{point}/out", point)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_run_killed_at_any_of_its_writes_leaves_nothing_that_looks_finished(base, swapped, tmp_path):
    tg.save(swapped, tmp_path / "new")
    outs = tmp_path / "outs"
    outs.mkdir()
    command = [sys.executable, "-c", KILLED, str(tmp_path / "model"), str(tmp_path / "new"), str(outs)]
    codes = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    n_files = len([*(tmp_path / "model").iterdir()])
    assert codes == [9] * (len(codes) - 1) + [0]
    assert len(codes) > n_files, "every file is a place to be killed at"
    finished = {int(path.parent.name) for path in outs.glob("*/out")}
    assert len(codes) in finished
    assert len(finished) < len(codes)
    for point in finished:
        out = outs / str(point) / "out"
        assert tg.load(out) == swapped
        assert (out / "tokengraft.json").exists()
        assert tables(out).keys() == tables(tmp_path / "model").keys()
    assert base != swapped


def test_the_command_transplants_and_reports(base, swapped, tmp_path, capsys):
    new = tg.save(swapped.compact(), tmp_path / "new")
    common = ["transplant", tmp_path / "model", new]
    assert cli.main([*map(str, common), "--dry-run"]) == 0
    shown = capsys.readouterr()
    assert f"embedding rows  {base.n_rows:,} → {swapped.compact().n_rows:,}\n" in shown.out
    assert not (tmp_path / "out").exists()
    assert cli.main([*map(str, common)]) == 2
    assert "no output was given" in capsys.readouterr().err
    assert cli.main([*map(str, common), "--out", str(tmp_path / "out"), "--init", "weighted", "--hard-link"]) == 0
    shown = capsys.readouterr()
    assert "are unchanged" in shown.out
    assert "hard links" in shown.out
    assert "left out" in shown.out
    assert cli.main([*map(str, common), "--out", str(tmp_path / "j"), "--pad-multiple", "64", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["embedding_rows_after"] % 64 == 0
    with pytest.raises(SystemExit):
        cli.main([*map(str, common), "--pad-multiple", "0"])


def test_verify_without_torch_is_refused_before_anything_is_written(base, swapped, tmp_path, monkeypatch, capsys):
    tg.save(swapped, tmp_path / "new")
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(import_module("tokengraft.checkpoint.transplant"), "new_folder", None)
    arguments = ["transplant", tmp_path / "model", tmp_path / "new", "--out", tmp_path / "out", "--verify"]
    assert cli.main(list(map(str, arguments))) == 2
    assert "needs torch and transformers" in capsys.readouterr().err
    assert base != swapped


def test_verify_and_dry_run_do_not_go_together(base, swapped, tmp_path, capsys):
    new = tg.save(swapped, tmp_path / "new")
    assert cli.main(["transplant", str(tmp_path / "model"), str(new), "--dry-run", "--verify"]) == 2
    assert "--dry-run does not write one" in capsys.readouterr().err
    assert base != swapped


def test_a_link_that_the_system_refuses_is_blamed_on_the_option(base, swapped, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(errors.OptionError, match="Invalid cross-device link") as found:
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out", hard_link=True)
    assert "--hard-link" in found.value.hint
    assert not (tmp_path / "out").exists()
    assert base != swapped


def test_force_deletes_nothing_that_a_transplant_did_not_write(base, swapped, tmp_path):
    out = tmp_path / "out"
    tg.transplant(tmp_path / "model", swapped, out)
    tg.transplant(tmp_path / "model", base, out, force=True)
    (out / "checkpoint-500").mkdir()
    (out / "checkpoint-500" / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(errors.OutputError, match=r"optimizer\.pt"):
        tg.transplant(tmp_path / "model", swapped, out, force=True)
    assert (out / "checkpoint-500" / "optimizer.pt").exists()


def test_the_source_is_never_the_target_nor_around_it(base, swapped, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    tg.transplant(model, swapped, out)
    for source, target in ((out, out), (model, model / "inside"), (out, tmp_path)):
        with pytest.raises(errors.OutputError):
            tg.transplant(source, base, target, force=True)
    assert tg.load(out) == swapped


def test_the_folder_of_the_new_tokenizer_is_never_the_target(base, swapped, tmp_path):
    tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    before = (tmp_path / "out" / "tokengraft.json").stat().st_ino
    with pytest.raises(errors.OutputError, match="is the input"):
        tg.transplant(tmp_path / "model", tmp_path / "out", tmp_path / "out", force=True)
    assert (tmp_path / "out" / "tokengraft.json").stat().st_ino == before
    assert base != swapped


@pytest.mark.parametrize("out", ["model", "new", "there"])
def test_a_dry_run_refuses_the_output_that_the_run_would_refuse(base, swapped, tmp_path, out, capsys):
    new = tg.save(swapped, tmp_path / "new")
    (tmp_path / "there").mkdir()
    arguments = ["transplant", str(tmp_path / "model"), str(new), "--out", str(tmp_path / out)]
    assert cli.main([*arguments, "--dry-run"]) == cli.main(arguments) == 2
    first, second = capsys.readouterr().err.split("error:")[1:]
    assert first == second
    assert base != swapped


def test_an_initialiser_for_the_output_of_a_tied_model_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", head=False)
    with pytest.raises(errors.OptionError, match="tied") as found:
        tg.transplant(tmp_path / "model", base, tmp_path / "out", output_init="mean")
    assert "--output-init" in found.value.hint


def test_a_size_that_the_config_leaves_to_its_class_is_written(tmp_path):
    base = checkpoint(tmp_path / "model", config={"text_config": {"hidden_size": 16}})
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    del config["vocab_size"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["text_config"]["vocab_size"] == new.n_rows
    set_config(tmp_path / "model", vocab_size="397")
    with pytest.raises(errors.CheckpointError, match="says 397"):
        tg.transplant(tmp_path / "model", new, tmp_path / "two")


def test_ids_of_padding_rows_follow_and_so_do_biased_and_forced_sequences(tmp_path):
    base = checkpoint(tmp_path / "model", rows=408, config={"pad_token_id": 397})
    eos = base.added[-1].id
    fields = {"sequence_bias": [[[eos], -10.0]], "force_words_ids": [[eos]], "forced_decoder_ids": [5, [1]]}
    (tmp_path / "model" / "generation_config.json").write_text(json.dumps(fields))
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 4).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_text())["pad_token_id"] == 401
    small = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", small, tmp_path / "small")
    moved = eos - 9
    found = json.loads((tmp_path / "small" / "generation_config.json").read_text())
    assert found["sequence_bias"] == [[[moved], -10.0]]
    assert found["force_words_ids"] == [[moved]]


@pytest.mark.parametrize(
    "change",
    [
        lambda f: set_config(f, architectures=5),
        lambda f: set_config(f, architectures=["LlamaForCausalLM", 7]),
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": 5}}'),
        lambda f: (f / "model.safetensors.index.json").write_text('{"weight_map": {"a": ["b"]}}'),
        lambda f: write_safetensors(
            {"model.embed_tokens.weight": {"dtype": "F32", "shape": [], "data": bytes(4)}},
            f / "model.safetensors",
            None,
        ),
    ],
)
def test_odd_checkpoints_end_in_a_result_or_a_clear_error(tmp_path, change):
    base = checkpoint(tmp_path / "model")
    change(tmp_path / "model")
    try:
        tg.transplant(tmp_path / "model", base, tmp_path / "out")
    except errors.TokengraftError:
        assert not (tmp_path / "out").exists()
