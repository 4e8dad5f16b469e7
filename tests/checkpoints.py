"""Checkpoints of noise for tests, beside tiny tokenizers; and texts in three languages."""

import json
import math

import builders
import numpy as np
from safetensors import safe_open

import tokengraft as tg
from tokengraft.checkpoint.draft import maps_of
from tokengraft.checkpoint.tensors import TensorFile, narrow, widen

ESTONIAN = [f"põdrad põõsas {n} õunad õues ja kassid koerad jooksevad" for n in range(400)]
LATVIAN = [f"kaķis sēž uz paklāja {n} un suns skrien pa ielu" for n in range(300)]
ENGLISH = [f"the cat {n} sat on the mat and the other cat" for n in range(500)]
WIDTH = 16
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": WIDTH, "initializer_range": 0.02}


def checkpoint(folder, *, rows=None, dtype="BF16", shards=1, head=True, bias=False, config=None, prefix="model."):
    """A checkpoint folder with random weights beside a tiny tokenizer, which is returned.

    With `tie_word_embeddings` in the config, a stored head is equal to the embedding.
    """
    builders.write(folder, builders.byte_level())
    base = tg.load(folder)
    rows = rows or base.n_rows
    generator = np.random.default_rng(7)
    names = {f"{prefix}embed_tokens.weight": (rows, WIDTH), f"{prefix}layers.0.weight": (5, 7)}
    names |= {f"{prefix}layers.1.weight": (9, WIDTH), f"{prefix}norm.weight": (WIDTH,)}
    names |= {"lm_head.weight": (rows, WIDTH)} if head else {}
    names |= {"lm_head.bias": (rows,)} if bias else {}
    tensors = {}
    for name, shape in names.items():
        tensors[name] = tensor(shape, dtype, generator)
    if head and (config or {}).get("tie_word_embeddings"):
        tensors["lm_head.weight"] = tensors[f"{prefix}embed_tokens.weight"]
    eos = base.added[-1].id
    settings = LLAMA | {"vocab_size": rows, "eos_token_id": eos, "bos_token_id": [base.added[0].id], "pad_token_id": -1}
    settings |= {"tie_word_embeddings": not head} | (config or {})
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [eos], "suppress_tokens": [65, eos]}))
    (folder / "LICENSE").write_text("yours")
    (folder / "pytorch_model.bin").write_bytes(b"old weights")
    write_shards(folder, tensors, shards)
    return base


def eagle(folder, rows, *, head=None, ids=None, shards=1, embed=False, **config):
    """A draft with the names and shapes of EAGLE-3. By default its head has all ids."""
    folder.mkdir()
    generator = np.random.default_rng(3)
    shapes = {"fc.weight": (WIDTH, 3 * WIDTH), "midlayer.self_attn.q_proj.weight": (WIDTH, 2 * WIDTH)}
    shapes |= {"lm_head.weight": (head or rows, WIDTH), "norm.weight": (WIDTH,)}
    shapes |= {"embed_tokens.weight": (rows, WIDTH)} if embed else {}
    tensors = {
        name: tensor(shape, "BF16", generator) for name, shape in shapes.items() if head != 0 or "lm_" not in name
    }
    for name, array in zip(("d2t", "t2d"), maps_of(ids, rows) if ids is not None else (), strict=False):
        kind = "I64" if name == "d2t" else "BOOL"
        tensors[name] = {"dtype": kind, "shape": [*array.shape], "data": array.tobytes()}
    settings = {"architectures": ["LlamaForCausalLMEagle3"], "vocab_size": rows, "hidden_size": WIDTH}
    settings |= {"draft_vocab_size": head or rows, "bos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(settings | config))
    (folder / "README.md").write_text("a draft")
    write_shards(folder, tensors, shards)
    return folder


def write_texts(folder, **others):
    """Writes `et.txt`, `lv.txt`, `en.txt` and further texts by name, a document a line, and returns the folder."""
    for name, lines in ({"et": ESTONIAN, "lv": LATVIAN, "en": ENGLISH} | others).items():
        (folder / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return folder


def changed(base, *, remove=0, add=0, compact=False, **protected):
    """The tokenizer after pruning and learning from Estonian. ``protected`` are fields of `Protection`."""
    if remove:
        order = tg.prune_order(base, tg.count(base, iter(builders.TEXT)), protection=tg.Protection(**protected))
        base = order[:remove].apply(base)
    if add:
        base = tg.extend(base, tg.count(base, iter(ESTONIAN)), add).apply(base)
    return base.compact() if compact else base


def tensor(shape, dtype, generator):
    values = generator.normal(size=shape).astype(np.float32).reshape(shape[0], math.prod(shape[1:]))
    return {"dtype": dtype, "shape": list(shape), "data": narrow(values, dtype).tobytes()}


def add_tensor(folder, name, shape, dtype="BF16"):
    """Gives a checkpoint of one weight file one more tensor."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    tensors = {
        old.name: {"dtype": old.dtype, "shape": list(old.shape), "data": raw[old.start : old.start + old.size]}
        for old in TensorFile.open(path).tensors.values()
    }
    tensors[name] = tensor(shape, dtype, np.random.default_rng(8))
    write_safetensors(tensors, path, {"format": "pt"})


def set_config(folder, name="config.json", **fields):
    """Changes fields of a config."""
    config = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(config | fields))


def write_shards(folder, tensors, shards):
    if shards == 1:
        write_safetensors(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names, index = list(tensors), {}
    for at in range(shards):
        file = f"model-{at + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[at::shards]}
        write_safetensors(part, folder / file, {"format": "pt"})
        index |= dict.fromkeys(part, file)
    size = sum(len(part["data"]) for part in tensors.values())
    document = {"metadata": {"total_size": size}, "weight_map": index}
    (folder / "model.safetensors.index.json").write_text(json.dumps(document, indent=2))


def write_safetensors(tensors, path, metadata):
    """A safetensors file by hand: the library's writer wants whole arrays, and numpy has no bf16."""
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, part in tensors.items():
        size = len(part["data"])
        header[name] = {"dtype": part["dtype"], "shape": part["shape"], "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(t["data"] for t in tensors.values()))


def tables(folder):
    """Every tensor of a checkpoint as floats, by the library's own reading of shapes and our bytes."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "np") as opened:
            names = list(opened.keys())
        file = TensorFile.open(path)
        assert sorted(names) == sorted(file.tensors)
        raw = path.read_bytes()
        for name, info in file.tensors.items():
            data = np.frombuffer(raw[info.start : info.start + info.size], np.uint8)
            found[name] = widen(data.reshape(info.shape[0], -1), info.dtype)
    return found


def raw(folder):
    """The type, shape and bytes of every tensor."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        data = path.read_bytes()
        for info in TensorFile.open(path).tensors.values():
            found[info.name] = info.dtype, info.shape, data[info.start : info.start + info.size]
    return found


def head_of(folder, name="lm_head.weight"):
    """The rows of a head, as bits."""
    _, shape, data = raw(folder)[name]
    return np.frombuffer(data, "<u2").reshape(shape)


def maps(folder):
    found = raw(folder)
    return np.frombuffer(found["d2t"][2], "<i8"), np.frombuffer(found["t2d"][2], "?")


def chosen(**values):
    """Arguments of `adapt`: sizes, and `AdaptOptions` of all others, without a report if none is asked for."""
    sizes = {name: values.pop(name) for name in ("add", "remove", "swap") if name in values}
    return {**sizes, "options": tg.AdaptOptions(**{"report": False} | values)}


def adapted(texts, source="model", out="out", *, target="et.txt", start=tg.adapt, **values):
    """An adaptation of a folder to a text beside it. A string is the name of a text in the folder."""
    places = {"target": target} | ({"keep": values.pop("keep")} if "keep" in values else {})
    places = {name: texts / text if isinstance(text, str) else text for name, text in places.items()}
    return start(texts / source, **places, out=texts / out, **chosen(**values))
