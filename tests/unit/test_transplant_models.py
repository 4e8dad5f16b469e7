"""Transplanting real tiny models of transformers: they load, they tie, they say what they said. Needs torch."""

import json
import weakref

import builders
import pytest

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.checkpoint import behaviour

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
transformers = pytest.importorskip("transformers")

SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
MODELS = {
    "llama-untied": ("LlamaConfig", SIZE | HEADS | {"tie_word_embeddings": False}),
    "llama-tied": ("LlamaConfig", SIZE | HEADS | {"tie_word_embeddings": True}),
    "qwen2-padded": ("Qwen2Config", SIZE | {"num_key_value_heads": 2, "tie_word_embeddings": False}),
    "gemma": ("GemmaConfig", SIZE | HEADS),
    "gemma3": ("Gemma3TextConfig", SIZE | HEADS),
    "mistral": ("MistralConfig", SIZE | HEADS),
    "phi-with-head-bias": ("PhiConfig", SIZE),
    "gpt2": ("GPT2Config", GPT2),
    "gpt-neox": ("GPTNeoXConfig", SIZE),
}
PADDED = 448


def save_model(name, folder, *, dtype=torch.float32, shards=None):
    """A tiny model with random weights and a tiny tokenizer, in a folder; returns the tokenizer."""
    base = tg.load(builders.write(folder, builders.byte_level()))
    config_class, settings = MODELS[name]
    rows = PADDED if "padded" in name else base.n_rows
    ids = {"bos_token_id": base.added[0].id, "eos_token_id": base.added[1].id, "pad_token_id": base.added[1].id}
    torch.manual_seed(11)
    config = getattr(transformers, config_class)(vocab_size=rows, **settings, **ids)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    model.save_pretrained(folder, **({"max_shard_size": shards} if shards else {}))
    return base


def new_tokenizer(base, *, compact=True):
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    new = tg.extend(pruned, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 14).apply(pruned)
    return new.compact() if compact else new


def logits(model, ids):
    with torch.no_grad():
        return model.eval()(torch.tensor([ids])).logits[0].float()


def assert_says_the_same(old, new, base, tokenizer):
    """On text that the plan does not touch, kept tokens have the logits they had."""
    plan = tg.plan(base, tokenizer)
    kept = sorted(plan.moved)
    ids = kept[::7][:40]
    before, after = logits(old, ids), logits(new, [plan.moved[i] for i in ids])
    assert torch.allclose(before[:, kept], after[:, [plan.moved[i] for i in kept]], atol=1e-4)


def load(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_transplanted_model_loads_and_says_the_same(name, tmp_path):
    base = save_model(name, tmp_path / "model")
    new = new_tokenizer(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.found_by.startswith("the names of")
    model = load(tmp_path / "out")
    assert model.config.get_text_config().vocab_size == done.rows_after == len(model.get_input_embeddings().weight)
    assert model.config.eos_token_id == tg.plan(base, new).moved[base.added[1].id]
    original = load(tmp_path / "model")
    tied = original.get_input_embeddings().weight is original.get_output_embeddings().weight
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) == tied == done.tied
    assert_says_the_same(original, model, base, new)


@pytest.mark.parametrize("name", sorted(MODELS))
@pytest.mark.parametrize("init", ["fvt", "weighted", "mean-cov", "random"])
def test_a_model_in_memory_gets_the_rows_that_files_get(name, init, tmp_path):
    base = save_model(name, tmp_path / "model")
    new = new_tokenizer(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out", init=init, seed=3)
    by_file, in_memory = load(tmp_path / "out"), load(tmp_path / "model")
    log = tg.transplant_model(in_memory, tg.plan(base, new), init=init, seed=3)
    expected = by_file.state_dict()
    for key, tensor in in_memory.state_dict().items():
        assert torch.equal(tensor, expected[key]), key
    assert len(log) == len(in_memory.get_input_embeddings().weight)
    assert sum(isinstance(source, tuple) for source in log) == 14
    before, after = by_file.config.to_dict(), in_memory.config.to_dict()
    for key in ("vocab_size", "eos_token_id", "bos_token_id", "pad_token_id"):
        assert after[key] == before[key]
    assert in_memory.generation_config.eos_token_id == by_file.generation_config.eos_token_id
    tied = by_file.get_input_embeddings().weight is by_file.get_output_embeddings().weight
    assert (in_memory.get_input_embeddings().weight is in_memory.get_output_embeddings().weight) == tied
    in_memory.save_pretrained(tmp_path / "saved")
    assert torch.equal(load(tmp_path / "saved").get_input_embeddings().weight, by_file.get_input_embeddings().weight)


def test_three_shards_in_bf16(tmp_path):
    base = save_model("llama-untied", tmp_path / "model", dtype=torch.bfloat16, shards="32KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) >= 3
    new = new_tokenizer(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.copied
    assert_says_the_same(load(tmp_path / "model"), load(tmp_path / "out"), base, new)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    model = load(tmp_path / "out")
    assert index["metadata"]["total_size"] == 2 * sum(p.numel() for p in model.parameters())


def test_pruning_and_extending_by_as_many_keeps_every_shape(tmp_path):
    base = save_model("llama-tied", tmp_path / "model")
    counts = tg.count(base, iter(["põdrad põõsas õunad õues"] * 5))
    pruned = tg.prune_order(base, counts)[:12].apply(base)
    new = tg.extend(pruned, counts, 12).apply(pruned)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.rows_after == done.rows_before
    before, after = load(tmp_path / "model").state_dict(), load(tmp_path / "out").state_dict()
    assert {key: tensor.shape for key, tensor in before.items()} == {key: t.shape for key, t in after.items()}


def test_a_model_in_half_precision_keeps_its_type(tmp_path):
    base = save_model("llama-untied", tmp_path / "model", dtype=torch.bfloat16)
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.bfloat16)
    tg.transplant_model(model, tg.plan(base, new_tokenizer(base)))
    assert model.get_input_embeddings().weight.dtype == torch.bfloat16
    with pytest.raises(errors.OptionError, match="no initialiser"):
        tg.transplant_model(model, tg.plan(base, base), init="magic")
    double = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float64)
    with pytest.raises(errors.CheckpointError, match="float64"):
        tg.transplant_model(double, tg.plan(base, base))


def test_the_command_runs_both_models_and_compares(tmp_path, capsys):
    base = save_model("llama-tied", tmp_path / "model")
    new = tg.save(new_tokenizer(base), tmp_path / "new")
    arguments = ["transplant", tmp_path / "model", new, "--out", tmp_path / "out", "--verify"]
    assert cli.main(list(map(str, arguments))) == 0
    shown = capsys.readouterr().out
    assert "logits of kept tokens differ by at most" in shown
    assert "new output" in shown


def test_models_that_differ_leave_no_result(tmp_path, monkeypatch):
    base = save_model("llama-tied", tmp_path / "model")
    seen = []

    def run(folder, what, sequences, wanted):
        seen.append((what, folder, (tmp_path / "out").exists()))
        return torch.full((len(sequences), len(wanted)), float(len(seen))), ""

    monkeypatch.setattr(behaviour, "_run", run)
    with pytest.raises(errors.CheckpointError, match="logits of kept tokens differ"):
        tg.transplant(tmp_path / "model", new_tokenizer(base), tmp_path / "out", verify=True)
    assert [(what, out_exists) for what, _, out_exists in seen] == [("the source", False), ("the result", False)]
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".tokengraft-*"))


def test_the_first_model_is_freed_before_the_second_is_loaded(tmp_path, monkeypatch):
    base = save_model("llama-tied", tmp_path / "model")
    loaded, alive = [], []
    original = transformers.AutoModelForCausalLM.from_pretrained

    def from_pretrained(*args, **kwargs):
        alive.append(sum(weight() is not None for weight in loaded))
        model = original(*args, **kwargs)
        loaded.append(weakref.ref(model.get_input_embeddings().weight))
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    done = tg.transplant(tmp_path / "model", new_tokenizer(base), tmp_path / "out", verify=True)
    assert alive == [0, 0]
    assert done.behaviour.worst < 1e-3
    report = json.loads((tmp_path / "out" / "tokengraft.json").read_text())
    assert report["transplant"]["behaviour"]["sequences"] == done.behaviour.sequences


def test_a_model_that_does_not_run_is_a_clear_error(tmp_path):
    base = save_model("gpt2", tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").write_text(json.dumps(config | {"model_type": "no-such-type"}))
    with pytest.raises(errors.CheckpointError, match="cannot load or run the source"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out", verify=True)
    assert not (tmp_path / "out").exists()


def test_a_model_in_memory_with_another_table_of_tokens_is_refused(tmp_path):
    base = save_model("llama-untied", tmp_path / "model")
    model = load(tmp_path / "model")
    model.mtp_head = torch.nn.Linear(32, base.n_rows, bias=False)
    with pytest.raises(errors.CheckpointError, match=r"mtp_head\.weight"):
        tg.transplant_model(model, tg.plan(base, new_tokenizer(base)))
    assert len(model.get_input_embeddings().weight) == base.n_rows


def test_a_model_that_cannot_be_changed_is_not_changed_in_part(tmp_path):
    base = save_model("llama-untied", tmp_path / "model")
    model = load(tmp_path / "model")
    small = tg.prune_order(base, None, "last-id")[:9].apply(base)
    model.config.eos_token_id = base.n_rows - 3
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(errors.CheckpointError, match="does not have"):
        tg.transplant_model(model, tg.plan(base, small))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert model.config.vocab_size == base.n_rows


def save_vision_model(folder):
    """A tiny model with a part that sees, as transformers saves it; returns its tokenizer."""
    base = tg.load(builders.write(folder, builders.byte_level()))
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}
    text = SIZE | {"num_key_value_heads": 2, "vocab_size": base.n_rows, "rope_parameters": rope}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    ids = {f"{name}_token_id": base.added[0].id for name in ("image", "video", "vision_start", "vision_end")}
    config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids)
    torch.manual_seed(12)
    transformers.Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    return base


def test_a_model_with_a_part_that_sees_loads_and_says_the_same(tmp_path):
    base = save_vision_model(tmp_path / "model")
    new = new_tokenizer(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    load_vision = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained
    model = load_vision(tmp_path / "out")
    assert model.config.image_token_id == new.ids["<|start|>"]
    assert_says_the_same(load_vision(tmp_path / "model"), model, base, new)


@pytest.mark.parametrize("name", ["llama-untied", "gemma3"])
def test_every_module_of_a_model_in_memory_has_the_new_size(name, tmp_path):
    base = save_model(name, tmp_path / "model")
    model, new = load(tmp_path / "model"), new_tokenizer(base)
    tg.transplant_model(model, tg.plan(base, new))
    sizes = {module.vocab_size for module in model.modules() if hasattr(module, "vocab_size")}
    assert sizes == {new.n_rows}


def test_an_initialiser_for_the_output_of_a_tied_model_in_memory_is_refused(tmp_path):
    base = save_model("llama-tied", tmp_path / "model")
    with pytest.raises(errors.OptionError, match="tied"):
        tg.transplant_model(load(tmp_path / "model"), tg.plan(base, base), output_init="mean")
