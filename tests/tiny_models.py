"""Tiny models that transformers can run and train, beside tiny tokenizers. Without torch, its users are skipped."""

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN

import tokengraft as tg

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers")
torch.set_num_threads(1)  # threads only wait for each other in models of this size
SIZE = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 8}
SCALE = 0.3
"""The spread of the weights: with transformers' default of 0.02 a tiny model hardly depends on what it reads."""


def tiny_llama(folder, *, tied=True, document=None, **config):
    """A folder with a random Llama of two layers and a tokenizer, which is returned."""
    builders.write(folder, document or builders.byte_level())
    base = tg.load(folder)
    torch.manual_seed(11)
    start, end = base.added[0].id, base.added[-1].id
    ids = {"vocab_size": base.n_rows, "bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
    settings = transformers.LlamaConfig(
        **SIZE, num_key_value_heads=2, initializer_range=SCALE, tie_word_embeddings=tied, **ids | config
    )
    transformers.AutoModelForCausalLM.from_config(settings).save_pretrained(folder)
    return base


def texts(folder):
    """Writes Estonian and English to learn from, and Estonian that is held out; returns the folder."""
    (folder / "et.txt").write_text("\n".join(ESTONIAN[:300]), encoding="utf-8")
    (folder / "held-out.txt").write_text("\n".join(ESTONIAN[300:340]), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    return folder


def model_in(folder, **options):
    """The model of a folder, in 32 bits."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
