"""SmolLM2-135M, adapted as an adapter of PEFT. Opt-in: see `test_smollm2.py`."""

import os
from pathlib import Path

import pytest

import tokengraft as tg

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")
peft = pytest.importorskip("peft", reason="peft is not installed: `pip install peft` to run this")
pytestmark = pytest.mark.skipif("TOKENGRAFT_SMOLLM2" not in os.environ, reason="set TOKENGRAFT_SMOLLM2 to run this")
ROWS = 8_000
SENTENCE = "Kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt. All human beings are born free."


@pytest.fixture(scope="module")
def folder():
    return Path(os.environ["TOKENGRAFT_SMOLLM2"])


@pytest.fixture(scope="module")
def adapted(folder, shared_data, tmp_path_factory):
    """The folder of the adapted model, that of the adapter, and the result: 8,000 tokens of four languages."""
    out, devtest = tmp_path_factory.mktemp("adapted"), shared_data / "devtest"
    target = {name: devtest / f"{name}.devtest" for name in ("est_Latn", "fin_Latn", "hun_Latn", "tur_Latn")}
    for name, as_adapter in (("whole", False), ("adapter", True)):
        options = tg.AdaptOptions(as_adapter=as_adapter, report=False)
        keep = devtest / "eng_Latn.devtest"
        done = tg.adapt(folder, target=target, keep=keep, swap=ROWS, out=out / name, options=options)
    return out / "whole", out / "adapter", done


def loaded(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()


def logits(model, tokenizer):
    with torch.no_grad():
        return model(torch.tensor([tokenizer.encode(SENTENCE)])).logits


@pytest.mark.filterwarnings("error:Found missing adapter keys")
def test_base_and_adapter_are_the_adapted_model_to_the_bit(folder, adapted):
    whole, adapter, done = adapted
    assert 0.9 * ROWS < len(done.transplant.adapter_rows) <= ROWS
    assert (adapter / "adapter_model.safetensors").stat().st_size < ROWS * 576 * 2 + 1000
    tokenizer = tg.load(adapter)
    wanted = logits(loaded(whole), tokenizer)
    model = peft.PeftModel.from_pretrained(loaded(folder), adapter)
    assert torch.equal(logits(model, tokenizer), wanted)
    assert torch.equal(logits(model.merge_and_unload(), tokenizer), wanted)
    assert not torch.equal(logits(loaded(folder), tokenizer), wanted)


@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings", "ignore:Setting `save_embedding_layers`")
def test_an_adapter_of_the_base_changes_kept_tokens_of_the_adapted_model_alike(folder, adapted, tmp_path):
    whole, _, done = adapted
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "embed_tokens"], task_type="CAUSAL_LM")
    model = peft.get_peft_model(loaded(folder).float(), config)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.02 * torch.randn_like(weight)
    model.save_pretrained(tmp_path / "lora")
    tg.transplant(tmp_path / "lora", whole, tmp_path / "new", base=folder)
    new = peft.PeftModel.from_pretrained(loaded(whole).float(), tmp_path / "new")
    kept = [*done.plan.moved]
    ids = torch.tensor([kept[1000::400]])
    with torch.no_grad():
        plain = loaded(whole).float()(ids).logits[0][:, kept]
        before, after = (each(ids).logits[0][:, kept] for each in (model, new))
    assert torch.allclose(before, after, atol=1e-3)
    assert not torch.allclose(plain, after, atol=0.1)
