"""Models in memory get the rows of files: every initialiser, type and head; with adapters; on devices. Needs torch."""

import copy
import json

import builders
import numpy as np
import pytest
from checkpoints import changed, set_config

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.rows import INITIALISERS

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
transformers = pytest.importorskip("transformers")
from safetensors.torch import load_file  # noqa: E402
from tiny_models import ARCHITECTURES, tiny_model  # noqa: E402

TYPES = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def save_model(folder, name="llama", dtype=torch.float32):
    """A tiny model with random weights and a tiny tokenizer, in a folder; returns the tokenizer."""
    base, kind = tiny_model(name, folder)
    if dtype != torch.float32:
        kind.from_pretrained(folder, dtype=dtype).save_pretrained(folder)
    return base


def load(folder, dtype=torch.float32, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, **options)


def new_tokenizer(base):
    """Some tokens pruned and fewer learned, so that there are holes."""
    return changed(base, remove=30, add=14)


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


def sum_of_pieces(tokens, info):
    return [token.pieces.sum(axis=0) + info.mean for token in tokens]


@pytest.mark.parametrize(
    ("name", "dtype"), [("llama-tied", "bf16"), ("llama", "bf16"), ("llama", "f16"), ("phi", "f32")]
)
def test_every_initialiser_gives_a_model_in_memory_the_rows_of_files(name, dtype, tmp_path):
    base = save_model(tmp_path / "model", name, TYPES[dtype])
    new = new_tokenizer(base)
    plan, loaded = tg.plan(base, new), load(tmp_path / "model", TYPES[dtype])
    for place, init in enumerate([*INITIALISERS, sum_of_pieces]):
        tg.transplant(tmp_path / "model", new, tmp_path / str(place), init=init, options=tg.TransplantOptions(seed=3))
        model = copy.deepcopy(loaded)
        tg.transplant_model(model, plan, init=init, options=tg.TransplantOptions(seed=3))
        assert_equal(model, load(tmp_path / str(place), TYPES[dtype]))


@pytest.mark.parametrize(
    ("name", "hole_rows"),
    [("llama", "keep"), ("llama", "zero"), ("llama", "lowest"), ("llama-tied", "lowest"), ("phi", "lowest")],
)
def test_rows_without_a_token_are_those_of_files(name, hole_rows, tmp_path):
    base = save_model(tmp_path / "model", name)
    new = new_tokenizer(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out", options=tg.TransplantOptions(hole_rows=hole_rows))
    model = load(tmp_path / "model")
    log = tg.transplant_model(model, tg.plan(base, new), options=tg.TransplantOptions(hole_rows=hole_rows))
    assert_equal(model, load(tmp_path / "out"))
    holes = [i for i in range(new.n_rows) if i not in new.strings]
    assert [log[i] for i in holes] == (holes if hole_rows == "keep" else [None] * len(holes))
    assert model.generation_config.suppress_tokens == (None if hole_rows == "keep" else holes)
    model.save_pretrained(tmp_path / "saved")
    assert_equal(load(tmp_path / "saved"), load(tmp_path / "out"))


def test_a_plan_without_what_an_initialiser_needs_changes_nothing(tmp_path):
    base = save_model(tmp_path / "model")
    plan, model = tg.plan(base, new_tokenizer(base)), load(tmp_path / "model")
    with pytest.raises(errors.OptionError, match="needs the lengths"):
        tg.transplant_model(model, tg.VocabPlan(plan.rows_before, plan.sources, plan.removed), init="length-weighted")
    with pytest.raises(errors.OptionError, match="NaN"):
        tg.transplant_model(model, plan, init=lambda tokens, info: np.full((len(tokens), info.width), np.nan))
    with pytest.raises(errors.OptionError, match="no hole rows"):
        tg.transplant_model(model, plan, options=tg.TransplantOptions(hole_rows="none"))
    assert_equal(model, load(tmp_path / "model"))


def without(settings, *names):
    """A config without some fields, at every level."""
    return {
        name: without(value, *names) if isinstance(value, dict) else value
        for name, value in settings.items()
        if name not in names
    }


def attributes(model):
    """Every attribute of a module that is a number or a list, and what is made of a map of tokens."""
    found = {}
    for path, module in model.named_modules():
        plain = {name: value for name, value in vars(module).items() if isinstance(value, int | list)}
        found |= {(path, name): value for name, value in plain.items() if not name.startswith("_")}
        mapping = vars(module).get("vocabulary_mapping")
        found[path, "mapping"] = mapping and (mapping.vocab_map, mapping.image_token_id, mapping.image_tokens)
    return found


REFUSED = {
    "mllama": "expected one input embedding, by their shapes: the architecture MllamaForConditionalGeneration",
    "marian-unshared": "MarianMTModel has two vocabularies, of 448 and 448 tokens",
    "fsmt": "FSMTForConditionalGeneration is an encoder-decoder that is not supported",
    "roberta": "models of the type roberta compute positions from `pad_token_id`, which is 396",
}


@pytest.mark.parametrize("name", REFUSED)
def test_files_and_memory_refuse_the_same_models_with_the_same_reason(name, tmp_path):
    base, kind = tiny_model(name, tmp_path / "model", rows=448)
    new, model = new_tokenizer(base).compact(), kind.from_pretrained(tmp_path / "model")
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(errors.CheckpointError, match=REFUSED[name]):
        tg.transplant(tmp_path / "model", new, tmp_path / "out")
    with pytest.raises(errors.CheckpointError, match=REFUSED[name]):
        tg.transplant_model(model, tg.plan(base, new))
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - REFUSED.keys()))
def test_files_and_memory_accept_the_same_models_and_give_the_same_result(name, tmp_path):
    base, kind = tiny_model(name, tmp_path / "model", rows=448)
    new, model = new_tokenizer(base).compact(), kind.from_pretrained(tmp_path / "model")
    tg.transplant(tmp_path / "model", new, tmp_path / "file")
    tg.transplant_model(model, tg.plan(base, new))
    model.save_pretrained(tmp_path / "memory")
    by_file, in_memory = (load_file(tmp_path / part / "model.safetensors") for part in ("file", "memory"))
    assert by_file.keys() == in_memory.keys()
    assert all(torch.equal(tensor, in_memory[key]) for key, tensor in by_file.items())
    expected = kind.from_pretrained(tmp_path / "file")
    assert attributes(model) == attributes(expected)
    own, other = (without(one.config.to_dict(), "dtype", "_name_or_path") for one in (model, expected))
    assert own == other
    if model.can_generate():
        assert model.generation_config.suppress_tokens == expected.generation_config.suppress_tokens


def test_a_model_that_computes_positions_from_padding_keeps_that_id_or_is_refused(tmp_path):
    base, kind = tiny_model("roberta", tmp_path / "model")
    new = new_tokenizer(base)
    with pytest.raises(errors.CheckpointError, match=r"positions from `pad_token_id`.*moves that token to"):
        tg.transplant(tmp_path / "model", new.compact(), tmp_path / "compact")
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    kept = torch.tensor([[i for i in tg.plan(base, new).moved if i != base.added[-1].id][::9]])
    with torch.no_grad():
        old, changed = (kind.from_pretrained(tmp_path / part).eval()(kept).logits for part in ("model", "out"))
    assert torch.allclose(old[..., kept[0]], changed[..., kept[0]], atol=1e-5)


def test_a_head_that_differs_from_the_embedding_keeps_its_rows_whatever_the_config_says(tmp_path):
    base = save_model(tmp_path / "model")
    set_config(tmp_path / "model", tie_word_embeddings=True)
    new, model = new_tokenizer(base), load(tmp_path / "model")
    assert not torch.equal(model.get_output_embeddings().weight, model.get_input_embeddings().weight)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out", options=tg.TransplantOptions(output_init="mean"))
    tg.transplant_model(model, tg.plan(base, new), options=tg.TransplantOptions(output_init="mean"))
    assert not done.tied
    assert_equal(model, load(tmp_path / "out"))
    model.save_pretrained(tmp_path / "saved")
    assert_equal(load(tmp_path / "saved"), load(tmp_path / "out"))


def test_equal_tables_with_numbers_of_their_own_stay_equal(tmp_path):
    base = save_model(tmp_path / "model", "llama-tied")
    new, model = new_tokenizer(base), load(tmp_path / "model")
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    head.weight = torch.nn.Parameter(embedding.weight.detach().clone())
    tg.transplant_model(model, tg.plan(base, new), init="random")
    assert torch.equal(embedding.weight, head.weight)
    head.weight = torch.nn.Parameter(embedding.weight.detach())
    tg.transplant_model(model, tg.plan(new, new))
    assert embedding.weight is head.weight


@pytest.mark.parametrize("name", ["chameleon", "emu3"])
def test_the_map_of_tokens_for_images_has_the_new_ids(name, tmp_path):
    base, kind = tiny_model(name, tmp_path / "model")
    old = kind.from_pretrained(tmp_path / "model").config.vocabulary_map
    images = {base.strings[i] for i in old.values()}
    text = tg.prune_order(base, tg.count(base, iter(builders.TEXT)), protection=tg.Protection(tokens=images))
    new = text[:60].apply(base).compact()
    moved = tg.plan(base, new).moved
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    model = kind.from_pretrained(tmp_path / "out")
    assert model.config.vocabulary_map == {token: moved[i] for token, i in old.items()}
    assert model.config.image_token_id == moved[base.added[0].id]


def test_the_map_of_tokens_for_images_loses_text_but_no_image(tmp_path):
    base, _ = tiny_model("chameleon", tmp_path / "model")
    removed = base.ids["Ġcat"]
    small = tg.prune_order(base, None, "last-id")[:100].apply(base).compact()
    assert "Ġcat" not in small.ids
    named = json.loads((tmp_path / "model" / "config.json").read_text())["vocabulary_map"]
    set_config(tmp_path / "model", vocabulary_map=named | {"Ġcat": removed})
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    assert "Ġcat" not in json.loads((tmp_path / "out" / "config.json").read_text())["vocabulary_map"]
    set_config(tmp_path / "model", vocabulary_map=named | {"IMGIMGEZ": removed})
    with pytest.raises(errors.CheckpointError, match=r"IMGIMGEZ.*does not have"):
        tg.transplant(tmp_path / "model", small, tmp_path / "none")


@pytest.mark.parametrize(("rows", "compact"), [(None, False), (448, False), (448, True)])
@pytest.mark.parametrize("name", ["mamba", "cohere2", "phi", "qwen2.5-vl", "llama"])
def test_no_id_without_a_token_is_generated(name, rows, compact, tmp_path):
    base, kind = tiny_model(name, tmp_path / "model", rows=rows)
    small = changed(base, remove=61)
    small = small.compact() if compact else small
    tg.transplant(tmp_path / "model", small, tmp_path / "out")
    model = kind.from_pretrained(tmp_path / "out").eval()
    model.generation_config.eos_token_id = None
    prompts = torch.tensor([[i] for i in sorted(small.strings)[::7]])
    options = {"max_new_tokens": 12, "pad_token_id": 0, "attention_mask": torch.ones_like(prompts)}
    for more in ({"do_sample": False}, {"do_sample": True, "top_k": 0, "temperature": 3.0}):
        torch.manual_seed(3)
        lines = model.generate(prompts, **options, **more)[:, 1:].tolist()
        assert {token_id for line in lines for token_id in line} <= {*small.strings}


class TestAdapters:
    """Models wrapped by PEFT."""

    @pytest.fixture
    def peft(self):
        return pytest.importorskip("peft", reason="peft is not installed: `pip install peft` to run this")

    @pytest.mark.parametrize("name", ["llama-tied", "llama"])
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
        assert tied == (name == "llama-tied")
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

    @pytest.mark.parametrize("name", ["llama-tied", "llama"])
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
