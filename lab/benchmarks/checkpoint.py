"""A checkpoint of noise with the tables of an 8-billion-parameter Llama-3 and some of its layers, in three shards.

    python -m lab.benchmarks.checkpoint TOKENIZER_FOLDER OUT WIDTH LAYERS

As in large models, the input table is in the first shard, the output table in the last, and the shard between them has
none. Only headers and sizes matter for the time of a transplant, not the numbers.
"""

import json
import sys
from pathlib import Path

import numpy as np

import tokengraft as tg

FILES = tuple(f"model-{at:05}-of-00003.safetensors" for at in (1, 2, 3))


def write_checkpoint(tokenizer: Path, folder: Path, width: int, layers: int) -> None:
    """Writes the model beside its tokenizer."""
    base = tg.load(tokenizer)
    tg.save(base, folder, verify=False)
    (folder / "config.json").write_text(json.dumps(_config(base.n_rows, width, layers)))
    tensors = list(_layers(width, layers).items())
    half, quarter = len(tensors) // 2, len(tensors) * 3 // 4
    table = (base.n_rows, width)
    shards = [
        {"model.embed_tokens.weight": table} | dict(tensors[:half]),
        dict(tensors[half:quarter]),
        dict(tensors[quarter:]) | {"lm_head.weight": table, "model.norm.weight": (width,)},
    ]
    for file, shapes in zip(FILES, shards, strict=True):
        _write(folder / file, shapes)
    index = {name: file for file, shapes in zip(FILES, shards, strict=True) for name in shapes}
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": index})
    (folder / "model.safetensors.index.json").write_text(text)


def _config(rows: int, width: int, layers: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": width * 7 // 2,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 128,
        "num_key_value_heads": width // 512,
        "vocab_size": rows,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }


def _layers(width: int, layers: int) -> dict[str, tuple[int, ...]]:
    wide = width * 7 // 2
    shapes: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (width // 4, width),
        "self_attn.v_proj": (width // 4, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (wide, width),
        "mlp.up_proj": (wide, width),
        "mlp.down_proj": (width, wide),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    return {f"model.layers.{n}.{name}.weight": shape for n in range(layers) for name, shape in shapes.items()}


def _write(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    """A safetensors file in bf16: the length of the header, the header, the numbers."""
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 2 * int(np.prod(shape))
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    generator = np.random.default_rng(0)
    with path.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, end, 1 << 24):
            stream.write(generator.integers(0x3C00, 0x3F00, min(end - at, 1 << 24) // 2, dtype=np.uint16).tobytes())


if __name__ == "__main__":
    write_checkpoint(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
