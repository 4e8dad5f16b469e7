"""Checkpoints that are damaged, odd, or have tables that a transplant would leave behind: refused, and how."""

import json
import re

import pytest
from checkpoints import WIDTH, add_tensor, checkpoint, set_config, tables, write_safetensors

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.other_tables import require_no_other_tables
from tokengraft.checkpoint.tensors import TensorFile

ROWS = 397


def refuse(folder, base, error=errors.CheckpointError, match=""):
    with pytest.raises(error, match=match) as found:
        tg.transplant(folder / "model", base, folder / "out")
    assert not (folder / "out").exists()
    assert not list(folder.glob(".tokengraft-*"))
    return str(found.value)


def edit_header(folder, change):
    """Rewrites the header of a weight file; the data stays where it is."""
    path = folder / "model.safetensors"
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = change(raw[8 : 8 + length].decode().strip())
    text = header.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])


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
    message = refuse(tmp_path, base, match="axis of 397, as long as the vocabulary")
    assert f"`{name}` {list(shape)}" in message


def test_a_bias_that_the_architecture_does_not_have_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", config={"architectures": ["OPTForCausalLM"]}, prefix="model.decoder.")
    add_tensor(tmp_path / "model", "lm_head.bias", (ROWS,))
    refuse(tmp_path, base, match=r"`lm_head\.bias`")


@pytest.mark.parametrize(
    "sizes", [{"hidden_size": ROWS}, {"intermediate_size": ROWS}, {"vision_config": {"n_patches": ROWS}}]
)
def test_an_axis_that_is_as_long_by_accident_is_no_reason_to_refuse(tmp_path, sizes):
    base = checkpoint(tmp_path / "model", config=sizes)
    add_tensor(tmp_path / "model", "model.layers.0.mlp.up_proj.weight", (ROWS, WIDTH))
    done = tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert done.compared.untouched_tensors == 4


def test_a_table_of_tokens_is_refused_by_its_name_where_the_size_says_nothing(tmp_path):
    base = checkpoint(tmp_path / "model", config={"max_position_embeddings": ROWS})
    add_tensor(tmp_path / "model", "mtp.shared_head.weight", (ROWS, WIDTH))
    refuse(tmp_path, base, match="shared_head")


def test_the_size_of_the_vocabulary_and_ids_are_not_sizes_of_other_axes():
    config = {"vocab_size": 90, "eos_token_id": 90, "suppress_tokens": [90], "hidden_size": 7, "heads": 13}
    with pytest.raises(errors.CheckpointError, match="axis of 90"):
        require_no_other_tables([("a", (90, 7))], 90, config)
    require_no_other_tables([("a", (91, 7))], 91, config)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(f'"shape": [{ROWS}, {WIDTH}]', '"shape": [1e999, 16]', 1),
        lambda text: text.replace(f'"shape": [{ROWS}, {WIDTH}]', f'"shape": [{ROWS}.0, {WIDTH}]', 1),
        lambda text: text.replace(f'"shape": [{ROWS}, {WIDTH}]', f'"shape": [true, {ROWS * WIDTH}]', 1),
        lambda text: text.replace(f'"shape": [{ROWS}, {WIDTH}]', f'"shape": "{ROWS}"', 1),
        lambda text: text.replace(f'"shape": [{ROWS}, {WIDTH}]', f'"shape": [-{ROWS}, -{WIDTH}]', 1),
        lambda text: text.replace('"data_offsets": [0, ', '"data_offsets": [0.0, ', 1),
        lambda text: text.replace('"data_offsets": [0, ', '"data_offsets": [NaN, ', 1),
        lambda text: text.replace('"data_offsets": [0, ', '"data_offsets": [0, 0, ', 1),
        lambda text: text.replace('"dtype": "BF16"', '"dtype": ["BF16"]', 1),
        lambda text: text.replace('{"format": "pt"}', "5"),
        lambda text: text.replace('{"format": "pt"}', '["pt"]'),
        lambda text: text.replace('{"format": "pt"}', '{"format": 5}'),
        lambda text: text.replace('{"format": "pt"}', '{"format": "\\ud800"}'),
        lambda text: text.replace("model.norm.weight", "\\ud800"),
        lambda text: re.sub(r'(norm.weight": {"dtype": )"\w+"', r'\1"\\ud800"', text),
        lambda text: f"[{text}]",
        lambda _: "[" * 3000,
        lambda _: "5",
    ],
)
def test_a_damaged_header_is_refused(tmp_path, change):
    base = checkpoint(tmp_path / "model")
    before = (tmp_path / "model" / "model.safetensors").read_bytes()
    edit_header(tmp_path / "model", change)
    assert (tmp_path / "model" / "model.safetensors").read_bytes() != before
    refuse(tmp_path, base, match="not a complete safetensors file")


@pytest.mark.parametrize("start", [0, 2])
def test_data_that_two_tensors_share_is_refused(tmp_path, start):
    base = checkpoint(tmp_path / "model")

    def overlap(text):
        header = json.loads(text)
        header["model.norm.weight"]["data_offsets"] = [start, start + 2 * WIDTH]
        return json.dumps(header)

    edit_header(tmp_path / "model", overlap)
    refuse(tmp_path, base, match="does not begin where the data before it ends")


def test_data_that_no_tensor_has_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model")
    with (tmp_path / "model" / "model.safetensors").open("ab") as file:
        file.write(b"12345")
    refuse(tmp_path, base, match="5 bytes at its end belong to no tensor")


def test_rows_that_are_not_finite_are_refused_without_a_warning(tmp_path):
    base = checkpoint(tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    path.write_bytes(raw[:start] + b"\x80\x7f\x80\xff" * WIDTH + raw[start + 4 * WIDTH :])
    pruned = tg.prune_order(base, method="last-id-leaf")[:20].apply(base)
    refuse(tmp_path, pruned, match="numbers that are not finite")


def test_metadata_may_be_missing(tmp_path):
    base = checkpoint(tmp_path / "model")
    edit_header(tmp_path / "model", lambda text: text.replace('"__metadata__": {"format": "pt"}, ', ""))
    tg.transplant(tmp_path / "model", base, tmp_path / "out")
    assert TensorFile.open(tmp_path / "out" / "model.safetensors").metadata is None


def test_a_table_without_numbers_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", config={"vocab_size": 2**62})
    empty = {"dtype": "BF16", "shape": [2**62, 0], "data": b""}
    tensors = {"model.embed_tokens.weight": empty, "lm_head.weight": empty}
    write_safetensors(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    refuse(tmp_path, base, match="not that of a table of tokens")


@pytest.mark.parametrize("value", [5, "x", [], None, True, [{"vocab_size": 397}]])
def test_a_nested_config_that_is_no_object_is_left_as_it_is(tmp_path, value):
    base = checkpoint(tmp_path / "model", config={"text_config": value})
    new = tg.prune_order(base, None, "last-id")[:9].apply(base).compact()
    tg.transplant(tmp_path / "model", new, tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["text_config"] == value
    assert config["vocab_size"] == new.n_rows


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("depth", [400, 100_000])
def test_a_config_that_is_nested_too_deep_is_refused(tmp_path, name, depth):
    base = checkpoint(tmp_path / "model")
    text = (tmp_path / "model" / name).read_text()
    deep = '{"a": ' * depth + "1" + "}" * depth
    (tmp_path / "model" / name).write_text(text.replace("{", f'{{"deep": {deep}, ', 1))
    refuse(tmp_path, base, errors.TokengraftError, match=name)


@pytest.mark.parametrize("content", [b"", b"\xff", b"{", b"\xef\xbb\xbf{}", b'{"a": ' + b"9" * 5000 + b"}"])
def test_a_config_that_is_no_json_is_refused(tmp_path, content):
    base = checkpoint(tmp_path / "model")
    (tmp_path / "model" / "generation_config.json").write_bytes(content)
    refuse(tmp_path, base, match=r"generation_config\.json` is not JSON")


@pytest.mark.parametrize("name", ["x" * 300, "x\0y", "../model.safetensors", "", ".", "a/b"])
def test_a_name_in_the_index_that_is_no_file_of_the_folder_is_refused(tmp_path, name):
    base = checkpoint(tmp_path / "model", shards=3)
    set_config(tmp_path / "model", "model.safetensors.index.json", weight_map={"a": name})
    refuse(tmp_path, base, match="lacks")


@pytest.mark.parametrize("value", [{}, [], None, "x"])
def test_an_index_without_a_map_is_refused(tmp_path, value):
    base = checkpoint(tmp_path / "model", shards=3)
    set_config(tmp_path / "model", "model.safetensors.index.json", weight_map=value)
    refuse(tmp_path, base, match="has no `weight_map`")


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", shards=3)
    shards = sorted((tmp_path / "model").glob("*.safetensors"))
    shards[1].write_bytes(shards[0].read_bytes())
    refuse(tmp_path, base, match="both .* have the tensor")


def test_an_output_with_other_rows_than_the_input_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model", head=False)
    add_tensor(tmp_path / "model", "lm_head.weight", (ROWS + 3, WIDTH))
    refuse(tmp_path, base, match=r"`lm_head\.weight` has 400 rows, the input embedding 397")


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), -1, "x", None, []])
def test_an_initializer_range_that_is_no_number_to_draw_with_is_not_used(tmp_path, value):
    base = checkpoint(tmp_path / "model", config={"initializer_range": value})
    new = tg.extend(base, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "out", init="random")
    assert 0.01 < tables(tmp_path / "out")["model.embed_tokens.weight"][-5:].std() < 0.03


def test_a_seed_below_zero_is_refused(tmp_path):
    base = checkpoint(tmp_path / "model")
    with pytest.raises(errors.OptionError, match="--seed is -1"):
        tg.transplant(tmp_path / "model", base, tmp_path / "out", init="random", seed=-1)


def test_the_architecture_that_is_named_is_the_one_that_was_found(tmp_path):
    base = checkpoint(tmp_path / "model", config={"architectures": ["Novel", "LlamaForCausalLM"]})
    assert tg.transplant(tmp_path / "model", base, None).found_by == "the names of LlamaForCausalLM"
