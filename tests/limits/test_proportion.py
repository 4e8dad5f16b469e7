"""Memory in proportion: small versions of the cases of `python -m limits`, in processes with a limit of memory."""

import json
from contextlib import suppress

import builders
import checkpoints
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tokengraft as tg
from limits import inputs
from limits.processes import GIGABYTE, Limits, run
from tokengraft import errors
from tokengraft.corpus.open import open_corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.formats import huggingface
from tokengraft.measure import metrics, segments

HIGH = 2**32 - 2
MEGABYTE = 1 << 20


@pytest.fixture(scope="module")
def high(tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("high"), inputs.with_high_id(HIGH)))


def test_an_id_near_2_32_costs_nothing_where_no_rows_are_needed(high, base, tmp_path):
    counts = tg.count(high, iter(["the cat zz zz"]))
    assert high.n_rows == HIGH + 1
    assert tg.inspect(high).holes > 2**31
    assert tg.check(high).findings[0].detail == "4,294,966,897 ids have no token"
    assert len(tg.extend(high, counts, 1).apply(high).ids) == len(high.ids) + 1
    assert tg.evaluate({"base": base, "high": high}, {"t": iter(["the cat"])})["high", "t"].exact_match == 1
    assert tg.load(tg.save(high, tmp_path / "out", verify=False)) == high


def test_an_id_near_2_32_is_refused_where_rows_are_needed(high, base, tmp_path):
    checkpoints.checkpoint(tmp_path / "model")
    for action in (
        lambda: tg.plan(base, high),
        lambda: tg.plan(high, base),
        lambda: tg.transplant(tmp_path / "model", high, out=tmp_path / "new"),
        lambda: tg.report(base, high, {"t": iter(["the cat"])}, out=tmp_path / "r.html"),
    ):
        with pytest.raises(errors.InvalidTokenizerError, match="an embedding needs a row for every id"):
            action()


@pytest.mark.parametrize("changed", [{"rows_before": HIGH, "facts": None}, {"removed": [HIGH]}, {"sources": [HIGH]}])
def test_a_plan_of_a_file_cannot_ask_for_billions_of_rows(base, tmp_path, changed):
    (tmp_path / "plan.json").write_text(json.dumps(tg.plan(base, base).as_dict() | changed))
    with suppress(errors.CountsError):
        assert tg.VocabPlan.load(tmp_path / "plan.json").summary.rows_before == HIGH


def test_a_stream_of_documents_is_measured_in_bounded_memory(tmp_path):
    source = inputs.tokenizer(tmp_path / "tok", builders.byte_level())
    text = inputs.fill(tmp_path / "t.txt", inputs.WORDS * 20 + "\n", 60_000_000)
    done = run(["evaluate", f"a={source}", f"b={source}", "--text", f"t={text}", "--quiet"], Limits(4 * GIGABYTE, 500))
    assert done.result == "done", done.messages
    assert done.peak < 240 * MEGABYTE  # all of the text and its tokens would need 290


def test_one_long_document_is_measured_in_proportion(tmp_path):
    source = inputs.tokenizer(tmp_path / "tok", builders.byte_level())
    tok = tg.load(source)
    new = tg.save(
        tg.extend(tok, tg.count(tok, iter([inputs.WORDS] * 3)), 30).apply(tok), tmp_path / "new", verify=False
    )
    text = inputs.fill(tmp_path / "t.txt", inputs.WORDS, 10_000_000)
    arguments = ["evaluate", source, str(new), "--text", f"t={text}", "--documents", "files", "--wide"]
    done = run(arguments, Limits(3 * GIGABYTE, 300))
    assert done.result == "done", done.messages
    assert "1 of the 1 documents of t are left out of the edit distances" in done.messages
    assert done.peak < 400 * MEGABYTE


def test_long_documents_are_left_out_of_edit_distances_with_a_note(base, monkeypatch):
    new = tg.extend(base, tg.count(base, iter(["zz qq zz qq"])), 2).apply(base)
    texts = ["zz qq " * 40, "zz a", "the cat"]
    whole = tg.evaluate({"base": base, "new": new}, {"t": iter(texts)})
    assert not whole.notes
    monkeypatch.setattr(metrics, "LONGEST_DIFFERENCE", 20)
    found = tg.evaluate({"base": base, "new": new}, {"t": iter(texts)})
    expected = tg.evaluate({"base": base, "new": new}, {"t": iter(texts[1:])})
    assert found["new", "t"].edit_distance == expected["new", "t"].edit_distance
    assert found["new", "t"].exact_match == whole["new", "t"].exact_match
    assert found.notes[0].startswith("new: 1 of the 3 documents of t are left out")


def _edits(ours, theirs):
    """The slow, obvious edit distance: a table of all beginnings."""
    before = [*range(len(theirs) + 1)]
    for n, mine in enumerate(ours, 1):
        row = [n]
        for at, other in enumerate(theirs):
            row.append(min(before[at + 1] + 1, row[-1] + 1, before[at] + (mine != other)))
        before = row
    return before[-1]


def test_edit_distances_are_those_of_whole_documents():
    generator = np.random.default_rng(5)
    pairs = [
        [generator.integers(0, 3, generator.integers(0, most)) for _ in range(2)]
        for most in (9, 200)
        for _ in range(150)
    ]
    sides = [(np.concatenate(side), np.cumsum([0, *map(len, side)])) for side in zip(*pairs, strict=True)]
    assert metrics.edit_distances(*sides, 200).tolist() == [_edits(*pair) for pair in pairs]
    long = metrics.edit_distances(*sides, 7) < 0
    assert long.any()
    assert not long[:150].all()
    same = metrics.edit_distances(*sides, 0) == 0
    assert same.tolist() == [ours.tolist() == theirs.tolist() for ours, theirs in pairs]
    assert same.any()


def test_a_document_that_is_too_long_to_be_compared_is_refused_by_name(base, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "LONGEST_DOCUMENT", 1_500_000)
    (tmp_path / "long.txt").write_text("the cat " * 500_000)
    pq.write_table(pa.table({"text": ["the cat " * 500_000]}), tmp_path / "long.parquet")
    (tmp_path / "long.jsonl").write_text(json.dumps({"text": "the cat " * 500_000}))
    for name in ("long.txt", "long.parquet", "long.jsonl"):
        with pytest.raises(errors.CorpusError, match=rf"{name}`.*documents that are compared have at most 1,500,000"):
            tg.evaluate({"base": base}, {"t": tmp_path / name})


def test_text_that_is_too_long_to_be_held_is_refused(base, tmp_path, monkeypatch):
    monkeypatch.setattr(segments, "LONGEST_TEXT", 30)
    (tmp_path / "t.txt").write_text("the cat sat\n" * 3)
    for texts in (tmp_path / "t.txt", ["the cat sat"] * 3):
        with pytest.raises(errors.CorpusError, match="the text has over 30 characters"):
            tg.compare(base, base, texts)
    assert tg.evaluate({"base": base}, {"t": tmp_path / "t.txt"}).scores[0].documents == 3


def test_text_that_only_the_crate_splits_is_refused_if_it_needs_gigabytes(tmp_path):
    source = inputs.tokenizer(tmp_path / "tok", inputs.PIPELINES["tokenizers crate"]())
    text = inputs.fill(tmp_path / "t.txt", "the cat ", 30_000_000)
    done = run(["evaluate", source, "--text", f"t={text}", "--documents", "files"], Limits(3 * GIGABYTE, 100))
    assert done.result == "refused"
    assert "cannot be cut into parts; at most 26843545 can be encoded" in done.message


def test_a_parquet_file_that_repeats_a_value_is_read_in_parts(tmp_path):
    pq.write_table(pa.table({"text": ["a" * 1_000_000] * 300}), tmp_path / "bomb.parquet")
    source = inputs.tokenizer(tmp_path / "tok", builders.byte_level())
    out = str(tmp_path / "c.parquet")
    done = run(["count", source, str(tmp_path / "bomb.parquet"), "--out", out], Limits(4 * GIGABYTE, 300))
    assert done.result == "done", done.messages
    assert done.peak < 300 * MEGABYTE
    assert tg.PretokenCounts.load(out).totals.documents == 300


@pytest.mark.parametrize("repeated", [True, False])
def test_rows_of_a_dictionary_are_those_of_the_column(base, tmp_path, monkeypatch, repeated):
    texts = ["the cat", None, "zz", "", "the cat"] * 30 if repeated else [f"the cat {n}" for n in range(150)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "t.parquet", row_group_size=70)
    pq.write_table(pa.table({"text": texts}), tmp_path / "p.parquet", use_dictionary=False)
    monkeypatch.setattr("tokengraft.corpus.blocks.BLOCK", 16)
    found = [
        tg.count(base, tmp_path / name, read_options=ReadOptions(skip_bad=True)) for name in ("t.parquet", "p.parquet")
    ]
    assert found[0] == found[1]
    assert found[0].totals.skipped == 30 * repeated


def test_very_many_row_groups_are_a_few_hundred_inputs_with_the_same_documents(base, tmp_path):
    texts = [f"the cat {number}" for number in range(1300)]
    pq.write_table(pa.table({"text": texts}), tmp_path / "groups.parquet", row_group_size=1)
    assert len(open_corpus(tmp_path / "groups.parquet", ReadOptions())) <= 512
    assert tg.count(base, tmp_path / "groups.parquet") == tg.count(base, iter(texts))


def test_a_compressed_file_is_streamed(tmp_path):
    path = inputs.gzip_of(tmp_path / "lines.txt.gz", b"the cat sat\n", 100_000_000)
    source = inputs.tokenizer(tmp_path / "tok", builders.byte_level())
    done = run(["count", source, path, "--out", str(tmp_path / "c.parquet")], Limits(4 * GIGABYTE, 300))
    assert done.result == "done", done.messages
    assert done.peak < 300 * MEGABYTE  # all of the text and its tokens would need 450


def test_a_long_chat_template_costs_memory_in_proportion(tmp_path):
    model = tmp_path / "model"
    checkpoints.checkpoint(model)
    inputs.set_json(model / "tokenizer_config.json", chat_template="{{ x }}" * 500_000)
    text = tmp_path / "t.txt"
    text.write_text("\n".join(checkpoints.ESTONIAN))
    arguments = ["adapt", str(model), "--target", f"t={text}", "--swap", "5", "--out", str(tmp_path / "out"), "--quiet"]
    done = run(arguments, Limits(8 * GIGABYTE, 300))
    assert done.result == "done", done.messages
    assert done.peak < 350 * MEGABYTE


def test_many_files_need_few_open_ones(tmp_path):
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(150):
        (texts / f"{number}.txt").write_text(f"the cat {number}")
    source = inputs.tokenizer(tmp_path / "tok", builders.byte_level())
    arguments = ["count", source, str(texts), "--out", str(tmp_path / "c.parquet")]
    assert run(arguments, Limits(files=64)).result == "done"
    assert run(["evaluate", source, "--text", f"t={texts}"], Limits(files=64)).result == "done"


def test_names_of_tokens_need_no_table_by_id(high, base):
    comparison = metrics.DocumentComparison(high, base)
    found = segments.Segmenter(high).segment(["the cat zzzz"])
    comparison.add(found, segments.Segmenter(base).segment(["the cat zzzz"]), np.array([True]))
    assert comparison.measures()["exact_match"] == 1


def test_a_pretoken_that_would_need_gigabytes_is_refused(base):
    counts = tg.count(base, iter(["x" * (2**24 + 1)]))
    steps = (
        lambda: base.encode("x" * (2**24 + 1)),
        lambda: tg.extend(base, counts, 1),
        lambda: tg.prune_order(base, counts),
        lambda: tg.evaluate({"base": base}, {"t": iter(["x" * (2**24 + 1)])}),
    )
    for step in steps:
        with pytest.raises(
            errors.CorpusError, match="a pretoken has 16777217 characters; at most 16777216 can be encoded"
        ):
            step()
    assert base.encode("õ" * 2**20)


def test_more_added_tokens_than_the_limit_are_refused_before_they_are_searched_for(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "MAX_ADDED", 7)
    few = builders.write(tmp_path / "few", inputs.many_added(5))
    assert len(tg.load(few).added) == 7
    with pytest.raises(errors.InvalidTokenizerError, match="it has 8 added tokens, and tokengraft reads up to 7"):
        tg.load(builders.write(tmp_path / "many", inputs.many_added(6)))
    listed = {str(900 + at): {"content": f"<|listed {at}|>", "special": True} for at in range(9)}
    (few / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": listed}))
    with pytest.raises(errors.InvalidTokenizerError, match="added tokens, and tokengraft reads up to 7"):
        tg.load(few)
