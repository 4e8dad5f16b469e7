"""The check of llama.cpp's converter: the hash of the ids of one text."""

import json
import re

import builders
import pytest

import tokengraft as tg
from tokengraft.counts.llama_cpp import check_text_counts
from tokengraft.tokenizer.llama_cpp import (
    ConverterCheck,
    check_ids,
    check_tokens,
    converter_check,
    converter_table,
    ids_hash,
    skipping_warning,
)

TYPES = {"llama3": "smaug-bpe", "mistral_nemo": "tekken", "qwen2_5": "qwen2", "smollm2": "smollm"}


def test_the_table_has_hashes_types_and_its_source():
    table = converter_table()
    assert "llama.cpp" in table.source
    assert len(table.check_text) > 300
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in table.types)
    assert {"llama-bpe", "qwen2", "tekken", "smollm"} <= {*table.types.values()}


def templated(folder, before, after):
    """A folder whose post-processor puts special tokens around text."""
    document = builders.byte_level()
    ids = {token["content"]: token["id"] for token in document["added_tokens"]}
    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in ids}
    around = [[{"SpecialToken": {"id": name, "type_id": 0}} for name in names] for names in (before, after)]
    single = [*around[0], {"Sequence": {"id": "A", "type_id": 0}}, *around[1]]
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    document["post_processor"] = {"type": "Sequence", "processors": [byte_level, template]}
    return builders.write(folder, document)


@pytest.mark.parametrize("before", [[], ["<|start|>"], ["<|end|>", "<|start|>"]])
@pytest.mark.parametrize("after", [[], ["<|end|>"]])
def test_hashed_ids_are_those_that_transformers_encodes(tmp_path, before, after):
    transformers = pytest.importorskip("transformers")
    folder = templated(tmp_path / "model", before, after)
    expected = transformers.AutoTokenizer.from_pretrained(folder).encode(converter_table().check_text)
    assert check_ids(tg.load(folder)) == expected


@pytest.mark.parametrize("name", ["LlamaTokenizer", "LlamaTokenizerFast", "CohereTokenizerFast", "GemmaTokenizerFast"])
@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, (["<|start|>"], [])),
        ({"add_bos_token": True}, (["<|start|>"], [])),
        ({"add_bos_token": False}, ([], [])),
        ({"add_bos_token": True, "add_eos_token": True}, (["<|start|>"], ["<|end|>"])),
    ],
)
def test_classes_that_add_special_tokens_by_their_settings_do_so(tmp_path, name, flags, expected):
    """What transformers 4.57.6 does with a file whose post-processor adds nothing (recorded; version 5 does not)."""
    folder = builders.write(tmp_path / "model", builders.byte_level())
    settings = {"tokenizer_class": name, "bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}} | flags
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = tg.load(folder)
    text = tokenizer.encode(converter_table().check_text)
    before, after = ([tokenizer.ids[token] for token in tokens] for tokens in expected)
    assert check_ids(tokenizer) == [*before, *text, *after]


def test_deepseek_has_its_type_by_its_class(tmp_path):
    folder = builders.write(tmp_path / "model", builders.deepseek())
    assert converter_check(tg.load(folder)).type == "joyai-llm"  # which is DeepSeek without BOS
    settings = {"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<｜begin▁of▁sentence｜>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert converter_check(tg.load(folder)).type == "deepseek-v3"


def test_real_tokenizers_have_the_types_that_the_converter_gives(shared_data):
    transformers = pytest.importorskip("transformers")
    for name, expected in TYPES.items():
        tokenizer = tg.load(shared_data / name)
        check = converter_check(tokenizer)
        assert check.type == expected
        assert check.known
        assert check.line is None
        upstream = transformers.AutoTokenizer.from_pretrained(shared_data / name)
        assert check.hash == ids_hash(upstream.encode(converter_table().check_text))


@pytest.mark.parametrize("method", ["leaf-frequency", "last-id", "last-id-leaf", "frequency", "merge"])
def test_pruning_that_spares_the_tokens_of_the_check_text_keeps_the_hash(tmp_path, method):
    base = tg.load(builders.write(tmp_path / "model", builders.byte_level()))
    counts, spared = tg.count(base, iter(builders.TEXT)), tg.Protection(check_tokens(base))
    pruned = tg.prune_order(base, counts, method=method, protection=spared).apply(base)
    assert len(pruned.tokens) < len(base.tokens)
    assert converter_check(pruned).hash == converter_check(base).hash
    without = tg.prune_order(base, counts, method=method).apply(base)
    assert converter_check(without).hash != converter_check(base).hash


def test_the_counts_have_the_pretokens_of_the_text(tiny_folder):
    tokenizer = tg.load(tiny_folder)
    counts = check_text_counts(tokenizer)
    ids = tokenizer.encode(converter_table().check_text)
    occurrences = {token: ids.count(token) for token in sorted({*ids})}
    assert counts.tokens(tokenizer) == occurrences
    assert counts.totals.documents == 1


@pytest.mark.parametrize(
    ("pre_type", "skips", "warns"),
    [
        ("llama-bpe", True, None),
        ("llama-bpe", False, "llama.cpp skips"),
        ("smaug-bpe", True, "the tokenizer skips"),
        ("smaug-bpe", False, None),
        ("of my own", True, None),
        (None, True, None),
    ],
)
def test_a_type_that_skips_merges_where_the_tokenizer_does_not_gives_a_warning(tmp_path, pre_type, skips, warns):
    tokenizer = tg.load(builders.write(tmp_path / "model", builders.byte_level(ignore_merges=skips)))
    warning = skipping_warning(tokenizer, pre_type)
    assert warning is None if warns is None else warning.startswith(warns)


def test_an_unknown_hash_of_a_known_base_gives_the_lines_to_add():
    check = ConverterCheck("00ff", None, "llama-bpe")
    assert not check.known
    assert check.line == '        if chkhsh == "00ff":\n            res = "llama-bpe"'
    # known, but as something else than the base: llama.cpp would split text in another way
    assert ConverterCheck("00ff", "qwen2", "llama-bpe").line is not None
    assert ConverterCheck("00ff", None, None).line is None
    assert ConverterCheck("00ff", "qwen2", "qwen2").line is None
