"""What `load` accepts, what it makes of it, and what it refuses and how."""

import json
import os
import pickle
import subprocess
import sys
from copy import copy
from pathlib import Path

import builders
import pytest

import tokengraft as tg
from tokengraft import errors


def load_document(tmp_path, document):
    return tg.load(builders.write(tmp_path / "model", document))


def test_kind_and_flags_are_detected(tmp_path):
    kinds = {name: load_document(tmp_path / name, make()).kind for name, make in builders.TINY.items()}
    assert {kind for name, kind in kinds.items() if name.startswith("sentencepiece")} == {"sentencepiece"}
    assert {kind for name, kind in kinds.items() if not name.startswith("sentencepiece")} == {"byte-level"}
    assert load_document(tmp_path / "skipping", builders.byte_level(ignore_merges=True)).ignore_merges
    assert load_document(tmp_path / "bytes", builders.sentencepiece()).byte_fallback


def test_a_byte_level_normalizer_makes_a_byte_level_tokenizer(tmp_path):
    document = builders.byte_level()
    document |= {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": None}
    assert load_document(tmp_path, document).kind == "byte-level"


def test_merges_of_tokens_with_spaces_load_as_pairs_and_stay_pairs(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"] |= {" ": 900, "  ": 901}
    document["model"]["merges"].append([" ", " "])
    tokenizer = load_document(tmp_path, document)
    assert tokenizer.merges[-1] == (900, 900)
    saved = tg.save(copy(tokenizer), tmp_path / "saved", verify=False)  # a copy does not have the bytes that were read
    assert json.loads((saved / "tokenizer.json").read_bytes()) == document


def test_two_tokens_may_share_bytes(tmp_path):
    tokenizer = load_document(tmp_path, builders.sentencepiece())
    sharing = [token.string for token in tokenizer.tokens if token.bytes == b"a"]
    assert sorted(sharing) == ["<0x61>", "a"]


def test_a_tokenizer_is_frozen_and_keeps_what_it_was_given(tmp_path):
    tokenizer = load_document(tmp_path, builders.byte_level())
    with pytest.raises(AttributeError):
        tokenizer.merges = ()
    with pytest.raises(TypeError):
        tokenizer.vocab["new"] = 1


def test_tokens_are_sorted_by_id_with_holes_left_open(tmp_path):
    tokenizer = load_document(tmp_path, builders.specials_first())
    ids = [token.id for token in tokenizer.tokens]
    assert ids == sorted(ids)
    assert tokenizer.n_rows == ids[-1] + 1 > len(ids)


def test_an_added_token_outside_the_vocabulary_gets_the_id_of_its_place(tmp_path):
    document = builders.byte_level()
    document["added_tokens"][0]["id"] = 7777
    first = load_document(tmp_path, document).added[0]
    assert (first.id, first.listed_id) == (len(document["model"]["vocab"]), 7777)


def test_tokenizer_files_come_along_and_weights_and_configs_do_not(tmp_path):
    others = {"config.json": "{}", "model.safetensors": "x", "generation_config.json": "{}", "README.md": "x"}
    kept = {"vocab.json": "{}", "merges.txt": "a b", "special_tokens_map.json": "{}", "chat_template.jinja": "{{ x }}"}
    folder = builders.write(tmp_path / "model", builders.byte_level(), **others, **kept)
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool.jinja").write_text("{{ tools }}")
    assert dict(tg.load(folder / "tokenizer.json").files) == {}
    saved = tg.save(tg.load(folder), tmp_path / "saved", verify=False)
    found = {path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file()}
    expected = {"tokenizer.json", "tokenizer_config.json", "additional_chat_templates/tool.jinja", *kept}
    assert found == expected


@pytest.mark.parametrize(
    "layout", [{"indent": 4}, {"indent": "\t"}, {"separators": (",", ":")}, {"ensure_ascii": True}, {}]
)
def test_a_rewrite_keeps_the_layout_of_the_file(tmp_path, layout):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    raw = json.dumps(builders.byte_level(), **({"ensure_ascii": False} | layout)).encode() + b"\n"
    (folder / "tokenizer.json").write_bytes(raw)
    rewritten = copy(tg.load(folder))  # without the bytes that were read
    assert (tg.save(rewritten, tmp_path / "saved", verify=False) / "tokenizer.json").read_bytes() == raw


# What is refused. Each says what was found, and what to do.


def refused(tmp_path, document, error, match):
    with pytest.raises(error, match=match) as raised:
        load_document(tmp_path, document)
    assert raised.value.hint


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"{", "not valid JSON"),
        (b'{"model": NaN}', "NaN is not a JSON value"),
        (b'{"model": "\xff"}', "not UTF-8: byte 11"),
        (b"[" * 100_000, "nested deeper"),
        (b'{"a":' * 300 + b"1" + b"}" * 300, "no `model` section"),
        (
            b'{"model": {"vocab": {"a": 0}, "merges": []}, "x": ' + b"[" * 200 + b"]" * 200 + b"}",
            "nested deeper than 128",
        ),
        (b'{"model": {"vocab": {"\\ud800": 0}, "merges": []}}', "half of a surrogate pair"),
    ],
)
def test_a_file_that_is_not_json_is_unreadable(tmp_path, raw, match):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(raw)
    with pytest.raises(errors.TokengraftError, match=match) as raised:
        tg.load(path)
    assert isinstance(raised.value, errors.UnreadableFileError | errors.InvalidTokenizerError)


def without_type():
    document = builders.sentencepiece()
    del document["normalizer"]["normalizers"][0]["type"]
    return document


def with_taken_id():
    document = builders.specials_first()
    document["added_tokens"].append(builders.added(5, "<|new|>"))
    document["model"]["vocab"]["a"] = len(document["model"]["vocab"])
    return document


def normalized(normalizer, *contents):
    """Added tokens that are found in normalized text."""
    document = builders.byte_level() | {"normalizer": normalizer}
    size = len(document["model"]["vocab"])
    added = [builders.added(size + n, content, normalized=True) for n, content in enumerate(contents)]
    return document | {"added_tokens": added}


INVALID, UNSUPPORTED = errors.InvalidTokenizerError, errors.UnsupportedTokenizerError
STRIP = {"type": "Strip", "strip_left": True, "strip_right": True}
REFUSED = [
    *((document, INVALID, "no `model` section") for document in ([], "x", 1, None, {}, {"model": []}, {"model": None})),
    *(
        (builders.document({"type": kind, "vocab": []}, []), UNSUPPORTED, str(kind))
        for kind in ("WordLevel", "Other", 5)
    ),
    *(
        (builders.byte_level(**{name: value}), UNSUPPORTED, name)
        for name, value in (("end_of_word_suffix", "</w>"), ("continuing_subword_prefix", "##"), ("dropout", 0.1))
    ),
    (builders.byte_level() | {"pre_tokenizer": {"type": "Whitespace"}}, UNSUPPORTED, "neither a ByteLevel step nor"),
    (builders.byte_level() | {"pre_tokenizer": {"type": "Invented"}}, INVALID, "cannot read this pipeline"),
    (builders.byte_level() | {"added_tokens": [{"id": "x"}]}, INVALID, "cannot read this pipeline"),
    (without_type(), INVALID, "does not say its `type`"),
    (with_taken_id(), INVALID, "loaders give it the id"),
    (normalized(STRIP, " ", "ab"), INVALID, "is empty after normalization"),
    (normalized({"type": "Lowercase"}, "AB", "ab"), INVALID, "`AB` and `ab` are the same after normalization"),
]


@pytest.mark.parametrize(("document", "error", "match"), REFUSED)
def test_what_is_no_tokenizer_or_one_of_another_type_is_refused(tmp_path, document, error, match):
    refused(tmp_path, document, error, match)


def test_empty_prefix_and_suffix_and_no_dropout_are_fine(tmp_path):
    fine = {"end_of_word_suffix": "", "continuing_subword_prefix": "", "dropout": 0.0}
    assert load_document(tmp_path, builders.byte_level(**fine)).encode("cat")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda m: m.update(vocab={}), "is empty"),
        (lambda m: m.pop("vocab"), "has no `model.vocab` as BPE has it, but NoneType"),
        (lambda m: m.update(merges="a b"), "has no `model.merges` as BPE has it, but str"),
        (lambda m: m["vocab"].update(a="1"), "has the id '1'"),
        (lambda m: m["vocab"].update(a=-1), "has the id -1"),
        (lambda m: m["vocab"].update(a=2**32), "has the id 4294967296"),
        (lambda m: m["vocab"].update(a=5, b=5), "id 5 belongs to two tokens"),
        (lambda m: m["merges"].append(["a", "nowhere"]), "needs the token `nowhere`"),
        (lambda m: m["merges"].append(["q", "q"]), "`qq` is not in the vocabulary"),
        (lambda m: m["merges"].append(m["merges"][3]), "is listed twice, at ranks 3 and"),
        (lambda m: m["merges"].append(["a"]), r"is \['a'\]"),
        (lambda m: m["merges"].append("a b"), "is 'a b'"),
        (lambda m: m["merges"].append(["a", 7]), r"is \['a', 7\]"),
        (lambda m: m.update(merges=["a b c"]), "rank 0 is 'a b c'"),
        (lambda m: m.update(merges=["a b", ["a", "b"]]), r"rank 1 is \['a', 'b'\]"),
        (lambda m: m.update(merges=["#version: 0.2"]), "rank 0 is '#version: 0.2'"),
    ],
)
def test_a_contradictory_model_is_refused(tmp_path, change, match):
    document = builders.byte_level()
    change(document["model"])
    refused(tmp_path, document, errors.InvalidTokenizerError, match)


def test_a_missing_unknown_token_is_an_error_only_for_text_that_needs_it(tmp_path):
    document = builders.sentencepiece(byte_fallback=False)
    document["model"]["unk_token"] = "<nowhere>"
    tokenizer = load_document(tmp_path, document)
    assert tokenizer.encode("cat")
    with pytest.raises(errors.InvalidTokenizerError, match="<nowhere>"):
        tokenizer.encode("猫")


def test_a_folder_without_tokenizer_json_says_what_it_has(tmp_path):
    with pytest.raises(errors.SourceNotFoundError, match="no tokenizer file at all"):
        tg.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"x")
    with pytest.raises(errors.SourceNotFoundError, match=r"it has `tokenizer\.model`"):
        tg.load(tmp_path)


def test_a_path_that_does_not_exist_is_not_looked_up_on_the_hub(tmp_path):
    with pytest.raises(errors.SourceNotFoundError, match="there is no folder, file or hub model"):
        tg.load(tmp_path / "nowhere" / "deep")


def test_an_object_that_is_no_tokenizer_is_refused():
    with pytest.raises(errors.UnsupportedTokenizerError, match=r"cannot load from a builtins\.int"):
        tg.load(5)


def test_a_hub_name_offline_says_what_to_pass_instead(tmp_path):
    code = "import tokengraft as tg\ntry: tg.load('nobody/nothing')\nexcept tg.TokengraftError as e: print(e)"
    offline = os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=offline, capture_output=True, text=True, check=True)
    assert "is no local path, and the hub did not give it" in done.stdout
    assert "hint: pass the path of a folder that has a tokenizer.json" in done.stdout


def test_a_hub_name_without_the_hub_library_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(errors.SourceNotFoundError, match="huggingface_hub") as raised:
        tg.load("nobody/nothing")
    assert "tokengraft[hub]" in raised.value.hint


def test_an_unreadable_file_is_named(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    folder = builders.write(tmp_path / "model", builders.byte_level())
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(errors.UnreadableFileError, match=r"cannot read .*: Permission denied"):
        tg.load(folder)


# What an adversarial reading of the loader found.


@pytest.mark.parametrize(
    "normalizer",
    [
        {"type": "Precompiled", "precompiled_charsmap": ""},
        {"type": "Precompiled", "precompiled_charsmap": "AAAAAA=="},
        {"type": "Prepend", "prepend": ""},
        {"type": "Replace", "pattern": {"String": ""}, "content": "x"},
    ],
)
def test_a_pipeline_that_makes_the_library_panic_is_an_error(tmp_path, normalizer, capfd):
    with pytest.raises(errors.InvalidTokenizerError):
        load_document(tmp_path, builders.byte_level() | {"normalizer": normalizer}).encode("the cat sat")
    assert "panicked" not in capfd.readouterr().err


def test_text_merges_beside_a_token_with_a_space_stay_text(tmp_path):
    document = builders.legacy_merges()
    document["model"]["vocab"]["x y"] = 900
    saved = tg.save(load_document(tmp_path, document), tmp_path / "saved", verify=False)
    assert json.loads((saved / "tokenizer.json").read_bytes()) == document


def test_a_key_that_stands_twice_is_refused(tmp_path):
    folder = builders.write(tmp_path / "model", builders.byte_level())
    raw = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(raw.replace('"a": ', '"a": 77, "a": ', 1), encoding="utf-8")
    with pytest.raises(errors.UnreadableFileError, match="'a' stands twice"):
        tg.load(folder)


@pytest.mark.parametrize("source", ["x" * 5000, "a\0b", "", "./nowhere"])
def test_an_impossible_path_is_an_error(source):
    with pytest.raises(errors.SourceNotFoundError):
        tg.load(source)


def test_a_tokenizer_can_be_pickled_and_has_a_short_repr(tmp_path):
    tokenizer = load_document(tmp_path, builders.byte_level())
    assert tokenizer.encode("the cat")  # what is computed on demand is not pickled
    again = pickle.loads(pickle.dumps(tokenizer))
    assert again == tokenizer
    assert again.encode("the cat") == tokenizer.encode("the cat")
    with pytest.raises(TypeError, match="cannot be changed"):
        again.vocab["new"] = 1
    assert len(repr(tokenizer)) < 100


def test_an_error_is_fit_for_a_terminal(tmp_path):
    document = builders.byte_level()
    document["model"]["merges"].append(["a", "\x1b[31m" + "x" * 100_000])
    with pytest.raises(errors.InvalidTokenizerError) as raised:
        load_document(tmp_path, document)
    assert "\x1b" not in str(raised.value)
    assert len(str(raised.value)) < 2000
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_added_tokens_that_merges_make_have_their_split(tmp_path):
    """As Gemma's runs of spaces: added, but only normalization makes the `▁` that they are written with."""
    document = builders.sentencepiece()
    run = document["model"]["vocab"]["▁▁"]
    document["added_tokens"].append(builders.added(run, "▁▁", special=False))
    tokenizer = load_document(tmp_path, document)
    assert run in tokenizer.encode("a  b")
    assert run in tokenizer.structure.splits
    assert next(token.bytes for token in tokenizer.tokens if token.id == run) == b"  "


@pytest.mark.parametrize("name", builders.TINY)
def test_strings_is_the_inverse_of_ids(tmp_path, name):
    tokenizer = load_document(tmp_path, builders.TINY[name]())
    assert {string: token_id for token_id, string in tokenizer.strings.items()} == tokenizer.ids
    assert [tokenizer.strings[token.id] for token in tokenizer.added] == [token.content for token in tokenizer.added]


def test_a_gguf_file_is_refused_by_name_without_reading_it(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF\x03\0\0\0\xff")
    with pytest.raises(errors.UnsupportedTokenizerError, match="is a GGUF file") as caught:
        tg.load(tmp_path / "model.gguf")
    assert "tokengraft transplant" in str(caught.value)


def test_rules_that_state_a_table_of_gigabytes_are_refused(tmp_path):
    """The library would allocate it, and end the process where it cannot."""
    document = builders.sentencepiece()
    rules = {"type": "Precompiled", "precompiled_charsmap": "/////wAAAAA="}
    document["normalizer"] = {"type": "Sequence", "normalizers": [rules, document["normalizer"]]}
    with pytest.raises(errors.InvalidTokenizerError, match="states a table of 4,294,967,295 bytes, and has 9"):
        load_document(tmp_path, document)
