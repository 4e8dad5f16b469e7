"""`blend`: the mean of two models against torch, and refusals."""

import json
import shutil
from functools import partial

import builders
import pytest
from tiny_models import model_in, texts, tiny_llama, tiny_model, torch, transformers

import tokengraft as tg
from tokengraft.errors import CheckpointError, OptionError, OutputError

SHARE = 0.3


def adapted_and_trained(tmp_path, make, *, dtype=torch.bfloat16, shard="1GB"):
    """A model with new tokens, and the same after a training that changed every weight. In other shards and types."""
    make(tmp_path / "model")
    base = tg.load(tmp_path / "model")
    new = tg.extend(base, tg.count(base, texts(tmp_path) / "et.txt"), 12).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "adapted")
    model = model_in(tmp_path / "adapted")
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn(weight.shape, generator=generator)
    model.to(dtype).save_pretrained(tmp_path / "trained", max_shard_size=shard)
    return [*range(base.n_rows, new.n_rows)]


def weights(folder):
    from safetensors.torch import load_file

    return {name: value for path in sorted(folder.glob("*.safetensors")) for name, value in load_file(path).items()}


def expected(trained, adapted, name, new):
    """The formula, by torch."""
    mean = (1 - SHARE) * trained.float() + SHARE * adapted.float()
    if name.endswith(("embed_tokens.weight", "wte.weight", "lm_head.weight", "embed_out.weight", "embed_in.weight")):
        mean[new] = trained.float()[new]
    return mean.to(trained.dtype)


MODELS = {
    "llama": partial(tiny_llama, tied=False),
    "llama-tied": partial(tiny_llama, tied=True),
    "qwen2": lambda folder: tiny_model("qwen2", folder),
    "gemma3": lambda folder: tiny_model("gemma3", folder),
    "gpt2": lambda folder: tiny_model("gpt2", folder),
    "gpt-neox": lambda folder: tiny_model("gpt-neox", folder),
    "phi": lambda folder: tiny_model("phi", folder, tie_word_embeddings=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_the_formula_of_torch_to_the_bit(tmp_path, name):
    new = adapted_and_trained(tmp_path, MODELS[name])
    done = tg.blend(tmp_path / "trained", tmp_path / "adapted", share=SHARE, out=tmp_path / "out")
    before, after, out = (weights(tmp_path / folder) for folder in ("adapted", "trained", "out"))
    assert done.new_rows == len(new) > 0
    assert {*out} == {*after}
    for tensor, value in after.items():
        table = value.shape[0] == new[-1] + 1 or None
        wanted = expected(value, before[tensor], tensor if table else "", new)
        if tensor == "lm_head.bias":
            wanted[new] = value[new]
        assert torch.equal(out[tensor], wanted), tensor
    tied = model_in(tmp_path / "adapted").config.tie_word_embeddings
    loaded = model_in(tmp_path / "out")
    assert (loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight) == bool(tied)
    assert tg.load(tmp_path / "out").ids == tg.load(tmp_path / "adapted").ids


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_shards_and_types_are_those_of_the_trained_model(tmp_path, dtype):
    new = adapted_and_trained(tmp_path, MODELS["llama"], dtype=dtype, shard="20KB")
    tg.blend(tmp_path / "trained", tmp_path / "adapted", share=SHARE, out=tmp_path / "out")
    files = [sorted(path.name for path in (tmp_path / name).glob("model*")) for name in ("trained", "out")]
    assert files[0] == files[1]
    assert len(files[0]) > 3
    before, after, out = (weights(tmp_path / folder) for folder in ("adapted", "trained", "out"))
    for name, value in after.items():
        assert out[name].dtype == dtype
        assert torch.equal(out[name], expected(value, before[name], name, new))


def test_a_share_of_0_is_the_trained_model_and_of_1_has_trained_new_rows(tmp_path):
    new = adapted_and_trained(tmp_path, MODELS["llama-tied"], dtype=torch.float32)
    for share in (0, 1):
        tg.blend(tmp_path / "trained", tmp_path / "adapted", share=share, out=tmp_path / f"out-{share}")
    before, after, first, last = (weights(tmp_path / name) for name in ("adapted", "trained", "out-0", "out-1"))
    assert all(torch.equal(first[name], value) for name, value in after.items())
    table = "model.embed_tokens.weight"
    assert torch.equal(last[table][new], after[table][new])
    assert torch.equal(last[table][: new[0]], before[table][: new[0]])
    assert all(torch.equal(last[name], value) for name, value in before.items() if name != table)


def test_the_same_blend_has_the_same_bytes_and_other_commands_read_it(tmp_path, tokengraft):
    adapted_and_trained(tmp_path, MODELS["llama"])
    command = ["blend", str(tmp_path / "trained"), str(tmp_path / "adapted"), "--share", "0.3", "--out"]
    assert "0.7 × trained + 0.3 × before training" in tokengraft(*command, tmp_path / "first").out
    tg.blend(tmp_path / "trained", tmp_path / "adapted", share=0.3, out=tmp_path / "second")
    files = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "second").iterdir())
    assert all((tmp_path / "first" / n).read_bytes() == (tmp_path / "second" / n).read_bytes() for n in files)
    card = (tmp_path / "first" / "README.md").read_text(encoding="utf-8")
    assert "untrained" not in card
    assert "0.3 times those before training" in card
    assert str(tmp_path) not in card
    assert "training_args.bin" not in files
    tokengraft(*command, tmp_path / "first", "--force")


def test_tokens_of_an_adapter_and_its_layers_are_blended_as_the_merged_model_is(tmp_path):
    peft = pytest.importorskip("peft")
    make = partial(tiny_llama, tied=False)
    make(tmp_path / "model")
    base = tg.load(tmp_path / "model")
    new = tg.extend(base, tg.count(base, texts(tmp_path) / "et.txt"), 12).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "adapted")
    ids = [5, 9, *range(base.n_rows, new.n_rows)]
    for name, more in {
        "tokens": {"trainable_token_indices": {"embed_tokens": ids, "lm_head": ids}},
        "tables": {"modules_to_save": ["embed_tokens", "lm_head", "norm"]},
        "factors": {"target_modules": ["q_proj", "embed_tokens", "lm_head"]},
    }.items():
        config = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj", "down_proj"], "task_type": "CAUSAL_LM"} | more)
        torch.manual_seed(3)
        model = peft.get_peft_model(model_in(tmp_path / "adapted"), config)
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight += 0.1 * torch.randn(weight.shape)
        model.save_pretrained(tmp_path / f"{name}-lora", save_embedding_layers=False)
        model.merge_and_unload().save_pretrained(tmp_path / name)
        tg.blend(tmp_path / f"{name}-lora", tmp_path / "adapted", share=SHARE, out=tmp_path / f"{name}-scaled")
        tg.blend(tmp_path / name, tmp_path / "adapted", share=SHARE, out=tmp_path / f"{name}-out")
        scaled = peft.PeftModel.from_pretrained(model_in(tmp_path / "adapted"), tmp_path / f"{name}-scaled")
        merged = scaled.merge_and_unload().state_dict()
        for tensor, value in model_in(tmp_path / f"{name}-out").state_dict().items():
            assert torch.allclose(merged[tensor], value, atol=1e-5), (name, tensor)


@pytest.mark.parametrize(
    ("config", "message"), [({"use_dora": True}, "DoRA"), ({"init_lora_weights": "pissa"}, "pissa")]
)
def test_adapters_whose_change_is_not_a_product_are_refused(tmp_path, config, message):
    peft = pytest.importorskip("peft")
    tiny_llama(tmp_path / "model")
    options = peft.LoraConfig(**{"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM"} | config)
    peft.get_peft_model(model_in(tmp_path / "model"), options).save_pretrained(tmp_path / "lora")
    with pytest.raises(CheckpointError, match=message):
        tg.blend(tmp_path / "lora", tmp_path / "model", share=0.2, out=tmp_path / "out")


def test_a_model_that_was_not_adapted_is_blended_with_a_warning(tmp_path):
    tiny_llama(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "trained")
    done = tg.blend(tmp_path / "trained", tmp_path / "model", share=0.2, out=tmp_path / "out")
    assert done.new_rows == 0
    assert "no row is taken for new" in done.warnings[0]


def other_tokens(folder):
    document = builders.byte_level()
    document["model"]["vocab"] = {
        "other" if token == "t" else token: token_id for token, token_id in document["model"]["vocab"].items()
    }
    document["model"]["merges"] = []
    shutil.copytree(folder / "model", folder / "trained")
    builders.write(folder / "trained", document)


def other_shape(folder):
    tiny_llama(folder / "trained", intermediate_size=52)


def other_rows(folder):
    tiny_llama(folder / "trained", vocab_size=500)


def other_layers(folder):
    tiny_llama(folder / "trained", num_hidden_layers=1)


def untied(folder):
    tiny_llama(folder / "trained", tied=False)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (other_tokens, "another vocabulary"),
        (other_shape, r"has the shape .*52"),
        (other_rows, "500 rows"),
        (other_layers, "has the tensor"),
        (untied, "untied"),
    ],
)
def test_models_of_another_shape_or_vocabulary_are_refused(tmp_path, make, message):
    tiny_llama(tmp_path / "model")
    make(tmp_path)
    with pytest.raises(CheckpointError, match=message) as caught:
        tg.blend(tmp_path / "trained", tmp_path / "model", share=0.2, out=tmp_path / "out")
    assert "its training began with" in caught.value.hint
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_from_0_to_1(tmp_path, share):
    with pytest.raises(OptionError, match="from 0 to 1"):
        tg.blend(tmp_path, tmp_path, share=share, out=tmp_path / "out")


def test_an_output_that_exists_is_refused(tmp_path):
    tiny_llama(tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "trained")
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputError, match="exists"):
        tg.blend(tmp_path / "trained", tmp_path / "model", share=0.2, out=tmp_path / "out")


def test_an_adapted_model_of_an_older_version_is_refused_if_new_rows_are_not_known(tmp_path):
    tiny_llama(tmp_path / "model")
    (tmp_path / "model" / "tokengraft.json").write_text(json.dumps({"files": []}))
    shutil.copytree(tmp_path / "model", tmp_path / "trained")
    with pytest.raises(CheckpointError, match="does not say which rows are new"):
        tg.blend(tmp_path / "trained", tmp_path / "model", share=0.2, out=tmp_path / "out")


def test_the_hub_names_of_gpt2_have_no_prefix_and_are_found(tmp_path):
    from safetensors.torch import save_file

    tiny_model("gpt2", tmp_path / "model")
    shutil.copytree(tmp_path / "model", tmp_path / "trained")
    short = {name.removeprefix("transformer."): value for name, value in weights(tmp_path / "model").items()}
    save_file(short, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    tg.blend(tmp_path / "trained", tmp_path / "model", share=0.5, out=tmp_path / "out")
    assert transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").config.model_type == "gpt2"


def test_what_train_wrote_about_the_trained_weights_is_not_copied(tmp_path):
    adapted_and_trained(tmp_path, MODELS["llama-tied"])
    reports = ("training_log.json", "training.svg", "training.html")
    for name in (*reports, "notes.txt"):
        (tmp_path / "trained" / name).write_text("old")
    tg.blend(tmp_path / "trained", tmp_path / "adapted", share=0.3, out=tmp_path / "out")
    assert [name for name in (*reports, "notes.txt") if (tmp_path / "out" / name).exists()] == ["notes.txt"]
