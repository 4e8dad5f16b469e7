"""`adapt`: what is checked first, protected, replaced and written."""

import json
from collections import namedtuple
from dataclasses import replace

import builders
import numpy as np
import pytest
from checkpoints import ESTONIAN, adapted, changed, checkpoint, chosen, set_config, tables

import tokengraft as tg
from tokengraft import errors
from tokengraft.checkpoint.ids import config_tokens
from tokengraft.measure.compare import sample_changes
from tokengraft.pipeline import adapt as cache
from tokengraft.pipeline import prepare as checks
from tokengraft.pipeline.options import Sizes
from tokengraft.pipeline.request import read_recipe
from tokengraft.pipeline.vocabulary import check_against
from tokengraft.tokenizer.edit import add_tokens, remove_tokens
from tokengraft.tokenizer.kind import CHARACTER_OF

pytestmark = pytest.mark.usefixtures("transformers_running")
EMBEDDING = "model.embed_tokens.weight"


@pytest.fixture
def unread(monkeypatch):
    """Makes reading any text a failure."""

    def fail(*_, **__):
        raise AssertionError("text was read")

    monkeypatch.setattr(cache, "count_with_hold_out", fail)


def read(path):
    return json.loads(path.read_text(encoding="utf-8"))


# Sizes: what a swap, an addition and a removal do to ids and shapes.


@pytest.mark.usefixtures("model")
def test_a_swap_keeps_every_shape_and_gains(texts):
    found = adapted(texts, keep=texts / "en.txt", swap=30)
    assert found.plan.summary.added == found.plan.summary.removed == 30
    assert found.evaluation["new", "target"].gain > 0.3
    assert found.evaluation["new", "keep"].gain > -0.05
    assert found.check.passed
    before, after = tables(texts / "model"), tables(texts / "out")
    assert {name: table.shape for name, table in before.items()} == {n: t.shape for n, t in after.items()}
    assert tg.load(texts / "out") == found.tokenizer
    summary = read(texts / "out" / "adaptation.json")
    assert summary["checks_passed"]
    assert summary["plan"]["added"] == 30
    assert not (texts / "out.work").exists()


@pytest.mark.usefixtures("model", "holey")
@pytest.mark.parametrize("min_count", [2, 395], ids=["enough text", "too little text"])
@pytest.mark.parametrize("source", ["model", "holey"])
def test_a_swap_gives_new_tokens_exactly_the_ids_of_pruned_ones_however_many_are_learned(texts, source, min_count):
    found = adapted(texts, source, swap=50, limits=tg.Limits(min_count=min_count))
    replaced = len(found.extension)
    assert 0 < replaced == len(found.order) <= 50
    assert (replaced < 50) == (min_count == 395)
    assert any(f"50 tokens to swap asked, {replaced} replaced" in text for text in found.warnings) == (replaced < 50)
    assert set(found.tokenizer.ids.values()) == set(found.base.ids.values())
    assert found.plan.summary.moved == 0
    assert found.tokenizer.added == found.base.added
    assert tg.load(texts / "out").ids == found.tokenizer.ids


SOURCES = {"exact": {}, "padded": {"rows": 512}, "holes": None}


@pytest.mark.parametrize("sizes", [{"swap": 10}, {"add": 10}, {"remove": 10}, {"add": 10, "remove": 5}], ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_sizes_change_ids_and_rows_as_the_estimate_says(texts, source, sizes):
    if source == "holes":
        builders.write(texts / "model", builders.specials_first())
    else:
        checkpoint(texts / "model", **SOURCES[source])
    options = {"keep": texts / "en.txt", **sizes}
    before = adapted(texts, start=tg.pipeline.estimate, **options)
    assert before.text_bytes == (texts / "et.txt").stat().st_size + (texts / "en.txt").stat().st_size
    assert not (texts / "out").exists()
    found = adapted(texts, **options)
    base, new = found.base, found.tokenizer
    assert len(new.ids) == len(base.ids) + sizes.get("add", 0) - sizes.get("remove", 0)
    if "remove" in sizes and sizes["remove"] > sizes.get("add", 0):
        assert new.n_rows == len(new.ids)  # the holes of the base are closed as well
    else:
        assert all(new.ids[string] == base.ids[string] for string in new.ids.keys() & base.ids.keys())
    if source == "holes":
        assert found.transplant is None
        assert before.rows_after == new.n_rows
        assert new.n_rows <= base.n_rows
        return
    old, changed = tables(texts / "model"), tables(texts / "out")
    assert (before.rows_before, before.rows_after) == (len(old[EMBEDDING]), len(changed[EMBEDDING]))
    assert before.parameters_added == sum(map(np.size, changed.values())) - sum(map(np.size, old.values()))
    assert read(texts / "out" / "config.json")["vocab_size"] == before.rows_after
    assert source == "padded" or before.rows_after == new.n_rows


def test_the_estimate_counts_the_rows_of_a_stored_tied_output_once_as_the_result_does(texts):
    checkpoint(texts / "model", config={"tie_word_embeddings": True})
    before = adapted(texts, start=tg.pipeline.estimate, add=10)
    assert before.parameters_added == adapted(texts, add=10).transplant.growth[0] > 0


def test_the_estimate_counts_the_holes_that_new_tokens_fill(holey, texts):
    base = tg.load(holey)
    before = adapted(texts, "holey", start=tg.pipeline.estimate, add=450)
    assert before.rows_after == len(base.ids) + 450 > base.n_rows


def test_new_tokens_take_the_ids_of_removed_ones_before_older_holes(holey):
    base = tg.load(holey)
    last = [token.string for token in base.tokens[-3:]]
    pruned = remove_tokens(base, last)
    added = add_tokens(pruned, ["xx", "yy", "zz", "vv"], [])
    freed = sorted(base.ids[string] for string in last)
    assert [added.ids[token] for token in ("xx", "yy", "zz")] == freed
    assert added.ids["vv"] == 2  # the lowest of the holes that the base had


def test_sizes_that_contradict_each_other_are_refused():
    for sizes, match in (
        ({}, "no number of tokens was given"),
        ({"swap": 5, "add": 5}, "`swap=5` was given together with `add=5`"),
        ({"add": -5}, "`add` is -5"),
    ):
        with pytest.raises(errors.OptionError, match=match):
            Sizes(**sizes)
    with pytest.raises(errors.OptionError, match="`swap='auto'` was given together with `add=5`"):
        Sizes(add=5, swap="auto")


# What is never pruned.


def ordinary(base, *, at):
    """A learned token that is no part of a longer one."""
    used = {part for pair in base.structure.splits.values() for part in pair}
    return [token for token in base.tokens if token.id in base.structure.splits and token.id not in used][at]


def test_tokens_that_any_config_names_are_not_pruned(model, texts):
    names = [ordinary(tg.load(model), at=at) for at in range(5)]
    nested = {"image_token_index": names[1].id, "hidden_act": "silu"}
    set_config(model, sep_token_id=names[0].id, text_config=nested)
    (model / "generation_config.json").write_text(json.dumps({"suppress_tokens": [names[2].id]}))
    (model / "tokenizer_config.json").write_text(json.dumps({"cls_token_id": names[3].id}))
    (model / "special_tokens_map.json").write_text(json.dumps({"mask_token": {"content": names[4].string}}))
    base = tg.load(model)
    most = len(tg.prune_order(base, protection=tg.Protection(config_tokens(base, model)), method="last-id-leaf"))
    found = adapted(texts, target="lv.txt", remove=most)
    assert {token.string for token in names} <= found.tokenizer.ids.keys()


@pytest.mark.usefixtures("model")
def test_pruning_without_text_to_keep_warns_and_names_the_text_that_decides(texts):
    target = {"lv": texts / "lv.txt"}
    alone = adapted(texts, out="a", target=target, remove=5)
    assert [w for w in alone.warnings if "only the text of lv decides which tokens are removed; pass --keep" in w]
    kept = adapted(texts, out="b", target=target, keep=texts / "et.txt", remove=5)
    added = adapted(texts, out="c", target=target, add=5)
    assert not [w for done in (kept, added) for w in done.warnings if "decides which tokens" in w]
    assert not [w for w in added.warnings if "remove fewer" in w or "--protect" in w]


@pytest.mark.usefixtures("model")
def test_an_adaptation_has_the_removed_tokens_and_the_samples(texts):
    done = adapted(texts, target="lv.txt", keep=texts / "et.txt", swap=60)
    gone = done.plan.summary.removed
    assert sum(kind.tokens for kind in done.removed.kinds) == gone > 0
    recorded = read(texts / "out" / "adaptation.json")
    assert sum(kind["tokens"] for kind in recorded["removed_tokens"]["kinds"]) == gone
    assert recorded["samples"] == [sample._asdict() for sample in sample_changes(done.base, done.tokenizer)]
    assert recorded["kept"] == dict(done.order.kept)
    assert any("built-in sample texts" in warning for warning in done.warnings) == done.samples[0].is_worse


def test_a_check_that_the_base_fails_too_is_a_note_and_any_other_a_failure(texts):
    sound = tg.load(builders.write(texts / "sound", builders.byte_level()))
    wrong = {"added_tokens.json": json.dumps({"<|start|>": 3})}
    base = tg.load(builders.write(texts / "wrong", builders.byte_level(), **wrong))
    assert [finding.name for finding in tg.check(base).failures] == ["files"]
    extended = changed(sound, add=10)
    contradicting = replace(extended, files=base.files)
    assert check_against(contradicting, base).passed
    assert [finding.name for finding in check_against(contradicting, sound).failures] == ["files"]


# How rows are made.


RECORDS = ("adaptation", "tokengraft")


def last_piece(tokens, _):
    return [token.pieces[-1] for token in tokens]


@pytest.mark.usefixtures("model")
def test_a_function_as_initialiser_is_recorded_by_name_and_not_repeated(texts):
    done = adapted(texts, swap=20, init=last_piece, seed=3)
    assert done.transplant.init == ("function last_piece",) * 2
    records = [json.loads((texts / "out" / f"{name}.json").read_bytes())["request"] for name in RECORDS]
    assert records[0]["options"]["init"] == "function last_piece"
    assert records[0] == records[1]
    with pytest.raises(errors.OptionError, match="options that only Python has: init"):
        read_recipe(texts / "out" / "adaptation.json")


# Before any text is read.


@pytest.mark.usefixtures("unread")
def test_what_can_be_known_at_the_start_is_refused_before_any_text_is_read(model, texts, monkeypatch):
    et, lv = texts / "et.txt", texts / "lv.txt"
    bare = builders.write(texts / "bare", builders.byte_level())
    pickled = builders.write(texts / "pickled", builders.byte_level(), **{"config.json": "{}"})
    (pickled / "pytorch_model.bin").write_bytes(b"weights")
    checkpoint(texts / "t5", config={"is_encoder_decoder": True})
    checkpoint(texts / "tied", head=False)
    (texts / "exists").mkdir()
    (texts / "folder").mkdir()
    (texts / "folder" / "et.txt").write_bytes(et.read_bytes())
    once, two, limits = iter(ESTONIAN), {"et": et, "lv": lv}, tg.Limits(scripts=["Latin"])
    words, pattern = tg.learn.WordList(("a",)), tg.Protection(pattern="a")
    option, output, corpus, weights = errors.OptionError, errors.OutputError, errors.CorpusError, errors.CheckpointError
    cases = [
        ({"target": {"x": tg.Target(et, 0)}}, option, "weight 0"),
        ({"target": {"x": tg.Target(et, "1/9"), "y": tg.Target(et, 10**9)}}, option, "x"),
        ({"target": {"../x": tg.Target(et)}}, option, "not a valid name for a text"),
        ({"target": {"keep": tg.Target(et)}}, option, "called 'keep'"),
        ({"target": {}}, option, "no target"),
        ({"swap": 5}, option, "`swap=5` was given together with `add=5`"),
        ({"add": 10**24}, option, "new tokens were asked for"),
        ({"add": 4 * 10**9}, output, "GB free"),
        ({"add": "auto", "max_add": 0}, option, "max.add"),
        ({"add": 0, "remove": 10**6}, option, "1,000,000 tokens to prune asked"),
        ({"add": 0, "remove": 5, "protection": tg.Protection(tokens=["no such"])}, option, "no such"),
        ({"by_merges": True}, option, "`by_merges` has no effect without `swap` or `remove`"),
        ({"protection": pattern}, option, "`Protection.pattern`"),
        ({"init": "no"}, option, "no initialiser"),
        ({"output_init": "best"}, option, "no initialiser 'best'"),
        ({"hole_rows": "best"}, option, "no hole rows 'best'"),
        ({"source": texts / "tied", "output_init": "length-weighted"}, option, "tied"),
        ({"source": bare, "init": "fvt"}, option, "has no effect without weights"),
        ({"source": bare, "output_init": "mean"}, option, "has no effect without weights"),
        ({"source": bare, "hole_rows": "zero"}, option, "has no effect without weights"),
        ({"add": 0, "remove": 5, "init": "mean"}, option, "has no effect without `add` or `swap`"),
        ({"add": 0, "remove": 5, "output_init": "mean"}, option, "has no effect without `add` or `swap`"),
        ({"add": 0, "include": words}, option, "`target` has no effect without `add` or `swap`"),
        ({"max_helpers": 5}, option, "`max_helpers` has no effect without `include`"),
        ({"include": words, "max_helpers": 5}, option, "`max_helpers` and `add` do not go together"),
        ({"special": ["<a>", ""]}, option, "the special token '' is blank"),
        ({"special": ["the"]}, option, "'the' is an ordinary token of the vocabulary already"),
        ({"like": "the"}, option, "`like` has no effect without `special`"),
        ({"eos": "<no>"}, option, "'<no>', which is no token"),
        ({"add": 0, "remove": 5, "limits": limits}, option, "has no effect without `add` or `swap`"),
        ({"preserve_keep": True}, option, "has no effect without `keep`"),
        ({"preserve_exactly": True}, option, "`preserve_exactly` has no effect"),
        ({"balance": "parity"}, option, "needs several texts"),
        ({"balance": "evenly"}, option, "there is no balance 'evenly'"),
        ({"balance": "parity", "target": two | {"et": tg.Target(et, 2)}}, option, "'et' has a weight"),
        ({"balance": "parity", "target": two, "max_share": 0.4}, option, "2 languages with it get less"),
        ({"parity_text": {"en": "en.txt"}}, option, "`parity_text` has no effect without `balance='parity'`"),
        ({"max_share": 0.5}, option, "`max_share` has no effect without `balance='parity'`"),
        ({"source": texts / "t5"}, weights, "encoder-decoder"),
        ({"source": pickled}, weights, "pytorch_model.bin"),
        ({"out": texts / "exists"}, output, "exists"),
        ({"out": model / "out"}, output, "model"),
        ({"out": et, "force": True}, output, "et.txt"),
        ({"out": texts, "force": True}, output, "would delete"),
        ({"target": texts / "folder", "out": texts / "folder" / "out"}, output, "inside the other"),
        ({"target": texts / "no.txt"}, corpus, "no.txt"),
        ({"target": [et, texts / "no.txt"]}, corpus, "no.txt"),
        ({"keep": texts / "no.txt"}, corpus, "no.txt"),
        ({"target": "-", "keep": [et, "-"]}, corpus, "standard input is given twice"),
        ({"target": once, "keep": once}, corpus, "iterator is given twice"),
        ({"source": tg.load(model)}, errors.TokengraftError, r"a .*Tokenizer"),
    ]

    def refuse(given, error, match):
        given = {"source": model, "target": et, "add": 5, "out": texts / "out"} | given
        places = {name: given.pop(name) for name in ("target", "keep", "out") if name in given}
        for start in (tg.adapt, tg.pipeline.estimate):
            with pytest.raises(error, match=match):
                start(given["source"], **places, **chosen(**{n: v for n, v in given.items() if n != "source"}))

    for case in cases:
        refuse(*case)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage(1, 1, 1))
    refuse({"out": texts / "deep" / "er" / "out"}, output, "GB free")
    assert not (texts / "out").exists()


def test_a_model_without_weights_is_a_warning(model, texts):
    for name in ("model.safetensors", "pytorch_model.bin"):
        (model / name).unlink()
    (warning,) = adapted(texts, start=tg.pipeline.estimate, add=5).warnings
    assert warning == f"`{model}` has no weights, such as `model.safetensors`: only its tokenizer is adapted"


def test_a_vocabulary_that_cannot_spell_all_text_is_a_warning(texts):
    document = builders.specials_first()
    del document["model"]["vocab"][CHARACTER_OF[0xF1]]
    builders.write(texts / "model", document)
    for start in (tg.pipeline.estimate, tg.adapt):
        expected = "1 of the 256 bytes have no token (0xF1), as in the base: text with them is dropped"
        assert expected in adapted(texts, start=start, add=5).warnings


def test_a_config_that_names_a_hole_is_refused_where_the_hole_would_be_filled_or_closed(texts):
    base = checkpoint(texts / "model")
    last = base.n_rows - 1
    document = read(texts / "model" / "tokenizer.json")
    gone = document["added_tokens"].pop()
    assert gone["id"] == last
    document["model"]["vocab"]["<|start|>"] = last  # the id before it has no token now
    document["added_tokens"][0]["id"] = last
    (texts / "model" / "tokenizer.json").write_text(json.dumps(document))
    set_config(texts / "model", bos_token_id=last, eos_token_id=last, pad_token_id=last - 1)
    for sizes in ({"add": 5}, {"remove": 5}, {"remove": "auto"}, {"add": 5, "remove": "auto"}):
        with pytest.raises(errors.CheckpointError, match=f"names the id {last - 1}"):
            adapted(texts, start=tg.pipeline.estimate, **sizes)
    adapted(texts, swap=5)
    assert read(texts / "out" / "config.json")["pad_token_id"] == last - 1


# Writing.


@pytest.mark.usefixtures("model")
def test_rows_of_an_earlier_adaptation_that_nobody_trained_count_as_new(texts):
    first = adapted(texts, add=12, out="first")
    rows = first.plan.sources
    new = {i for i, source in enumerate(rows) if isinstance(source, tuple)}
    assert len(new) == 12
    second = adapted(texts, "first", "second", target="en.txt", add=5)
    settings = read(texts / "second" / "training.json")
    assert len(settings["new_ids"]) == len(settings["pieces"]) == len(settings["frequency"]) == 17
    assert new <= {*settings["new_ids"]}
    assert read(texts / "second" / "tokengraft.json")["new_ids"] == settings["new_ids"]
    assert any(
        "12 rows of the source were added by an earlier adaptation" in warning for warning in second.transplant.warnings
    )
    assert "5 new tokens, and 12 of an earlier adaptation, are untrained" in (texts / "second/README.md").read_text()
    pruned = adapted(texts, "first", "pruned", target="lv.txt", remove=20)
    kept = {row for row, source in enumerate(pruned.plan.sources) if source in new}
    assert read(texts / "pruned" / "training.json")["new_ids"] == sorted(kept) != []
    record = read(texts / "first" / "tokengraft.json") | {"new_ids": []}  # as after training
    (texts / "first" / "tokengraft.json").write_text(json.dumps(record))
    adapted(texts, "first", "third", target="en.txt", add=5)
    assert len(read(texts / "third" / "training.json")["new_ids"]) == 5


@pytest.mark.usefixtures("model")
def test_a_model_that_was_adapted_before_gets_its_own_report_and_summary(texts):
    first = adapted(texts, out="first", swap=20, report=True)
    second = adapted(texts, "first", "second", target="lv.txt", swap=10, report=True)
    for name, done in (("first", first), ("second", second)):
        assert read(texts / name / "adaptation.json")["plan"]["added"] == len(done.extension)
    pages = [(texts / name / "report.html").read_text() for name in ("first", "second")]
    assert pages[0] != pages[1]
    adapted(texts, "first", "third", target="lv.txt", swap=10)
    assert not (texts / "third" / "report.html").exists()


@pytest.mark.parametrize("weighted", [True, False])
def test_force_replaces_an_earlier_result_and_nothing_else(texts, weighted):
    checkpoint(texts / "model") if weighted else builders.write(texts / "model", builders.byte_level())
    adapted(texts, add=20, report=True)
    again = adapted(texts, add=5, force=True)
    assert tg.load(texts / "out") == again.tokenizer
    assert not (texts / "out" / "report.html").exists()
    (texts / "out" / "mine.txt").write_text("mine")
    with pytest.raises(errors.OutputError, match=r"mine\.txt"):
        adapted(texts, add=5, force=True)
    assert (texts / "out" / "mine.txt").read_text() == "mine"
