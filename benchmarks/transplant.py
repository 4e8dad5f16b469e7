"""Transplanting a large checkpoint against copying it, and against the route through torch.

    python benchmarks/transplant.py [--layers 4] [--width 4096] [--torch]

Builds a checkpoint with the vocabulary and width of an 8-billion-parameter Llama-3 and as many layers as are asked for,
in three shards as large models have them (the input table with half of the layers, a quarter of the layers, the rest
with the output table), then extends it by 16,000 tokens that are already known.
Prints the wall time and the peak memory of `tokengraft transplant` in a process of its own, the wall time of `cp` of
the shards that hold tables, both after the files were read once, and the ratio. The layers are scaled down: they are
copied or shared, and say nothing about the tables. With --torch the same through transformers' own loading, resizing
and saving, which needs the whole model in memory.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from machine import print_setting

import tokengraft as tg
from tokengraft.checkpoint.tensors import TensorInfo, header_bytes

FILES = ("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a tokenizer folder, such as Llama-3's")
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--add", type=int, default=16_000)
    parser.add_argument("--torch", action="store_true", help="also the route through torch")
    parser.add_argument("--folder", help="where to work, several times the size of the tables")
    options = parser.parse_args()
    print_setting("numpy", "torch", "transformers")
    with tempfile.TemporaryDirectory(dir=options.folder) as work:
        run(Path(work), options)


def run(work: Path, options: argparse.Namespace) -> None:
    model = work / "model"
    base = tg.load(options.tokenizer)
    tg.save(base, model)
    build(model, base.n_rows, options)
    tg.save(grown(base, options.add), work / "new")
    tables = [model / FILES[0], model / FILES[2]]
    size = sum(path.stat().st_size for path in tables)
    print(f"shards with tables {size / 1e9:.2f} GB, all {sum(p.stat().st_size for p in model.iterdir()) / 1e9:.2f} GB")
    copying = best(lambda at: copy(tables, work / f"copy-{at}"), work)
    command = [sys.executable, "-m", "tokengraft", "transplant", str(model), str(work / "new"), "--quiet", "--json"]
    seconds = best(
        lambda at: subprocess.run([*command, "--out", str(work / f"out-{at}")], check=True, stdout=subprocess.DEVNULL),
        work,
    )
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e6
    inside = time.perf_counter()
    tg.transplant(model, work / "new", work / "inside")
    inside = time.perf_counter() - inside
    print(f"cp of the shards with tables   {copying:6.2f} s")
    print(f"tokengraft transplant          {seconds:6.2f} s, {seconds / copying:.2f} times cp; peak {peak:.2f} GB")
    print(f"of it from Python, loaded      {inside:6.2f} s, {inside / copying:.2f} times cp; everything compared again")
    if options.torch:
        through_torch(model, work, base.n_rows + options.add, seconds)


def build(model: Path, rows: int, options: argparse.Namespace) -> None:
    """A Llama-shaped checkpoint of noise."""
    width, wide = options.width, options.width * 7 // 2
    config = tg_config(rows, options) | {"intermediate_size": wide}
    (model / "config.json").write_text(json.dumps(config))
    layer = {"self_attn.q_proj": (width, width), "self_attn.o_proj": (width, width)}
    layer |= {"self_attn.k_proj": (width // 4, width), "self_attn.v_proj": (width // 4, width)}
    layer |= {"mlp.gate_proj": (wide, width), "mlp.up_proj": (wide, width), "mlp.down_proj": (width, wide)}
    names = {f"model.layers.{n}.{name}.weight": shape for n in range(options.layers) for name, shape in layer.items()}
    norms = ("input_layernorm", "post_attention_layernorm")
    names |= {f"model.layers.{n}.{name}.weight": (width,) for n in range(options.layers) for name in norms}
    ordered = sorted(names.items(), key=lambda item: int(item[0].split(".")[2]))
    half, quarter = len(ordered) // 2, len(ordered) * 3 // 4
    shards = [
        {"model.embed_tokens.weight": (rows, width)} | dict(ordered[:half]),
        dict(ordered[half:quarter]),
        dict(ordered[quarter:]) | {"lm_head.weight": (rows, width), "model.norm.weight": (width,)},
    ]
    for file, tensors in zip(FILES, shards, strict=True):
        write(model / file, tensors)
    held = {name: file for file, tensors in zip(FILES, shards, strict=True) for name in tensors}
    index = {"metadata": {"total_size": 0}, "weight_map": held}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))


def tg_config(rows: int, options: argparse.Namespace) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": options.width,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.width // 128,
        "num_key_value_heads": options.width // 512,
        "vocab_size": rows,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }


def write(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    infos = [TensorInfo(name, "BF16", shape, 0, 2 * int(np.prod(shape))) for name, shape in shapes.items()]
    header, _ = header_bytes(infos, {"format": "pt"})
    generator = np.random.default_rng(0)
    with path.open("wb") as stream:
        stream.write(header)
        left = sum(info.size for info in infos)
        while left:
            block = generator.integers(0x3C00, 0x3F00, min(left, 1 << 24) // 2, dtype=np.uint16)
            stream.write(block.tobytes())
            left -= 2 * len(block)


def grown(base: tg.Tokenizer, n: int) -> tg.Tokenizer:
    """The tokenizer with so many more tokens, each of two that there are."""
    from tokengraft.tokenizer.edit import add_tokens

    words = [token.string for token in base.tokens if token.id >= 1000 and token.string.startswith("Ġ")]
    known, tokens, merges = {token.string for token in base.tokens}, [], []
    for left, right in zip(words, words[1:] * 9, strict=False):
        if len(tokens) == n:
            break
        if left + right not in known:
            known.add(left + right)
            tokens.append(left + right)
            merges.append((left, right))
    return add_tokens(base, tokens, merges)


def copy(paths: list[Path], out: Path) -> None:
    out.mkdir()
    subprocess.run(["cp", "--reflink=never", *map(str, paths), str(out)], check=True)
    os.sync()


def best(work, folder: Path, times: int = 3) -> float:
    """The shortest of some runs; what each wrote is removed."""
    seconds = []
    for at in range(times):
        start = time.perf_counter()
        work(at)
        seconds.append(time.perf_counter() - start)
        for path in (*folder.glob("copy-*"), *folder.glob("out-*")):
            shutil.rmtree(path)
    return min(seconds)


def through_torch(model: Path, work: Path, rows: int, seconds: float) -> None:
    code = (
        "import resource, sys, torch; from transformers import AutoModelForCausalLM as M;"
        f"m = M.from_pretrained({str(model)!r}, dtype=torch.bfloat16); m.resize_token_embeddings({rows});"
        f"m.save_pretrained({str(work / 'torch')!r});"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6)"
    )
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    took = time.perf_counter() - start
    peak = float(done.stdout)
    print(f"load, resize, save with torch  {took:6.2f} s, {took / seconds:.1f} times tokengraft; peak {peak:.2f} GB")


if __name__ == "__main__":
    main()
