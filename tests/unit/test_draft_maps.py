"""Maps and heads of drafts: every mistake is found, and they follow a new vocabulary."""

import json

import numpy as np
import pytest
from checkpoints import (
    ENGLISH,
    ESTONIAN,
    WIDTH,
    changed,
    checkpoint,
    eagle,
    head_of,
    maps,
    raw,
    write_shards,
)

import tokengraft as tg
from tokengraft import cli
from tokengraft.checkpoint.draft import DraftFolder
from tokengraft.errors import CheckpointError
from tokengraft.verify.model import check_draft


def change(folder, name, array):
    """Replaces a map of a draft, or removes it."""
    path = folder / "model.safetensors"
    tensors = {
        key: {"dtype": t, "shape": [*s], "data": data} for key, (t, s, data) in raw(folder).items() if key != name
    }
    if array is not None:
        kind = "I64" if array.dtype == np.int64 else "BOOL"
        tensors[name] = {"dtype": kind, "shape": [*array.shape], "data": array.tobytes()}
    path.unlink()
    write_shards(folder, tensors, 1)


def edited(array, at, value):
    return np.concatenate([array[:at], [array.dtype.type(value)], array[at + 1 :]])


MISTAKES = {
    "missing map": ("d2t", lambda _: None),
    "absolute ids": ("d2t", lambda d2t: d2t + np.arange(len(d2t))),
    "first ids": ("d2t", np.zeros_like),
    "ids in range": ("d2t", lambda d2t: edited(d2t, len(d2t) - 1, 10_000)),
    "duplicate ids": ("d2t", lambda d2t: edited(d2t, 5, d2t[4] - 1)),
    "ascending ids": ("d2t", lambda d2t: edited(edited(d2t, 4, d2t[5] + 1), 5, d2t[4] - 1)),
    "t2d": ("t2d", lambda t2d: ~t2d),
    "shapes": ("d2t", lambda d2t: d2t[:-1]),
}
"""By the name of the failure: the map that is changed, and how."""


@pytest.mark.parametrize("name", MISTAKES)
def test_every_silent_mistake_of_a_map_is_a_failure_with_its_name(tmp_path, target, name, capsys, tokengraft):
    draft = eagle(tmp_path / "draft", target.n_rows)
    tg.draft(tmp_path / "model", tg.count(target, iter(ENGLISH)), tmp_path / "out", size=300, cut=draft)
    command = ["check", str(tmp_path / "out"), "--base", str(tmp_path / "model")]
    assert cli.main(command) == 0
    which, mistake = MISTAKES[name]
    change(tmp_path / "out", which, mistake(dict(zip(("d2t", "t2d"), maps(tmp_path / "out"), strict=True))[which]))
    capsys.readouterr()
    found = tokengraft(*command, "--json", code=1).json["findings"]
    assert name in [each["name"] for each in found if each["outcome"] == "fail"]


@pytest.mark.parametrize("name", [name for name in MISTAKES if name != "ascending ids"])
def test_a_draft_with_a_wrong_map_is_neither_cut_nor_transplanted(tmp_path, target, name):
    counts, draft = tg.count(target, iter(ENGLISH)), eagle(tmp_path / "draft", target.n_rows)
    tg.draft(tmp_path / "model", counts, tmp_path / "cut", size=350, cut=draft)
    which, mistake = MISTAKES[name]
    change(tmp_path / "cut", which, mistake(dict(zip(("d2t", "t2d"), maps(tmp_path / "cut"), strict=True))[which]))
    with pytest.raises(CheckpointError, match="do not fit each other"):
        tg.draft(tmp_path / "model", counts, tmp_path / "out", size=300, cut=tmp_path / "cut")
    with pytest.raises(CheckpointError, match="do not fit each other"):
        tg.transplant(tmp_path / "cut", target, tmp_path / "out", base=target)
    assert not (tmp_path / "out").exists()


def test_absolute_ids_are_found_without_t2d(tmp_path, target):
    draft = eagle(tmp_path / "draft", target.n_rows, head=300, ids=range(20, 320))
    change(draft, "t2d", None)
    assert check_draft(draft).passed
    change(draft, "d2t", np.arange(20, 320))
    assert [each.name for each in check_draft(draft).failures] == ["absolute ids"]


def test_a_head_with_rows_of_other_ids_is_a_failure(tmp_path, target):
    draft, ids = eagle(tmp_path / "draft", target.n_rows, head=0), [*range(60, 360)]
    tg.draft(tmp_path / "model", None, tmp_path / "out", ids=ids, cut=draft)
    kept, rows = raw(tmp_path / "out"), head_of(tmp_path / "model")

    def failures(chosen):
        tensors = {name: {"dtype": t, "shape": [*shape], "data": data} for name, (t, shape, data) in kept.items()}
        tensors["lm_head.weight"]["data"] = rows[chosen].tobytes()
        write_shards(tmp_path / "out", tensors, 1)
        return [each.detail for each in check_draft(tmp_path / "out", tmp_path / "model").failures]

    assert failures(ids) == []
    assert failures([61, 60, *range(62, 360)]) == ["2 rows are those of other ids"]
    assert failures([*range(300)]) == ["300 rows are those of other ids"]


def test_a_map_of_another_tokenizer_and_a_tied_head_are_failures(tmp_path, target):
    counts, draft = tg.count(target, iter(ENGLISH)), eagle(tmp_path / "draft", target.n_rows)
    tg.draft(tmp_path / "model", counts, tmp_path / "out", size=300, cut=draft)
    other = tg.extend(target, counts, 5).apply(target)
    tg.transplant(tmp_path / "model", other, tmp_path / "other")
    assert [each.name for each in check_draft(tmp_path / "out", tmp_path / "other").failures] == [
        "map of another tokenizer"
    ]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    [failure] = check_draft(tmp_path / "out").failures
    assert "SGLang then uses the embedding as head" in failure.evidence[0]


def test_the_head_and_the_maps_of_a_draft_follow_a_new_vocabulary(tmp_path, target):
    counts, draft = tg.count(target, iter(ENGLISH)), eagle(tmp_path / "draft", target.n_rows)
    made = tg.draft(tmp_path / "model", counts, tmp_path / "cut", size=350, cut=draft)
    tg.adapt(tmp_path / "model", target=tmp_path / "et.txt", keep=tmp_path / "en.txt", swap=8, out=tmp_path / "new")
    done = tg.transplant(tmp_path / "cut", tmp_path / "new", tmp_path / "moved", base=target)
    new, before, after = tg.load(tmp_path / "new"), head_of(tmp_path / "cut"), head_of(tmp_path / "moved")
    ids = DraftFolder.open(tmp_path / "moved").ids.tolist()
    row_of = {i: row for row, i in enumerate(made.ids)}
    kept = {i for i in ids if new.strings[i] in target.ids}
    for row, i in enumerate(ids):
        if i in kept:
            old = row_of[target.ids[new.strings[i]]]
            assert np.array_equal(after[row], before[old])
    stayed = {target.strings[i] for i in made.ids} & {*new.ids}
    assert {new.strings[i] for i in kept} == stayed
    assert {*ids} - kept, "new tokens have rows"
    assert done.compared.kept_rows == len(kept)
    same = {"fc.weight", "midlayer.self_attn.q_proj.weight", "norm.weight"}
    assert all(raw(tmp_path / "moved")[name] == raw(tmp_path / "cut")[name] for name in same)
    assert json.loads((tmp_path / "moved" / "config.json").read_text())["draft_vocab_size"] == len(ids)
    assert check_draft(tmp_path / "moved", tmp_path / "new").passed
    assert json.loads((tmp_path / "moved" / "token_ids.json").read_text()) == ids
    assert np.array_equal(np.load(tmp_path / "moved" / "t2d.npy"), maps(tmp_path / "moved")[1])
    assert not (tmp_path / "moved" / "coverage.svg").exists(), "it is of the old vocabulary"
    [failure] = check_draft(tmp_path / "moved", tmp_path / "model").failures
    assert failure.name == "map of another tokenizer"


def test_new_rows_of_a_head_that_was_cut_from_the_target_are_no_mistake(tmp_path, target):
    counts, draft = tg.count(target, iter(ESTONIAN)), eagle(tmp_path / "draft", target.n_rows, head=0)
    tg.draft(tmp_path / "model", counts, tmp_path / "cut", size=350, cut=draft)
    new = tg.extend(target, counts, 8).apply(target)
    tg.transplant(tmp_path / "model", new, tmp_path / "new")
    tg.transplant(tmp_path / "cut", new, tmp_path / "moved", base=target)
    checked = check_draft(tmp_path / "moved", tmp_path / "new")
    assert checked.passed
    assert "350 of 358 are in `lm_head.weight`" in checked.findings[-1].detail


def test_the_embedding_of_a_draft_and_its_padding_follow_as_those_of_the_target(tmp_path):
    base = checkpoint(tmp_path / "model", rows=448)
    draft, counts = eagle(tmp_path / "draft", 448, embed=True), tg.count(base, iter(ESTONIAN))
    tg.draft(tmp_path / "model", counts, tmp_path / "cut", size=350, cut=draft)
    new = tg.extend(base, counts, 60).apply(base)
    tg.transplant(tmp_path / "model", new, tmp_path / "new")
    tg.transplant(tmp_path / "cut", new, tmp_path / "moved", base=base)
    rows = json.loads((tmp_path / "new" / "config.json").read_text())["vocab_size"]
    assert head_of(tmp_path / "moved", "embed_tokens.weight").shape == (rows, WIDTH)
    assert len(maps(tmp_path / "moved")[1]) == rows
    kept = head_of(tmp_path / "draft", "embed_tokens.weight")[: base.n_rows]
    assert np.array_equal(head_of(tmp_path / "moved", "embed_tokens.weight")[: base.n_rows], kept)
    assert check_draft(tmp_path / "moved", tmp_path / "new").passed


def test_a_draft_with_all_ids_follows_a_new_vocabulary_as_its_target_does(tmp_path, target):
    draft = eagle(tmp_path / "draft", target.n_rows)
    new = changed(target, add=8)
    tg.save(new, tmp_path / "tokenizer")
    command = ["transplant", str(draft), str(tmp_path / "tokenizer"), "--out", str(tmp_path / "moved")]
    assert cli.main(command) == 2
    assert cli.main([*command, "--base", str(tmp_path / "model")]) == 0
    after = head_of(tmp_path / "moved")
    assert after.shape == (new.n_rows, WIDTH)
    assert np.array_equal(after[: target.n_rows], head_of(draft))
    config = json.loads((tmp_path / "moved" / "config.json").read_text())
    assert config["vocab_size"] == config["draft_vocab_size"] == new.n_rows
