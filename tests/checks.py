"""What the tests of `check` share."""

import json
from dataclasses import replace
from types import MappingProxyType

import builders
import pytest

import tokengraft as tg
from tokengraft.tokenizer.rank_file import TEKKEN

SETTINGS = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|start|>", "add_bos_token": True}
SETTINGS |= {"eos_token_id": [395, 396]}
FULL = SETTINGS | {"model_max_length": 4096, "eos_token": "<|end|>", "add_prefix_space": False, "pad_token_id": 395}
FULL |= {"clean_up_tokenization_spaces": False, "auto_map": {"AutoTokenizer": ["tokenization_x.X", None]}}


def outcome(found, name):
    return next(finding for finding in found.findings if finding.name == name)


def template(content, token_id):
    """A post-processor that puts a token before a text."""
    special, sequence = {"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    tokens = {content: {"id": content, "ids": [token_id], "tokens": [content]}}
    ends = {"single": [special, sequence], "pair": [special, sequence, {"Sequence": {"id": "B", "type_id": 1}}]}
    return {"type": "TemplateProcessing", **ends, "special_tokens": tokens}


def with_files(tokenizer, **files):
    return replace(tokenizer, files=MappingProxyType({**tokenizer.files, **files}))


def with_merges(tokenizer, change):
    return tokenizer.with_tokens(tokenizer.ids, change(tokenizer.merge_strings()))


def outcomes(source, stack):
    """The outcome of every check of a stack, by name."""
    return {found.name.removeprefix(f"{stack}: "): found.outcome for found in tg.check_serving(source, stack).findings}


def one(source, stack, name):
    """One finding of a stack."""
    found = tg.check_serving(source, stack).findings
    return next(finding for finding in found if finding.name == f"{stack}: {name}")


def edit(path, **fields):
    """Sets fields of a JSON file. None removes one."""
    content = json.loads(path.read_text()) if path.exists() else {}
    content |= fields
    path.write_text(json.dumps({name: value for name, value in content.items() if value is not None}))


def byte_level_folder(folder):
    """A folder with every kind of file that a byte-level tokenizer may have."""
    document = builders.byte_level() | {"post_processor": template("<|start|>", 395)}
    model, tokens = document["model"], document["added_tokens"]
    model["vocab"] |= {"<|start|>": 395, "<|end|>": 396, "qz": 397}  # the last one is made by no merge
    decoder = {str(entry["id"]): {k: v for k, v in entry.items() if k != "id"} for entry in tokens}
    lines = "".join(" ".join(pair) + "\n" for pair in model["merges"])
    others = {
        "tokenizer_config.json": json.dumps(FULL | {"added_tokens_decoder": decoder}),
        "special_tokens_map.json": json.dumps({"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}}),
        "chat_template.jinja": "{{ '<|end|>' }}",
        "added_tokens.json": '{"<|start|>": 395, "<|end|>": 396}',
        "vocab.json": json.dumps(model["vocab"]),
        "merges.txt": f"#version: 0.2\n{lines}",
        "tokenization_x.py": "class X: pass\n",
    }
    return builders.write(folder, document, **others)


def sentencepiece_folder(folder):
    """A folder with a SentencePiece model, all fields of which are set, and the tokenizer.json that is made of it."""
    pb = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    model = pb.ModelProto.FromString(builders.llama2_like())
    model.trainer_spec.bos_piece = "<s>"
    model.denormalizer_spec.name = "identity"
    return builders.write_pieces(folder, model.SerializeToString())


def tekken_folder(folder):
    folder.mkdir()
    learned = sorted((t for t in builders.ranks_of(builders.byte_level()) if len(t) > 1), key=len)
    (folder / "tekken.json").write_bytes(builders.tekken_file(learned, ["<s>", "</s>"], TEKKEN))
    return folder
