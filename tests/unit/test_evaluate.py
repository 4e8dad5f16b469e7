"""Evaluation, comparison, curve and the naive baselines."""

import json
import threading
from dataclasses import replace
from itertools import product

import builders
import numpy as np
import pytest
import tokenization_scorer

import tokengraft as tg
from tokengraft import errors
from tokengraft.measure import metrics, segments
from tokengraft.measure.segments import Segmenter, read_text
from tokengraft.measure.sizes import default_sizes

ESTONIAN = ["põdrad põõsas õunad õues", "kassid ja koerad jooksevad", "õhtu õdus põdrad"] * 4
ENGLISH = ["the cat sat on the mat", "that other cat"] * 3


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("base"), builders.byte_level(ignore_merges=True)))


@pytest.fixture(scope="module")
def counts(base):
    return tg.count(base, iter(ESTONIAN))


@pytest.fixture(scope="module")
def extended(base, counts):
    return tg.extend(base, counts, 30).apply(base)


@pytest.fixture(scope="module")
def found(base, extended):
    return tg.evaluate({"base": base, "new": extended}, {"et": iter(ESTONIAN), "en": iter(ENGLISH)})


def test_measures_are_what_their_names_say(base, extended, found):
    score = found["new", "et"]
    ids = [extended.encode(text) for text in ESTONIAN]
    total = sum(map(len, ids))
    assert score.tokens == total
    assert score.bytes_per_token == sum(len(t.encode()) for t in ESTONIAN) / total
    assert score.characters_per_token == sum(map(len, ESTONIAN)) / total
    assert score.tokens_per_word == total / sum(len(t.split()) for t in ESTONIAN)
    used = {i for document in ids for i in document}
    assert score.vocabulary_used == len(used) / len(extended.tokens)
    assert score.never_produced == len(extended.tokens) - len(used)
    new = {i for s, i in extended.ids.items() if s not in base.ids}
    assert score.added_used == len(new & used) / len(new)
    assert score.gain == score.bytes_per_token / found["base", "et"].bytes_per_token - 1 > 0.3
    assert score.win_rate == 1.0
    assert found["new", "en"].exact_match == 1.0
    assert found["new", "en"].edit_distance == 0.0
    assert 0 < score.edit_distance <= score.worst_edit_distance <= 1
    pretokens = sum(len(extended.pretokenize(t)) for t in ESTONIAN)
    assert score.ceiling == score.bytes / pretokens >= score.bytes_per_token


def test_renyi_efficiency_equals_that_of_tokenization_scorer(base, found):
    texts = [[str(i) for i in base.encode(text)] for text in ESTONIAN]
    theirs = tokenization_scorer.score(texts, metric="renyi", power=2.5)
    assert found["base", "et"].renyi_efficiency == pytest.approx(theirs)
    assert metrics.renyi_efficiency([7]) is None
    assert metrics.renyi_efficiency([]) is None


def test_counts_and_text_give_the_same_measures(base, extended, found):
    by_counts = tg.evaluate({"base": base, "new": extended}, {"et": tg.count(base, iter(ESTONIAN))})
    for name in ("base", "new"):
        ours, theirs = by_counts[name, "et"], found[name, "et"]
        for field in ("tokens", "bytes_per_token", "bytes_per_token_by_merges", "renyi_efficiency", "ceiling", "gain"):
            assert getattr(ours, field) == pytest.approx(getattr(theirs, field)), field
        assert ours.tokens_per_word is None
        assert ours.exact_match is None


def test_tokens_that_are_no_characters_are_counted(base, tmp_path):
    score = tg.evaluate({"base": base}, {"x": iter(["猫猫"])})["base", "x"]
    assert score.byte_tokens == 1.0
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    score = tg.evaluate({"p": pieces}, {"x": iter(["猫"])})["p", "x"]
    assert score.byte_tokens == 3 / 4
    assert score.ceiling is None


def test_averages_come_after_several_texts(found):
    average = found.averages()[1]
    assert average.text == "average"
    rates = [found["new", text].bytes_per_token for text in ("et", "en")]
    assert average.bytes_per_token == sum(rates) / 2


def test_the_short_table_has_a_row_for_each_text_and_no_average(found):
    heads, rows = found.table(wide=False)
    assert heads == ["text", "bytes/token", "tokens", "same", "new used"]
    assert [row[0] for row in rows] == ["et", "en"]
    for text, rate, tokens, *_ in rows:
        before, after = found["base", text], found["new", text]
        assert rate == f"{before.bytes_per_token:.3f} → {after.bytes_per_token:.3f}"
        assert float(tokens[:-1]) == pytest.approx(100 * (after.tokens / before.tokens - 1), abs=0.06)
    assert [row[:2] for row in found.table()[1]] == [[who, text] for who in ("base", "new") for text in ("et", "en")]


def test_the_table_of_two_has_the_base_before_and_that_of_three_a_row_for_each(base, extended):
    found = tg.evaluate({"new": extended, "old": base}, {"et": iter(ESTONIAN)}, base="old")
    before, after = found["old", "et"], found["new", "et"]
    assert found.table(wide=False)[1][0][1] == f"{before.bytes_per_token:.3f} → {after.bytes_per_token:.3f}"
    three = tg.evaluate({"a": base, "b": base, "c": base}, {"et": iter(ESTONIAN)})
    heads, rows = three.table(wide=False)
    assert heads == ["tokenizer", "text", "bytes/token", "tokens/word", "gain", "same"]
    assert [row[0] for row in rows] == ["a", "b", "c"]


def test_an_evaluation_is_shown_as_text_html_json_and_csv(base, found):
    assert "bytes/token" in str(found)
    assert "<table>" in found._repr_html_()
    assert len(json.loads(found.to_json())["scores"]) == 4
    assert len(found.to_csv().splitlines()) == 5
    alone = tg.evaluate({"base": base}, {"t": iter(ESTONIAN)})
    assert alone.base is None
    assert "gain" not in str(alone)


def test_tokenizers_of_different_kinds_are_compared_on_text_and_not_on_counts(base, counts, tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    score = tg.evaluate({"base": base, "pieces": pieces}, {"et": iter(ESTONIAN)})["pieces", "et"]
    assert score.edit_distance is not None
    with pytest.raises(errors.CountsError, match="another pipeline"):
        tg.evaluate({"base": base, "pieces": pieces}, {"et": counts})


def test_without_edit_distances_all_other_measures_are_the_same(base, extended):
    documents = ["the cat sat", "see on kass ja see on koer", ""]
    whole, quick = (
        tg.evaluate({"base": base, "new": extended}, {"t": iter(documents)}, edits=edits).scores
        for edits in (True, False)
    )
    assert [replace(score, edit_distance=None, worst_edit_distance=None) for score in whole] == [*quick]
    assert whole[1].edit_distance


def test_documents_with_as_many_other_tokens_are_not_the_same(base):
    texts = (["xy", "", "zz"], ["yx", "", "zz"])
    ours, others = (Segmenter(base).segment(some) for some in texts)
    assert (ours.lengths == others.lengths).all()
    for edits in (True, False):
        comparison = metrics.DocumentComparison(base, base, edits=edits)
        comparison.add(ours, others, np.array([True, True, True]))
        assert comparison.measures()["exact_match"] == 2 / 3


def test_new_tokens_are_those_whose_strings_or_bytes_the_base_lacks(base, extended, tmp_path):
    def lacking(ours, theirs, name):
        known = {name(token) for token in theirs.tokens}
        return [token.id for token in ours.tokens if name(token) not in known]

    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    first = tg.load(builders.write(tmp_path / "first", builders.specials_first()))
    for ours, theirs in product((base, extended, first), repeat=2):
        assert metrics.new_tokens(ours, theirs) == lacking(ours, theirs, lambda token: token.string)
    for ours, theirs in ((base, pieces), (pieces, extended)):
        assert metrics.new_tokens(ours, theirs) == lacking(ours, theirs, lambda token: token.bytes)


def test_bad_input_is_refused(base, tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    for texts, match in (
        ({"e": tmp_path / "empty.txt"}, "is empty"),
        ({"n": tmp_path / "none.txt"}, "cannot read"),
        ({"n": set()}, "is empty"),
    ):
        with pytest.raises(errors.CorpusError, match=match):
            tg.evaluate({"base": base}, texts)
    with pytest.raises(errors.OptionError, match="no tokenizer or no text was given"):
        tg.evaluate({}, {"x": iter(["a"])})
    with pytest.raises(errors.OptionError, match="no tokenizer"):
        tg.evaluate({"base": base}, {"x": iter(["a"])}, base="other")
    with pytest.raises(errors.CountsError, match="are empty"):
        tg.evaluate({"base": base}, {"x": tg.count(base, set())})


def test_a_comparison_names_what_gained_and_what_earns(base, extended):
    found = tg.compare(base, extended, read_text("t", iter([*ESTONIAN, *ENGLISH])))
    assert found.tokens_after < found.tokens_before
    assert found.shorter == len(ESTONIAN)
    assert found.longer == 0
    assert found.added == 30
    best = found.gained[0]
    assert b"".join(best.before) == b"".join(best.after) == best.text.encode()
    assert len(best.after) < len(best.before)
    assert found.savings[0].saved >= found.savings[-1].saved > 0
    new, used = {s for s in extended.ids if s not in base.ids}, {e.token for e in found.savings}
    assert used <= new
    assert set(found.unused) <= new - used
    back = tg.compare(extended, base, read_text("t", iter(ESTONIAN)))
    assert back.lost
    assert back.added == 0


def test_a_curve_rises_and_has_its_knee(base, counts):
    found = tg.measure.curve(base, counts, read_text("t", iter(ESTONIAN)), [5, 10, 20], rows_width=64)
    rates = [point.bytes_per_token for point in found.points]
    assert rates == sorted(rates)
    assert [point.tokens for point in found.points] == [0, 5, 10, 20]
    assert found.points[-1].parameters == 1280
    assert found.knee is None
    flat = tg.measure.curve(base, counts, read_text("t", iter(ENGLISH)), [5, 10])
    assert flat.knee == 0
    by_counts = tg.measure.curve(base, counts, tg.count(base, iter(ESTONIAN)), [5, 10, 20])
    assert [p.bytes_per_token for p in by_counts.points] == pytest.approx(rates)
    with pytest.raises(errors.OptionError, match="sizes"):
        tg.measure.curve(base, counts, counts, [])
    assert default_sizes(3000) == [1000, 2000, 3000]


def test_naive_methods_add_what_they_say(base, counts):
    tokens = {}
    for method in ("naive-regen", "naive-append", "naive-prepend"):
        naive = tg.learn.extend_naively(base, counts, 20, method)
        tokens[method] = {s for s in naive.ids if s not in base.ids}
        assert len(tokens[method]) == 20
        assert {s: i for s, i in naive.ids.items() if s in base.ids} == dict(base.ids)
    assert tokens["naive-regen"] == tokens["naive-append"] == tokens["naive-prepend"]
    regen, prepend = (tg.learn.extend_naively(base, counts, 20, m) for m in ("naive-regen", "naive-prepend"))
    merges = base.merge_strings()
    assert regen.merge_strings()[: len(merges)] == merges
    assert prepend.merge_strings()[-len(merges) :] == merges
    added = tg.learn.extend_naively(base, counts, 20, "add-tokens")
    assert len(added.added) > len(base.added)
    assert not added.added[-1].special
    assert added.merges == base.merges
    word = added.added[-1].content
    assert added.ids[word] in added.encode(f"x{word}y")


def test_continued_training_beats_the_naive_way(base, counts, extended):
    naive = tg.learn.extend_naively(base, counts, 30)
    found = tg.evaluate({"naive": naive, "ours": extended}, {"et": iter(ESTONIAN)})
    assert found["ours", "et"].bytes_per_token >= found["naive", "et"].bytes_per_token
    assert not {i for s, i in extended.ids.items() if s not in base.ids} & set(extended.structure.unreachable)


def test_tokens_may_come_from_a_donor(base, extended, tmp_path):
    naive = tg.learn.extend_naively(base, None, 10, donor=extended)
    assert {s for s in naive.ids if s not in base.ids} <= set(extended.ids)
    with pytest.raises(errors.CountsError, match="the fresh tokenizer has 30"):
        tg.learn.extend_naively(base, None, 31, donor=extended)
    with pytest.raises(errors.OptionError, match="nothing to train"):
        tg.learn.extend_naively(base, None, 5)
    with pytest.raises(errors.OptionError, match="no method"):
        tg.learn.extend_naively(base, None, 5, "magic")
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    with pytest.raises(errors.OptionError, match="spell tokens differently"):
        tg.learn.extend_naively(base, None, 5, donor=pieces)


def test_a_sentencepiece_type_is_extended_naively_in_both_forms(tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(builders.llama2_like())
    base = tg.load(tmp_path / "tokenizer.model")
    counts = tg.count(base, iter(ESTONIAN))
    naive = tg.learn.extend_naively(base, counts, 10)
    assert len(naive.ids) == len(base.ids) + 10
    with pytest.raises(errors.UnsupportedTokenizerError, match="cannot be written"):
        tg.learn.extend_naively(base, counts, 10, "naive-prepend")


def test_the_commands_evaluate_compare_and_curve(base, extended, tmp_path, tokengraft):
    old, new = tg.save(base, tmp_path / "old"), tg.save(extended, tmp_path / "new")
    text = tmp_path / "et.txt"
    text.write_text("\n".join(ESTONIAN), encoding="utf-8")
    tg.count(base, iter(ESTONIAN)).save(tmp_path / "c.parquet")
    arguments = ["evaluate", f"a={old}", f"b={new}", "--text", f"et={text}", f"counts={tmp_path / 'c.parquet'}"]
    assert "bytes/token" in tokengraft(*arguments).out
    assert tokengraft(*arguments, "--json").json["base"] == "a"
    assert tokengraft(*arguments, "--csv").out.startswith("tokenizer,text,")
    tokengraft(*arguments, "--csv", "--json", code=2)
    tokengraft("evaluate", f"a={old}", f"a={new}", "--text", text, code=2)
    shown = tokengraft("evaluate", old, new, "--text", text, "--examples").out
    assert "largest decrease in tokens" in shown
    assert "|" in shown
    assert (
        tokengraft("evaluate", old, new, "--text", f"t={text}", "--examples", "--json").json["examples"]["t"]["added"]
        == 30
    )
    curve = ["extend", str(old), "--corpus", str(text), "--held-out", str(text), "--add", "10", "--curve", "--quiet"]
    assert "knee: " in tokengraft(*curve).out
    shown = tokengraft(*curve, "--json").json
    assert len(shown["points"]) == 2
    assert shown["text"] == text.stem


def test_the_extend_command_has_the_naive_methods(base, tmp_path, tokengraft):
    old, text = tg.save(base, tmp_path / "old"), tmp_path / "text.txt"
    text.write_text("\n".join(ESTONIAN), encoding="utf-8")
    common = ["extend", str(old), "--add", "8"]
    learned = ["--method", "naive-regen", "--corpus", str(text), "--out", str(tmp_path / "n")]
    assert "a baseline for comparison" in tokengraft(*common, *learned).out
    assert "no text to learn from" in tokengraft(*common, "--out", tmp_path / "m", code=2).err


def test_a_curve_of_nothing_and_texts_of_nothing_are_no_trouble(base):
    short = tg.count(base, iter(["a"]))
    found = tg.measure.curve(base, short, read_text("t", iter(ESTONIAN)), [10])
    assert [point.tokens for point in found.points] == [0]
    assert found.knee is None
    one = tg.measure.curve(base, tg.count(base, iter(["xq"] * 9)), read_text("t", iter(["xq"])), [1])
    assert one.points[-1].tokens == 1
    score = tg.evaluate({"base": base}, {"t": iter(["a\ud800b"])})["base", "t"]
    assert score.tokens > 0
    same = tg.compare(base, base, read_text("t", iter(ESTONIAN)))
    assert same.shorter == same.longer == 0


def test_counts_that_were_weighted_or_lack_rare_pretokens_are_not_measured_by(base, counts):
    rare = tg.count(base, iter(ESTONIAN), count_options=tg.CountOptions(min_count=5))
    for changed in (counts.scale(2), counts + counts.scale("1/3"), rare):
        with pytest.raises(errors.CountsError, match="weighted or lack rare pretokens"):
            tg.evaluate({"base": base}, {"et": changed})
        with pytest.raises(errors.CountsError, match="weighted or lack rare pretokens"):
            tg.measure.curve(base, counts, changed, [5])
    both = tg.evaluate({"base": base}, {"et": counts, "twice": counts + counts})
    assert both["base", "et"].bytes_per_token == both["base", "twice"].bytes_per_token


def test_counts_of_normalized_text_are_not_measured_by(base):
    normalized = tg.count(
        base, iter(["ﬁ ① " + text for text in ESTONIAN]), read_options=tg.ReadOptions(normalize="nfkc")
    )
    with pytest.raises(errors.CountsError, match="normalized by nfkc, which the tokenizer does not do") as caught:
        tg.evaluate({"base": base}, {"et": normalized})
    assert "without `normalize`" in str(caught.value)


@pytest.mark.parametrize("others", [[], [{"type": "Lowercase"}]])
def test_counts_of_normalized_text_are_measured_by_if_the_tokenizer_normalizes_the_same(others, tmp_path):
    first = {"type": "NFKC"}
    normalizer = {"type": "Sequence", "normalizers": [first, *others]} if others else first
    nfkc = tg.load(builders.write(tmp_path / "nfkc", builders.byte_level() | {"normalizer": normalizer}))
    texts = ["ﬁ ① " + text for text in ESTONIAN]
    normalized = tg.count(nfkc, iter(texts), read_options=tg.ReadOptions(normalize="nfkc"))
    scores = tg.evaluate({"nfkc": nfkc}, {"text": iter(texts), "counts": normalized})
    assert scores["nfkc", "text"].bytes_per_token == scores["nfkc", "counts"].bytes_per_token


def test_a_report_of_an_extension_by_counts_of_normalized_text_has_no_measures_and_says_so(
    base, tmp_path, tokengraft, monkeypatch
):
    seen = []
    monkeypatch.setattr(tg.page.report, "write_page", lambda content, *_, **__: seen.append(content))
    folder = tg.save(base, tmp_path / "base")
    counts = tg.count(base, iter(ESTONIAN), read_options=tg.ReadOptions(normalize="nfkc")).save(tmp_path / "c.parquet")
    command = ["extend", folder, "--counts", counts, "--add", 5, "--report", tmp_path / "r.html"]
    tokengraft(*command, "--out", tmp_path / "out")
    (content,) = seen
    assert not content.evaluation.scores
    assert any("are of normalized text: they give no measures" in warning for warning in content.warnings)


def test_documents_without_text_are_no_documents(base, extended, tmp_path):
    tokenizers, measures = {"base": base, "new": extended}, ("documents", "win_rate", "exact_match", "edit_distance")
    found = tg.evaluate(tokenizers, {"et": iter(ESTONIAN)})["new", "et"]
    blank = ["", " ", "\n\t"] * 9
    for name, documents in {"first": [*blank, *ESTONIAN], "last": [*ESTONIAN, *blank]}.items():
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents), encoding="utf-8")
        for text in (path, read_text(name, path), iter(documents)):
            score = tg.evaluate(tokenizers, {"et": text})["new", "et"]
            assert [getattr(score, name) for name in measures] == [getattr(found, name) for name in measures]


def test_scores_do_not_depend_on_the_order_of_documents(base):
    forth, back = (
        tg.evaluate({"base": base}, {"t": iter(texts)}) for texts in (ESTONIAN + ENGLISH, ENGLISH + ESTONIAN)
    )
    assert forth == back


def test_text_is_measured_where_interrupts_arrive_and_only_files_are_read_elsewhere(base, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "BATCH_CHARACTERS", 9)
    measuring, reading, here = set(), set(), threading.get_ident()
    segment, documents = Segmenter.segment_by_each, segments.input_documents

    def measured(self, batch):
        measuring.add(threading.get_ident())
        if "stop" in batch:
            raise KeyboardInterrupt
        return segment(self, batch)

    def read(*arguments, **options):
        reading.add(threading.get_ident())
        return (yield from documents(*arguments, **options))

    monkeypatch.setattr(Segmenter, "segment_by_each", measured)
    monkeypatch.setattr(segments, "input_documents", read)
    path = tmp_path / "et.txt"
    path.write_text("\n".join(ESTONIAN), encoding="utf-8")
    assert tg.evaluate({"base": base}, {"et": path}) == tg.evaluate({"base": base}, {"et": read_text("et", path)})
    assert measuring == {here}
    assert reading - {here}
    reading.clear()
    tg.evaluate({"base": base}, {"et": iter(ESTONIAN)})
    assert reading == {here}  # what a caller made may belong to its thread
    path.write_text("a\nstop\n" + "b\n" * 99)
    with pytest.raises(KeyboardInterrupt):
        tg.evaluate({"base": base}, {"et": path})
    with pytest.raises(errors.CorpusError):
        tg.evaluate({"base": base}, {"et": [tmp_path / "none.txt"]})
