"""Checkpoints that are damaged, odd, or have tables that a transplant would leave behind: refused, and how."""

import json
import re

import pytest
from checkpoints import WIDTH, add_tensor, checkpoint, set_config, tables, write_safetensors

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.tensors import TensorFile

ROWS = 397
WEIGHTS = "model.safetensors"
EMBED = "model.embed_tokens.weight"
INDEX = "model.safetensors.index.json"


def refuse(folder, base, match, error=errors.CheckpointError):
    with pytest.raises(error, match=match) as found:
        tg.transplant(folder / "model", base, folder / "out")
    assert not (folder / "out").exists()
    assert not list(folder.glob(".tokengraft-*"))
    return found.value


def edit_header(folder, change):
    """Rewrites the header of a weight file; the data stays where it is."""
    path = folder / WEIGHTS
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    text = change(raw[8 : 8 + length].decode().strip()).encode()
    assert text != raw[8 : 8 + length].strip()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


def write_tables(folder, *names, dtype="BF16", shape=(), data=b""):
    """Replaces the weights by tables of one content."""
    table = {"dtype": dtype, "shape": list(shape), "data": data}
    write_safetensors(dict.fromkeys(names or [EMBED], table), folder / WEIGHTS, {"format": "pt"})


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("model.layers.61.other_head.weight", (ROWS, WIDTH)),
        ("medusa_head.0.1.weight", (ROWS, WIDTH)),
        ("mtp.projection.weight", (WIDTH, ROWS)),
        ("model.stacked.weight", (3, ROWS, WIDTH)),
        ("t2d", (ROWS,)),
    ],
)
def test_another_tensor_with_a_vocabulary_axis_is_refused_by_name(tmp_path, name, shape):
    base = checkpoint(tmp_path / "model")
    add_tensor(tmp_path / "model", name, shape)
    error = refuse(tmp_path, base, "axis of 397, as long as the vocabulary")
    assert f"`{name}` {list(shape)}" in str(error)


@pytest.mark.parametrize(
    "sizes", [{"hidden_size": ROWS}, {"intermediate_size": ROWS}, {"vision_config": {"n_patches": ROWS}}]
)
def test_an_axis_that_is_as_long_by_accident_is_no_reason_to_refuse(tmp_path, sizes):
    base = checkpoint(tmp_path / "model", config=sizes)
    add_tensor(tmp_path / "model", "model.layers.0.mlp.up_proj.weight", (ROWS, WIDTH))
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert done.compared.untouched_tensors == 4


@pytest.mark.parametrize(
    ("options", "name", "shape", "dtype", "match"),
    [
        ({}, "model.embed_tokens_per_layer.weight", (2, 2), "BF16", "`vocab_size_per_layer_input` in config.json is N"),
        ({}, "model.embeddings_per_layer.weight", (2, 2), "BF16", "for each layer"),
        ({}, "model.d2t", (2, 2), "BF16", "name ids"),
        ({}, "lm_head.qweight", (2, 2), "F32", "quantised"),
        ({}, "model.embed_tokens.weight_scale_inv", (2, 2), "F32", "quantised"),
        # An axis of the config has this length, so the name alone says that it is a table of tokens.
        ({"config": {"max_position_embeddings": ROWS}}, "mtp.shared_head.weight", (ROWS, WIDTH), "BF16", "shared_head"),
        (
            {"config": {"architectures": ["OPTForCausalLM"]}, "prefix": "model.decoder."},
            *("lm_head.bias", (ROWS,), "BF16", r"`lm_head\.bias`"),
        ),
        (
            {"head": False},
            *("lm_head.weight", (ROWS + 3, WIDTH), "BF16"),
            r"`lm_head\.weight` has 400 rows, the input embedding 397",
        ),
    ],
)
def test_a_table_that_cannot_follow_is_refused(tmp_path, options, name, shape, dtype, match):
    base = checkpoint(tmp_path / "model", **options)
    add_tensor(tmp_path / "model", name, shape, dtype)
    refuse(tmp_path, base, match)


def replaced(old, new):
    return lambda text: text.replace(old, new, 1)


SHAPE = f'"shape": [{ROWS}, {WIDTH}]'


@pytest.mark.parametrize(
    "change",
    [
        replaced(SHAPE, '"shape": [1e999, 16]'),
        replaced(SHAPE, f'"shape": [true, {ROWS * WIDTH}]'),
        replaced(SHAPE, f'"shape": [-{ROWS}, -{WIDTH}]'),
        replaced('"data_offsets": [0, ', '"data_offsets": [0.0, '),
        replaced('"data_offsets": [0, ', '"data_offsets": [0, 0, '),
        replaced('"dtype": "BF16"', '"dtype": ["BF16"]'),
        replaced('{"format": "pt"}', '{"format": 5}'),
        replaced('{"format": "pt"}', '{"format": "\\ud800"}'),
        lambda text: re.sub(r'(norm.weight": {"dtype": )"\w+"', r'\1"\\ud800"', text),
        lambda text: f"[{text}]",
        lambda _: "[" * 3000,
    ],
)
def test_a_damaged_header_is_refused(tmp_path, change):
    base = checkpoint(tmp_path / "model")
    edit_header(tmp_path / "model", change)
    refuse(tmp_path, base, "not a complete safetensors file")


def overlap(start):
    def change(text):
        header = json.loads(text)
        header["model.norm.weight"]["data_offsets"] = [start, start + 2 * WIDTH]
        return json.dumps(header)

    return change


def append(path, data):
    path.write_bytes(path.read_bytes() + data)


def remove(folder, *names):
    for name in names:
        (folder / name).unlink()


DAMAGE = {
    "no config": (lambda f: remove(f, "config.json"), "no `config.json`"),
    "no safetensors": (lambda f: remove(f, WEIGHTS), "are pickled"),
    "config is a list": (lambda f: (f / "config.json").write_text("[]"), "not a JSON object"),
    "weights are noise": (lambda f: (f / WEIGHTS).write_bytes(b"x" * 50), "not a complete safetensors"),
    "weights are cut": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]),
        "not a complete safetensors",
    ),
    "more data": (lambda f: append(f / WEIGHTS, b"12345"), "5 bytes at its end belong to no tensor"),
    "shared data": (lambda f: edit_header(f, overlap(0)), "does not begin where the data before it ends"),
    "data that overlap": (lambda f: edit_header(f, overlap(2)), "does not begin where the data before it ends"),
    "encoder-decoder": (lambda f: set_config(f, is_encoder_decoder=True), "encoder-decoder"),
    "wrong size": (lambda f: set_config(f, vocab_size=5), "`vocab_size` in config.json is 5"),
    "size of another axis": (lambda f: set_config(f, architectures=["T5"], vocab_size=16), "cannot be determined"),
    "size is text": (lambda f: set_config(f, vocab_size="397"), "is '397', which is text, not a number"),
    "size of an unknown class is text": (
        lambda f: set_config(f, vocab_size="397", architectures=["Unknown"]),
        "is '397', which is text, not a number",
    ),
    "size has a fraction": (lambda f: set_config(f, vocab_size=397.0), "is 397.0, which is not a whole"),
    "eight bits": (
        lambda f: write_tables(f, dtype="I8", shape=(ROWS, WIDTH), data=bytes(ROWS * WIDTH)),
        "quantised",
    ),
    "no numbers": (
        lambda f: (write_tables(f, EMBED, "lm_head.weight", shape=(2**62, 0)), set_config(f, vocab_size=2**62)),
        "not that of a table of tokens",
    ),
    "id is text": (lambda f: set_config(f, eos_token_id="396"), "`eos_token_id` .*396.*whole number"),
    "id has a fraction": (lambda f: set_config(f, eos_token_id=396.0), "`eos_token_id` .*396.*whole number"),
    "id in a list is text": (lambda f: set_config(f, eos_token_id=[395, "396"]), "`eos_token_id` .*396.*whole number"),
}


@pytest.mark.parametrize(("change", "match"), DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_or_odd_checkpoint_is_refused(tmp_path, change, match):
    base = checkpoint(tmp_path / "model")
    change(tmp_path / "model")
    refuse(tmp_path, base, match, errors.TokengraftError)


def twice(folder):
    first, second, _ = sorted(folder.glob("*.safetensors"))
    second.write_bytes(first.read_bytes())


@pytest.mark.parametrize(
    ("change", "match"),
    [
        *(
            (lambda f, name=name: set_config(f, INDEX, weight_map={"a": name}), "lacks")
            for name in ("x" * 300, "x\0y", "../model.safetensors", "", ".", "a/b")
        ),
        *(
            (lambda f, value=value: set_config(f, INDEX, weight_map=value), "has no `weight_map`")
            for value in ({}, [], None, "x")
        ),
        (twice, "both .* have the tensor"),
        (
            lambda f: (f / WEIGHTS).write_bytes(min(f.glob("*.safetensors")).read_bytes()),
            r"both `model\.safetensors` and `model\.safetensors\.index\.json`",
        ),
    ],
)
def test_shards_that_do_not_fit_their_index_are_refused(tmp_path, change, match):
    base = checkpoint(tmp_path / "model", shards=3)
    change(tmp_path / "model")
    refuse(tmp_path, base, match)


def test_fewer_rows_than_tokens_are_refused(tmp_path):
    base = checkpoint(tmp_path / "model", rows=300)
    refuse(tmp_path, base, "300 rows and the tokenizer in its folder needs")


def test_rows_that_are_not_finite_are_refused_without_a_warning(tmp_path):
    base = checkpoint(tmp_path / "model")
    path = tmp_path / "model" / WEIGHTS
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    path.write_bytes(raw[:start] + b"\x80\x7f\x80\xff" * WIDTH + raw[start + 4 * WIDTH :])
    pruned = tg.prune_order(base, method="last-id-leaf")[:20].apply(base)
    refuse(tmp_path, pruned, "numbers that are not finite")


@pytest.mark.parametrize("config", [True, False])
def test_a_folder_without_weights_is_named_as_such(tmp_path, config):
    base = checkpoint(tmp_path / "model")
    remove(tmp_path / "model", WEIGHTS, "pytorch_model.bin", *([] if config else ["config.json"]))
    error = refuse(tmp_path, base, "has no weights", errors.TokengraftError)
    assert "pass the folder of a model with weights" in error.hint


def test_metadata_may_be_missing(tmp_path):
    base = checkpoint(tmp_path / "model")
    edit_header(tmp_path / "model", replaced('"__metadata__": {"format": "pt"}, ', ""))
    tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert TensorFile.open(tmp_path / "out" / WEIGHTS).metadata is None


@pytest.mark.parametrize("value", [5, "x", [], None, True, [{"vocab_size": 397}]])
def test_a_nested_config_that_is_no_object_is_left_as_it_is(tmp_path, value):
    base = checkpoint(tmp_path / "model", config={"text_config": value})
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (config["text_config"], config["vocab_size"]) == (value, new.n_rows)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_config_that_is_nested_too_deep_is_refused(tmp_path, name, depth):
    base = checkpoint(tmp_path / "model")
    text = (tmp_path / "model" / name).read_text()
    deep = '{"a": ' * depth + "1" + "}" * depth
    (tmp_path / "model" / name).write_text(text.replace("{", f'{{"deep": {deep}, ', 1))
    refuse(tmp_path, base, name, errors.TokengraftError)


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"\xef\xbb\xbf{}", b'{"a": ' + b"9" * 5000 + b"}"])
def test_a_config_that_is_no_json_is_refused(tmp_path, content):
    base = checkpoint(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_bytes(content)
    refuse(tmp_path, base, r"generation_config\.json` is not JSON")


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), -1, "x", None, []])
def test_an_initializer_range_that_is_no_number_to_draw_with_is_not_used(tmp_path, value):
    base = checkpoint(tmp_path / "model", config={"initializer_range": value})
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out", init="random")
    assert 0.01 < tables(tmp_path / "out")[EMBED][-5:].std() < 0.03


@pytest.mark.parametrize(
    ("architectures", "prefix", "found_by"),
    [
        (["Novel", "LlamaForCausalLM"], "model.", "the names of LlamaForCausalLM"),
        (["NovelForCausalLM"], "net.", "not in the table"),
    ],
)
def test_how_the_tables_were_found_is_said(tmp_path, architectures, prefix, found_by):
    base = checkpoint(tmp_path / "model", config={"architectures": architectures}, prefix=prefix)
    done = tg.transplant(tmp_path / "model", base, None)
    assert found_by in done.found_by
    assert [role for _, role, *_ in done.tensors] == ["input", "output"]
