"""Tables beside embedding and output: of multi-token prediction (DeepSeek-V3), and for each layer (Gemma-3n)."""

import json
from contextlib import suppress

import builders
import numpy as np
import pytest
from checkpoints import ESTONIAN, WIDTH, add_tensor, changed, checkpoint, set_config, tables, write_shards, write_texts

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.tensors import TensorFile

EMBED, HEAD = "model.layers.61.embed_tokens.weight", "model.layers.61.shared_head.head.weight"
PER_LAYER = "model.embed_tokens_per_layer.weight"
OFFSET = 380


def swapped(base, n=6):
    """A tokenizer with as many tokens, in which some below OFFSET are replaced."""
    return changed(base, remove=n, add=n, tokens=[token for token, i in base.ids.items() if i >= OFFSET])


def expected(old, plan):
    """The rows of a table by a plan, the obvious way: kept rows, and means of pieces."""
    rows = []
    for new_id, source in enumerate(plan.sources):
        if isinstance(source, tuple):
            rows.append(old[list(source)].mean(axis=0))
        else:
            rows.append(old[source if source is not None else new_id])
    return np.array(rows)


def close(a, b):
    """Equal up to the rounding of bf16."""
    return a.shape == b.shape and np.allclose(a, b, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("arch", ["DeepseekV3ForCausalLM", "Glm4MoeForCausalLM", "NovelForCausalLM"])
def test_tables_of_multi_token_prediction_follow(tmp_path, arch):
    base = checkpoint(tmp_path / "model", config={"architectures": [arch]})
    for name in (EMBED, HEAD):
        add_tensor(tmp_path / "model", name, (base.n_rows, WIDTH))
    new = changed(base, remove=30, add=14, compact=True)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out", init="fvt")
    assert [(name, role) for name, role, *_ in done.tensors][2:] == [(EMBED, "input"), (HEAD, "output")]
    before, after, plan = tables(tmp_path / "model"), tables(tmp_path / "out"), tg.plan(base, new)
    for name in (EMBED, HEAD, "model.embed_tokens.weight", "lm_head.weight"):
        assert close(after[name], expected(before[name], plan))
        kept = list(plan.moved)
        assert np.array_equal(after[name][[plan.moved[i] for i in kept]], before[name][kept])


@pytest.mark.parametrize("init", ["fvt-rare", "fvt", "length-weighted", "mean", "random"])
def test_a_table_that_equals_the_embedding_stays_equal(tmp_path, init):
    """DeepSeek-V3 shares both tables with the model, and stores them twice."""
    base = checkpoint(tmp_path / "model", config={"architectures": ["DeepseekV3ForCausalLM"]})
    path = tmp_path / "model" / "model.safetensors"
    raw = path.read_bytes()
    tensors = {
        info.name: {"dtype": info.dtype, "shape": list(info.shape), "data": raw[info.start : info.start + info.size]}
        for info in TensorFile.open(path).tensors.values()
    }
    tensors |= {EMBED: tensors["model.embed_tokens.weight"], HEAD: tensors["lm_head.weight"]}
    path.unlink()
    write_shards(tmp_path / "model", tensors, 3)
    tg.transplant(tmp_path / "model", changed(base, remove=30, add=14, compact=True), tmp_path / "out", init=init)
    after = tables(tmp_path / "out")
    assert np.array_equal(after[EMBED], after["model.embed_tokens.weight"])
    assert np.array_equal(after[HEAD], after["lm_head.weight"])
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(2 * table.size for table in after.values())


@pytest.mark.parametrize(
    ("name", "shape", "dtype"),
    [(HEAD, (300, WIDTH), "BF16"), (EMBED, (5,), "BF16"), (f"{HEAD[:-6]}weight_scale_inv", (1, 1), "F32")],
)
def test_tables_of_multi_token_prediction_that_do_not_fit_are_refused(tmp_path, name, shape, dtype):
    base = checkpoint(tmp_path / "model", config={"architectures": ["DeepseekV3ForCausalLM"]})
    if name not in (HEAD, EMBED):
        add_tensor(tmp_path / "model", HEAD, (base.n_rows, WIDTH))
    add_tensor(tmp_path / "model", name, shape, dtype)
    with pytest.raises(errors.CheckpointError, match=r"layers\.61"):
        tg.transplant(tmp_path / "model", changed(base, remove=30, add=14, compact=True), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def per_layer(folder, rows=None, *, head=True, **config):
    """A checkpoint with a table for each layer, three times as wide as the embedding."""
    config = {"architectures": ["Gemma3nForCausalLM"], "vocab_size_per_layer_input": rows} | config
    base = checkpoint(folder, config=config, head=head)
    add_tensor(folder, PER_LAYER, (rows or base.n_rows, 3 * WIDTH))
    set_config(folder, vocab_size_per_layer_input=rows or base.n_rows)
    return base


@pytest.mark.parametrize("head", [True, False])
def test_a_table_for_each_layer_follows(tmp_path, head):
    base = per_layer(tmp_path / "model", head=head)
    new = changed(base, remove=30, add=14, compact=True)
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    before, after = tables(tmp_path / "model")[PER_LAYER], tables(tmp_path / "out")[PER_LAYER]
    assert close(after, expected(before, tg.plan(base, new)))
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["vocab_size_per_layer_input"] == config["vocab_size"] == new.n_rows


@pytest.mark.parametrize("init", ["fvt", "random"])
def test_a_table_of_the_first_ids_follows_if_the_others_stay(tmp_path, init):
    base = per_layer(tmp_path / "model", OFFSET, vision_config={"vocab_offset": OFFSET})
    new = swapped(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out", init=init)
    assert done.compared.new_rows == 3 * 6
    before, after = tables(tmp_path / "model")[PER_LAYER], tables(tmp_path / "out")[PER_LAYER]
    plan = tg.plan(base, new)
    assert after.shape == before.shape == (OFFSET, 3 * WIDTH)
    kept = [i for i in plan.moved if i < OFFSET]
    assert np.array_equal(after[kept], before[kept])
    if init == "fvt":
        assert close(after, expected(before, tg.VocabPlan(OFFSET, plan.sources[:OFFSET], plan.removed)))
    assert (tmp_path / "out" / "config.json").read_bytes() == (tmp_path / "model" / "config.json").read_bytes()


FIXED = {
    "offset": {"vision_config": {"vocab_offset": OFFSET}},
    "kimi-audio": {"kimia_token_offset": OFFSET},
    "openvla": {"n_action_bins": 16, "pad_to_multiple_of": 8},
}
"""Fields of configs of models that take ids by their number."""


@pytest.mark.parametrize("fixed", ["shorter", *FIXED])
@pytest.mark.parametrize("how", ["extended", "compacted", "replaced", "padded"])
def test_a_plan_that_changes_ids_which_the_model_has_fixed_is_refused(tmp_path, fixed, how):
    """Gemma-3n takes ids for images and sound by their number, and has no row for them in the table of the layers."""
    base = per_layer(tmp_path / "model", OFFSET if fixed == "shorter" else None, **FIXED.get(fixed, {}))
    if fixed == "openvla":  # the actions are the last ids before the padding
        set_config(tmp_path / "model", pad_to_multiple_of=base.n_rows - OFFSET - 16)
    counts = tg.count(base, iter(ESTONIAN))
    new = {
        "extended": lambda: tg.extend(base, counts, 3).apply(base),
        "compacted": lambda: changed(base, remove=30, add=14, compact=True),
        "replaced": lambda: changed(base, remove=30, add=14),
        "padded": lambda: swapped(base),
    }[how]()
    with pytest.raises(errors.CheckpointError, match=f"the ids from {OFFSET} on") as caught:
        tg.transplant(
            tmp_path / "model",
            new,
            tmp_path / "out",
            options=tg.TransplantOptions(pad_multiple=64 if how == "padded" else "keep"),
        )
    assert "--swap" in caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rows", [300, 500])
def test_a_table_for_each_layer_of_another_size_than_the_config_says_is_refused(tmp_path, rows):
    base = per_layer(tmp_path / "model", rows)
    if rows < base.n_rows:
        set_config(tmp_path / "model", vocab_size_per_layer_input=base.n_rows)
    with pytest.raises(errors.CheckpointError, match="vocab_size_per_layer_input"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out")


@pytest.mark.parametrize("fixed", FIXED)
def test_adapt_keeps_the_ids_that_a_model_has_fixed_and_refuses_other_sizes_before_text_is_read(tmp_path, fixed):
    base = checkpoint(tmp_path / "model", config=FIXED[fixed])
    if fixed == "openvla":
        set_config(tmp_path / "model", pad_to_multiple_of=base.n_rows - OFFSET - 16)
    write_texts(tmp_path)
    (tmp_path / "unread.txt").write_bytes(b"")  # counting it is an error
    arguments = {"target": tmp_path / "unread.txt", "out": tmp_path / "out"}
    for sizes in ({"add": 5}, {"remove": 5}, {"add": 5, "remove": 6}, {"remove": "auto"}):
        with pytest.raises(errors.CheckpointError, match=f"the ids from {OFFSET} on"):
            tg.adapt(tmp_path / "model", **arguments, **sizes)
    arguments |= {"target": tmp_path / "et.txt", "options": tg.AdaptOptions(quiet=True, report=False)}
    done = tg.adapt(tmp_path / "model", **arguments, swap=40)
    assert all(done.tokenizer.ids[token] == i for token, i in base.ids.items() if i >= OFFSET)


@pytest.mark.parametrize("how", ["extended", "compacted", "swapped"])
def test_a_second_table_for_the_ids_after_the_first_is_not_lost(tmp_path, how):
    """Idefics and Molmo have one for images, and take ids from `vocab_size` on to it."""
    base = lacking_rows(tmp_path / "model", 2)
    set_config(tmp_path / "model", additional_vocab_size=2, architectures=["IdeficsForVisionText2Text"])
    add_tensor(tmp_path / "model", "model.embed_tokens.additional_embedding.weight", (2, WIDTH))
    rows = base.n_rows - 2
    if how == "swapped":
        tg.transplant(tmp_path / "model", swapped(base), tmp_path / "out")
        assert len(tables(tmp_path / "out")["model.embed_tokens.weight"]) == rows
        return
    new = changed(base, add=3) if how == "extended" else changed(base, remove=30, add=14, compact=True)
    with pytest.raises(errors.CheckpointError, match=f"the ids from {rows} on"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")


def test_a_head_of_another_size_in_an_unknown_model_is_refused(tmp_path):
    """The head of GLM-Image is for codes of images: without it, the embedding would be taken for a tied output."""
    base = checkpoint(tmp_path / "model", head=False, config={"architectures": ["OtherForConditionalGeneration"]})
    add_tensor(tmp_path / "model", "lm_head.weight", (40, WIDTH))
    with pytest.raises(errors.CheckpointError, match=r"`lm_head\.weight` has 40 rows"):
        tg.transplant(tmp_path / "model", changed(base, remove=30, add=14, compact=True), tmp_path / "out")


def lacking_rows(folder, rows):
    """A model without rows for its last tokens, which are added: as Gemma-3's models for text."""
    base = checkpoint(folder)
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    new = [builders.added(base.n_rows + at, f"<image{at}>") for at in range(rows)]
    document["added_tokens"] += new
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    return tg.load(folder)


@pytest.mark.parametrize("lacking", [1, 3])
def test_added_tokens_without_a_row_get_one_if_rows_change_and_are_never_generated(tmp_path, lacking):
    base = lacking_rows(tmp_path / "model", lacking)
    rows = base.n_rows - lacking
    assert len(tables(tmp_path / "model")["model.embed_tokens.weight"]) == rows
    order = tg.prune_order(base, method="last-id-leaf")
    new = order[:20].apply(base).compact()
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert (done.rows_before, done.rows_after) == (rows, new.n_rows)
    before, after = (tables(tmp_path / name)["model.embed_tokens.weight"] for name in ("model", "out"))
    for token in new.tokens:
        old = base.ids[token.string]
        if old < rows:
            assert np.array_equal(after[token.id], before[old])
    assert np.array_equal(after[-1], after[new.n_rows - lacking])  # the row of a hole
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert {*range(new.n_rows - lacking, new.n_rows)} <= {*generation["suppress_tokens"]}
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == new.n_rows
    (warning,) = done.warnings
    assert f"no row for {lacking} of its added tokens, and cannot use them: `<image0>`" in warning


def test_a_swap_leaves_the_rows_as_they_are_also_if_tokens_lack_one(tmp_path):
    base = lacking_rows(tmp_path / "model", 2)
    order = tg.prune_order(base, method="last-id-leaf", protection=tg.Protection(highest_id=True))
    pruned = order[:8].apply(base)
    new = tg.extend(pruned, tg.count(pruned, iter(ESTONIAN)), 8).apply(pruned)
    assert new.n_rows == base.n_rows
    for tokenizer in (base, new):
        done = tg.transplant(tmp_path / "model", tokenizer, tmp_path / str(tokenizer == new))
        assert done.rows_before == done.rows_after == base.n_rows - 2
    write_texts(tmp_path)
    options = tg.AdaptOptions(quiet=True, report=False)
    for sizes in ({"swap": 5}, {"remove": 9}, {"add": 5}, {"remove": "auto"}):
        out = tmp_path / str(sizes)
        arguments = {"target": tmp_path / "et.txt", "out": out, "options": options, **sizes}
        before, done = tg.pipeline.estimate(tmp_path / "model", **arguments), tg.adapt(tmp_path / "model", **arguments)
        rows = len(tables(out)["model.embed_tokens.weight"])
        assert rows == done.rows[1]
        assert rows == before.rows_after or sizes == {"remove": "auto"}
        assert all(point.rows == rows for point in done.prune_curve if point.removed == len(done.order))


@pytest.mark.parametrize("field", ["eos_token_id", "image_token_id"])
def test_a_token_without_a_row_that_a_config_names_is_refused(tmp_path, field):
    base = lacking_rows(tmp_path / "model", 1)
    set_config(tmp_path / "model", **{field: base.n_rows - 1})
    new = tg.prune_order(base, method="last-id-leaf")[:20].apply(base).compact()
    with pytest.raises(errors.CheckpointError, match=f"`{field}` of `config.json` needs that of"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_token_without_a_row_that_a_new_token_is_made_of_is_refused(tmp_path):
    folder = tmp_path / "model"
    base = checkpoint(folder)
    document = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    document["model"]["vocab"] |= {token["content"]: token["id"] for token in document["added_tokens"]}
    document["model"]["vocab"]["zq"] = base.n_rows
    document["model"]["merges"].append(["z", "q"])
    document["added_tokens"].append(builders.added(base.n_rows, "zq"))
    (folder / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    document["model"]["vocab"]["zqa"] = base.n_rows + 1
    document["model"]["merges"].append(["zq", "a"])
    new = tg.load(builders.write(tmp_path / "new", document))
    with pytest.raises(errors.CheckpointError, match="a new token needs that of"):
        tg.transplant(folder, new, tmp_path / "out")


def test_tokens_without_a_row_do_not_keep_that_of_another(tmp_path):
    base = lacking_rows(tmp_path / "model", 1)
    new = tg.prune_order(base, method="last-id-leaf")[:20].apply(base).compact()
    with pytest.raises(errors.OptionError, match="`hole_rows` is `keep`"):
        tg.transplant(tmp_path / "model", new, tmp_path / "out", options=tg.TransplantOptions(hole_rows="keep"))


def test_learned_tokens_without_a_row_are_refused(tmp_path):
    base = checkpoint(tmp_path / "model")
    extended = tg.extend(base, tg.count(base, iter(ESTONIAN)), 3).apply(base)
    tg.save(extended, tmp_path / "extended", verify=False)
    (tmp_path / "model" / "tokenizer.json").write_bytes((tmp_path / "extended" / "tokenizer.json").read_bytes())
    with pytest.raises(errors.CheckpointError, match="the tokenizer in its folder needs"):
        tg.transplant(tmp_path / "model", base, None)


@pytest.mark.parametrize("kind", [["roberta"], {"roberta": 1}, None, 7])
def test_a_config_whose_type_is_no_name_gives_a_result_or_a_clear_error(tmp_path, kind):
    base = checkpoint(tmp_path / "model")
    set_config(tmp_path / "model", model_type=kind, pad_token_id=0)
    with suppress(errors.TokengraftError):
        tg.transplant(tmp_path / "model", base, None)


def test_tables_of_long_numbers_are_refused_by_their_type_and_are_not_called_quantised(tmp_path):
    checkpoint(tmp_path / "model", head=False)
    raw = TensorFile.open(tmp_path / "model" / "model.safetensors")
    tensors = {
        info.name: {"dtype": "F64", "shape": list(info.shape), "data": bytes(8 * int(np.prod(info.shape)))}
        for info in raw.tensors.values()
    }
    (tmp_path / "model" / "model.safetensors").unlink()
    write_shards(tmp_path / "model", tensors, 1)
    with pytest.raises(errors.CheckpointError, match="is of the type F64; expected BF16, F16 or F32") as caught:
        tg.transplant(tmp_path / "model", tg.load(tmp_path / "model"), tmp_path / "out")
    assert "quantised" not in f"{caught.value} {caught.value.hint}"
    assert "float()" in caught.value.hint
