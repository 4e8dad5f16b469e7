"""The whole road: what is held out, mixed, protected, resumed and written."""

import json
from fractions import Fraction
from importlib import import_module

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, checkpoint, tables

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.adapt import chat_templates, equal_mix, protection, set_aside
from tokengraft.commands.adapt import targets_of

package = import_module("tokengraft.adapt")


@pytest.fixture
def texts(tmp_path):
    for name, lines in (("et", ESTONIAN), ("lv", LATVIAN), ("en", ENGLISH)):
        (tmp_path / f"{name}.txt").write_text("\n".join(lines), encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(texts):
    checkpoint(texts / "model")
    return texts / "model"


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


def test_what_is_only_removed_closes_up_and_what_is_only_added_grows(model, texts):
    base = tg.load(model)
    small = tg.adapt(model, target=texts / "et.txt", keep=texts / "en.txt", remove=40, out=texts / "small")
    assert small.tokenizer.n_rows == base.n_rows - 40
    large = tg.adapt(model, target=texts / "et.txt", add=20, out=texts / "large")
    assert large.tokenizer.n_rows == base.n_rows + 20
    assert json.loads((texts / "large" / "config.json").read_text())["vocab_size"] == base.n_rows + 20


def test_a_tokenizer_without_weights_is_adapted_alone(texts):
    folder = builders.write(texts / "tokenizer", builders.byte_level())
    found = tg.adapt(folder, target=texts / "et.txt", add=10, out=texts / "out")
    assert found.transplant is None
    assert tg.load(texts / "out") == found.tokenizer


def test_several_targets_are_weighed_and_each_is_told_what_it_got(model, texts):
    targets = {"et": tg.Target(texts / "et.txt", 2), "lv": tg.Target(texts / "lv.txt")}
    found = tg.adapt(model, target=targets, add=60, out=texts / "out")
    assert found.served["et"].gain > 0
    assert found.served["lv"].gain > 0
    assert sum(served.tokens for served in found.served.values()) <= 60
    assert min(served.tokens for served in found.served.values()) > 0


def test_held_out_documents_and_their_copies_are_not_learned_from():
    held: list[str] = []
    documents = [f"document {n % 700}" for n in range(2100)]
    rest = list(set_aside(iter(documents), held))
    assert held
    assert not set(held) & set(rest)
    assert set(held) | set(rest) == set(documents)
    again: list[str] = []
    assert list(set_aside(iter(documents), again)) == rest
    assert again == held


def test_mixed_counts_have_equal_size(model):
    base = tg.load(model)
    small, large = (tg.count(base, iter(lines)) for lines in (ESTONIAN[:40], ENGLISH))
    mixed = equal_mix([(small, Fraction(1)), (large, Fraction(1))])
    words = dict(mixed.top(len(mixed)))
    ratio = words[b" kassid"] / dict(small.top(len(small)))[b" kassid"]
    assert ratio == pytest.approx(large.totals.pretokens / small.totals.pretokens, rel=0.05)


def test_chat_templates_and_plain_text_keep_their_tokens(texts):
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": [{"name": "x", "template": "kass istus"}]}
    others = {"chat_template.jinja": "teine kass", "tokenizer_config.json": json.dumps(config)}
    base = tg.load(builders.write(texts / "t", builders.byte_level(), **others))
    assert sorted(chat_templates(base)) == ["kass istus", "teine kass"]
    counts = tg.count(base, iter(["zzz"]))
    pruned = tg.prune_order(base, counts, protection=protection(base)).apply(base)
    for text in ("kass istus", "teine kass", '{"name": "value"}'):
        assert pruned.encode(text) == base.encode(text)


def test_an_interrupted_run_goes_on_and_changed_text_is_counted_again(model, texts, monkeypatch):
    counted = []
    count = package.count

    def noted(tokenizer, corpus, **options):
        counted.append(1)
        return count(tokenizer, corpus, **options)

    def fail(*_, **__):
        raise KeyboardInterrupt

    extend = package.extend
    monkeypatch.setattr(package, "count", noted)
    monkeypatch.setattr(package, "extend", fail)
    arguments = {"target": texts / "et.txt", "keep": texts / "en.txt", "swap": 10, "out": texts / "out"}
    with pytest.raises(KeyboardInterrupt):
        tg.adapt(model, **arguments)
    assert len(counted) == 2
    assert (texts / "out.work").exists()
    with pytest.raises(KeyboardInterrupt):
        tg.adapt(model, **arguments)
    assert len(counted) == 2
    (texts / "et.txt").write_text("\n".join(ESTONIAN[:350]), encoding="utf-8")
    monkeypatch.setattr(package, "extend", extend)
    fresh = tg.adapt(model, **arguments)
    assert len(counted) == 3
    (texts / "out.work").mkdir(exist_ok=True)
    again = tg.adapt(model, **arguments | {"out": texts / "again"})
    assert again.tokenizer == fresh.tokenizer


def test_a_folder_that_happens_to_have_the_name_of_the_work_folder_keeps_its_files(model, texts):
    (texts / "out.work").mkdir()
    (texts / "out.work" / "mine.txt").write_text("mine")
    tg.adapt(model, target=texts / "et.txt", add=5, out=texts / "out")
    assert [path.name for path in (texts / "out.work").iterdir()] == ["mine.txt"]


def test_what_makes_no_sense_is_refused(model, texts):
    et = texts / "et.txt"
    for options, match in (
        ({}, "0 tokens to add and 0 to remove"),
        ({"swap": 5, "add": 5}, "both a swap"),
        ({"add": -5}, "-5 tokens to add"),
    ):
        with pytest.raises(errors.OptionError, match=match):
            tg.adapt(model, target=et, out=texts / "out", **options)
    with pytest.raises(errors.OptionError, match="called 'keep'"):
        tg.adapt(model, target={"keep": tg.Target(et)}, add=5, out=texts / "out")
    (texts / "tiny.txt").write_text("üks\n")
    with pytest.raises(errors.CorpusError, match="too small"):
        tg.adapt(model, target=texts / "tiny.txt", add=5, out=texts / "out")
    with pytest.raises(errors.CorpusError):
        tg.adapt(model, target=texts / "no.txt", add=5, out=texts / "out")
    assert not (texts / "out").exists()


def test_documents_of_every_format_are_read_alike(texts):
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tokengraft.corpus import Reading, documents

    (texts / "d.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in ESTONIAN), encoding="utf-8")
    pq.write_table(pa.table({"text": ESTONIAN}), texts / "d.parquet")
    reading = Reading(documents="lines")
    for source in (texts / "et.txt", texts / "d.jsonl", texts / "d.parquet", iter(ESTONIAN)):
        assert list(documents(source, reading)) == ESTONIAN
    (texts / "bad.jsonl").write_text('{"text": "a"}\n{"no": 1}\n')
    with pytest.raises(errors.CorpusError, match="line 2"):
        list(documents(texts / "bad.jsonl", reading))


def test_targets_are_named_and_weighed():
    assert targets_of(["et/*.parquet"]) == {"target": ("et/*.parquet", "1")}
    assert targets_of(["et=et/*.parquet:2", "lv=lv.txt:1/3"]) == {"et": ("et/*.parquet", "2"), "lv": ("lv.txt", "1/3")}
    assert list(targets_of(["a.txt", "b.txt"])) == ["target-1", "target-2"]
    with pytest.raises(errors.OptionError, match="two targets"):
        targets_of(["et=a", "et=b"])


def test_the_command_adapts_and_reports(model, texts, capsys):
    common = ["adapt", model, "--target", f"et={texts / 'et.txt'}:2", "--target", f"lv={texts / 'lv.txt'}"]
    common = [*map(str, common), "--keep", str(texts / "en.txt"), "--swap", "20"]
    assert cli.main([*common, "--dry-run", "--out", str(texts / "out")]) == 0
    assert "would write" in capsys.readouterr().out
    assert not (texts / "out").exists()
    assert cli.main([*common, "--out", str(texts / "out")]) == 0
    shown = capsys.readouterr()
    assert "new tokens of its own" in shown.out
    assert "counting et" in shown.err
    assert cli.main([*common, "--out", str(texts / "j"), "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["added"] == 20
