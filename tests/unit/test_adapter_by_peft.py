"""Adapters that PEFT writes, before and after a transplant."""

import shutil

import pytest
from checkpoints import changed, write_texts
from peft_models import UsesPeft

import tokengraft as tg

RANK = 3
CONFIGS = {
    "layers": {},
    "all-linear": {"target_modules": "all-linear"},
    "embedding": {"target_modules": ["embed_tokens", "q_proj"]},
    "both": {"target_modules": ["embed_tokens", "lm_head"]},
    "tied": {"target_modules": ["embed_tokens", "q_proj"], "ensure_weight_tying": True},
    "head-bias": {"target_modules": ["lm_head"], "lora_bias": True},
    "rslora": {"target_modules": ["embed_tokens", "lm_head"], "use_rslora": True},
    "saved": {"modules_to_save": ["embed_tokens", "lm_head"]},
    "saved-embedding": {"modules_to_save": ["embed_tokens"]},
    "tokens": {"trainable_token_indices": [5, 60, 70, 300]},
    "tokens-of-both": {"trainable_token_indices": {"embed_tokens": [5, 60, 70, 300], "lm_head": [5, 60, 70, 300]}},
}
CHANGES = {"swap": {"remove": 20, "add": 20}, "add": {"add": 30}, "remove": {"remove": 40, "compact": True}}


@pytest.mark.filterwarnings("ignore")
class TestPeft(UsesPeft):
    """Adapters that PEFT writes, before and after."""

    def trained(self, model, **options):
        """A model with an adapter that is not 0."""
        config = self.peft.LoraConfig(r=RANK, task_type="CAUSAL_LM", **{"target_modules": ["q_proj"]} | options)
        model = self.peft.get_peft_model(model, config)
        self.torch.manual_seed(3)
        with self.torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight += 0.1 * self.torch.randn_like(weight)
        return model

    def logits(self, model, ids):
        with self.torch.no_grad():
            return model(self.torch.tensor([ids])).logits[0]

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
    @pytest.mark.parametrize("name", CONFIGS)
    def test_kept_tokens_have_the_logits_that_they_had(self, tmp_path, name, tied, change):
        texts = write_texts(tmp_path)
        base = self.tiny.tiny_llama(texts / "model", tied=tied, vocab_size=404)
        new = changed(base, **CHANGES[change])
        tg.transplant(texts / "model", new, texts / "new")
        old_model = self.trained(self.tiny.model_in(texts / "model"), **CONFIGS[name])
        old_model.save_pretrained(texts / "lora")
        tg.transplant(texts / "lora", texts / "new", texts / "out", base=texts / "model")
        new_model = self.peft.PeftModel.from_pretrained(self.tiny.model_in(texts / "new"), texts / "out")
        plan = tg.plan(base, new)
        old_ids, new_ids = [*plan.moved], [*plan.moved.values()]
        picked = [*range(0, len(old_ids), 9)]
        before = self.logits(old_model, [old_ids[i] for i in picked])[:, old_ids]
        after = self.logits(new_model, [new_ids[i] for i in picked])[:, new_ids]
        assert self.torch.allclose(before, after, atol=1e-5)
        plain = self.logits(self.tiny.model_in(texts / "new"), [new_ids[i] for i in picked])[:, new_ids]
        assert not self.torch.allclose(plain, after, atol=1e-3)

    @pytest.mark.parametrize("name", ["layers", "both", "saved", "rslora"])
    def test_to_merge_and_to_transplant_may_be_exchanged(self, tmp_path, name):
        texts = write_texts(tmp_path)
        base = self.tiny.tiny_llama(texts / "model", tied=False)
        new = changed(base, remove=20, add=30)
        tg.transplant(texts / "model", new, texts / "new")
        model = self.trained(self.tiny.model_in(texts / "model"), **CONFIGS[name])
        model.save_pretrained(texts / "lora")
        tg.transplant(texts / "lora", texts / "new", texts / "out", base=texts / "model")
        after = self.peft.PeftModel.from_pretrained(self.tiny.model_in(texts / "new"), texts / "out").merge_and_unload()
        model.merge_and_unload().save_pretrained(texts / "merged")
        shutil.copy(texts / "model" / "tokenizer.json", texts / "merged")
        tg.transplant(texts / "merged", new, texts / "merged-new")
        expected = self.tiny.model_in(texts / "merged-new").state_dict()
        found = after.state_dict()
        assert found.keys() == expected.keys()
        assert all(self.torch.allclose(found[key], weight, atol=1e-5) for key, weight in expected.items())

    def test_an_adapter_with_new_rows_fits_a_third_vocabulary(self, tmp_path):
        texts = write_texts(tmp_path)
        base = self.tiny.tiny_llama(texts / "model")
        second = changed(base, remove=20, add=20)
        tg.transplant(texts / "model", second, texts / "second", as_adapter=True)
        third = changed(second, remove=10, compact=True)
        tg.transplant(texts / "model", third, texts / "third")
        tg.transplant(texts / "second", texts / "third", texts / "out")
        model = self.peft.PeftModel.from_pretrained(self.tiny.model_in(texts / "model"), texts / "second")
        other = self.peft.PeftModel.from_pretrained(self.tiny.model_in(texts / "third"), texts / "out")
        moved = tg.plan(second, third).moved
        picked = [*moved][::7]
        before = self.logits(model, picked)[:, [*moved]]
        after = self.logits(other, [moved[i] for i in picked])[:, [*moved.values()]]
        assert self.torch.allclose(before, after, atol=1e-5)
