"""Transplanting checkpoints, without torch: rows, shards, configs, refusals, crashes, the command."""

import json
import os
import sys
from importlib import import_module

import numpy as np
import pytest
from checkpoints import changed, checkpoint, tables
from outputs import failing_disk

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint.rows import INITIALISERS
from tokengraft.checkpoint.tensors import TensorFile, narrow, widen


@pytest.fixture
def base(tmp_path):
    return checkpoint(tmp_path / "model", shards=3)


@pytest.fixture
def swapped(base):
    return changed(base, remove=30, add=14)


def drop_field(folder, name):
    """Removes a field of the config."""
    config = json.loads((folder / "config.json").read_text())
    del config[name]
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize(("shards", "head"), [(1, True), (3, False), (3, True)])
def test_kept_rows_are_bit_equal_and_new_ones_the_mean_of_their_pieces(tmp_path, dtype, shards, head):
    base = checkpoint(tmp_path / "model", dtype=dtype, shards=shards, head=head, bias=head)
    new = changed(base, remove=30, add=14, compact=True)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out", init="fvt")
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


def test_only_shards_with_a_table_are_rewritten(swapped, tmp_path):
    done = tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
    for name in done.copied:
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "model" / name).read_bytes()
    assert len(done.copied) == 1
    old, new = (json.loads((tmp_path / f / "model.safetensors.index.json").read_text()) for f in ("model", "out"))
    assert new["weight_map"] == old["weight_map"]
    sizes = [sum(t.size for t in TensorFile.open(p).tensors.values()) for p in (tmp_path / "out").glob("*.safetensors")]
    assert new["metadata"]["total_size"] == sum(sizes)


def test_other_files_come_along_and_old_weights_do_not(swapped, tmp_path):
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


def content(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_input_is_ever_replaced_and_a_result_only_with_force(base, swapped, tmp_path):
    model, out = tmp_path / "model", tmp_path / "out"
    tg.transplant(model, swapped, out)
    before = content(tmp_path)
    with pytest.raises(errors.OutputError, match="exists"):
        tg.transplant(model, swapped, out)
    inputs = [(model, swapped, model), (out, base, out), (model, base, model / "inside"), (out, base, tmp_path)]
    for source, new, target in [*inputs, (model, out, out)]:
        with pytest.raises(errors.OutputError):
            tg.transplant(source, new, target, force=True)
    assert content(tmp_path) == before
    tg.transplant(model, base, out, force=True)
    assert content(model) == {path: data for path, data in before.items() if model in path.parents}
    assert tg.load(out) == base


def test_padding_stays_and_new_tokens_that_land_on_it_get_rows(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448)
    padding = 448 - base.n_rows
    extended = changed(base, add=14)
    done = tg.transplant(tmp_path / "model", extended, tmp_path / "out")
    assert (done.rows_before, done.rows_after) == (448, 448)
    before, after = (tables(tmp_path / name)["model.embed_tokens.weight"] for name in ("model", "out"))
    for new_id in range(base.n_rows, extended.n_rows):
        assert not np.array_equal(after[new_id], before[new_id])
    assert np.array_equal(after[extended.n_rows :][: padding - 14], before[base.n_rows :][: padding - 14])
    pruned = tg.prune_order(base, None, "last-id")[:70].apply(base).compact()
    done = tg.transplant(tmp_path / "model", pruned, tmp_path / "small")
    assert done.rows_after == -(-pruned.n_rows // 64) * 64
    done = tg.transplant(tmp_path / "model", pruned, tmp_path / "tight", options=tg.TransplantOptions(pad_multiple=1))
    assert done.rows_after == pruned.n_rows
    assert json.loads((tmp_path / "tight" / "config.json").read_text())["vocab_size"] == pruned.n_rows


def test_two_initialisers_and_options_of_files_for_a_model_in_memory_are_refused(base, swapped, tmp_path):
    options = tg.TransplantOptions("fvt")
    assert tg.transplant(tmp_path / "model", swapped, None, init="fvt", options=options).init == ("fvt", "fvt")
    with pytest.raises(errors.OptionError, match="two initialisers are given: `init` 'mean', and `options` with 'fvt'"):
        tg.transplant(tmp_path / "model", swapped, None, init="mean", options=options)
    with pytest.raises(errors.OptionError, match="it must be a TransplantOptions or None"):
        tg.transplant(tmp_path / "model", swapped, None, options={"seed": 1})
    for name in ("hard_link", "verify", "progress"):
        with pytest.raises(errors.OptionError, match=f"{name}.* does not apply to a model in memory"):
            tg.transplant_model(None, tg.plan(base, swapped), options=tg.TransplantOptions(**{name: print}))


@pytest.mark.parametrize("init", INITIALISERS)
@pytest.mark.parametrize("said", [True, False], ids=["tied", "left-to-the-class"])
def test_two_tables_that_are_tied_stay_equal(tmp_path, init, said):
    base = checkpoint(tmp_path / "model", shards=1 if said else 3, config={"tie_word_embeddings": True})
    if not said:
        drop_field(tmp_path / "model", "tie_word_embeddings")
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(base)
    assert tg.transplant(tmp_path / "model", new, tmp_path / "out", init=init).tied
    after = tables(tmp_path / "out")
    assert len(after["lm_head.weight"]) == new.n_rows > base.n_rows
    assert np.array_equal(after["lm_head.weight"], after["model.embed_tokens.weight"])


def test_two_tables_that_differ_are_untied_where_the_config_leaves_tying_to_its_class(base, tmp_path):
    drop_field(tmp_path / "model", "tie_word_embeddings")
    assert not tg.transplant(tmp_path / "model", base, None).tied


def test_tied_tables_count_once_and_untied_ones_twice(tmp_path):
    """The parameters and bytes that a smaller vocabulary saves are those of the model, not of copies in its files."""
    grown = {}
    for tied in (True, False):
        base = checkpoint(tmp_path / f"{tied}", head=True, config={"tie_word_embeddings": tied})
        smaller = tg.prune_order(base, tg.count(base, iter(["põdrad põõsas"] * 5)))[:10].apply(base).compact()
        done = tg.transplant(tmp_path / f"{tied}", smaller, None)
        width = tables(tmp_path / f"{tied}")["model.embed_tokens.weight"].shape[1]
        rows = done.rows_after - done.rows_before
        assert rows < 0
        grown[tied] = [number / (rows * width) for number in done.growth]
    assert grown == {True: [1, 2], False: [2, 4]}  # bf16


def test_other_seeds_give_other_rows_and_the_same_seed_the_same(swapped, tmp_path):
    found = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        tg.transplant(
            tmp_path / "model", swapped, tmp_path / name, init="random", options=tg.TransplantOptions(seed=seed)
        )
        found[name] = {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.safetensors")}
    assert found["a"] == found["b"] != found["c"]


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
    ("options", "match"),
    [
        ({"init": "magic"}, "no initialiser 'magic'"),
        ({"init": "random", "seed": -1}, "`seed` is -1"),
        ({"output_init": "mean"}, "tied"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, match):
    base = checkpoint(tmp_path / "model", head=False)
    with pytest.raises(errors.OptionError, match=match):
        tg.transplant(tmp_path / "model", base, tmp_path / "out", options=tg.TransplantOptions(**options))


def test_damage_of_what_is_written_is_found(swapped, tmp_path):
    weights = (tmp_path / "model").glob("*.safetensors")
    for name, at in [(path.name, at) for path in weights for at in (0, 20, path.stat().st_size - 32)]:
        with failing_disk(name, at), pytest.raises(errors.CheckpointError, match="after writing"):
            tg.transplant(tmp_path / "model", swapped, tmp_path / "out")
        assert not (tmp_path / "out").exists()


def test_a_link_that_the_system_refuses_is_blamed_on_the_option(swapped, tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(errors.OptionError, match="Invalid cross-device link") as found:
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out", options=tg.TransplantOptions(hard_link=True))
    assert "`hard_link`" in found.value.hint
    assert not (tmp_path / "out").exists()


def test_the_command_transplants_and_reports(base, swapped, tmp_path, capsys):
    new = tg.save(swapped.compact(), tmp_path / "new", verify=False)

    def run(*options):
        status = cli.main(["transplant", str(tmp_path / "model"), str(new), *map(str, options)])
        return status, *capsys.readouterr()

    assert f"embedding rows  {base.n_rows:,} → {swapped.compact().n_rows:,}\n" in run("--dry-run")[1]
    assert run()[0] == 2
    status, _, error = run("--dry-run", "--verify")
    assert status == 2
    assert "a dry run does not write one" in error
    assert not (tmp_path / "out").exists()
    status, shown, _ = run("--out", tmp_path / "out", "--init", "length-weighted", "--hard-link")
    assert status == 0
    assert [text for text in ("are unchanged", "hard links", "left out") if text not in shown] == []
    _, shown, _ = run("--out", tmp_path / "j", "--pad-multiple", "64", "--json")
    assert json.loads(shown)["embedding_rows_after"] % 64 == 0
    assert run("--out", tmp_path / "k", "--pad-multiple", "0")[0] == 2


def test_verify_without_torch_is_refused_before_anything_is_written(swapped, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(import_module("tokengraft.checkpoint.model_job"), "new_folder", None)
    with pytest.raises(errors.TokengraftError, match="needs torch and transformers"):
        tg.transplant(tmp_path / "model", swapped, tmp_path / "out", options=tg.TransplantOptions(verify=True))


def test_force_deletes_nothing_that_a_transplant_did_not_write(base, swapped, tmp_path):
    out = tmp_path / "out"
    tg.transplant(tmp_path / "model", swapped, out)
    tg.transplant(tmp_path / "model", base, out, force=True)
    (out / "checkpoint-500").mkdir()
    (out / "checkpoint-500" / "optimizer.pt").write_bytes(b"x")
    with pytest.raises(errors.OutputError, match=r"optimizer\.pt"):
        tg.transplant(tmp_path / "model", swapped, out, force=True)
    assert (out / "checkpoint-500" / "optimizer.pt").exists()


@pytest.mark.parametrize("out", ["model", "new", "there"])
def test_a_dry_run_refuses_the_output_that_the_run_would_refuse(swapped, tmp_path, out, capsys):
    new = tg.save(swapped, tmp_path / "new", verify=False)
    (tmp_path / "there").mkdir()
    arguments = ["transplant", str(tmp_path / "model"), str(new), "--out", str(tmp_path / out)]
    assert cli.main([*arguments, "--dry-run"]) == cli.main(arguments) == 2
    first, second = capsys.readouterr().err.split("error:")[1:]
    assert first == second
