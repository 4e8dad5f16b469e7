"""Rows without a token: what they get, that no hidden state prefers them, and that their ids are suppressed."""

import json

import builders
import ggufs
import numpy as np
import pytest
from checkpoints import ESTONIAN, changed, checkpoint, set_config, tables
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.rows import BIAS_DROP, TableInfo, Unused

EMBEDDING, HEAD, BIAS = "model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"


def pruned(base, n=30):
    """The tokenizer without n tokens, whose ids are holes."""
    return changed(base, remove=n)


def holes_of(tokenizer):
    return [i for i in range(tokenizer.n_rows) if i not in tokenizer.strings]


def suppressed(folder):
    return json.loads((folder / "generation_config.json").read_text()).get("suppress_tokens")


@given(st.data(), st.integers(1, 8), st.integers(2, 12))
def test_the_mean_of_kept_rows_is_never_above_the_largest_logit(data, width, kept):
    numbers = st.floats(-1e3, 1e3, width=32)
    rows = np.array(data.draw(st.lists(numbers, min_size=width * kept, max_size=width * kept)), np.float32)
    state = np.array(data.draw(st.lists(numbers, min_size=width, max_size=width)), np.float64)
    table = rows.reshape(kept, width)
    info = TableInfo(np.arange(kept), lambda ids: table[ids], width)
    row = Unused(frozenset((0,)), "lowest").row(info).astype(np.float64)
    logits, own = table.astype(np.float64) @ state, row @ state
    # Float32 rows, and logits that cancel: errors are relative to the largest sum of absolute products.
    rounding = 1e-6 * (np.abs(table) @ np.abs(state)).max() + 1e-12
    assert own <= logits.max() + rounding
    # Its probability is the geometric mean of theirs, which is at most their mean.
    assert own <= np.log(np.exp(logits - logits.max()).mean()) + logits.max() + rounding


@pytest.mark.parametrize(("dtype", "head"), [("F32", True), ("BF16", True), ("F16", True), ("BF16", False)])
def test_holes_get_the_mean_of_kept_rows_by_default(tmp_path, dtype, head):
    base = checkpoint(tmp_path / "model", dtype=dtype, head=head)
    small = pruned(base)
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert (done.hole_rows, done.unused) == ("lowest", 30)
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    kept = [*small.strings]
    for name in (EMBEDDING, HEAD) if head else (EMBEDDING,):
        assert np.array_equal(before[name][kept], after[name][kept])
        mean = before[name][kept].mean(axis=0, dtype=np.float64)
        assert np.allclose(after[name][holes_of(small)], mean, rtol=0.01, atol=1e-3)
    assert done.compared.new_rows == 30 * (1 + head)
    assert suppressed(tmp_path / "out")[2:] == holes_of(small)


def test_zero_and_keep_do_what_they_say(tmp_path):
    base = checkpoint(tmp_path / "model")
    small, before = pruned(base), tables(tmp_path / "model")
    tg.transplant(tmp_path / "model", small, tmp_path / "zero", options=tg.TransplantOptions(hole_rows="zero"))
    assert not tables(tmp_path / "zero")[HEAD][holes_of(small)].any()
    assert suppressed(tmp_path / "zero")[2:] == holes_of(small)
    done = tg.transplant(tmp_path / "model", small, tmp_path / "keep", options=tg.TransplantOptions(hole_rows="keep"))
    assert np.array_equal(tables(tmp_path / "keep")[HEAD], before[HEAD])
    assert suppressed(tmp_path / "keep") == suppressed(tmp_path / "model")
    assert (done.hole_rows, done.unused) == ("keep", 0)
    with pytest.raises(errors.OptionError, match="no hole rows 'low'"):
        tg.transplant(tmp_path / "model", small, tmp_path / "other", options=tg.TransplantOptions(hole_rows="low"))


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_a_bias_makes_holes_impossible(tmp_path, dtype):
    base = checkpoint(tmp_path / "model", dtype=dtype, bias=True, config={"architectures": ["PhiForCausalLM"]})
    small = pruned(base)
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    before, after = tables(tmp_path / "model"), tables(tmp_path / "out")
    holes, kept = holes_of(small), [*small.strings]
    expected = before[BIAS][kept].mean() - BIAS_DROP
    assert np.allclose(after[BIAS][holes], expected, rtol=0.01)
    generator = np.random.default_rng(1)
    for state in generator.normal(size=(20, after[HEAD].shape[1])) * 100:
        logits = after[HEAD] @ state + after[BIAS][:, 0]
        probabilities = np.exp(logits - logits.max())
        assert not probabilities[holes].any()


def test_the_same_tokenizer_changes_no_row(tmp_path):
    base = checkpoint(tmp_path / "model")
    small = pruned(base)
    tg.transplant(tmp_path / "model", small, tmp_path / "one")
    tg.transplant(tmp_path / "one", small, tmp_path / "two")
    assert all(
        np.array_equal(a, b) for a, b in zip(*(tables(tmp_path / n).values() for n in ("one", "two")), strict=True)
    )
    assert suppressed(tmp_path / "one") == suppressed(tmp_path / "two")


def test_holes_that_are_filled_are_no_longer_suppressed(tmp_path):
    base = checkpoint(tmp_path / "model")
    small = pruned(base)
    tg.transplant(tmp_path / "model", small, tmp_path / "small")
    again = tg.load(tmp_path / "small")
    larger = changed(again, add=10)
    tg.transplant(tmp_path / "small", larger, tmp_path / "larger")
    left = holes_of(larger)
    assert len(left) == 20
    assert suppressed(tmp_path / "larger")[2:] == left
    tg.transplant(tmp_path / "larger", larger.compact(), tmp_path / "compact")
    assert len(suppressed(tmp_path / "compact")) == 2
    options = tg.AdaptOptions(report=False)
    adapted = tg.adapt(tmp_path / "small", target=iter(ESTONIAN), add=5, out=tmp_path / "adapted", options=options)
    assert suppressed(tmp_path / "adapted")[2:] == holes_of(adapted.tokenizer)


def test_a_hole_that_a_config_uses_keeps_its_row(tmp_path):
    base = checkpoint(tmp_path / "model")
    small = pruned(base)
    tg.transplant(tmp_path / "model", small, tmp_path / "holes", options=tg.TransplantOptions(hole_rows="keep"))
    used = holes_of(small)[3]
    for field in ("pad_token_id", "eos_token_id"):
        set_config(tmp_path / "holes", pad_token_id=-1)
        set_config(tmp_path / "holes", **{field: used})
        tg.transplant(tmp_path / "holes", small, tmp_path / field)
        before, after = tables(tmp_path / "model")[HEAD], tables(tmp_path / field)[HEAD]
        changed = [i for i in range(base.n_rows) if not np.array_equal(before[i], after[i])]
        assert changed == [i for i in holes_of(small) if i != used]
    assert suppressed(tmp_path / "pad_token_id")[2:] == holes_of(small)
    assert suppressed(tmp_path / "eos_token_id")[2:] == changed  # a text must be able to end


def test_a_generation_config_is_written_with_the_settings_of_the_config_where_there_is_none(tmp_path):
    base = checkpoint(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").unlink()
    tg.transplant(tmp_path / "model", base, tmp_path / "same")
    assert not (tmp_path / "same" / "generation_config.json").exists()
    set_config(tmp_path / "model", do_sample=True, temperature=0.5, suppress_tokens=[base.ids["Ġcat"]])
    small = pruned(base)
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert written["suppress_tokens"] == [small.ids["Ġcat"], *holes_of(small)]
    assert written["eos_token_id"] == json.loads((tmp_path / "out" / "config.json").read_text())["eos_token_id"]
    assert (written["do_sample"], written["temperature"]) == (True, 0.5)


def test_a_list_of_suppressed_ids_is_not_replaced_by_the_models_config(tmp_path):
    base = checkpoint(tmp_path / "model")
    set_config(tmp_path / "model", "generation_config.json", _from_model_config=True)
    tg.transplant(tmp_path / "model", pruned(base), tmp_path / "out")
    written = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert "_from_model_config" not in written
    tg.transplant(tmp_path / "model", base, tmp_path / "same")
    assert json.loads((tmp_path / "same" / "generation_config.json").read_text())["_from_model_config"]


def test_new_padding_is_treated_as_a_hole_and_old_padding_stays(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448)
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out", options=tg.TransplantOptions(pad_multiple=512))
    before, after = tables(tmp_path / "model")[HEAD], tables(tmp_path / "out")[HEAD]
    assert np.array_equal(after[:448], before)
    mean = before[: base.n_rows].mean(axis=0, dtype=np.float64)
    assert np.allclose(after[448:], mean, rtol=0.01, atol=1e-3)
    assert (done.unused, done.suppressed) == (64, 512 - base.n_rows)
    assert suppressed(tmp_path / "out")[2:] == [*range(base.n_rows, 512)]


def test_padding_of_the_source_is_suppressed_as_well(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448, config={"pad_token_id": 400})
    small = pruned(base).compact()
    done = tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert done.rows_after == 384
    assert suppressed(tmp_path / "out")[2:] == [*range(small.n_rows, 384)]
    tg.transplant(tmp_path / "model", small, tmp_path / "keep", options=tg.TransplantOptions(hole_rows="keep"))
    assert len(suppressed(tmp_path / "keep")) == 2


def test_the_command_says_what_rows_without_a_token_get(tmp_path, tokengraft):
    base = checkpoint(tmp_path / "model")
    new = tg.save(pruned(base), tmp_path / "new")
    arguments = ["transplant", str(tmp_path / "model"), str(new), "--out"]
    assert "30 rows: the mean of kept rows" in " ".join(tokengraft(*arguments, tmp_path / "a").out.split())
    shown = tokengraft(*arguments, tmp_path / "b", "--hole-rows", "zero", "--json").json
    assert (shown["hole_rows"], shown["suppressed"]) == ("zero", 30)
    assert tg.check_serving(tmp_path / "a", "transformers").findings


def test_gguf_files_get_the_same_rows_and_the_key_of_llama_cpp(tmp_path):
    pytest.importorskip("gguf")
    base = tg.load(builders.write(tmp_path / "base", builders.byte_level()))
    small = ggufs.pruned(base)
    holes = holes_of(small)
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="F16", head="Q8_0", bias=True)
    done = tg.transplant(source, small, tmp_path / "b.gguf")
    keys, new = ggufs.read(tmp_path / "b.gguf")
    _, old = ggufs.read(source)
    assert keys["tokenizer.ggml.suppress_tokens"] == holes
    assert (done.hole_rows, done.unused) == ("lowest", len(holes))
    kept = [*small.strings]
    for name in ("token_embd.weight", "output.weight"):
        before, after = (ggufs.values(tensors[name][0], tensors[name][1]) for tensors in (old, new))
        assert np.allclose(after[holes], before[kept].mean(axis=0, dtype=np.float64), rtol=0.02, atol=1e-2)
    assert (np.asarray(new["output.bias"][1])[holes] < -9_000).all()
    done = tg.transplant(tmp_path / "b.gguf", small.compact(), tmp_path / "c.gguf")
    assert ggufs.read(tmp_path / "c.gguf")[0]["tokenizer.ggml.suppress_tokens"] == []
    tg.transplant(source, small, tmp_path / "d.gguf", options=tg.TransplantOptions(hole_rows="keep"))
    assert "tokenizer.ggml.suppress_tokens" not in ggufs.read(tmp_path / "d.gguf")[0]


def test_gguf_tables_that_cannot_be_written_keep_their_rows_with_a_warning(tmp_path):
    pytest.importorskip("gguf")
    base = tg.load(builders.write(tmp_path / "base", builders.byte_level()))
    small = ggufs.pruned(base)
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q4_0", head="Q8_0")
    done = tg.transplant(source, small, tmp_path / "b.gguf")
    assert done.hole_rows == "keep"
    assert "may choose such an id" in done.warnings[-1]
    assert ggufs.read(tmp_path / "b.gguf")[0]["tokenizer.ggml.suppress_tokens"] == holes_of(small)
    with pytest.raises(errors.CheckpointError, match="Q4_0"):
        tg.transplant(source, small, tmp_path / "c.gguf", options=tg.TransplantOptions(hole_rows="lowest"))


def test_a_generation_config_that_cannot_list_ids_is_refused(tmp_path):
    small = pruned(checkpoint(tmp_path / "model"))
    for content in ("[]", '{"suppress_tokens": 5}', '{"suppress_tokens": [[1]]}', '{"suppress_tokens": "x"}'):
        (tmp_path / "model" / "generation_config.json").write_text(content)
        with pytest.raises(errors.CheckpointError, match=r"suppress_tokens|not a JSON object") as caught:
            tg.transplant(tmp_path / "model", small, tmp_path / "out")
        assert "`hole_rows='keep'`" in caught.value.hint
        assert not (tmp_path / "out").exists()
        tg.transplant(
            tmp_path / "model", small, tmp_path / f"kept {len(content)}", options=tg.TransplantOptions(hole_rows="keep")
        )
