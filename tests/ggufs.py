"""Tiny GGUF files for tests, written by the `gguf` package as llama.cpp's converter does."""

import hashlib

import builders
import numpy as np

import tokengraft as tg
from tokengraft.tokenizer.piece_model import NORMAL

WIDTH = 64
NORMAL_TYPE, UNKNOWN_TYPE, CONTROL_TYPE, USER_TYPE, UNUSED_TYPE, BYTE_TYPE = range(1, 7)


def changed(folder, change):
    """A tokenizer with another tokenizer.json."""
    document = builders.byte_level()
    change(document)
    return tg.load(builders.write(folder, document))


def sha(path):
    """The hash of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_gguf(
    path,
    tokenizer,
    *,
    table="F32",
    head=None,
    bias=False,
    alignment=None,
    rows=None,
    pre="test-pre",
    keys=(),
    tensors=(),
    without=(),
):
    """A model of random numbers with the tokens of a tokenizer. ``head`` is the type of an untied output.

    ``keys`` are calls of the writer: a method's name and its arguments. ``tensors`` are further names and shapes.
    """
    import gguf

    rows = rows or tokenizer.n_rows
    writer = gguf.GGUFWriter(path, "llama")
    if alignment:
        writer.add_custom_alignment(alignment)
    writer.add_name("tiny")
    writer.add_vocab_size(rows)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(1)
    _write_tokenizer(writer, tokenizer, rows, pre, without)
    writer.add_chat_template("{{ messages }}")
    for method, *arguments in keys:
        getattr(writer, method)(*arguments)
    generator = np.random.default_rng(3)
    for name, shape, dtype in [
        ("token_embd.weight", (rows, WIDTH), table),
        ("blk.0.attn_q.weight", (3, 32), "Q4_0"),
        ("blk.0.ffn_norm.weight", (5,), "F32"),
        *([("output.weight", (rows, WIDTH), head)] if head else []),
        *([("output.bias", (rows,), "F32")] if bias else []),
        *((name, shape, "F32") for name, shape in tensors),
        ("output_norm.weight", (7,), "F32"),
    ]:
        _write_tensor(writer, name, generator.normal(size=shape).astype(np.float32), dtype)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer, tokenizer, rows, pre, without):
    added = {token.id: token for token in tokenizer.added}
    model = tokenizer.piece_model
    tokens, types, scores = [], [], []
    for i in range(rows):
        string = tokenizer.strings.get(i)
        tokens.append(f"[PAD{i}]" if string is None else string)
        types.append(_type(i, string, added, model))
        scores.append(model.pieces[i].score if model and i < len(model.pieces) else -10000.0)
    by_merges = tokenizer.kind == "byte-level"
    writer.add_tokenizer_model("gpt2" if by_merges else "llama")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if by_merges and "merges" not in without:
        writer.add_token_merges([" ".join(pair) for pair in tokenizer.merge_strings()])
    if not by_merges and "scores" not in without:
        writer.add_token_scores(scores)
    if tokenizer.added:
        writer.add_bos_token_id(tokenizer.added[0].id)
        writer.add_eos_token_id(tokenizer.added[-1].id)


def _type(token_id, string, added, model):
    if string is None:
        return UNUSED_TYPE
    if model:
        return model.pieces[token_id].type
    if token_id in added:
        return CONTROL_TYPE if added[token_id].special else USER_TYPE
    return NORMAL


def _write_tensor(writer, name, values, dtype):
    import gguf

    number = gguf.GGMLQuantizationType[dtype]
    if dtype in ("F32", "F16"):
        writer.add_tensor(name, values.astype(np.float32 if dtype == "F32" else np.float16))
    else:
        writer.add_tensor(name, gguf.quants.quantize(values, number), raw_dtype=number)


def read(path):
    """A GGUF file by the package's own reader: values of keys, and tensors with their type and bytes by row."""
    import gguf

    reader = gguf.GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {tensor.name: (tensor.tensor_type.name, np.array(tensor.data)) for tensor in reader.tensors}
    return keys, tensors


def values(dtype, data):
    """The numbers of a tensor."""
    import gguf

    return gguf.quants.dequantize(data, gguf.GGMLQuantizationType[dtype])


def pruned(base, n=20):
    """Without some tokens, the last of which are the longest merges."""
    return tg.prune_order(base, method="last-id-leaf")[:n].apply(base)
