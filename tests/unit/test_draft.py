"""`draft`: which ids are chosen, what readers make of the written files, and what is refused."""

import json
from importlib import import_module

import builders
import numpy as np
import pytest
from checkpoints import (
    ENGLISH,
    ESTONIAN,
    WIDTH,
    eagle,
    head_of,
    maps,
    raw,
    tensor,
    write_shards,
)

import tokengraft as tg
from tokengraft import cli
from tokengraft.checkpoint.tensors import NOTHING, TensorFile
from tokengraft.errors import CheckpointError, OptionError, OutputError
from tokengraft.pruning.draft_vocabulary import Coverage, DraftOrder, chosen_size, draft_order
from tokengraft.pruning.methods import usefulness
from tokengraft.verify.model import check_draft

TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}: the mat{% endfor %}"


def test_special_tokens_those_of_chat_templates_and_bytes_come_first_then_the_most_frequent(tmp_path):
    folder = builders.write(tmp_path / "tok", builders.byte_level())
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    tok = tg.load(folder)
    counts = tg.count(tok, iter(ESTONIAN))
    order, found = draft_order(tok, counts), counts.tokens(tok)
    required, others = {*order.ids[: order.required]}, order.ids[order.required :]
    assert {token.id for token in tok.added} <= required
    assert {token.id for token in tok.tokens if len(token.bytes) == 1} <= required
    assert {*tok.encode(": the mat")} <= required
    assert sorted(order.ids) == sorted(tok.ids.values())
    expected = usefulness(tok, found)
    rank = {i: (found.get(i, 0), 0 if i in found else expected[i]) for i in others}
    unreachable = {*tok.structure.unreachable}
    produced = [rank[i] for i in others if i not in unreachable]
    assert produced == sorted(produced, reverse=True)


def test_a_draft_vocabulary_of_smaller_size_is_part_of_a_larger_one(tmp_path, target):
    counts = tg.count(target, iter(ENGLISH))
    small, large = ({*tg.draft(tmp_path / "model", counts, tmp_path / f"map-{n}", size=n).ids} for n in (300, 350))
    assert small < large
    assert (len(small), len(large)) == (300, 350)


def test_coverage_is_the_share_of_tokens_of_held_out_text(tmp_path, target):
    counts, held_out = tg.count(target, iter(ENGLISH)), tg.count(target, iter(ESTONIAN))
    made = tg.draft(tmp_path / "model", counts, tmp_path / "map", size=300, held_out={"et": held_out})
    ids = [i for text in ESTONIAN for i in target.encode(text)]
    assert made.curve[0].chosen["et"] == pytest.approx(np.isin(ids, made.ids).mean(), abs=1e-6)
    assert made.curve[0].first_ids["et"] == pytest.approx((np.array(ids) < 300).mean(), abs=1e-6)
    assert "dasharray" in (tmp_path / "map" / "coverage.svg").read_text()


def test_the_size_is_the_smallest_that_covers_a_share_of_every_text_or_that_doubling_does_not_help():
    order = DraftOrder(tuple(range(8192)), 10)
    even = Coverage(order.ids, {"a": dict.fromkeys(range(8192), 1), "b": {0: 1}})
    assert chosen_size(order, None, 0.5, even) == 4096
    assert chosen_size(order, None, 0.501, even) == 4160
    assert chosen_size(order, "auto", None, even) == 8192
    # Twice 1,024 ids cover 0.98 % more.
    steep = Coverage(order.ids, {"a": dict.fromkeys(range(1024), 99) | dict.fromkeys(range(1024, 2048), 1)})
    assert chosen_size(order, "auto", None, steep) == 2048
    steeper = Coverage(order.ids, {"a": dict.fromkeys(range(1024), 101) | dict.fromkeys(range(1024, 2048), 1)})
    assert chosen_size(order, "auto", None, steeper) == 1024


def test_every_reader_gets_the_chosen_ids_from_the_maps(tmp_path, target):
    """The arithmetic of vLLM, SGLang, SpecForge and speculators, at the commits that `checkpoint.draft` names."""
    made = tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "map", size=300)
    d2t, t2d = (np.load(tmp_path / "map" / f"{name}.npy") for name in ("d2t", "t2d"))  # speculators: np.load
    assert (d2t.dtype, t2d.dtype, len(t2d)) == (np.int64, np.bool_, target.n_rows)
    logits = np.arange(300.0)
    scattered = np.full(target.n_rows, -np.inf)
    scattered[np.arange(300) + d2t] = logits  # vLLM: logits_new[:, base + draft_id_to_target_id] = logits
    assert [int(i) for i in np.flatnonzero(np.isfinite(scattered))] == [*made.ids]
    assert (d2t + np.arange(300)).tolist() == [*made.ids]  # SGLang: hot_token_id = d2t + arange
    assert np.array_equal(np.flatnonzero(t2d), d2t + np.arange(300))  # SpecForge: validate_vocab_mapping_consistency
    assert int(t2d.sum()) == len(d2t)  # speculators: load_vocab_mappings
    assert json.loads((tmp_path / "map" / "token_ids.json").read_text()) == [*made.ids]


def test_the_pickled_files_are_what_sglang_and_specforge_load(tmp_path, target):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    made = tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "map", size=300, pt=True)
    listed = torch.load(tmp_path / "map" / "hot_token_id.pt", weights_only=True)
    assert torch.tensor(listed, dtype=torch.int64).tolist() == [*made.ids]
    mapping = torch.load(tmp_path / "map" / "vocab_mapping.pt", weights_only=True)
    assert (
        torch.zeros(300, dtype=torch.long).copy_(mapping["d2t"]).tolist() == np.load(tmp_path / "map/d2t.npy").tolist()
    )
    assert torch.zeros(target.n_rows, dtype=torch.bool).copy_(mapping["t2d"]).sum() == 300
    again = tg.draft(tmp_path / "model", None, tmp_path / "again", ids=tmp_path / "map", pt=True)
    assert again.ids == made.ids
    for name in ("hot_token_id.pt", "vocab_mapping.pt", "d2t.npy", "t2d.npy", "token_ids.json"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "map" / name).read_bytes()


@pytest.mark.parametrize("shards", [1, 2])
def test_a_cut_draft_has_the_chosen_rows_and_every_other_tensor_as_it_was(tmp_path, target, shards):
    rows = target.n_rows
    draft = eagle(tmp_path / "draft", rows, shards=shards, tie_word_embeddings=False)
    made = tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "out", size=300, cut=draft)
    before, after = raw(draft), raw(tmp_path / "out")
    assert {*after} - {*before} == {"d2t", "t2d"}
    assert all(after[name] == before[name] for name in before if name != "lm_head.weight")
    assert np.array_equal(head_of(tmp_path / "out"), head_of(draft)[[*made.ids]])
    d2t, t2d = maps(tmp_path / "out")
    assert (np.arange(300) + d2t).tolist() == np.flatnonzero(t2d).tolist() == [*made.ids]
    config, old = (json.loads((folder / "config.json").read_text()) for folder in (tmp_path / "out", draft))
    assert config == old | {"draft_vocab_size": 300}
    assert (tmp_path / "out" / "README.md").read_text() == "a draft"
    assert check_draft(tmp_path / "out", tmp_path / "model").passed
    if shards > 1:
        index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
        assert {*index["weight_map"]} == {*after}
        assert index["metadata"]["total_size"] == sum(len(data) for *_, data in after.values())


def test_a_draft_that_uses_the_head_of_its_target_gets_rows_of_it(tmp_path, target):
    draft = eagle(tmp_path / "draft", target.n_rows, head=0)
    made = tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "out", size=300, cut=draft)
    wanted = head_of(tmp_path / "model")[[*made.ids]]
    assert np.array_equal(head_of(tmp_path / "out"), wanted)
    found = {each.name: each for each in check_draft(tmp_path / "out", tmp_path / "model").findings}
    assert found["rows of the target"].outcome == "pass"


def test_every_head_of_multi_token_prediction_is_cut(tmp_path, target):
    draft = eagle(tmp_path / "draft", target.n_rows, head=0)
    generator = np.random.default_rng(4)
    names = [f"model.layers.{n}.shared_head.head.weight" for n in (61, 62)]
    write_shards(draft, {name: tensor((target.n_rows, WIDTH), "BF16", generator) for name in names}, 1)
    made = tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "out", size=300, cut=draft)
    for name in names:
        assert np.array_equal(head_of(tmp_path / "out", name), head_of(draft, name)[[*made.ids]])


def test_a_draft_that_was_cut_can_be_cut_again_to_a_part_of_its_ids(tmp_path, target):
    counts, draft = tg.count(target, iter(ENGLISH)), eagle(tmp_path / "draft", target.n_rows)
    tg.draft(tmp_path / "model", counts, tmp_path / "large", size=350, cut=draft)
    made = tg.draft(tmp_path / "model", counts, tmp_path / "small", size=300, cut=tmp_path / "large")
    assert np.array_equal(head_of(tmp_path / "small"), head_of(draft)[[*made.ids]])
    with pytest.raises(CheckpointError, match="300 rows, and none for 50 of the 350 chosen ids"):
        tg.draft(tmp_path / "model", counts, tmp_path / "again", size=350, cut=tmp_path / "small")


def test_a_draft_of_another_target_and_damage_after_writing_are_refused(tmp_path, target, monkeypatch):
    counts = tg.count(target, iter(ENGLISH))
    other = eagle(tmp_path / "other", 448)
    with pytest.raises(CheckpointError, match=r"for a target of 448 ids, and `.*model` has 397"):
        tg.draft(tmp_path / "model", counts, tmp_path / "out", size=300, cut=other)
    module = import_module("tokengraft.checkpoint.result")
    write = module.write_file

    def damaged(file, changed, path, stop):
        write(file, changed, path, stop)
        fc = TensorFile.open(path).tensors["fc.weight"]
        data = bytearray(path.read_bytes())
        data[fc.start] ^= 1
        path.write_bytes(data)
        return NOTHING

    monkeypatch.setattr(module, "write_file", damaged)
    draft = eagle(tmp_path / "draft", target.n_rows)
    with pytest.raises(CheckpointError, match=r"after writing, the tensor `fc\.weight` differs"):
        tg.draft(tmp_path / "model", counts, tmp_path / "out", size=300, cut=draft)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 10_000}, "`size` is 10,000, and the vocabulary has 397 tokens"),
        ({"size": 20}, "bytes need 258 ids"),
        ({}, "a size or a coverage must be given"),
        ({"size": 300, "coverage": 0.5}, "not both"),
        ({"size": "auto"}, "no text was given to choose the size by"),
        ({"coverage": 2, "held_out": True}, "must be above 0 and at most 1"),
    ],
)
def test_a_size_that_does_not_fit_is_refused(tmp_path, target, options, message):
    counts = tg.count(target, iter(ENGLISH))
    options = options | ({"held_out": {"en": counts}} if "held_out" in options else {})
    with pytest.raises(OptionError, match=message):
        tg.draft(tmp_path / "model", counts, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([1, 2, 2], "1 ids that are listed before"),
        ([1, 100_000], "1 ids without a token, such as 100,000: it is that of another tokenizer"),
        ([1, -1], "such as -1"),
        ([1, 2.0], "is not a list of ids"),
        ([], "is not a list of ids"),
        ([[1], [2]], "is not a list of ids"),
        ({"1": 2}, "is not a list of ids"),
    ],
)
@pytest.mark.usefixtures("target")
def test_ids_that_are_not_those_of_the_target_are_refused(tmp_path, ids, message):
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(ids))
    for given in (ids, path):
        with pytest.raises(OptionError, match=message):
            tg.draft(tmp_path / "model", None, tmp_path / "out", ids=given)


def test_ids_of_another_tokenizer_are_refused(tmp_path, target):
    counts = tg.count(target, iter(ENGLISH))
    tg.draft(tmp_path / "model", counts, tmp_path / "map", size=300)
    other = tg.extend(target, counts, 5).apply(target)
    tg.save(other, tmp_path / "other")
    for source in ("map", "map/token_ids.json"):
        with pytest.raises(OptionError, match="was made for another tokenizer"):
            tg.draft(tmp_path / "other", None, tmp_path / "out", ids=tmp_path / source)
    with pytest.raises(OptionError, match="cannot read"):
        tg.draft(tmp_path / "other", None, tmp_path / "out", ids=tmp_path / "missing.json")


def test_ids_without_special_tokens_and_bytes_are_warned_of(tmp_path, target, capsys):
    (tmp_path / "ids.json").write_text(json.dumps([*range(60, 360)]))
    draft = eagle(tmp_path / "draft", target.n_rows)
    command = ["draft", str(tmp_path / "model"), "--ids", str(tmp_path / "ids.json"), "--cut", str(draft)]
    assert cli.main([*command, "--out", str(tmp_path / "out")]) == 0
    assert "special tokens, tokens of chat templates and bytes are not among the ids" in capsys.readouterr().err
    notes = [each.name for each in check_draft(tmp_path / "out", tmp_path / "model").findings if each.outcome == "note"]
    assert "special tokens" in notes


def test_only_a_folder_that_was_written_before_is_replaced(tmp_path, target):
    counts = tg.count(target, iter(ENGLISH))
    for size in (300, 310):
        tg.draft(tmp_path / "model", counts, tmp_path / "map", size=size, force=True)
    assert len(json.loads((tmp_path / "map" / "token_ids.json").read_text())) == 310
    (tmp_path / "map" / "mine.txt").write_text("mine")
    with pytest.raises(OutputError):
        tg.draft(tmp_path / "model", counts, tmp_path / "map", size=300, force=True)


@pytest.mark.usefixtures("target")
def test_the_command_shows_coverage_beside_that_of_the_first_ids(tmp_path, tokengraft):
    counts = tmp_path / "en.parquet"
    tokengraft("count", tmp_path / "model", tmp_path / "en.txt", "--out", counts)
    command = ["draft", str(tmp_path / "model"), "--counts", str(counts), "--size", "300"]
    command += ["--held-out", f"et={tmp_path / 'et.txt'}"]
    shown = tokengraft(*command, "--out", tmp_path / "map").out
    assert "300 of 397 rows" in shown
    assert "et, first ids" in shown
    printed = tokengraft(*command, "--out", tmp_path / "other", "--json").json
    assert (printed["size"], [*printed["curve"][0]["chosen"]]) == (300, ["et"])
    weighted = [*command, "--counts", str(counts), "--weight", "2", "--out", str(tmp_path / "weighted")]
    assert "1 weights were given for 2 texts" in tokengraft(*weighted, code=2).err
