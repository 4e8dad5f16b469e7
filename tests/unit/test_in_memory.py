"""Models in memory get the rows of files: every initialiser, type and head; with adapters; on devices. Needs torch."""

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.rows import INITIALISERS

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
transformers = pytest.importorskip("transformers")

SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
MODELS = {
    "tied": ("LlamaConfig", SIZE | HEADS | {"tie_word_embeddings": True}),
    "untied": ("LlamaConfig", SIZE | HEADS | {"tie_word_embeddings": False}),
    "bias": ("PhiConfig", SIZE),
}
TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def save_model(folder, name="untied", dtype=torch.float32):
    """A tiny model with random weights and a tiny tokenizer, in a folder; returns the tokenizer."""
    base = tg.load(builders.write(folder, builders.byte_level()))
    start, end = (token.id for token in base.added)
    ids = {"vocab_size": base.n_rows, "bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
    class_name, settings = MODELS[name]
    torch.manual_seed(11)
    config = getattr(transformers, class_name)(**settings, **ids)
    model = transformers.AutoModelForCausalLM.from_config(config).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return base


def load(folder, dtype=torch.float32, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)


def new_tokenizer(base):
    """Some tokens pruned and fewer learned, so that there are holes."""
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    return tg.extend(pruned, tg.count(base, iter(ESTONIAN)), 14).apply(pruned)


def assert_equal(model, expected):
    """The same numbers and configs."""
    own, other = model.state_dict(), expected.state_dict()
    assert own.keys() == other.keys()
    for key, tensor in own.items():
        assert tensor.dtype == other[key].dtype
        assert torch.equal(tensor, other[key]), key
    assert model.config.vocab_size == expected.config.vocab_size
    assert model.generation_config.suppress_tokens == expected.generation_config.suppress_tokens
    assert model.generation_config.eos_token_id == expected.generation_config.eos_token_id


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", MODELS)
def test_every_initialiser_gives_a_model_in_memory_the_rows_of_files(name, dtype, tmp_path):
    base = save_model(tmp_path / "model", name, TYPES[dtype])
    new, counts = new_tokenizer(base), tg.count(base, iter(ESTONIAN + ENGLISH))
    plan = tg.plan(base, new, counts=counts)
    for init in INITIALISERS:
        given = {"counts": counts} if init == "context" else {}
        tg.transplant(tmp_path / "model", new, tmp_path / init, init=init, seed=3, **given)
        model = load(tmp_path / "model", TYPES[dtype])
        tg.transplant_model(model, plan, init=init, seed=3)
        assert_equal(model, load(tmp_path / init, TYPES[dtype]))


@pytest.mark.parametrize("hole_rows", ["keep", "zero", "lowest"])
@pytest.mark.parametrize("name", MODELS)
def test_rows_without_a_token_are_those_of_files(name, hole_rows, tmp_path):
    base = save_model(tmp_path / "model", name)
    new = new_tokenizer(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out", hole_rows=hole_rows)
    model = load(tmp_path / "model")
    log = tg.transplant_model(model, tg.plan(base, new), hole_rows=hole_rows)
    assert_equal(model, load(tmp_path / "out"))
    holes = [i for i in range(new.n_rows) if i not in new.strings]
    assert [log[i] for i in holes] == (holes if hole_rows == "keep" else [None] * len(holes))
    assert model.generation_config.suppress_tokens == (None if hole_rows == "keep" else holes)
    model.save_pretrained(tmp_path / "saved")
    assert_equal(load(tmp_path / "saved"), load(tmp_path / "out"))


def test_input_and_output_have_their_own_initialisers(tmp_path):
    base = save_model(tmp_path / "model")
    new = new_tokenizer(base)
    options = {"init": "fvt-script-norm", "output_init": "length-weighted"}
    tg.transplant(tmp_path / "model", new, tmp_path / "out", **options)
    model = load(tmp_path / "model")
    tg.transplant_model(model, tg.VocabPlan.load(tg.plan(base, new).save(tmp_path / "plan.json")), **options)
    assert_equal(model, load(tmp_path / "out"))


def test_a_plan_without_what_an_initialiser_needs_changes_nothing(tmp_path):
    base = save_model(tmp_path / "model")
    plan, model = tg.plan(base, new_tokenizer(base)), load(tmp_path / "model")
    with pytest.raises(errors.OptionError, match="made without"):
        tg.transplant_model(model, plan, init="context")
    with pytest.raises(errors.OptionError, match="earlier version"):
        tg.transplant_model(
            model, tg.VocabPlan(*(plan.rows_before, plan.sources, plan.removed)), init="length-weighted"
        )
    with pytest.raises(errors.OptionError, match="no hole rows"):
        tg.transplant_model(model, plan, hole_rows="none")
    assert_equal(model, load(tmp_path / "model"))


@pytest.mark.parametrize("name", MODELS)
def test_no_hole_is_generated(name, tmp_path):
    """Greedily not by the row alone; in samples not with the list of suppressed ids."""
    base = save_model(tmp_path / "model", name)
    small = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:100].apply(base)
    holes = {i for i in range(small.n_rows) if i not in small.strings}
    for how in ("keep", "lowest"):
        tg.transplant(tmp_path / "model", small, tmp_path / how, hole_rows=how)
    prompts = torch.tensor([[i] for i in sorted(small.strings)[::5]])
    greedy = {"max_new_tokens": 24, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    sampled = greedy | {"do_sample": True, "top_k": 0, "temperature": 2.0}

    def emitted(how, **options):
        torch.manual_seed(3)
        model = load(tmp_path / how).eval()
        model.generation_config.eos_token_id = None
        return sum(i in holes for line in model.generate(prompts, **options)[:, 1:].tolist() for i in line)

    assert emitted("keep", **greedy) > 10
    assert emitted("keep", **sampled) > 10
    assert emitted("lowest", **greedy, suppress_tokens=[]) == 0
    assert emitted("lowest", **greedy) == 0
    assert emitted("lowest", **sampled) == 0


class TestAdapters:
    """Models wrapped by PEFT."""

    @pytest.fixture
    def peft(self):
        return pytest.importorskip("peft", reason="peft is not installed: `pip install peft` to run this")

    @pytest.mark.parametrize("name", ["tied", "untied"])
    def test_a_wrapped_model_gets_the_rows_of_files(self, peft, name, tmp_path):
        base = save_model(tmp_path / "model", name)
        new = new_tokenizer(base)
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
        config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
        model = peft.get_peft_model(load(tmp_path / "model"), config)
        with torch.no_grad():
            for key, parameter in model.named_parameters():
                if "lora_B" in key:
                    parameter.normal_(0, 0.1)
        ids = torch.tensor([sorted(tg.plan(base, new).moved)[::7][:20]])
        before = model(ids).logits[..., ids[0]]
        adapters = {key: tensor.clone() for key, tensor in model.state_dict().items() if "lora" in key}
        tg.transplant_model(model, tg.plan(base, new))
        expected = load(tmp_path / "out")
        inside = model.get_base_model()
        assert torch.equal(inside.get_input_embeddings().weight, expected.get_input_embeddings().weight)
        assert torch.equal(inside.get_output_embeddings().weight, expected.get_output_embeddings().weight)
        tied = inside.get_input_embeddings().weight is inside.get_output_embeddings().weight
        assert tied == (name == "tied")
        assert not inside.get_input_embeddings().weight.requires_grad
        assert all(torch.equal(model.state_dict()[key], tensor) for key, tensor in adapters.items())
        moved = torch.tensor([[tg.plan(base, new).moved[int(i)] for i in ids[0]]])
        assert torch.allclose(model(moved).logits[..., moved[0]], before, atol=1e-4)
        merged = model.merge_and_unload()
        assert torch.equal(merged.get_input_embeddings().weight, expected.get_input_embeddings().weight)

    @pytest.mark.parametrize(
        "options",
        [
            {"target_modules": ["q_proj", "embed_tokens"]},
            {"target_modules": ["q_proj", "lm_head"]},
            {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
            {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
            {"target_modules": ["q_proj"], "trainable_token_indices": [3, 4]},
        ],
        ids=lambda options: "-".join(map(str, options.values())),
    )
    def test_adapters_on_the_tables_are_refused(self, peft, options, tmp_path):
        base = save_model(tmp_path / "model")
        model = peft.get_peft_model(load(tmp_path / "model"), peft.LoraConfig(r=2, task_type="CAUSAL_LM", **options))
        before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
        with pytest.raises(errors.CheckpointError, match="has an adapter") as caught:
            tg.transplant_model(model, tg.plan(base, new_tokenizer(base)))
        assert "before you add adapters" in caught.value.hint
        assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())

    def test_new_rows_are_trained_alone_after_the_transplant(self, peft, tmp_path):
        base = save_model(tmp_path / "model")
        new, model = new_tokenizer(base), load(tmp_path / "model")
        log = tg.transplant_model(model, tg.plan(base, new))
        rows = [row for row, source in enumerate(log) if isinstance(source, tuple)]
        config = peft.LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices=rows, task_type="CAUSAL_LM")
        wrapped = peft.get_peft_model(model, config)
        ids = torch.tensor([rows])
        wrapped(input_ids=ids, labels=ids).loss.backward()
        gradients = {key: p.grad for key, p in wrapped.named_parameters() if "trainable_tokens_delta" in key}
        assert gradients
        assert all(len(gradient) == len(rows) and gradient.any() for gradient in gradients.values())


class TestDevices:
    """Models that accelerate has placed on devices, with its hooks."""

    @pytest.fixture(autouse=True)
    def accelerate(self):
        return pytest.importorskip("accelerate", reason="accelerate is not installed")

    @pytest.mark.parametrize("name", ["tied", "untied"])
    @pytest.mark.filterwarnings("ignore")
    def test_a_device_map_changes_no_row(self, name, tmp_path):
        base = save_model(tmp_path / "model", name)
        new = new_tokenizer(base)
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
        places = {"model.embed_tokens": "cpu", "model.norm": "cpu", "model.rotary_emb": "cpu", "lm_head": "cpu"}
        layers = {"model.layers.0": "cpu", "model.layers.1": "disk"}
        for device_map in ("cpu", places | layers):
            model = load(tmp_path / "model", device_map=device_map, offload_folder=tmp_path / "offload")
            tg.transplant_model(model, tg.plan(base, new))
            expected = load(tmp_path / "out")
            assert torch.equal(model.get_input_embeddings().weight, expected.get_input_embeddings().weight)
            assert torch.equal(model.get_output_embeddings().weight, expected.get_output_embeddings().weight)
            ids = torch.tensor([[*new.strings][::9]])
            with torch.no_grad():
                assert torch.allclose(model(ids).logits, expected(ids).logits, atol=1e-5)

    @pytest.mark.filterwarnings("ignore")
    @pytest.mark.parametrize("offloaded", ["model.embed_tokens", "lm_head"])
    def test_tables_that_are_offloaded_are_refused(self, offloaded, tmp_path):
        base = save_model(tmp_path / "model")
        device_map = {"model": "cpu", "lm_head": "cpu"}
        if offloaded == "lm_head":
            device_map["lm_head"] = "disk"
        else:
            parts = ("embed_tokens", "layers", "norm", "rotary_emb")
            device_map = {f"model.{part}": "cpu" for part in parts} | {"lm_head": "cpu", offloaded: "disk"}
        model = load(tmp_path / "model", device_map=device_map, offload_folder=tmp_path / "offload")
        with pytest.raises(errors.CheckpointError, match="is offloaded") as caught:
            tg.transplant_model(model, tg.plan(base, new_tokenizer(base)))
        assert "device_map" in caught.value.hint

    def test_a_model_without_weights_is_refused(self, tmp_path):
        base = save_model(tmp_path / "model")
        config = load(tmp_path / "model").config
        with torch.device("meta"):
            empty = transformers.AutoModelForCausalLM.from_config(config)
        with pytest.raises(errors.CheckpointError, match="meta"):
            tg.transplant_model(empty, tg.plan(base, base))
