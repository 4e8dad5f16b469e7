"""Transplants of GGUF files, read back by the `gguf` package."""

import hashlib
import json
import sys

import builders
import numpy as np
import pytest
import rank_files
from checkpoints import ESTONIAN
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft import cli
from tokengraft.checkpoint import gguf_transplant as writer
from tokengraft.checkpoint.gguf_file import GgufFile, block_sizes
from tokengraft.checkpoint.tensors import dequantised, quantised
from tokengraft.errors import CheckpointError, InvalidTokenizerError, OptionError, OutputError, SourceNotFoundError
from tokengraft.tokenizer.tokenizer import whole_document

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
ggufs = pytest.importorskip("ggufs")
DTYPES = ["F32", "F16", "BF16", "Q8_0"]


@pytest.fixture(scope="module")
def extended(base):
    return tg.extend(base, tg.count(base, iter(ESTONIAN)), 40).apply(base)


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A tokenizer of Llama's type, from its `tokenizer.model` alone."""
    folder = tmp_path_factory.mktemp("pieces")
    (folder / "tokenizer.model").write_bytes(builders.llama2_like())
    return tg.load(folder)


@pytest.fixture(scope="module")
def plain(tmp_path_factory, base):
    """A file with the tokens of the base, which no test changes."""
    return ggufs.write_gguf(tmp_path_factory.mktemp("plain") / "a.gguf", base)


def changed(folder, change):
    """A tokenizer with another tokenizer.json."""
    document = builders.byte_level()
    change(document)
    return tg.load(builders.write(folder, document))


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rows_of(path, name):
    dtype, data = ggufs.read(path)[1][name]
    return dtype, data


@pytest.mark.parametrize("dtype", DTYPES)
def test_kept_rows_are_bit_equal_and_new_ones_the_mean_of_their_pieces(tmp_path, base, extended, dtype):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table=dtype, head="F16", bias=True)
    done = tg.transplant(source, extended, tmp_path / "b.gguf", init="fvt")
    assert (done.rows_before, done.rows_after) == (base.n_rows, base.n_rows + 40)
    for name in ("token_embd.weight", "output.weight"):
        kind, old = rows_of(source, name)
        new_kind, new = rows_of(tmp_path / "b.gguf", name)
        assert kind == new_kind
        assert np.array_equal(old, new[: base.n_rows])
        numbers = ggufs.values(kind, old)
        for token_id in range(base.n_rows, extended.n_rows):
            pieces = done.plan.sources[token_id]
            mean = numbers[[*pieces]].mean(axis=0, dtype=np.float64).astype(np.float32)
            expected = gguf.quants.quantize(mean[None], gguf.GGMLQuantizationType[kind])
            assert np.array_equal(new[token_id].view(np.uint8), expected[0].view(np.uint8))


@pytest.mark.parametrize(
    ("head", "pooling", "moved"), [("F32", False, (0, 1)), (None, False, (1,)), (None, True, (0,))]
)
def test_by_default_what_gives_logits_is_moved_and_nothing_else(tmp_path, base, extended, head, pooling, moved):
    keys = [("add_uint32", "llama.pooling_type", 1)] if pooling else []
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="F32", head=head, keys=keys)
    done = tg.transplant(source, extended, tmp_path / "b.gguf")
    for name, is_moved in zip(("token_embd.weight", "output.weight"), moved, strict=False):
        old, new = (rows_of(path, name)[1] for path in (source, tmp_path / "b.gguf"))
        half, n = base.n_rows // 2, base.n_rows
        shift = is_moved * 2 * (old[half:].mean(0) - old[:half].mean(0))
        expected = np.array([old[[*done.plan.sources[i]]].mean(0) for i in range(n, extended.n_rows)]) + shift
        assert np.allclose(new[n:], expected, atol=1e-5)


@pytest.mark.parametrize("alignment", [None, 8, 256])
def test_all_other_keys_and_tensors_are_kept(tmp_path, base, extended, alignment):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, head="Q8_0", alignment=alignment)
    done = tg.transplant(source, extended, tmp_path / "b.gguf")
    (old_keys, old), (new_keys, new) = ggufs.read(source), ggufs.read(tmp_path / "b.gguf")
    changed = {f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges")} | {"llama.vocab_size"}
    assert list(old_keys) == list(new_keys)
    assert {name for name in old_keys if old_keys[name] != new_keys[name]} == changed
    assert list(old) == list(new)
    for name in {*old} - {"token_embd.weight", "output.weight"}:
        assert old[name][0] == new[name][0]
        assert np.array_equal(old[name][1], new[name][1])
    assert done.compared.untouched_tensors == 3
    assert done.compared.new_rows == 2 * 40
    starts = [tensor.data_offset for tensor in gguf.GGUFReader(tmp_path / "b.gguf").tensors]
    assert all(start % (alignment or 32) == 0 for start in starts)


@pytest.mark.parametrize("head", [None, "Q8_0"])
@pytest.mark.parametrize("alignment", [None, 64])
def test_a_transplant_to_the_same_tokenizer_is_the_same_file(tmp_path, base, head, alignment):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q8_0", head=head, alignment=alignment)
    tg.transplant(source, base, tmp_path / "b.gguf")
    assert sha(source) == sha(tmp_path / "b.gguf")


def test_tokens_types_and_merges_are_those_that_a_conversion_would_write(tmp_path, base, plain):
    """Holes, kept and new tokens: the file equals one that is written for the new tokenizer."""
    small = ggufs.pruned(base)
    swapped = tg.extend(small, tg.count(small, iter(ESTONIAN)), 8).apply(small)
    done = tg.transplant(plain, swapped, tmp_path / "b.gguf", options=tg.TransplantOptions(pad_multiple=64))
    rows = -(-swapped.n_rows // 64) * 64
    converted = ggufs.write_gguf(tmp_path / "c.gguf", swapped, rows=rows)
    keys = ggufs.read(tmp_path / "b.gguf")[0]
    unused = [i for i, source in enumerate(done.plan.sources) if source is None] + [*range(swapped.n_rows, rows)]
    assert keys.pop("tokenizer.ggml.suppress_tokens") == unused  # the converter does not know them
    assert keys == ggufs.read(converted)[0]


def test_new_added_tokens_get_the_types_of_the_converter(tmp_path, base, plain):
    n = base.n_rows
    added = [("<|tool|>", False), ("[tool▁call]", False), ("[call]", True)]
    entries = [builders.added(n + at, content, special=special) for at, (content, special) in enumerate(added)]
    new = changed(tmp_path / "new", lambda document: document["added_tokens"].extend(entries))
    tg.transplant(plain, new, tmp_path / "b.gguf")
    keys = ggufs.read(tmp_path / "b.gguf")[0]
    assert keys["tokenizer.ggml.tokens"][n:] == ["<|tool|>", "[tool call]", "[call]"]
    assert keys["tokenizer.ggml.token_type"][n:] == [ggufs.CONTROL_TYPE, ggufs.USER_TYPE, ggufs.CONTROL_TYPE]
    # and back: the space is the `▁` of the tokenizer, so the row is kept
    assert tg.transplant(tmp_path / "b.gguf", new, None).plan.summary.kept == n + 3


def test_ids_follow_tokens_that_move(tmp_path, base):
    small = ggufs.pruned(base).compact()
    keys = [
        ("add_array", "tokenizer.ggml.suppress_tokens", [0, base.added[1].id]),
        ("add_eot_token_id", base.added[1].id),
    ]
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, keys=keys)
    tg.transplant(source, small, tmp_path / "b.gguf")
    after = ggufs.read(tmp_path / "b.gguf")[0]
    end = small.added[1].id
    assert end == base.added[1].id - 20
    assert after["tokenizer.ggml.eos_token_id"] == after["tokenizer.ggml.eot_token_id"] == end
    assert after["tokenizer.ggml.bos_token_id"] == small.added[0].id
    assert after["tokenizer.ggml.suppress_tokens"] == [0, end]
    assert after["llama.vocab_size"] == len(after["tokenizer.ggml.tokens"]) == base.n_rows - 20


def test_padding_stays_padding(tmp_path, base, extended):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, rows=512)
    done = tg.transplant(source, extended, tmp_path / "b.gguf")
    assert done.rows_after == 512
    old, new = rows_of(source, "token_embd.weight")[1], rows_of(tmp_path / "b.gguf", "token_embd.weight")[1]
    assert np.array_equal(old[base.n_rows : -40], new[extended.n_rows :])
    assert ggufs.read(tmp_path / "b.gguf")[0]["tokenizer.ggml.tokens"][-1] == "[PAD511]"
    assert ggufs.read(tmp_path / "b.gguf")[0]["tokenizer.ggml.suppress_tokens"] == [*range(extended.n_rows, 512)]


def test_tables_of_other_quantisations_can_lose_rows_but_not_get_new_ones(tmp_path, base, extended):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q4_0", head="Q8_0")
    with pytest.raises(CheckpointError, match=r"token_embd\.weight` is of the type Q4_0") as caught:
        tg.transplant(source, extended, tmp_path / "b.gguf")
    assert "--token-embedding-type q8_0" in caught.value.hint
    small = ggufs.pruned(base).compact()
    done = tg.transplant(source, small, tmp_path / "b.gguf")
    old, new = rows_of(source, "token_embd.weight")[1], rows_of(tmp_path / "b.gguf", "token_embd.weight")[1]
    assert np.array_equal(old[[*done.plan.sources]], new)


def test_tables_of_layers_and_of_multi_token_prediction_get_the_same_rows(tmp_path, base, extended):
    names = ["per_layer_token_embd.weight", "blk.1.nextn.embed_tokens.weight", "blk.1.nextn.shared_head_head.weight"]
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, tensors=[(name, (base.n_rows, 32)) for name in names])
    done = tg.transplant(source, extended, tmp_path / "b.gguf")
    assert {name for name, *_ in done.tensors} == {"token_embd.weight", *names}
    tensors = ggufs.read(tmp_path / "b.gguf")[1]
    assert all(len(tensors[name][1]) == extended.n_rows for name in names)


def test_scores_of_new_pieces_are_those_of_the_new_model(tmp_path, pieces):
    new = tg.extend(pieces, tg.count(pieces, iter(ESTONIAN)), 12).apply(pieces)
    source = ggufs.write_gguf(tmp_path / "a.gguf", pieces)
    tg.transplant(source, new, tmp_path / "b.gguf")
    converted = ggufs.write_gguf(tmp_path / "c.gguf", new)
    assert ggufs.read(tmp_path / "b.gguf")[0] == ggufs.read(converted)[0]


def test_without_a_model_scores_follow_the_order_of_merges(tmp_path, pieces):
    new = tg.extend(pieces, tg.count(pieces, iter(ESTONIAN)), 12).apply(pieces)
    source = ggufs.write_gguf(tmp_path / "a.gguf", pieces)
    folder = builders.write(tmp_path / "alone", json.loads(whole_document(new)))
    alone = tg.load(folder)
    assert alone.piece_model is None
    tg.transplant(source, alone, tmp_path / "b.gguf")
    tg.transplant(source, new, tmp_path / "c.gguf")
    with_model, without = (ggufs.read(tmp_path / name)[0] for name in ("c.gguf", "b.gguf"))
    scores = dict(zip(without["tokenizer.ggml.tokens"], without["tokenizer.ggml.scores"], strict=True))
    expected = dict(zip(with_model["tokenizer.ggml.tokens"], with_model["tokenizer.ggml.scores"], strict=True))
    products = [*dict.fromkeys(left + right for left, right in new.merge_strings())]
    assert [scores[piece] for piece in products] == sorted((scores[piece] for piece in products), reverse=True)
    assert all(scores[piece] == expected[piece] for piece in pieces.ids)


def test_what_cannot_be_transplanted_is_refused_and_nothing_is_written(tmp_path, base, extended, pieces):
    n = base.n_rows

    def placeholder(document):
        """llama.cpp aborts where two tokens are equal."""
        document["model"]["vocab"] |= {token["content"]: token["id"] for token in document["added_tokens"]}
        document["model"]["vocab"] |= {f"[PAD{n}]": n + 1}

    shorter = changed(tmp_path / "shorter", lambda document: document["added_tokens"].pop())
    reordered = changed(tmp_path / "reordered", lambda document: document["model"]["merges"].reverse())
    unigram = tg.load(builders.write(tmp_path / "unigram", builders.unigram()))
    alike, doubled = [-1000.0] * pieces.n_rows, [piece.score * 2 for piece in pieces.piece_model.pieces]
    for model, new, options, match in [
        (base, shorter, {}, r"eos_token_id.*does not have"),
        (base, reordered, {}, "was not made from"),
        (base, changed(tmp_path / "placeholder", placeholder), {}, "same string"),
        (base, pieces, {}, "the new one"),
        (pieces, base, {}, "the new one"),
        (pieces, unigram, {}, "the new one sentencepiece Unigram"),
        (pieces, pieces, {"without": ("scores",), "keys": [("add_token_scores", alike)]}, "score alike"),
        (pieces, pieces, {"without": ("scores",), "keys": [("add_token_scores", doubled)]}, "different models"),
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
    other = changed(tmp_path / "other", lambda document: document["pre_tokenizer"].update(add_prefix_space=True))
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


def test_a_change_of_any_byte_after_writing_is_found(tmp_path, base, extended, monkeypatch):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q8_0")
    write = writer._write
    tg.transplant(source, extended, tmp_path / "whole.gguf")
    tensors = GgufFile.open(tmp_path / "whole.gguf").tensors.values()
    table = tensors.mapping["token_embd.weight"].start
    new_rows = range(table + base.n_rows * 68, table + extended.n_rows * 68)
    data = [tensor.start + tensor.size // 3 for tensor in tensors if tensor.start + tensor.size // 3 not in new_rows]
    for at in [0, 5, 60, *range(100, data[0], data[0] // 20), *data]:

        def damage(*arguments, at=at):
            write(*arguments)
            out = arguments[-1]
            raw = bytearray(out.read_bytes())
            raw[at] ^= 1
            out.write_bytes(raw)

        monkeypatch.setattr(writer, "_write", damage)
        with pytest.raises(CheckpointError):
            tg.transplant(source, extended, tmp_path / "b.gguf")
        assert not (tmp_path / "b.gguf").exists()


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path, base, extended, plain, capsys):
    folder, old = tg.save(extended, tmp_path / "new"), tg.save(base, tmp_path / "base")
    before = {path.name for path in tmp_path.iterdir()}
    arguments = ["transplant", str(plain), str(folder), "--quiet"]
    known = [*arguments, "--base", str(old), "--json"]
    assert cli.main([*known, "--dry-run"]) == 0
    dry = json.loads(capsys.readouterr().out)
    assert {path.name for path in tmp_path.iterdir()} == before
    assert cli.main([*known, "--out", str(tmp_path / "b.gguf")]) == 0
    wet = json.loads(capsys.readouterr().out)
    assert wet | {"compared": None} == dry
    assert wet["compared"]["kept_rows"] == base.n_rows
    assert wet["warnings"] == []
    assert cli.main([*arguments, "--dry-run"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "could not be checked" in printed
    assert "the names of GGUF" in printed


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
    assert sha(out) == sha(source)
    before = sha(source)
    with pytest.raises(OutputError):
        tg.transplant(source, base, source, force=True)
    assert sha(source) == before


def test_without_the_package_the_hint_names_the_extra(base, plain, monkeypatch):
    block_sizes.cache_clear()
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(OptionError) as caught:
        tg.transplant(plain, base, None)
    assert "tokengraft[gguf]" in caught.value.hint
    block_sizes.cache_clear()


ROWS = st.lists(
    st.one_of(st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, 0.5, 127.0, -127.0, 63.5, 1e-20])),
    min_size=32,
    max_size=32,
)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_q8_0_is_rounded_as_the_package_rounds_it(rows):
    numbers = np.array(rows, np.float32)
    number = gguf.GGMLQuantizationType.Q8_0
    raw = quantised(numbers)
    assert np.array_equal(raw, gguf.quants.quantize(numbers, number))
    assert np.array_equal(dequantised(raw), gguf.quants.dequantize(raw, number))


def test_new_rows_that_are_not_finite_are_refused(tmp_path, base, extended):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, table="Q8_0")
    tensor = GgufFile.open(source).tensors["token_embd.weight"]
    raw = np.frombuffer(bytearray(source.read_bytes()), np.uint8)
    scales = raw[tensor.start : tensor.start + tensor.size].reshape(-1, 34)[:, :2]
    scales[:] = (0, 0x7C)  # infinity
    source.write_bytes(raw.tobytes())
    with pytest.raises(CheckpointError, match="not finite"):
        tg.transplant(source, extended, tmp_path / "b.gguf")
    assert not (tmp_path / "b.gguf").exists()


def test_another_tokenizer_that_the_converter_knows_brings_its_pre_tokenizer(tmp_path, plain, shared_data):
    source, raw = tmp_path / "a.gguf", plain.read_bytes()
    swapped = raw.replace(b"bos_token_id", b"bos_token_xx").replace(b"eos_token_id", b"eos_token_xx")
    source.write_bytes(swapped)  # the other tokenizer does not have these tokens
    done = tg.transplant(source, shared_data / "smollm2", tmp_path / "b.gguf")
    assert "another one" in done.warnings[0]
    keys = ggufs.read(tmp_path / "b.gguf")[0]
    assert keys["tokenizer.ggml.pre"] == "smollm"
    assert len(keys["tokenizer.ggml.tokens"]) == done.rows_after == 49_152


def test_a_file_with_the_tokenizer_of_hugging_face_gets_the_new_one(tmp_path, base, extended):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, keys=[("add_string", "tokenizer.huggingface.json", "{}")])
    tg.transplant(source, extended, tmp_path / "b.gguf")
    document = json.loads(ggufs.read(tmp_path / "b.gguf")[0]["tokenizer.huggingface.json"])
    assert document["model"]["vocab"] == dict(extended.vocab)


def test_a_pre_tokenizer_that_skips_merges_where_the_tokenizer_does_not_gives_a_warning(tmp_path, base):
    source = ggufs.write_gguf(tmp_path / "a.gguf", base, pre="llama-bpe")
    assert "ignore_merges" in tg.transplant(source, base, None, base=base).warnings[0]


def test_a_rank_file_is_the_base_of_a_file_with_the_merges_that_apply(tmp_path):
    base = tg.load(rank_files.write_tekken(tmp_path / "base"))
    plain = tg.convert(base, "huggingface")
    applied = {*plain.structure.splits.values()}
    pairs = [pair for pair, ids in zip(plain.merge_strings(), plain.merges, strict=True) if ids in applied]
    assert len(pairs) < len(plain.merges)
    ggufs.write_gguf(tmp_path / "m.gguf", plain.with_tokens(dict(plain.ids), pairs))
    new = tg.extend(base, rank_files.counts_of(base), 5).apply(base)
    assert tg.transplant(tmp_path / "m.gguf", new, tmp_path / "n.gguf", base=base).warnings == ()
