"""Transplanting real tiny models of transformers: they load, they tie, they say what they said. Needs torch."""

import json
import weakref

import pytest
from checkpoints import changed, set_config

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint import in_memory

torch = pytest.importorskip("torch", reason="torch is not installed: `pip install torch` to run this")
transformers = pytest.importorskip("transformers")
from tiny_models import model_in, tiny_model  # noqa: E402

OFFSET = 380


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a tiny Llama, and its tokenizer. Tests do not change it."""
    folder = tmp_path_factory.mktemp("llama") / "model"
    return folder, tiny_model("llama", folder)[0]


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tied") / "model"
    return folder, tiny_model("llama-tied", folder)[0]


def new_tokenizer(base):
    return changed(base, remove=30, add=14, compact=True)


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


def is_tied(model):
    return model.get_input_embeddings().weight is model.get_output_embeddings().weight


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        *(("llama", None), ("llama-tied", None), ("mistral", None), ("qwen2", 448), ("qwen2.5-vl", None)),
        *(("gemma", None), ("gemma3", None), ("gemma3n", None), ("phi", None), ("gpt2", None), ("gpt-neox", None)),
    ],
)
def test_a_transplanted_model_loads_and_says_the_same(name, rows, tmp_path):
    base, kind = tiny_model(name, tmp_path / "model", rows)
    new = new_tokenizer(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.found_by.startswith("the names of")
    original, model = (kind.from_pretrained(tmp_path / folder) for folder in ("model", "out"))
    config = model.config.get_text_config()
    assert config.vocab_size == done.rows_after == len(model.get_input_embeddings().weight)
    assert config.eos_token_id == tg.plan(base, new).moved[base.added[1].id]
    assert is_tied(model) == is_tied(original) == done.tied
    assert_says_the_same(original, model, base, new)


def test_three_shards_in_bf16(saved, tmp_path):
    folder, base = saved
    tg.save(base, tmp_path / "model", verify=False)
    model_in(folder).to(torch.bfloat16).save_pretrained(tmp_path / "model", max_shard_size="32KB")
    assert len(list((tmp_path / "model").glob("*.safetensors"))) >= 3
    new = new_tokenizer(base)
    done = tg.transplant(tmp_path / "model", new, tmp_path / "out")
    assert done.copied
    model = model_in(tmp_path / "out")
    assert_says_the_same(model_in(tmp_path / "model"), model, base, new)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 2 * sum(p.numel() for p in model.parameters())


def test_the_command_runs_both_models_and_compares(tied, tmp_path, tokengraft):
    folder, base = tied
    new = tg.save(new_tokenizer(base), tmp_path / "new", verify=False)
    arguments = ["transplant", folder, new, "--out", tmp_path / "out", "--verify"]
    shown = tokengraft(*arguments).out
    assert "logits of kept tokens differ by at most" in shown
    assert "new output" in shown


def test_models_that_differ_leave_no_result(tied, tmp_path, monkeypatch):
    folder, base = tied
    seen = []

    def run(_, what, sequences, wanted):
        seen.append((what, (tmp_path / "out").exists()))
        return torch.full((len(sequences), len(wanted)), float(len(seen))), ""

    monkeypatch.setattr(in_memory, "_run", run)
    with pytest.raises(errors.CheckpointError, match="logits of kept tokens differ"):
        tg.transplant(folder, new_tokenizer(base), tmp_path / "out", options=tg.TransplantOptions(verify=True))
    assert seen == [("the source", False), ("the result", False)]
    assert list(tmp_path.iterdir()) == []


def test_the_first_model_is_freed_before_the_second_is_loaded(tied, tmp_path, monkeypatch):
    folder, base = tied
    loaded, alive = [], []
    original = transformers.AutoModelForCausalLM.from_pretrained

    def from_pretrained(*args, **kwargs):
        alive.append(sum(weight() is not None for weight in loaded))
        model = original(*args, **kwargs)
        loaded.append(weakref.ref(model.get_input_embeddings().weight))
        return model

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", from_pretrained)
    done = tg.transplant(folder, new_tokenizer(base), tmp_path / "out", options=tg.TransplantOptions(verify=True))
    assert alive == [0, 0]
    assert done.behaviour.worst < 1e-3
    report = json.loads((tmp_path / "out" / "tokengraft.json").read_text())
    assert report["transplant"]["behaviour"]["sequences"] == done.behaviour.sequences


def test_a_model_that_does_not_run_is_a_clear_error(tmp_path):
    base, _ = tiny_model("gpt2", tmp_path / "model")
    set_config(tmp_path / "model", model_type="no-such-type")
    with pytest.raises(errors.CheckpointError, match="cannot load or run the source"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out", options=tg.TransplantOptions(verify=True))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        (lambda model: model, {"init": "magic"}, "no initialiser"),
        (lambda model: model.to(torch.float64), {}, "float64"),
        (lambda model: model.add_module("mtp_head", torch.nn.Linear(32, 397, bias=False)), {}, r"mtp_head\.weight"),
        (lambda model: setattr(model.config, "eos_token_id", 394), {}, "does not have"),
    ],
)
def test_a_model_in_memory_that_is_refused_is_not_changed_in_part(saved, change, options, match):
    folder, base = saved
    model = model_in(folder)
    change(model)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    small = tg.prune_order(base, None, "last-id")[:9].apply(base)
    with pytest.raises(errors.TokengraftError, match=match):
        tg.transplant_model(model, tg.plan(base, small), **options)
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())
    assert model.config.vocab_size == base.n_rows


def test_an_initialiser_for_the_output_of_a_tied_model_in_memory_is_refused(tied):
    folder, base = tied
    with pytest.raises(errors.OptionError, match="tied"):
        tg.transplant_model(model_in(folder), tg.plan(base, base), options=tg.TransplantOptions(output_init="mean"))


def test_a_gemma_3n_whose_table_for_layers_is_shorter_gets_the_rows_of_files_in_memory(tmp_path):
    """Ids from OFFSET on stand for images and sound."""
    base, kind = tiny_model("gemma3n", tmp_path / "model", vocab_size_per_layer_input=OFFSET, pad_token_id=None)
    fixed = [token for token, i in base.ids.items() if i >= OFFSET]
    new, model = changed(base, remove=6, add=6, tokens=fixed), kind.from_pretrained(tmp_path / "model")
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    by_file = kind.from_pretrained(tmp_path / "out")
    assert_says_the_same(model, by_file, base, new)
    with pytest.raises(errors.CheckpointError, match="for other things than text"):
        tg.transplant_model(model, tg.plan(base, new_tokenizer(base)))
    tg.transplant_model(model, tg.plan(base, new))
    expected = by_file.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in model.state_dict().items())
