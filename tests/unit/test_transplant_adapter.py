"""Adapters of the old vocabulary: which parts follow the plan, and what is refused. PEFT is the oracle."""

import json
import shutil
import sys

import numpy as np
import pytest
from checkpoints import changed, checkpoint, tables, tensor, write_safetensors, write_texts

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.tensors import narrow, widen

PREFIX = "base_model.model."
EMBEDDING, HEAD = f"{PREFIX}model.embed_tokens", f"{PREFIX}lm_head"
LAYER = f"{PREFIX}model.layers.0"
RANK = 3


@pytest.fixture
def place(tmp_path):
    """Texts, a model of noise, and its vocabulary with some tokens replaced and more added, in `new`."""
    write_texts(tmp_path)
    base = checkpoint(tmp_path / "model", rows=400)
    tg.transplant(tmp_path / "model", changed(base, remove=20, add=24), tmp_path / "new")
    return tmp_path


def adapter(place, shapes, *, name="lora", dtype="F32", **config):
    """Writes an adapter with tensors of noise, and the tokenizer of the old vocabulary."""
    folder = place / name
    folder.mkdir()
    generator = np.random.default_rng(5)
    tensors = {key: tensor(shape, dtype, generator) for key, shape in shapes.items()}
    write_safetensors(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    plain = {"peft_type": "LORA", "base_model_name_or_path": "somewhere", "target_modules": ["q_proj"], "r": RANK}
    (folder / "adapter_config.json").write_text(json.dumps(plain | config))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(place / "model" / file, folder)
    return folder


def config_of(folder):
    return json.loads((folder / "adapter_config.json").read_bytes())


def moved(place):
    """The old ids that the new vocabulary still has, padding included, and their new ids."""
    plan = tg.plan(tg.load(place / "model"), tg.load(place / "new"))
    old = [*plan.moved, *range(plan.rows_before, 400)]
    return np.array(old), np.array([*plan.moved.values(), *range(plan.rows_after, plan.rows_after + 3)]), plan


class TestParts:
    """Every tensor that has a clear meaning, with noise."""

    def test_layers_are_copied_bit_for_bit(self, place):
        lora = adapter(place, {f"{LAYER}.lora_A.weight": (RANK, 7), f"{LAYER}.lora_B.weight": (5, RANK)})
        done = tg.transplant(lora, place / "new", place / "out")
        before, after = tables(lora), tables(place / "out")
        assert [*before] == [*after]
        assert all(np.array_equal(before[name], after[name]) for name in before)
        assert config_of(place / "out") == config_of(lora) | {"base_model_name_or_path": str(place / "new")}
        assert tg.load(place / "out").ids == tg.load(place / "new").ids
        assert (done.rows_before, done.rows_after, done.tensors) == (397, 416, ())

    @pytest.mark.parametrize("init", ["fvt", "mean", "length-weighted"])
    def test_factors_and_saved_tables_have_the_rows_that_a_model_would_get(self, place, init):
        shapes = {f"{EMBEDDING}.lora_embedding_A": (RANK, 400), f"{EMBEDDING}.lora_embedding_B": (16, RANK)}
        shapes |= {f"{HEAD}.lora_A.weight": (RANK, 16), f"{HEAD}.lora_B.weight": (400, RANK)}
        shapes |= {f"{HEAD}.lora_B.bias": (400,)}
        lora = adapter(place, shapes)
        tg.transplant(place / "model", tg.load(place / "new"), place / "new", init=init, force=True)
        done = tg.transplant(lora, place / "new", place / "out", init=init)
        before, after = tables(lora), tables(place / "out")
        for key in (f"{EMBEDDING}.lora_embedding_B", f"{HEAD}.lora_A.weight"):
            assert np.array_equal(before[key], after[key])
        columns = f"{EMBEDDING}.lora_embedding_A"
        pairs = {columns: (before[columns].T, after[columns].T)}
        pairs |= {key: (before[key], after[key]) for key in (f"{HEAD}.lora_B.weight", f"{HEAD}.lora_B.bias")}
        old, new, plan = moved(place)
        lengths = np.array(plan.lengths, float)
        for first, second in pairs.values():
            first, second = first.reshape(400, -1), second.reshape(416, -1)
            assert np.array_equal(first[old], second[new])
            for row, source in enumerate(plan.sources):
                if isinstance(source, tuple):
                    weights = lengths[[*source]] if init == "length-weighted" else np.ones(len(source))
                    wanted = (
                        first[: plan.rows_before].mean(0)
                        if init == "mean"
                        else weights @ first[[*source]] / weights.sum()
                    )
                    assert np.allclose(second[row], wanted, atol=1e-6)
        assert {name for name, *_ in done.tensors} == pairs.keys()
        assert done.compared.kept_rows == 3 * len(old)

    def test_a_rank_of_one_and_one_trainable_token(self, place):
        plan = moved(place)[2]
        kept = [*plan.moved][-30]
        shapes = {f"{EMBEDDING}.lora_embedding_A": (1, 400), f"{EMBEDDING}.lora_embedding_B": (16, 1)}
        shapes |= {f"{HEAD}.token_adapter.trainable_tokens_delta": (1, 16)}
        lora = adapter(place, shapes, trainable_token_indices={"lm_head": [kept]})
        tg.transplant(lora, place / "new", place / "out")
        after = tables(place / "out")
        assert after[f"{EMBEDDING}.lora_embedding_A"].shape == (1, 416)
        assert config_of(place / "out")["trainable_token_indices"] == {"lm_head": [plan.moved[kept]]}

    @pytest.mark.parametrize("form", ["dict", "list", "tokens"])
    def test_trainable_tokens_keep_their_rows_and_removed_ones_are_left_out(self, place, form):
        _, _, plan = moved(place)
        gone, kept = plan.removed[0], [*plan.moved][5:9]
        ids = [kept[2], gone, *kept[:2], kept[3]]
        if form == "tokens":
            key, config = f"{EMBEDDING}.trainable_tokens_delta", {"peft_type": "TRAINABLE_TOKENS", "token_indices": ids}
        else:
            listed = {"embed_tokens": ids, "lm_head": ids} if form == "dict" else ids
            key, config = f"{EMBEDDING}.token_adapter.trainable_tokens_delta", {"trainable_token_indices": listed}
        lora = adapter(place, {key: (5, 16)}, **config)
        tg.transplant(lora, place / "new", place / "out")
        wanted = [plan.moved[i] for i in (kept[2], *kept[:2], kept[3])]
        found = config_of(place / "out")
        listed = found.get("token_indices") or found["trainable_token_indices"]
        assert listed == ({"embed_tokens": wanted, "lm_head": wanted} if form == "dict" else wanted)
        assert np.array_equal(tables(place / "out")[key], tables(lora)[key][[0, 2, 3, 4]])

    def test_without_any_trainable_token_left_the_setting_is_left_out(self, place):
        gone = [*moved(place)[2].removed[:2]]
        key = f"{EMBEDDING}.token_adapter.trainable_tokens_delta"
        lora = adapter(place, {key: (2, 16), f"{LAYER}.x": (4,)}, trainable_token_indices={"embed_tokens": gone})
        tg.transplant(lora, place / "new", place / "out")
        assert config_of(place / "out")["trainable_token_indices"] is None
        assert key not in tables(place / "out")
        alone = adapter(
            place,
            {f"{EMBEDDING}.trainable_tokens_delta": (2, 16)},
            name="alone",
            peft_type="TRAINABLE_TOKENS",
            token_indices=gone,
        )
        rows = adapter(place, {key: (2, 16)}, name="rows", trainable_token_indices={"embed_tokens": gone})
        for empty in (alone, rows):
            with pytest.raises(errors.CheckpointError, match="none of its tokens"):
                tg.transplant(empty, place / "new", place / "out2")

    def test_a_copy_of_the_base_is_left_out_if_it_is_that_of_the_model(self, place):
        lora = adapter(place, {f"{EMBEDDING}.lora_embedding_A": (RANK, 400)}, dtype="F32")
        table = tables(place / "model")["model.embed_tokens.weight"]
        data = {"dtype": "F32", "shape": [400, 16], "data": table.astype("<f4").tobytes()}
        factor = {"dtype": "F32", "shape": [RANK, 400], "data": bytes(4 * RANK * 400)}
        tensors = {f"{EMBEDDING}.base_layer.weight": data, f"{EMBEDDING}.lora_embedding_A": factor}
        write_safetensors(tensors, lora / "adapter_model.safetensors", {"format": "pt"})
        tg.transplant(lora, place / "new", place / "out")
        assert [*tables(place / "out")] == [f"{EMBEDDING}.lora_embedding_A"]
        data["data"] = (table + 1).astype("<f4").tobytes()
        write_safetensors(tensors, lora / "adapter_model.safetensors", {"format": "pt"})
        with pytest.raises(errors.CheckpointError, match=r"base_layer.*differ") as caught:
            tg.transplant(lora, place / "new", place / "out2")
        assert "merge" in caught.value.hint

    @pytest.mark.parametrize(("loaded", "saved"), [("BF16", "BF16"), ("BF16", "F32"), ("F16", "F32"), ("F32", "F32")])
    def test_a_copy_of_the_base_may_have_been_rounded(self, tmp_path, loaded, saved):
        base = checkpoint(write_texts(tmp_path) / "model", rows=400, dtype="F32")
        tg.transplant(tmp_path / "model", changed(base, add=24), tmp_path / "new")
        lora = adapter(tmp_path, {})
        table = tables(tmp_path / "model")["lm_head.weight"]
        data = narrow(widen(narrow(table, loaded), loaded), saved).tobytes()
        factor = {"dtype": "F32", "shape": [400, RANK], "data": bytes(4 * RANK * 400)}
        copy = {"dtype": saved, "shape": [400, 16], "data": data}
        tensors = {f"{HEAD}.base_layer.weight": copy, f"{HEAD}.lora_B.weight": factor}
        write_safetensors(tensors, lora / "adapter_model.safetensors", {"format": "pt"})
        tg.transplant(lora, tmp_path / "new", tmp_path / "out")
        assert [*tables(tmp_path / "out")] == [f"{HEAD}.lora_B.weight"]

    @pytest.mark.parametrize("kind", ["IA3", "PREFIX_TUNING", "NEW_METHOD"])
    def test_other_adapters_are_copied_if_nothing_in_them_depends_on_the_vocabulary(self, place, kind):
        lora = adapter(place, {f"{LAYER}.ia3_l": (5, 1), "prompt_embeddings": (4, 16)}, peft_type=kind)
        tg.transplant(lora, place / "new", place / "out")
        assert tables(lora).keys() == tables(place / "out").keys()

    def test_what_is_written_is_repeated_by_force_and_other_files_are_kept_or_named(self, place, tokengraft):
        lora = adapter(place, {f"{LAYER}.lora_A.weight": (RANK, 7)})
        (lora / "README.md").write_text("base_model: the old one")
        (lora / "notes.txt").write_text("mine")
        (lora / "optimizer.pt").write_bytes(b"x")
        command = ["transplant", str(lora), str(place / "new"), "--out", str(place / "out")]
        shown = tokengraft(*command).out
        assert "optimizer.pt" in shown
        assert "README.md" in shown
        assert (place / "out" / "notes.txt").read_text() == "mine"
        assert not (place / "out" / "README.md").exists()
        assert not (place / "out" / "optimizer.pt").exists()
        before = {path.name: path.read_bytes() for path in (place / "out").iterdir()}
        tokengraft(*command, "--force")
        assert {path.name: path.read_bytes() for path in (place / "out").iterdir()} == before
        tokengraft("transplant", lora, place / "new", "--dry-run")

    def test_the_old_tokenizer_may_be_elsewhere(self, place):
        lora = adapter(place, {f"{HEAD}.lora_B.weight": (400, RANK)})
        for file in lora.glob("tokenizer*"):
            file.unlink()
        with pytest.raises(errors.CheckpointError, match="no tokenizer") as caught:
            tg.transplant(lora, place / "new", place / "out")
        assert "somewhere" in caught.value.hint
        tg.transplant(lora, place / "new", place / "out", base=place / "model")
        shutil.copy(place / "new" / "tokenizer.json", lora)
        with pytest.raises(errors.CheckpointError, match="another vocabulary"):
            tg.transplant(lora, place / "new", place / "out2", base=place / "model")


WRONG = {
    "dora": ({f"{HEAD}.lora_magnitude_vector": (400,)}, {}, "lora_magnitude_vector"),
    "dora-embedding": ({f"{EMBEDDING}.lora_magnitude_vector": (16,)}, {}, "lora_magnitude_vector"),
    "unknown-part": ({f"{HEAD}.lora_diag": (3,)}, {}, "lora_diag"),
    "unknown-table": ({f"{PREFIX}medusa.0.weight": (400, 16)}, {}, "medusa"),
    "other-method": ({f"{HEAD}.hada_w1_a": (400, 3)}, {"peft_type": "LOHA"}, "LOHA"),
    "other-saved": ({f"{HEAD}.weight": (400, 16)}, {"peft_type": "IA3"}, "IA3"),
    "rows": ({f"{HEAD}.lora_B.weight": (300, 3)}, {}, "300 rows"),
    "two-sizes": ({f"{HEAD}.lora_B.weight": (400, 3), f"{EMBEDDING}.weight": (401, 16)}, {}, "400.*401|401.*400"),
    "width": ({f"{HEAD}.weight": (400, 12)}, {}, "16"),
    "factor-width": ({f"{EMBEDDING}.lora_embedding_B": (12, 3)}, {}, "16"),
    "dimensions": ({f"{HEAD}.lora_B.weight": (400,)}, {}, "shape"),
    "layer": ({f"{LAYER}.lora_A.weight": (3, 11)}, {}, "11"),
    "pissa": ({f"{HEAD}.lora_B.weight": (400, 3)}, {"init_lora_weights": "pissa"}, "pissa"),
    "alora": ({f"{LAYER}.x": (4,)}, {"alora_invocation_tokens": [3]}, "alora_invocation_tokens"),
    "cpt": ({f"{LAYER}.x": (4,)}, {"peft_type": "CPT", "cpt_token_ids": [3, 4]}, "cpt_token_ids"),
    "no-ids": ({f"{HEAD}.token_adapter.trainable_tokens_delta": (2, 16)}, {}, "trainable_token_indices"),
    "other-ids": (
        {f"{HEAD}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"embed_tokens": [1, 2]}},
        "trainable_token_indices",
    ),
    "few-ids": (
        {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"embed_tokens": [1]}},
        "1 id",
    ),
    "large-ids": (
        {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"embed_tokens": [1, 9999]}},
        "9,?999",
    ),
    "negative-ids": (
        {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"embed_tokens": [1, -1]}},
        "-1",
    ),
    "equal-ids": (
        {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"embed_tokens": [1, 1]}},
        "twice",
    ),
    "strange-ids": (
        {f"{EMBEDDING}.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": "embed_tokens"},
        "trainable_token_indices",
    ),
    "elsewhere": (
        {f"{PREFIX}vision.tokens.token_adapter.trainable_tokens_delta": (2, 16)},
        {"trainable_token_indices": {"tokens": [1, 2]}},
        "vision",
    ),
    "no-type": ({f"{LAYER}.x": (4,)}, {"peft_type": None}, "peft_type"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_has_no_clear_meaning_is_refused_by_name(place, case):
    shapes, config, message = WRONG[case]
    lora = adapter(place, shapes, **config)
    with pytest.raises(errors.CheckpointError, match=message) as caught:
        tg.transplant(lora, place / "new", place / "out")
    assert caught.value.hint
    assert not (place / "out").exists()


def test_tables_of_other_types_than_floats_are_refused(place):
    lora = adapter(place, {})
    data = {"dtype": "F64", "shape": [400, 3], "data": bytes(8 * 1200)}
    write_safetensors({f"{HEAD}.lora_B.weight": data}, lora / "adapter_model.safetensors", {"format": "pt"})
    with pytest.raises(errors.CheckpointError, match="F64"):
        tg.transplant(lora, place / "new", place / "out")


@pytest.mark.parametrize(
    ("left", "message"),
    [
        (["adapter_model.bin", "adapter_config.json"], "pickled"),
        (["adapter_config.json"], "adapter_model.safetensors"),
        (["adapter_model.safetensors"], "adapter_config.json"),
        (["adapter_model.bin"], "adapter_config.json"),
    ],
    ids=str,
)
def test_an_adapter_that_is_pickled_or_not_complete_is_refused(place, left, message):
    lora = adapter(place, {f"{LAYER}.x": (4,)})
    for name in {"adapter_model.safetensors", "adapter_config.json"} - {*left}:
        (lora / name).unlink()
    if "adapter_model.bin" in left:
        (lora / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(errors.CheckpointError, match=message):
        tg.transplant(lora, place / "new", place / "out")


@pytest.mark.parametrize("raw", [b"[]", b"{", b'{"peft_type": 3}'])
def test_a_config_that_is_none_is_refused(place, raw):
    lora = adapter(place, {f"{LAYER}.x": (4,)})
    (lora / "adapter_config.json").write_bytes(raw)
    with pytest.raises(errors.CheckpointError):
        tg.transplant(lora, place / "new", place / "out")


def test_options_that_do_not_apply_are_refused(place):
    lora = adapter(place, {f"{HEAD}.lora_B.weight": (400, RANK)})
    new = tg.load(place / "new")
    with pytest.raises(errors.OptionError, match="folder of the model"):
        tg.transplant(lora, new, place / "out")
    with pytest.raises(errors.OptionError, match="folder of the model"):
        tg.transplant(lora, tg.save(new, place / "tokenizer", verify=False), place / "out")
    for option in ({"verify": True}, {"hard_link": True}, {"pad_multiple": 8}):
        with pytest.raises(errors.OptionError, match="adapter"):
            tg.transplant(lora, place / "new", place / "out", options=tg.TransplantOptions(**option))
    with pytest.raises(errors.OptionError, match="adapter"):
        tg.transplant(lora, place / "new", place / "out", as_adapter=True)
    for init in ("random", print):
        with pytest.raises(errors.OptionError, match="initialiser"):
            tg.transplant(lora, place / "new", place / "out", init=init)


def test_verify_is_refused_for_adapters_before_torch_is_looked_for(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    lora = adapter(place, {f"{HEAD}.lora_B.weight": (400, RANK)})
    verified = tg.TransplantOptions(verify=True)
    with pytest.raises(errors.OptionError, match="`verify` does not apply to an adapter"):
        tg.transplant(lora, place / "new", place / "out", options=verified)
    with pytest.raises(errors.OptionError, match="`verify` does not apply to an adapter"):
        tg.transplant(place / "model", tg.load(place / "model"), place / "out", as_adapter=True, options=verified)
    with pytest.raises(errors.OptionError, match="needs torch"):
        tg.transplant(place / "model", tg.load(place / "new"), place / "out", options=verified)


TABLES = {f"{EMBEDDING}.lora_embedding_A": (RANK, 400), f"{EMBEDDING}.lora_embedding_B": (16, RANK)}
TABLES |= {f"{HEAD}.lora_A.weight": (RANK, 16), f"{HEAD}.lora_B.weight": (400, RANK)}


@pytest.mark.parametrize(("init", "output_init"), [("mean", None), ("fvt", "mean"), ("length-weighted", "fvt")])
def test_new_rows_are_those_of_the_initialisers_that_the_model_has_on_record(place, init, output_init):
    lora, used = adapter(place, TABLES), tg.TransplantOptions(init, output_init)
    tg.transplant(place / "model", tg.load(place / "new"), place / "new", force=True, options=used)
    done = tg.transplant(lora, place / "new", place / "out")
    assert done.init == (init, output_init or init)
    assert done.warnings == ()
    tg.transplant(lora, place / "new", place / "same", options=used)
    dry = tg.transplant(lora, place / "new", None, options=tg.TransplantOptions(output_init=output_init))
    assert dry.init == done.init
    written = [(place / name / "adapter_model.safetensors").read_bytes() for name in ("out", "same")]
    assert written[0] == written[1]
    recorded = json.loads((place / "out" / "tokengraft.json").read_text())["transplant"]["init"]
    assert recorded == {"input": init, "output": output_init or init}


@pytest.mark.parametrize(
    "other", [{"init": "mean"}, {"output_init": "mean"}, {"init": "fvt-rare", "output_init": "fvt"}]
)
def test_other_initialisers_than_those_of_the_model_are_refused(place, other):
    lora = adapter(place, TABLES)
    with pytest.raises(errors.OptionError, match="the model was transplanted with") as caught:
        tg.transplant(lora, place / "new", place / "out", options=tg.TransplantOptions(**other))
    assert "leave out" in caught.value.hint
    assert not (place / "out").exists()


def test_a_model_with_random_rows_has_no_rows_for_an_adapter(place):
    lora = adapter(place, TABLES)
    tg.transplant(place / "model", tg.load(place / "new"), place / "new", init="random", force=True)
    with pytest.raises(errors.OptionError, match="must be one of") as caught:
        tg.transplant(lora, place / "new", place / "out")
    assert "merge the adapter" in caught.value.hint


@pytest.mark.parametrize("record", [None, "{", '{"transplant": {"init": 3}}', "[]"])
def test_without_a_record_a_warning_names_the_initialiser_that_is_used(place, record):
    lora, path = adapter(place, TABLES), place / "new" / "tokengraft.json"
    path.unlink()
    if record is not None:
        path.write_text(record)
    done = tg.transplant(lora, place / "new", place / "out")
    (warning,) = done.warnings
    assert "does not say with which initialiser" in warning
    assert "fvt-rare" in warning
    assert "--init" in warning
    assert tg.transplant(lora, place / "new", None, init="mean").warnings == ()
    layers = adapter(place, {f"{LAYER}.lora_A.weight": (RANK, 7), f"{LAYER}.lora_B.weight": (5, RANK)}, name="layers")
    assert tg.transplant(layers, place / "new", None).warnings == ()
