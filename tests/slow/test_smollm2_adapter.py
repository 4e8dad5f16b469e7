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
def new(folder, shared_data):
    """SmolLM2's tokenizer with 8,000 tokens replaced by Estonian ones."""
    base = tg.load(folder)
    devtest = shared_data / "devtest"
    pruned = tg.prune_order(base, tg.count(base, devtest / "eng_Latn.devtest"))[:ROWS].apply(base)
    return tg.extend(pruned, tg.count(pruned, devtest / "est_Latn.devtest"), ROWS, min_count=1).apply(pruned)


def loaded(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.bfloat16).eval()


def logits(model, tokenizer):
    with torch.no_grad():
        return model(torch.tensor([tokenizer.encode(SENTENCE)])).logits


@pytest.mark.filterwarnings("error:Found missing adapter keys")
def test_base_and_adapter_are_the_adapted_model_to_the_bit(folder, new, tmp_path):
    tg.transplant(folder, new, tmp_path / "whole")
    done = tg.transplant(folder, new, tmp_path / "adapter", as_adapter=True)
    assert len(done.adapter_rows) == done.plan.summary.added > 0.8 * ROWS
    size = (tmp_path / "adapter" / "adapter_model.safetensors").stat().st_size
    assert size < len(done.adapter_rows) * 576 * 2 + 1000
    tokenizer = tg.load(tmp_path / "adapter")
    assert tokenizer.ids == new.ids
    wanted = logits(loaded(tmp_path / "whole"), new)
    model = peft.PeftModel.from_pretrained(loaded(folder), tmp_path / "adapter")
    assert torch.equal(logits(model, tokenizer), wanted)
    assert torch.equal(logits(model.merge_and_unload(), tokenizer), wanted)
    assert not torch.equal(logits(loaded(folder), tokenizer), wanted)
