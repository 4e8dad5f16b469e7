"""The check of llama.cpp's converter: the hash of the ids of one text."""

import json
import re
from pathlib import Path

import builders
import pytest
from checkpoints import ESTONIAN, checkpoint

import tokengraft as tg
from tokengraft import cli
from tokengraft.counts.count import check_text_counts
from tokengraft.tokenizer.llama_cpp import (
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


CHECK_WORDS = "apple's don't 3333 Führer 🚀 Здравейте"
TEXT = "\n".join(f"{CHECK_WORDS} põdrad põõsas õunad õues kass {n}" for n in range(200))


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A folder that the converter knows, as `tiny`, with a text that would change its hash."""
    folder = builders.write(tmp_path / "model", builders.byte_level())
    monkeypatch.setitem(converter_table().types, converter_check(tg.load(folder)).hash, "tiny")
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tg.load(folder)


def found(folder, base):
    return converter_check(tg.load(folder), base)


EDITS = {
    "extend": "extend model --corpus text.txt --add 30 --quiet",
    "prune": "prune model --method last-id-leaf --remove 60 --quiet --ids keep",
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_keeps_the_hash_where_it_is_asked_to(known, capsys, tokengraft, edit):
    command = EDITS[edit].split()
    assert cli.main([*command, "--out", "free"]) == 0
    assert not found("free", known).known
    assert cli.main([*command, "--out", "kept", "--keep-llama-cpp-hash"]) == 0
    assert found("kept", known).known
    capsys.readouterr()
    assert 'res = "tiny"' in tokengraft("check", "free", "--base", "model", "--for", "llama.cpp", code=1).out
    assert (
        "known to the converter as `tiny`" in tokengraft("check", "kept", "--base", "model", "--for", "llama.cpp").out
    )


@pytest.mark.usefixtures("known")
def test_a_hash_is_not_kept_by_ids_that_move(tokengraft):
    command = EDITS["prune"].replace("--ids keep", "--keep-llama-cpp-hash --out moved").split()
    assert "pass --ids keep too" in tokengraft(*command, code=2).err


def test_a_swap_keeps_the_hash_unless_told_otherwise(known):
    kept = tg.adapt("model", target="text.txt", swap=20, out="kept")
    assert "llama.cpp hash" in {finding.name for finding in kept.check.findings}
    assert found("kept", known).known
    free = tg.adapt("model", target="text.txt", swap=20, out="free", options=tg.AdaptOptions(keep_llama_cpp_hash=False))
    assert not converter_check(free.tokenizer, known).known
    with pytest.raises(tg.TokengraftError, match="ids that do not move"):
        tg.adapt("model", target="text.txt", remove=20, out="x", options=tg.AdaptOptions(keep_llama_cpp_hash=True))


@pytest.mark.usefixtures("known")
def test_a_hash_that_was_asked_for_is_kept_or_nothing_is_written(tmp_path):
    """Too few tokens can be learned, so ids are renumbered without holes, and the ids of the check text move."""
    (tmp_path / "short.txt").write_text("".join(f"zzyyxx zzyyxx {n}\n" for n in range(200)), encoding="utf-8")
    options = tg.AdaptOptions(keep_llama_cpp_hash=True)
    with pytest.raises(tg.TokengraftError, match=r"llama\.cpp hash"):
        tg.adapt("model", target="short.txt", remove=40, add=40, out="lost", options=options)
    assert not (tmp_path / "lost").exists()


def test_a_swap_warns_if_a_stack_moves_the_ids_of_the_check_text(known, monkeypatch):
    holes = {string: i for string, i in known.ids.items() if i != 261}
    base = known.with_tokens(holes, [(a, b) for a, b in known.merge_strings() if {a, b, a + b} <= holes.keys()])
    tg.save(base, "holes", verify=False)
    monkeypatch.setitem(converter_table().types, converter_check(base).hash, "tiny")
    options = tg.AdaptOptions(stacks=("ollama",))
    done = tg.adapt("holes", target="text.txt", swap=5, out="out", options=options)
    assert not converter_check(done.tokenizer, base).known
    assert any("llama.cpp hash" in warning for warning in done.warnings)


def test_the_check_text_is_preserved_beside_text_that_was_normalized(known):
    options = tg.AdaptOptions(preserve_keep=True, read_options=tg.ReadOptions(documents="lines", normalize="nfkc"))
    Path("keep.txt").write_text("\n".join(f"the cat {n}" for n in range(200)))
    done = tg.adapt("model", target="text.txt", keep="keep.txt", swap=5, out="kept", options=options)
    assert found("kept", known).known
    assert done.check.passed
    command = "extend model --corpus text.txt --add 5 --preserve text.txt --preserve-exactly --quiet"
    assert cli.main([*command.split(), "--keep-llama-cpp-hash", "--min-count", "1", "--out", "both"]) == 0


def test_a_hash_that_is_unknown_cannot_be_kept(tmp_path, tokengraft):
    builders.write(tmp_path / "model", builders.byte_level())
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    command = ["extend", str(tmp_path / "model"), "--corpus", str(tmp_path / "text.txt"), "--add", "5", "--quiet"]
    assert "cannot be kept" in tokengraft(*command, "--keep-llama-cpp-hash", "--out", tmp_path / "out", code=2).err


def test_adapting_for_a_stack_chooses_rows_and_ids_for_it(tmp_path):
    checkpoint(tmp_path / "model")
    (tmp_path / "et.txt").write_text("\n".join(ESTONIAN), encoding="utf-8")
    options = tg.AdaptOptions(stacks=("vllm", "ollama"))
    done = tg.adapt(tmp_path / "model", target=tmp_path / "et.txt", add=9, out=tmp_path / "out", options=options)
    assert done.transplant.rows_after % 64 == 0
    assert len(done.tokenizer.ids) == done.tokenizer.n_rows
    options = tg.AdaptOptions(stacks=("vlm",))
    with pytest.raises(tg.TokengraftError, match="no serving stack 'vlm'"):
        tg.adapt(tmp_path / "model", target=tmp_path / "et.txt", add=9, out=tmp_path / "x", options=options)
