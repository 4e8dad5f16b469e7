"""Transplants of GGUF files, read back by the `gguf` package."""

import json

import builders
import numpy as np
import pytest
import rank_files
from checkpoints import ESTONIAN
from hypothesis import given
from hypothesis import strategies as st

import tokengraft as tg
from tokengraft.checkpoint.gguf_file import GgufFile
from tokengraft.checkpoint.tensors import narrow, widen
from tokengraft.errors import CheckpointError
from tokengraft.tokenizer.tokenizer import whole_document

gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
ggufs = pytest.importorskip("ggufs")
DTYPES = ["F32", "F16", "BF16", "Q8_0"]


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
    assert ggufs.sha(source) == ggufs.sha(tmp_path / "b.gguf")


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
    new = ggufs.changed(tmp_path / "new", lambda document: document["added_tokens"].extend(entries))
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


def test_scores_of_new_pieces_are_those_of_the_new_model(tmp_path, llama2):
    new = tg.extend(llama2, tg.count(llama2, iter(ESTONIAN)), 12).apply(llama2)
    source = ggufs.write_gguf(tmp_path / "a.gguf", llama2)
    tg.transplant(source, new, tmp_path / "b.gguf")
    converted = ggufs.write_gguf(tmp_path / "c.gguf", new)
    assert ggufs.read(tmp_path / "b.gguf")[0] == ggufs.read(converted)[0]


def test_without_a_model_scores_follow_the_order_of_merges(tmp_path, llama2):
    new = tg.extend(llama2, tg.count(llama2, iter(ESTONIAN)), 12).apply(llama2)
    source = ggufs.write_gguf(tmp_path / "a.gguf", llama2)
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
    assert all(scores[piece] == expected[piece] for piece in llama2.ids)


def test_a_dry_run_writes_nothing_and_says_the_same(tmp_path, base, extended, plain, tokengraft):
    folder, old = tg.save(extended, tmp_path / "new"), tg.save(base, tmp_path / "base")
    before = {path.name for path in tmp_path.iterdir()}
    arguments = ["transplant", str(plain), str(folder), "--quiet"]
    known = [*arguments, "--base", str(old), "--json"]
    dry = tokengraft(*known, "--dry-run").json
    assert {path.name for path in tmp_path.iterdir()} == before
    wet = tokengraft(*known, "--out", tmp_path / "b.gguf").json
    assert wet | {"compared": None} == dry
    assert wet["compared"]["kept_rows"] == base.n_rows
    assert wet["warnings"] == []
    printed = " ".join(tokengraft(*arguments, "--dry-run").out.split())
    assert "could not be checked" in printed
    assert "the names of GGUF" in printed


ROWS = st.lists(
    st.one_of(st.floats(-1e4, 1e4, width=32), st.sampled_from([0.0, 0.5, 127.0, -127.0, 63.5, 1e-20])),
    min_size=32,
    max_size=32,
)


@given(st.lists(ROWS, min_size=1, max_size=4))
def test_q8_0_is_rounded_as_the_package_rounds_it(rows):
    numbers = np.array(rows, np.float32)
    number = gguf.GGMLQuantizationType.Q8_0
    raw = narrow(numbers, number.name)
    assert np.array_equal(raw, gguf.quants.quantize(numbers, number))
    assert np.array_equal(widen(raw, number.name), gguf.quants.dequantize(raw, number))


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
