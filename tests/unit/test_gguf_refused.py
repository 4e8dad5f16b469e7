"""GGUF files that are refused, damaged or written over, and options without effect."""

import sys

import builders
import pytest
from outputs import failing_disk

import tokengraft as tg
from tokengraft.checkpoint.gguf_file import GgufFile, block_sizes
from tokengraft.errors import CheckpointError, InvalidTokenizerError, OptionError, OutputError, SourceNotFoundError
from tokengraft.output.partial import RESULT

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
ggufs = pytest.importorskip("ggufs")


def test_what_cannot_be_transplanted_is_refused_and_nothing_is_written(tmp_path, base, extended, llama2):
    n = base.n_rows

    def placeholder(document):
        """llama.cpp aborts where two tokens are equal."""
        document["model"]["vocab"] |= {token["content"]: token["id"] for token in document["added_tokens"]}
        document["model"]["vocab"] |= {f"[PAD{n}]": n + 1}

    shorter = ggufs.changed(tmp_path / "shorter", lambda document: document["added_tokens"].pop())
    reordered = ggufs.changed(tmp_path / "reordered", lambda document: document["model"]["merges"].reverse())
    unigram = tg.load(builders.write(tmp_path / "unigram", builders.unigram()))
    alike, doubled = [-1000.0] * llama2.n_rows, [piece.score * 2 for piece in llama2.piece_model.pieces]
    for model, new, options, match in [
        (base, shorter, {}, r"eos_token_id.*does not have"),
        (base, reordered, {}, "was not made from"),
        (base, ggufs.changed(tmp_path / "placeholder", placeholder), {}, "same string"),
        (base, llama2, {}, "the new one"),
        (llama2, base, {}, "the new one"),
        (llama2, unigram, {}, "the new one sentencepiece Unigram"),
        (llama2, llama2, {"without": ("scores",), "keys": [("add_token_scores", alike)]}, "score alike"),
        (llama2, llama2, {"without": ("scores",), "keys": [("add_token_scores", doubled)]}, "different models"),
        (base, extended, {"tensors": [("d2t", (n,))]}, "`d2t`"),
        (base, base, {"tensors": [("per_layer_token_embd.weight", (n + 1, 32))]}, "has the shape"),
        (base, base, {"tensors": [("blk.1.nextn.embed_tokens.weight", (n,))]}, "has the shape"),
        (base, base, {"keys": [("add_uint16", "split.count", 3)]}, "one of 3 parts"),
        (base, base, {"without": ("merges",)}, "has no `tokenizer.ggml.merges`"),
    ]:
        source = ggufs.write_gguf(tmp_path / "a.gguf", model, **options)
        with pytest.raises(CheckpointError, match=match):
            tg.transplant(source, new, tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()
    with pytest.raises(SourceNotFoundError):
        tg.transplant(tmp_path / "missing.gguf", base, None)


def test_the_base_is_compared_with_the_file_and_with_the_new_tokenizer(tmp_path, base, extended, plain):
    source = plain
    assert tg.transplant(source, extended, None, base=base).warnings == ()
    assert "could not be checked" in tg.transplant(source, extended, None).warnings[0]
    with pytest.raises(InvalidTokenizerError, match="the base gives the token"):
        tg.transplant(source, extended, None, base=extended)
    other = ggufs.changed(tmp_path / "other", lambda document: document["pre_tokenizer"].update(add_prefix_space=True))
    with pytest.raises(InvalidTokenizerError, match="different pipelines"):
        tg.transplant(source, extended, None, base=other)


def test_a_damaged_file_is_refused_wherever_it_ends(tmp_path, base, plain):
    whole, cut = plain.read_bytes(), tmp_path / "cut.gguf"
    for size in [*range(0, 400, 7), *range(400, len(whole) - 32, len(whole) // 60)]:
        cut.write_bytes(whole[:size])
        with pytest.raises(tg.TokengraftError):
            tg.transplant(cut, base, None)


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (b"GGUF\3\0\0\0", b"GGUF\1\0\0\0", "version 1"),
        (b"GGUF\3\0\0\0", b"GGUF\0\0\0\3", "other order"),
        (b"GGUF", b"GGML", "is not a folder"),
        (b"\4\0\0\0\0\0\0\0gpt2", b"\4\0\0\0\0\0\0\0bert", "type 'bert'"),
    ],
)
def test_other_versions_and_types_are_refused(tmp_path, base, plain, old, new, match):
    raw = plain.read_bytes()
    assert old in raw
    (tmp_path / "a.gguf").write_bytes(raw.replace(old, new))
    with pytest.raises(tg.TokengraftError, match=match):
        tg.transplant(tmp_path / "a.gguf", base, None)


def test_a_change_of_any_byte_while_it_is_written_is_found(tmp_path, base, extended):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q8_0")
    tg.transplant(source, extended, tmp_path / "whole.gguf")
    tensors = GgufFile.open(tmp_path / "whole.gguf").tensors.values()
    new_row = tensors.mapping["token_embd.weight"].start + base.n_rows * 68
    data = [new_row, *(tensor.start + tensor.size // 3 for tensor in tensors)]
    for at in [0, 5, 60, *range(100, new_row, new_row // 20), *data]:
        with failing_disk(RESULT, at), pytest.raises(CheckpointError, match="after writing"):
            tg.transplant(source, extended, tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()


def test_options_without_effect_are_refused(tmp_path, base, plain):
    for options, match in (
        ({"hard_link": True}, "`hard_link` does not apply"),
        ({"verify": True}, "`verify` does not apply"),
        ({"output_init": "mean"}, "tied"),
    ):
        with pytest.raises(OptionError, match=match):
            tg.transplant(plain, base, tmp_path / "b.gguf", options=tg.TransplantOptions(**options))
    with pytest.raises(OptionError, match="`base` applies to GGUF"):
        tg.transplant(builders.write(tmp_path / "base", builders.byte_level()), base, None, base=base)


def test_an_output_is_replaced_only_with_force_and_never_the_input(tmp_path, base):
    source, out = ggufs.write_gguf(tmp_path / "a.gguf", base), tmp_path / "b.gguf"
    out.write_bytes(b"mine")
    with pytest.raises(OutputError):
        tg.transplant(source, base, out)
    assert out.read_bytes() == b"mine"
    tg.transplant(source, base, out, force=True)
    assert ggufs.sha(out) == ggufs.sha(source)
    before = ggufs.sha(source)
    with pytest.raises(OutputError):
        tg.transplant(source, base, source, force=True)
    assert ggufs.sha(source) == before


def test_without_the_package_the_hint_names_the_extra(base, plain, monkeypatch):
    block_sizes.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(OptionError) as caught:
        tg.transplant(plain, base, None)
    assert "tokengraft[gguf]" in caught.value.hint
    block_sizes.cache_clear()
