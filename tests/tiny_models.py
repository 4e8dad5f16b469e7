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
        num_key_value_heads=2, initializer_range=SCALE, tie_word_embeddings=tied, **SIZE | ids | config
    )
    transformers.AutoModelForCausalLM.from_config(settings).save_pretrained(folder)
    return base


def _vision(kind=None):
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    return size | {"image_size": 8, "patch_size": 4} | ({"model_type": kind} if kind else {})


_BODY = {name: size for name, size in SIZE.items() if name != "head_dim"}
_GROUPED = _BODY | {"num_key_value_heads": 2}
_GPT2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
_OPT = {"hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "word_embed_proj_dim": 32}
_MAMBA = {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4}
_T5 = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
_SEQ2SEQ = {
    f"{part}_{name}": n for part in ("encoder", "decoder") for name, n in (("layers", 1), ("attention_heads", 4))
}
_SEQ2SEQ |= {"d_model": 32, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
_QWEN_VISION = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
_ROPE = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [1, 1, 2]}
_AUDIO = {"d_model": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16, "num_mel_bins": 8}
_MLLAMA_VISION = {"hidden_size": 16, "attention_heads": 2, "num_hidden_layers": 1, "num_global_layers": 1}
_MLLAMA_VISION |= {"intermediate_size": 16, "vision_output_dim": 32, "image_size": 8, "patch_size": 4}
_MLLAMA_VISION |= {"intermediate_layers_indices": [0], "max_num_tiles": 1, "supported_aspect_ratios": [[1, 1]]}
_QUANTISER = {"embed_dim": 4, "latent_channels": 4, "base_channels": 32, "num_res_blocks": 1, "attn_resolutions": []}
_CODES = range(40, 44)
"""Ids that stand for images in Chameleon and Emu3."""
_PER_LAYER = {"head_dim": 8, "hidden_size_per_layer_input": 8, "num_kv_shared_layers": 0, "laurel_rank": 4}
_PER_LAYER |= {"layer_types": ["full_attention"] * 2, "activation_sparsity_pattern": [0.0, 0.0]}


def _image_ids(token_id, *names):
    return {f"{name}_token_id": token_id for name in names}


ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", lambda ids: _GROUPED | ids),
    "llama-tied": ("LlamaForCausalLM", "LlamaConfig", lambda ids: _GROUPED | ids | {"tie_word_embeddings": True}),
    "llama-without-head": ("LlamaModel", "LlamaConfig", lambda ids: _GROUPED | ids),
    "mistral": ("MistralForCausalLM", "MistralConfig", lambda ids: _GROUPED | ids),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", lambda ids: _GROUPED | ids),
    "gemma": ("GemmaForCausalLM", "GemmaConfig", lambda ids: _GROUPED | ids | {"head_dim": 8}),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", lambda ids: _GROUPED | ids | {"head_dim": 8}),
    "gemma3n": (
        "Gemma3nForCausalLM",
        "Gemma3nTextConfig",
        lambda ids: _GROUPED | ids | _PER_LAYER | {"vocab_size_per_layer_input": ids["vocab_size"]},
    ),
    "phi": ("PhiForCausalLM", "PhiConfig", lambda ids: _BODY | ids),
    "cohere2": ("Cohere2ForCausalLM", "Cohere2Config", lambda ids: _GROUPED | ids),
    "gpt2": ("GPT2LMHeadModel", "GPT2Config", lambda ids: _GPT2 | ids),
    "gptj": ("GPTJForCausalLM", "GPTJConfig", lambda ids: _GPT2 | ids | {"rotary_dim": 4}),
    "gpt-neox": ("GPTNeoXForCausalLM", "GPTNeoXConfig", lambda ids: _BODY | ids),
    "opt": ("OPTForCausalLM", "OPTConfig", lambda ids: _OPT | ids),
    "bloom": ("BloomForCausalLM", "BloomConfig", lambda ids: {"hidden_size": 32, "n_layer": 2, "n_head": 4} | ids),
    "mpt": ("MptForCausalLM", "MptConfig", lambda ids: {"d_model": 32, "n_heads": 4, "n_layers": 2} | ids),
    "mamba": ("MambaForCausalLM", "MambaConfig", lambda ids: _MAMBA | ids),
    "qwen2.5-vl": (
        "Qwen2_5_VLForConditionalGeneration",
        "Qwen2_5_VLConfig",
        lambda ids: (
            {"text_config": _GROUPED | ids | {"rope_parameters": _ROPE}, "vision_config": _QWEN_VISION}
            | _image_ids(ids["bos_token_id"], "image", "video", "vision_start", "vision_end")
        ),
    ),
    "qwen2-audio": (
        "Qwen2AudioForConditionalGeneration",
        "Qwen2AudioConfig",
        lambda ids: {
            "text_config": _GROUPED | ids | {"model_type": "qwen2"},
            "audio_config": _AUDIO | {"max_source_positions": 16},
            "audio_token_index": ids["bos_token_id"],
        },
    ),
    "mllama": (
        "MllamaForConditionalGeneration",
        "MllamaConfig",
        lambda ids: {
            "text_config": _GROUPED | ids | {"cross_attention_layers": [1]},
            "vision_config": _MLLAMA_VISION,
            "image_token_index": ids["bos_token_id"],
        },
    ),
    "llava": (
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        lambda ids: {
            "text_config": _GROUPED | ids | {"model_type": "llama"},
            "vision_config": _vision("clip_vision_model"),
            "image_token_index": ids["bos_token_id"],
        },
    ),
    "idefics3": (
        "Idefics3ForConditionalGeneration",
        "Idefics3Config",
        lambda ids: {
            "text_config": _GROUPED | ids | {"model_type": "llama"},
            "vision_config": _vision(),
            "image_token_id": ids["bos_token_id"],
            "pad_token_id": ids["pad_token_id"],
        },
    ),
    "chameleon": (
        "ChameleonForConditionalGeneration",
        "ChameleonConfig",
        lambda ids: (
            _GROUPED
            | ids
            | {
                "vocabulary_map": {"<image>": ids["bos_token_id"], "!": 0}
                | {f"IMGIMG{'ABCD'[n]}Z": token_id for n, token_id in enumerate(_CODES)},
                "vq_config": _QUANTISER | {"num_embeddings": 4, "resolution": 16, "channel_multiplier": [1]},
            }
        ),
    ),
    "emu3": (
        "Emu3ForConditionalGeneration",
        "Emu3Config",
        lambda ids: {
            "text_config": _GROUPED | ids,
            "vocabulary_map": {"<image>": ids["bos_token_id"], "<|extra_200|>": ids["eos_token_id"]}
            | {f"<|visual token {n:06}|>": token_id for n, token_id in enumerate(_CODES)},
            "vq_config": _QUANTISER | {"codebook_size": 4, "channel_multiplier": [1, 1]},
        },
    ),
    "t5": ("T5ForConditionalGeneration", "T5Config", lambda ids: _T5 | ids),
    "t5-encoder": ("T5EncoderModel", "T5Config", lambda ids: _T5 | ids),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config", lambda ids: _T5 | ids | {"tie_word_embeddings": False}),
    "bart": ("BartForConditionalGeneration", "BartConfig", lambda ids: _SEQ2SEQ | ids),
    "marian": ("MarianMTModel", "MarianConfig", lambda ids: _SEQ2SEQ | ids | {"max_position_embeddings": 64}),
    "marian-unshared": (
        "MarianMTModel",
        "MarianConfig",
        lambda ids: _SEQ2SEQ | ids | {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    ),
    "fsmt": (
        "FSMTForConditionalGeneration",
        "FSMTConfig",
        lambda ids: (
            _SEQ2SEQ
            | {name: n for name, n in ids.items() if name != "vocab_size"}
            | {"src_vocab_size": ids["vocab_size"], "tgt_vocab_size": ids["vocab_size"], "langs": ["en", "et"]}
        ),
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        lambda ids: _SEQ2SEQ | ids | {"max_source_positions": 16, "max_target_positions": 16, "num_mel_bins": 8},
    ),
    "bert": ("BertForMaskedLM", "BertConfig", lambda ids: _BODY | ids),
    "bert-without-head": ("BertModel", "BertConfig", lambda ids: _BODY | ids),
    "roberta": ("RobertaForMaskedLM", "RobertaConfig", lambda ids: _BODY | ids | {"max_position_embeddings": 900}),
    "electra": ("ElectraForMaskedLM", "ElectraConfig", lambda ids: _BODY | ids | {"embedding_size": 16}),
    "modernbert": (
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        lambda ids: _BODY | ids | _image_ids(ids["bos_token_id"], "cls", "sep"),
    ),
}
"""Architectures of transformers: the classes of model and config, and the config by the ids and the number of rows."""


def tiny_model(name, folder, rows=None, **settings):
    """A folder with a random model of an architecture, and a tokenizer; returns the tokenizer and the class."""
    base = tg.load(builders.write(folder, builders.byte_level()))
    start, end = base.added[0].id, base.added[-1].id
    ids = {"vocab_size": rows or base.n_rows, "bos_token_id": start, "eos_token_id": end, "pad_token_id": end}
    model_class, config_class, config = ARCHITECTURES[name]
    kind = getattr(transformers, model_class)
    torch.manual_seed(11)
    model = kind(getattr(transformers, config_class)(**config(ids) | settings))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.2)
    model.save_pretrained(folder)
    return base, kind


def texts(folder):
    """Writes Estonian and English to learn from, and Estonian that is held out; returns the folder."""
    (folder / "et.txt").write_text("\n".join(ESTONIAN[:300]), encoding="utf-8")
    (folder / "held-out.txt").write_text("\n".join(ESTONIAN[300:340]), encoding="utf-8")
    (folder / "en.txt").write_text("\n".join(ENGLISH), encoding="utf-8")
    return folder


def model_in(folder, **options):
    """The model of a folder, in 32 bits."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
