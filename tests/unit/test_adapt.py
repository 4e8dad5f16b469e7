"""`adapt`: what is checked first, resumed, mixed, protected, replaced and written."""

import json
import os
from collections import namedtuple
from dataclasses import fields, replace
from fractions import Fraction
from importlib import import_module

import builders
import numpy as np
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint, tables

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.adapt.cache import WITHOUT_EFFECT, cache_key
from tokengraft.adapt.measure import check_against
from tokengraft.adapt.mix import Mix, Size, extend_by_mix, mix, shares, whole_factors
from tokengraft.adapt.options import AdaptOptions, Sizes
from tokengraft.adapt.protect import chat_templates, protection
from tokengraft.cli.adapt import targets_of
from tokengraft.corpus.options import ReadOptions
from tokengraft.tokenizer.alphabet import CHARACTER_OF
from tokengraft.tokenizer.edit import add_tokens, remove_tokens

cache, checks, vocabulary = (import_module(f"tokengraft.adapt.{name}") for name in ("cache", "checks", "vocabulary"))
HALF = Fraction(1, 2)


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("et", ESTONIAN), ("lv", LATVIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(texts):
    checkpoint(texts / "model")
    return texts / "model"


@pytest.fixture
def holey(texts):
    """A tokenizer with holes among its ids."""
    return builders.write(texts / "holey", builders.specials_first())


@pytest.fixture
def unread(monkeypatch):
    """Makes reading any text a failure."""

    def fail(*_, **__):
        raise AssertionError("text was read")

    monkeypatch.setattr(cache, "count_with_hold_out", fail)


def chosen(**values):
    """Arguments of `adapt`: sizes, and `AdaptOptions` of all others."""
    sizes = {name: values.pop(name) for name in ("add", "remove", "swap") if name in values}
    return {**sizes, "options": AdaptOptions(**values)}


def named_ids(tokenizer):
    return {token.content: token.id for token in tokenizer.added}


# Sizes: what a swap, an addition and a removal do to ids and shapes.


def test_a_swap_keeps_every_shape_and_gains(model, texts):
    found = tg.adapt(model, target=texts / "et.txt", keep=texts / "en.txt", swap=30, out=texts / "out")
    assert found.plan.summary.added == found.plan.summary.removed == 30
    assert found.plan.summary.moved == 0
    assert found.tokenizer.n_rows == found.base.n_rows
    assert found.evaluation["new", "target"].gain > 0.3
    assert found.evaluation["new", "keep"].gain > -0.05
    assert found.check.passed
    before, after = tables(model), tables(texts / "out")
    assert {name: table.shape for name, table in before.items()} == {n: t.shape for n, t in after.items()}
    assert tg.load(texts / "out") == found.tokenizer
    summary = json.loads((texts / "out" / "adaptation.json").read_text())
    assert summary["checks_passed"]
    assert summary["plan"]["added"] == 30
    assert not (texts / "out.work").exists()


def test_a_swap_that_runs_out_of_pairs_replaces_fewer_tokens_and_changes_no_shape(model, texts):
    few = chosen(limits=tg.Limits(min_count=395))
    found = tg.adapt(model, target=texts / "et.txt", swap=100, out=texts / "out", **few)
    replaced = len(found.extension)
    assert 0 < replaced < 100
    assert len(found.order) == replaced
    assert set(found.tokenizer.ids.values()) == set(found.base.ids.values())
    assert named_ids(found.tokenizer) == named_ids(found.base)
    assert any(f"100 tokens to swap asked, {replaced} replaced" in warning for warning in found.warnings)
    before, after = tables(model), tables(texts / "out")
    assert {name: table.shape for name, table in before.items()} == {n: t.shape for n, t in after.items()}


def test_a_swap_that_can_learn_nothing_is_refused(model, texts):
    with pytest.raises(errors.CorpusError, match="none can be learned"):
        tg.adapt(
            model,
            target=texts / "et.txt",
            swap=10,
            out=texts / "out",
            **chosen(limits=tg.Limits(min_count=10**6)),
        )
    assert not (texts / "out").exists()


@pytest.mark.parametrize("min_count", [2, 395], ids=["enough text", "too little text"])
def test_a_swap_gives_new_tokens_exactly_the_ids_of_pruned_ones_also_beside_holes(holey, texts, min_count):
    limits = chosen(limits=tg.Limits(min_count=min_count))
    found = tg.adapt(holey, target=texts / "et.txt", swap=50, out=texts / "out", **limits)
    assert set(found.tokenizer.ids.values()) == set(found.base.ids.values())
    assert found.plan.summary.moved == 0
    assert tg.load(texts / "out").ids == found.tokenizer.ids


def test_adding_moves_no_id_and_leaves_holes_that_it_does_not_fill(holey, texts):
    found = tg.adapt(holey, target=texts / "et.txt", out=texts / "out", **chosen(add=20))
    assert found.tokenizer.n_rows == found.base.n_rows
    assert all(found.tokenizer.ids[string] == token_id for string, token_id in found.base.ids.items())


def test_removing_closes_up_and_adding_grows(model, texts):
    base = tg.load(model)
    text = {"target": texts / "et.txt", "keep": texts / "en.txt"}
    small = tg.adapt(model, **text, out=texts / "small", **chosen(remove=40))
    assert small.tokenizer.n_rows == base.n_rows - 40
    large = tg.adapt(model, **text, out=texts / "large", **chosen(add=20))
    assert large.tokenizer.n_rows == base.n_rows + 20
    assert json.loads((texts / "large" / "config.json").read_text())["vocab_size"] == base.n_rows + 20
    both = tg.adapt(model, **text, out=texts / "both", **chosen(add=20, remove=30))
    assert both.tokenizer.n_rows == len(both.tokenizer.ids) == base.n_rows - 10


def test_removing_closes_the_holes_of_the_base_too(holey, texts):
    found = tg.adapt(holey, target=texts / "et.txt", out=texts / "out", **chosen(remove=10))
    assert found.tokenizer.n_rows == len(found.tokenizer.ids) == len(found.base.ids) - 10


def test_new_tokens_take_the_ids_of_removed_ones_before_older_holes(holey):
    base = tg.load(holey)
    last = [token.string for token in base.tokens[-3:]]
    pruned = remove_tokens(base, last)
    added = add_tokens(pruned, ["xx", "yy", "zz", "vv"], [])
    freed = sorted(base.ids[string] for string in last)
    assert [added.ids[token] for token in ("xx", "yy", "zz")] == freed
    assert added.ids["vv"] == 2  # the lowest of the holes that the base had


def test_sizes_that_contradict_each_other_are_refused(model, texts):
    for sizes, match in (
        ({}, "--add 0, --remove 0 and --swap 0"),
        ({"swap": 5, "add": 5}, "--swap 5 was given together with --add 5"),
        ({"add": -5}, "--add -5"),
    ):
        with pytest.raises(errors.OptionError, match=match):
            Sizes(**sizes)
    with pytest.raises(errors.OptionError, match="--swap 5 was given together with --add 5"):
        tg.adapt(model, target=texts / "et.txt", swap=5, out=texts / "out", **chosen(add=5))


# Targets.


def test_a_tokenizer_without_weights_is_adapted_alone(texts):
    folder = builders.write(texts / "tokenizer", builders.byte_level())
    found = tg.adapt(folder, target=texts / "et.txt", out=texts / "out", **chosen(add=10))
    assert found.transplant is None
    assert tg.load(texts / "out") == found.tokenizer


def test_each_of_several_targets_gets_a_result(model, texts):
    targets = {"et": tg.Target(texts / "et.txt", 2), "lv": texts / "lv.txt"}
    found = tg.adapt(model, target=targets, out=texts / "out", **chosen(add=60))
    assert found.targets["et"].gain > 0
    assert found.targets["lv"].gain > 0
    assert sum(target.tokens for target in found.targets.values()) <= 60
    assert min(target.tokens for target in found.targets.values()) > 0


def test_a_target_that_is_also_kept_is_adapted_to(model, texts):
    found = tg.adapt(model, target=texts / "et.txt", keep=texts / "et.txt", swap=20, out=texts / "out")
    assert found.evaluation["new", "target"].gain == found.evaluation["new", "keep"].gain > 0


def test_targets_are_named_and_weighed(tmp_path, monkeypatch):
    two = {"et": ("et/*.parquet", "2"), "lv": ("lv.txt", "1/3")}
    assert targets_of([["et/*.parquet"]]) == {"target": ("et/*.parquet", "1")}
    assert targets_of([["et=et/*.parquet:2"], ["lv=lv.txt:1/3"]]) == two
    assert targets_of([["et=et/*.parquet:2", "lv=lv.txt:1/3"]]) == two
    assert list(targets_of([["a.txt"], ["b.txt"]])) == ["target-1", "target-2"]
    assert targets_of([["a.txt:-1"]]) == {"target": ("a.txt", "-1")}
    for url in ("http://host:8080/2024", "http://host:8080", "et=s3://bucket/2024/a.txt"):
        assert [*targets_of([[url]]).values()] == [(url.removeprefix("et="), "1")]
    assert targets_of([["et=http://host:8080/2024:1/3"]]) == {"et": ("http://host:8080/2024", "1/3")}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b:2").write_text("a file with a strange name")
    assert targets_of([["a=b:2"]]) == {"target": ("a=b:2", "1")}


def test_files_of_one_target_add_up_and_have_one_weight():
    assert targets_of([["a.txt", "b.txt"]]) == {"target": (["a.txt", "b.txt"], "1")}
    assert targets_of([["et=a.txt", "b.txt:2"]]) == {"et": (["a.txt", "b.txt"], "2")}
    assert targets_of([["et=a.txt"], ["et=b.txt"]]) == {"et": (["a.txt", "b.txt"], "1")}
    assert targets_of([["a.txt", "et=b.txt"]]) == {"target-1": ("a.txt", "1"), "et": ("b.txt", "1")}
    with pytest.raises(errors.OptionError, match="have the weights 2, 3"):
        targets_of([["et=a:2", "b:3"]])
    with pytest.raises(errors.OptionError, match="two targets are called 'target-1'"):
        targets_of([["a.txt"], ["target-1=b.txt"]])


# Mixing by share.


@pytest.fixture
def parts(model):
    base = tg.load(model)
    et, lv, en = (tg.count(base, iter(lines)) for lines in (ESTONIAN[:40], LATVIAN, ENGLISH))
    return base, et, lv, en


def occurrences(counts):
    return sum(count for _, count in counts.top(len(counts)))


def test_one_text_is_mixed_as_it_is_whatever_its_weight(parts):
    _, et, *_ = parts
    for share in (Fraction(1), Fraction(7, 3)):
        assert mix([(et, share)]) == Mix(et, 1)


def test_texts_in_a_mix_have_their_shares_exactly_and_lose_no_pretoken(parts):
    _, et, lv, _ = parts
    factors = whole_factors([Size(occurrences(et), 1), Size(occurrences(lv), 1)], [Fraction(2, 3), Fraction(1, 3)])
    assert occurrences(et) * factors[0] == 2 * occurrences(lv) * factors[1]
    mixed = mix([(et, Fraction(2, 3)), (lv, Fraction(1, 3))])
    assert occurrences(mixed.counts) == occurrences(et) * factors[0] + occurrences(lv) * factors[1]
    assert len(mixed.counts) == len(et + lv)
    assert mixed.unit == min(factors)


def test_the_text_to_keep_counts_as_much_as_targets_of_unequal_size_together(parts):
    _, et, lv, en = parts
    sizes = [Size(occurrences(part), 1) for part in (et, lv, en)]
    factors = whole_factors(sizes, [HALF, HALF, Fraction(1)])
    scaled = [size.pretokens * factor for size, factor in zip(sizes, factors, strict=True)]
    assert scaled[0] == scaled[1]
    assert scaled[2] == scaled[0] + scaled[1]


def test_text_given_twice_changes_neither_the_prune_order_nor_the_extension(parts):
    base, et, lv, _ = parts
    once, twice = (mix([(part, HALF), (lv, HALF)]) for part in (et, et + et))
    orders = [tg.prune_order(base, mixed.counts).tokens for mixed in (once, twice)]
    assert orders[0] == orders[1]
    extensions = [extend_by_mix(base, mixed, 60, tg.Limits()).tokens for mixed in (once, twice)]
    assert extensions[0] == extensions[1]
    assert len(extensions[0]) == 60


def test_weights_are_shares():
    assert shares({"et": 2, "lv": "1/2"}) == shares({"et": 8, "lv": 2}) == {"et": Fraction(4, 5), "lv": Fraction(1, 5)}
    assert shares({"et": 7}) == {"et": 1}


def test_a_weight_on_the_only_target_changes_nothing(model, texts):
    results = []
    for weight in (1, "0.37"):
        found = tg.adapt(
            model,
            target={"et": tg.Target(texts / "et.txt", weight)},
            keep=texts / "en.txt",
            swap=30,
            out=texts / f"out-{len(results)}",
        )
        results.append((found.tokenizer, found.order, found.extension))
    assert results[0] == results[1]


def test_factors_too_large_to_count_with_keep_their_ratio():
    sizes = [Size(10**9 + 7, 5 * 10**9), Size(10**9 + 9, 5 * 10**9), Size(998_244_353, 5 * 10**9)]
    factors = whole_factors(sizes, [Fraction(1)] * 3)
    totals = [factor * size.pretokens for factor, size in zip(factors, sizes, strict=True)]
    assert sum(factor * size.bytes for factor, size in zip(factors, sizes, strict=True)) < 2**60
    assert max(totals) / min(totals) == pytest.approx(1, abs=1e-4)
    assert min(factors) > 1000


def test_learning_from_a_mix_counts_occurrences(parts):
    base, et, *_ = parts
    plain = tg.extend(base, et, 20)
    mixed = extend_by_mix(base, Mix(et.scale(1000), 1000), 20, tg.Limits())
    assert mixed == plain


def test_the_order_of_files_changes_no_byte_of_the_result(model, texts):
    keep = [texts / "en.txt", texts / "lv.txt"]
    written = []
    for at, files in enumerate((keep, keep[::-1])):
        tg.adapt(model, target=texts / "et.txt", keep=files, swap=30, out=texts / f"out-{at}")
        written.append((texts / f"out-{at}" / "adaptation.json").read_bytes())
    assert written[0] == written[1]


# Resuming.


@pytest.fixture
def counted(monkeypatch):
    """Counts how often a corpus is really counted."""
    calls = []
    count = cache.count_with_hold_out

    def noted(tokenizer, corpus, **values):
        calls.append(corpus)
        return count(tokenizer, corpus, **values)

    monkeypatch.setattr(cache, "count_with_hold_out", noted)
    return calls


@pytest.fixture
def interrupt(monkeypatch):
    """Interrupts every run after counting, until the patch is undone."""
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise KeyboardInterrupt

        patch.setattr(vocabulary, "extend_by_mix", fail)
        yield patch


def test_an_interrupted_run_resumes_and_counts_only_what_changed(model, texts, counted, interrupt):
    arguments = {"target": texts / "et.txt", "keep": texts / "en.txt", "swap": 10, "out": texts / "out"}
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tg.adapt(model, **arguments)
        assert len(counted) == 2
    assert not (texts / "out").exists()
    (texts / "et.txt").write_text("\n".join(ESTONIAN[:350]), encoding="utf-8")
    interrupt.undo()
    resumed = tg.adapt(model, **arguments)
    assert len(counted) == 3
    assert not (texts / "out.work").exists()
    fresh = tg.adapt(model, **arguments | {"out": texts / "fresh"})
    assert resumed.tokenizer == fresh.tokenizer
    assert (texts / "out" / "adaptation.json").read_bytes() == (texts / "fresh" / "adaptation.json").read_bytes()


def test_warnings_about_the_text_survive_a_resume(model, texts, counted, interrupt):
    (texts / "latin1.txt").write_bytes("\n".join(ESTONIAN).encode("latin-1"))
    arguments = {"target": texts / "latin1.txt", "swap": 10, "out": texts / "out"}
    with pytest.raises(KeyboardInterrupt):
        tg.adapt(model, **arguments)
    interrupt.undo()
    found = tg.adapt(model, **arguments)
    assert len(counted) == 1
    assert any("target:" in warning and "UTF-8" in warning for warning in found.warnings)


def test_damaged_counts_are_counted_again(model, texts, counted, interrupt):
    arguments = {"target": texts / "et.txt", "swap": 10, "out": texts / "out"}
    with pytest.raises(KeyboardInterrupt):
        tg.adapt(model, **arguments)
    for path in (texts / "out.work").iterdir():
        path.write_bytes(path.read_bytes()[:20])
    interrupt.undo()
    tg.adapt(model, **arguments)
    assert len(counted) == 2


OTHER_VALUES = {
    "text_field": "body",
    "documents": "files",
    "format": "text",
    "skip_bad": True,
    "shard": (0, 1),
    "normalize": "nfkc",
    "rules": tg.PieceRules(),
    "max_documents": 7,
    "max_bytes": 7,
    "min_count": 7,
    "through_upstream": True,
    "workers": 7,
    "memory": 7,
    "engine": "ray",
    "address": "auto",
    "one_in": 7,
}


@pytest.mark.parametrize("part", ["read_options", "count_options", "hold_out"])
def test_every_option_that_may_change_counts_is_part_of_the_key(model, texts, part):
    base, plain = tg.load(model), AdaptOptions()
    key = cache_key(base, texts / "et.txt", plain)
    value = getattr(plain, part)
    for field in fields(value):
        needed = {"engine": "ray"} if field.name == "address" else {}
        other = replace(plain, **{part: replace(value, **needed | {field.name: OTHER_VALUES[field.name]})})
        changed = cache_key(base, texts / "et.txt", other) != key
        assert changed == (field.name not in WITHOUT_EFFECT), field.name


def test_files_tokenizer_and_order_are_part_of_the_key(model, holey, texts):
    base, plain = tg.load(model), AdaptOptions()
    et, en = str(texts / "et.txt"), str(texts / "en.txt")
    keys = {cache_key(base, corpus, plain) for corpus in (et, [et, en], [en, et], [et, et])}
    keys.add(cache_key(tg.load(holey), et, plain))
    os.utime(et, ns=(1, 1))
    keys.add(cache_key(base, et, plain))
    assert len(keys) == 6


def test_what_cannot_be_recognised_again_has_no_key(model, texts):
    base = tg.load(model)
    os.mkfifo(texts / "pipe.txt")
    for corpus in (iter(ESTONIAN), "-", [str(texts / "et.txt"), "-"], texts / "pipe.txt"):
        assert cache_key(base, corpus, AdaptOptions()) is None


def test_a_folder_that_has_the_name_of_the_work_folder_keeps_its_files(model, texts):
    (texts / "out.work").mkdir()
    (texts / "out.work" / "mine.txt").write_text("mine")
    tg.adapt(model, target=texts / "et.txt", out=texts / "out", **chosen(add=5))
    assert [path.name for path in (texts / "out.work").iterdir()] == ["mine.txt"]


# Reading.


def test_documents_are_lines_by_default_and_files_where_asked(model, texts):
    whole = chosen(add=5, read_options=ReadOptions(documents="files"))
    with pytest.raises(errors.CorpusError, match="too small"):
        tg.adapt(model, target=texts / "et.txt", out=texts / "out", **whole)
    found = tg.adapt(model, target=texts / "et.txt", out=texts / "out", **chosen(add=5))
    assert found.evaluation["new", "target"].documents > 1


def test_an_unreadable_file_is_skipped_alone_and_reported(model, texts):
    (texts / "bad.jsonl").write_text("no JSON\n")
    files = [texts / "bad.jsonl", texts / "et.txt", texts / "missing.txt"]
    skipping = chosen(add=5, read_options=ReadOptions(documents="lines", skip_bad=True))
    found = tg.adapt(model, target=files, out=texts / "out", **skipping)
    alone = tg.adapt(model, target=texts / "et.txt", out=texts / "alone", **chosen(add=5))
    assert found.tokenizer == alone.tokenizer
    assert any("could not be read" in warning for warning in found.warnings)


def test_a_missing_file_is_a_corpus_error(model, texts):
    for corpus in (texts / "no.txt", [texts / "et.txt", texts / "no.txt"]):
        with pytest.raises(errors.CorpusError, match=r"no\.txt"):
            tg.adapt(model, target=corpus, out=texts / "out", **chosen(add=5))


def test_a_corpus_without_enough_documents_is_refused(model, texts):
    (texts / "tiny.txt").write_text("üks\nkaks\nkolm\n")
    with pytest.raises(errors.CorpusError, match="`target` is too small: 3 documents to learn from, 0 held out"):
        tg.adapt(model, target=texts / "tiny.txt", out=texts / "out", **chosen(add=5))
    assert not (texts / "out").exists()


# What is never pruned.


def test_chat_templates_and_plain_text_keep_their_tokens(texts):
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": [{"name": "x", "template": "kass istus"}]}
    others = {"chat_template.jinja": "teine kass", "tokenizer_config.json": json.dumps(config)}
    folder = builders.write(texts / "t", builders.byte_level(), **others)
    base = tg.load(folder)
    assert sorted(chat_templates(base)) == ["kass istus", "teine kass"]
    counts = tg.count(base, iter(["zzz"]))
    pruned = tg.prune_order(base, counts, protection=protection(base, folder, tg.Protection())).apply(base)
    for text in ("kass istus", "teine kass", '{"name": "value"}'):
        assert pruned.encode(text) == base.encode(text)


def ordinary(base, *, at):
    """A learned token that is no part of a longer one."""
    used = {part for pair in base.structure.splits.values() for part in pair}
    return [token for token in base.tokens if token.id in base.structure.splits and token.id not in used][at]


def test_tokens_that_any_config_names_are_not_pruned(model, texts):
    base = tg.load(model)
    names = [ordinary(base, at=at) for at in range(5)]
    config = json.loads((model / "config.json").read_text())
    config |= {"sep_token_id": names[0].id, "text_config": {"image_token_index": names[1].id, "hidden_act": "silu"}}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text(json.dumps({"suppress_tokens": [names[2].id]}))
    (model / "tokenizer_config.json").write_text(json.dumps({"cls_token_id": names[3].id}))
    (model / "special_tokens_map.json").write_text(json.dumps({"mask_token": {"content": names[4].string}}))
    base = tg.load(model)
    most = len(tg.prune_order(base, protection=protection(base, model, tg.Protection()), method="last-id-leaf"))
    found = tg.adapt(model, target=texts / "lv.txt", out=texts / "out", **chosen(remove=most))
    assert {token.string for token in names} <= found.tokenizer.ids.keys()


def test_protected_tokens_and_patterns_stay(model, texts):
    text = {"target": texts / "lv.txt"}
    plain = tg.adapt(model, **text, out=texts / "plain", **chosen(remove=20))
    first, *others = plain.order.tokens
    assert any(token.endswith("t") for token in others)
    asked = tg.Protection(tokens=[first], pattern="t$")
    found = tg.adapt(model, **text, out=texts / "out", **chosen(remove=20, protection=asked))
    assert first not in found.order.tokens
    assert not any(token.endswith("t") for token in found.order.tokens)


def test_a_check_that_the_base_fails_too_is_a_note_and_any_other_a_failure(texts):
    sound = tg.load(builders.write(texts / "sound", builders.byte_level()))
    wrong = {"added_tokens.json": json.dumps({"<|start|>": 3})}
    base = tg.load(builders.write(texts / "wrong", builders.byte_level(), **wrong))
    assert [finding.name for finding in tg.check(base).failures] == ["files"]
    extended = tg.extend(sound, tg.count(sound, iter(ESTONIAN)), 10).apply(sound)
    contradicting = replace(extended, files=base.files)
    assert check_against(contradicting, base).passed
    assert [finding.name for finding in check_against(contradicting, sound).failures] == ["files"]


# Before any text is read.


@pytest.mark.usefixtures("unread")
def test_what_can_be_known_at_the_start_is_refused_before_any_text_is_read(model, texts):
    et = texts / "et.txt"
    base = tg.load(model)
    pickled = builders.write(texts / "pickled", builders.byte_level(), **{"config.json": "{}"})
    (pickled / "pytorch_model.bin").write_bytes(b"weights")
    bare = builders.write(texts / "bare", builders.byte_level())
    checkpoint(texts / "t5", config={"is_encoder_decoder": True})
    (texts / "exists").mkdir()
    (texts / "folder").mkdir()
    (texts / "folder" / "et.txt").write_bytes(et.read_bytes())
    once = iter(ESTONIAN)
    cases = [
        (model, {"target": {"x": tg.Target(et, 0)}}, {"add": 5}, errors.OptionError, "weight 0"),
        (
            model,
            {"target": {"x": tg.Target(et, "1/9"), "y": tg.Target(et, 10**9)}},
            {"add": 5},
            errors.OptionError,
            "x",
        ),
        (model, {"target": {"../x": tg.Target(et)}}, {"add": 5}, errors.OptionError, "not a valid name for a text"),
        (model, {"target": {"keep": tg.Target(et)}}, {"add": 5}, errors.OptionError, "called 'keep'"),
        (model, {"target": {}}, {"add": 5}, errors.OptionError, "no target"),
        (model, {}, {"add": 5, "init": "no"}, errors.OptionError, "no initialiser"),
        (bare, {}, {"add": 5, "init": "fvt"}, errors.OptionError, "has no weights"),
        (model, {}, {"add": 5, "by_merges": True}, errors.OptionError, "--by-merges was given, but nothing is pruned"),
        (model, {}, {"add": 5, "protection": tg.Protection(pattern="a")}, errors.OptionError, "--protect-pattern"),
        (model, {}, {"add": 10**24}, errors.OptionError, "new tokens were asked for"),
        (model, {}, {"add": 4 * 10**9}, errors.OutputError, "GB free"),
        (model, {}, {"remove": 10**6}, errors.OptionError, "1,000,000 tokens to prune asked"),
        (model, {}, {"remove": 5, "protection": tg.Protection(tokens=["no such"])}, errors.OptionError, "no such"),
        (texts / "t5", {}, {"add": 5}, errors.CheckpointError, "encoder-decoder"),
        (pickled, {}, {"add": 5}, errors.CheckpointError, "pytorch_model.bin"),
        (model, {"out": texts / "exists"}, {"add": 5}, errors.OutputError, "exists"),
        (model, {"out": model / "out"}, {"add": 5}, errors.OutputError, "model"),
        (model, {"out": et}, {"add": 5, "force": True}, errors.OutputError, "et.txt"),
        (model, {"out": texts}, {"add": 5, "force": True}, errors.OutputError, "lies"),
        (
            model,
            {"target": texts / "folder", "out": texts / "folder" / "out"},
            {"add": 5},
            errors.OutputError,
            "inside the other",
        ),
        (model, {"keep": texts / "no.txt"}, {"add": 5}, errors.CorpusError, "no.txt"),
        (model, {"target": "-", "keep": [et, "-"]}, {"add": 5}, errors.CorpusError, "standard input is given twice"),
        (model, {"target": once, "keep": once}, {"add": 5}, errors.CorpusError, "iterator is given twice"),
        (base, {}, {"add": 5}, errors.OptionError, "`source` of `[a-z]+` is a Tokenizer"),
    ]
    for source, arguments, values, error, match in cases:
        arguments = {"target": et, "out": texts / "out"} | arguments
        for start in (tg.adapt, tg.estimate):
            with pytest.raises(error, match=match):
                start(source, **arguments, **chosen(**values))
    assert not (texts / "out").exists()


def test_a_vocabulary_that_cannot_spell_all_text_is_a_warning(texts):
    document = builders.specials_first()
    del document["model"]["vocab"][CHARACTER_OF[0xF1]]
    arguments = {"target": texts / "et.txt", "out": texts / "out", **chosen(add=5)}
    source = builders.write(texts / "lacking", document)
    for start in (tg.estimate, tg.adapt):
        assert "1 of the 256 bytes have no token: text with them is dropped" in start(source, **arguments).warnings


def test_a_config_that_names_a_hole_is_refused_where_the_hole_would_be_filled_or_closed(texts):
    base = checkpoint(texts / "model")
    last = base.n_rows - 1
    document = json.loads((texts / "model" / "tokenizer.json").read_text())
    gone = document["added_tokens"].pop()
    assert gone["id"] == last
    document["model"]["vocab"]["<|start|>"] = last  # the id before it has no token now
    document["added_tokens"][0]["id"] = last
    (texts / "model" / "tokenizer.json").write_text(json.dumps(document))
    config = json.loads((texts / "model" / "config.json").read_text())
    config |= {"bos_token_id": last, "eos_token_id": last, "pad_token_id": last - 1}
    (texts / "model" / "config.json").write_text(json.dumps(config))
    arguments = {"target": texts / "et.txt", "out": texts / "out"}
    for sizes in ({"add": 5}, {"remove": 5}):
        with pytest.raises(errors.CheckpointError, match=f"names the id {last - 1}"):
            tg.estimate(texts / "model", **arguments, **chosen(**sizes))
    tg.adapt(texts / "model", **arguments, swap=5)
    assert json.loads((texts / "out" / "config.json").read_text())["pad_token_id"] == last - 1


@pytest.mark.usefixtures("unread")
def test_a_disk_without_room_is_refused_before_any_text_is_read(model, texts, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda _: usage(1, 1, 1))
    with pytest.raises(errors.OutputError, match="GB free"):
        tg.adapt(model, target=texts / "et.txt", swap=5, out=texts / "deep" / "er" / "out")


# Writing.


def test_a_model_that_was_adapted_before_gets_its_own_report_and_summary(model, texts):
    first = tg.adapt(model, target=texts / "et.txt", swap=20, out=texts / "first")
    second = tg.adapt(texts / "first", target=texts / "lv.txt", swap=10, out=texts / "second")
    assert json.loads((texts / "first" / "adaptation.json").read_text())["plan"]["added"] == len(first.extension)
    assert json.loads((texts / "second" / "adaptation.json").read_text())["plan"]["added"] == len(second.extension)
    pages = [(texts / name / "report.html").read_text() for name in ("first", "second")]
    assert pages[0] != pages[1]
    without = chosen(swap=10, report=False)
    tg.adapt(texts / "first", target=texts / "lv.txt", out=texts / "third", **without)
    assert not (texts / "third" / "report.html").exists()


@pytest.mark.parametrize("weighted", [True, False])
def test_force_replaces_an_earlier_result_and_nothing_else(texts, weighted):
    checkpoint(texts / "model") if weighted else builders.write(texts / "model", builders.byte_level())
    arguments = {"target": texts / "et.txt", "out": texts / "out"}
    tg.adapt(texts / "model", **arguments, **chosen(add=20))
    again = tg.adapt(texts / "model", **arguments, **chosen(add=5, force=True, report=False))
    assert tg.load(texts / "out") == again.tokenizer
    assert not (texts / "out" / "report.html").exists()
    (texts / "out" / "mine.txt").write_text("mine")
    with pytest.raises(errors.OutputError, match=r"mine\.txt"):
        tg.adapt(texts / "model", **arguments, **chosen(add=5, force=True))
    assert (texts / "out" / "mine.txt").read_text() == "mine"


# Estimating.


@pytest.mark.parametrize("sizes", [{"swap": 10}, {"add": 10}, {"remove": 10}, {"add": 10, "remove": 5}])
@pytest.mark.parametrize("rows", [None, 512], ids=["exact", "padded"])
def test_the_estimate_says_what_adapt_then_does(texts, sizes, rows):
    checkpoint(texts / "model", rows=rows)
    arguments = {"target": texts / "et.txt", "keep": texts / "en.txt", **chosen(**sizes)}
    before = tg.estimate(texts / "model", **arguments, out=texts / "out")
    assert not (texts / "out").exists()
    tg.adapt(texts / "model", **arguments, out=texts / "out")
    old, new = tables(texts / "model"), tables(texts / "out")
    name = "model.embed_tokens.weight"
    assert (before.rows_before, before.rows_after) == (len(old[name]), len(new[name]))
    assert before.parameters_added == sum(np.size(t) for t in new.values()) - sum(np.size(t) for t in old.values())
    assert before.text_bytes == (texts / "et.txt").stat().st_size + (texts / "en.txt").stat().st_size


def test_the_estimate_of_a_tokenizer_with_holes_says_what_adapt_then_does(holey, texts):
    for at, sizes in enumerate(({"swap": 10}, {"add": 10}, {"add": 450}, {"remove": 10})):
        arguments = {"target": texts / "et.txt", "out": texts / f"out-{at}", **chosen(**sizes)}
        before = tg.estimate(holey, **arguments)
        after = tg.adapt(holey, **arguments)
        short = len(after.extension) < sizes["add"] if "add" in sizes else False
        assert before.rows_after == after.tokenizer.n_rows or short


# The command.


@pytest.fixture
def command(model, texts):
    arguments = ["adapt", model, "--target", f"et={texts / 'et.txt'}:2", "--target", f"lv={texts / 'lv.txt'}"]
    return [*map(str, arguments), "--keep", str(texts / "en.txt"), "--out", str(texts / "out")]


def test_the_command_adapts_and_reports(command, texts, capsys):
    assert cli.main([*command, "--swap", "20"]) == 0
    shown = capsys.readouterr()
    assert "new tokens most frequent here" in shown.out
    assert "counting et" in shown.err
    assert (texts / "out" / "report.html").exists()
    assert cli.main([*command, "--swap", "20", "--force", "--no-report", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["added"] == 20
    assert not (texts / "out" / "report.html").exists()


def test_the_command_shows_notes_apart_from_passed_checks(holey, texts, capsys):
    arguments = ["adapt", str(holey), "--target", str(texts / "et.txt"), "--out", str(texts / "out")]
    assert cli.main([*arguments, "--swap", "20", "--no-report", "--quiet"]) == 0
    shown = capsys.readouterr().out
    checks = len(tg.check(tg.load(texts / "out"), tg.load(holey)).findings)
    assert f"{checks - 1} passed, 1 note: holes" in shown


def test_the_command_shows_the_rows_of_the_embedding_as_the_dry_run_does(texts, capsys):
    base = checkpoint(texts / "padded", rows=448)
    arguments = ["adapt", str(texts / "padded"), "--target", str(texts / "et.txt"), "--out", str(texts / "out")]
    arguments += ["--remove", "60", "--add", "20", "--no-report", "--quiet"]
    shown = []
    for more in (["--dry-run"], []):
        assert cli.main([*arguments, *more]) == 0
        shown.append(next(line for line in capsys.readouterr().out.splitlines() if line.startswith("rows")))
    assert shown[0].split() == ["rows", "448", "→", "384"]
    assert shown[1].startswith(f"{shown[0]}, of which tokens need {base.n_rows} → ")


@pytest.mark.parametrize("sizes", ["--add 5", "--remove 5", "--add 5 --remove 5"])
def test_the_command_adds_and_removes(command, capsys, sizes):
    assert cli.main([*command, *sizes.split(), "--json", "--quiet"]) == 0
    summary = json.loads(capsys.readouterr().out)["plan"]
    assert (summary["added"], summary["removed"]) == (5 * ("--add" in sizes), 5 * ("--remove" in sizes))


def test_a_dry_run_obeys_the_options_that_a_run_obeys(command, texts, capsys):
    def text_bytes(*more):
        assert cli.main([*command, "--swap", "20", "--dry-run", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)["text_bytes"]

    sizes = [(texts / f"{name}.txt").stat().st_size for name in ("et", "lv", "en")]
    assert text_bytes() == sum(sizes)
    assert text_bytes("--max-bytes", "1000") == 3000
    assert text_bytes("--keep", str(texts / "lv.txt")) == sum(sizes) + sizes[1]
    assert text_bytes("--skip-bad", "--keep", str(texts / "missing.txt")) == sum(sizes)
    assert not (texts / "out").exists()


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize("dry", [[], ["--dry-run"]], ids=["run", "dry run"])
def test_the_command_refuses_conflicts_in_a_dry_run_too(command, texts, capsys, dry):
    (texts / "protect.txt").write_text("no such token\n")
    for more, message in (
        (["--swap", "5", "--add", "5"], "--swap 5 was given together"),
        ([], "--add 0, --remove 0 and --swap 0"),
        (["--add", "5", "--by-merges"], "nothing is pruned"),
        (["--swap", "5", "--protect", str(texts / "protect.txt")], "no such token"),
        (["--swap", "5", "--keep", str(texts / "missing.txt")], "missing.txt"),
        (["--swap", "5", "--target", f"x={texts / 'et.txt'}:0"], "weight '0'"),
        (["--swap", "5", "--shard", "3/5"], "no files in this shard"),
    ):
        assert cli.main([*command, *more, *dry]) == 2
        assert message in capsys.readouterr().err


def test_the_command_protects_tokens_and_prints_warnings(command, texts, capsys):
    (texts / "protect.txt").write_text(" the\n")
    more = ["--swap", "10000", "--protect", str(texts / "protect.txt"), "--protect-pattern", "a"]
    assert cli.main([*command, *more]) == 2
    assert "protected" in capsys.readouterr().err
    (texts / "latin1.txt").write_bytes("\n".join(ESTONIAN).encode("latin-1"))
    assert cli.main([*command, "--swap", "10", "--target", f"old={texts / 'latin1.txt'}"]) == 0
    assert "warning: old:" in capsys.readouterr().err
