"""The texts of `adapt`: targets and their weights, the mix, documents, and runs that go on after an interruption."""

import os
from dataclasses import fields, replace
from fractions import Fraction

import pytest
from checkpoints import ENGLISH, ESTONIAN, LATVIAN, adapted

import tokengraft as tg
from tokengraft import errors
from tokengraft.corpus.options import ReadOptions
from tokengraft.options.values import weighted_texts
from tokengraft.pipeline import adapt as cache
from tokengraft.pipeline import vocabulary
from tokengraft.pipeline.adapt import WITHOUT_EFFECT, cache_key
from tokengraft.pipeline.options import AdaptOptions, shares
from tokengraft.pipeline.texts import Mix, TextSize, extend_by_mix, mix, whole_factors

pytestmark = pytest.mark.usefixtures("transformers_running")
HALF = Fraction(1, 2)


# Targets.


@pytest.mark.usefixtures("model")
def test_each_of_several_targets_gets_a_result(texts):
    found = adapted(texts, target={"et": tg.Target(texts / "et.txt", 2), "lv": texts / "lv.txt"}, add=60)
    assert found.targets["et"].gain > 0
    assert found.targets["lv"].gain > 0
    assert sum(target.tokens for target in found.targets.values()) <= 60
    assert min(target.tokens for target in found.targets.values()) > 0


@pytest.mark.usefixtures("model")
def test_a_target_that_is_also_kept_is_adapted_to(texts):
    found = adapted(texts, keep=texts / "et.txt", swap=20)
    assert found.evaluation["new", "target"].gain == found.evaluation["new", "keep"].gain > 0


def test_targets_are_named_and_weighed(tmp_path, monkeypatch):
    two = {"et": ("et/*.parquet", "2"), "lv": ("lv.txt", "1/3")}
    assert weighted_texts([["et/*.parquet"]]) == {"target": ("et/*.parquet", "1")}
    assert weighted_texts([["et=et/*.parquet:2"], ["lv=lv.txt:1/3"]]) == two
    assert weighted_texts([["et=et/*.parquet:2", "lv=lv.txt:1/3"]]) == two
    assert list(weighted_texts([["a.txt"], ["b.txt"]])) == ["target-1", "target-2"]
    assert weighted_texts([["a.txt:-1"]]) == {"target": ("a.txt", "-1")}
    for url in ("http://host:8080/2024", "http://host:8080", "et=s3://bucket/2024/a.txt"):
        assert [*weighted_texts([[url]]).values()] == [(url.removeprefix("et="), "1")]
    assert weighted_texts([["et=http://host:8080/2024:1/3"]]) == {"et": ("http://host:8080/2024", "1/3")}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a=b:2").write_text("a file with a strange name")
    assert weighted_texts([["a=b:2"]]) == {"target": ("a=b:2", "1")}


def test_files_of_one_target_add_up_and_have_one_weight():
    assert weighted_texts([["a.txt", "b.txt"]]) == {"target": (["a.txt", "b.txt"], "1")}
    assert weighted_texts([["et=a.txt", "b.txt:2"]]) == {"et": (["a.txt", "b.txt"], "2")}
    assert weighted_texts([["a.txt", "et=b.txt"]]) == {"target-1": ("a.txt", "1"), "et": ("b.txt", "1")}
    with pytest.raises(errors.OptionError, match="have the weights 2, 3"):
        weighted_texts([["et=a:2", "b:3"]])
    with pytest.raises(errors.OptionError, match="two texts of `target` are called 'target-1'"):
        weighted_texts([["a.txt"], ["target-1=b.txt"]])


# Mixing by share.


@pytest.fixture
def parts(model):
    base = tg.load(model)
    et, lv, en = (tg.count(base, iter(lines)) for lines in (ESTONIAN[:40], LATVIAN, ENGLISH))
    return base, et, lv, en


def occurrences(counts):
    return sum(count for _, count in counts.top(len(counts)))


def test_weights_are_shares_and_that_of_one_text_changes_nothing(parts):
    assert shares({"et": 2, "lv": "1/2"}) == shares({"et": 8, "lv": 2}) == {"et": Fraction(4, 5), "lv": Fraction(1, 5)}
    assert shares({"et": 7}) == {"et": 1}
    _, et, *_ = parts
    for share in (Fraction(1), Fraction(7, 3)):
        assert mix([(et, share)]) == Mix(et, 1)


def test_texts_in_a_mix_have_their_shares_exactly_and_lose_no_pretoken(parts):
    _, et, lv, _ = parts
    factors = whole_factors(
        [TextSize(occurrences(et), 1), TextSize(occurrences(lv), 1)], [Fraction(2, 3), Fraction(1, 3)]
    )
    assert occurrences(et) * factors[0] == 2 * occurrences(lv) * factors[1]
    mixed = mix([(et, Fraction(2, 3)), (lv, Fraction(1, 3))])
    assert occurrences(mixed.counts) == occurrences(et) * factors[0] + occurrences(lv) * factors[1]
    assert len(mixed.counts) == len(et + lv)
    assert mixed.unit == min(factors)


def test_the_text_to_keep_counts_as_much_as_targets_of_unequal_size_together(parts):
    _, et, lv, en = parts
    sizes = [TextSize(occurrences(part), 1) for part in (et, lv, en)]
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


def test_factors_too_large_to_count_with_keep_their_ratio():
    sizes = [TextSize(10**9 + 7, 5 * 10**9), TextSize(10**9 + 9, 5 * 10**9), TextSize(998_244_353, 5 * 10**9)]
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


@pytest.mark.usefixtures("model")
def test_the_order_of_files_changes_no_byte_of_the_result(texts):
    keep = [texts / "en.txt", texts / "lv.txt"]
    written = []
    for at, files in enumerate((keep, keep[::-1])):
        adapted(texts, out=f"out-{at}", keep=files, swap=30)
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
def interrupted(monkeypatch):
    """Interrupts an adaptation after counting. Counts of small texts are kept too."""
    monkeypatch.setattr(cache, "WORTH_KEEPING", 0)

    def fail(*_, **__):
        raise KeyboardInterrupt

    def run(texts, **values):
        with monkeypatch.context() as patch:
            patch.setattr(vocabulary, "extend_by_mix", fail)
            with pytest.raises(KeyboardInterrupt):
                adapted(texts, **values)

    return run


@pytest.mark.usefixtures("model")
def test_an_interrupted_run_resumes_and_counts_only_what_changed(texts, counted, interrupted):
    given = {"keep": texts / "en.txt", "swap": 10}
    for _ in range(2):
        interrupted(texts, **given)
        assert len(counted) == 2
    assert not (texts / "out").exists()
    (texts / "et.txt").write_text("\n".join(ESTONIAN[:350]), encoding="utf-8")
    resumed = adapted(texts, **given)
    assert len(counted) == 3
    assert not (texts / "out.work").exists()
    fresh = adapted(texts, out="fresh", **given)
    assert resumed.tokenizer == fresh.tokenizer
    assert (texts / "out" / "adaptation.json").read_bytes() == (texts / "fresh" / "adaptation.json").read_bytes()


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("damaged", [False, True])
def test_a_resume_keeps_warnings_about_the_text_and_counts_damaged_files_again(texts, counted, interrupted, damaged):
    (texts / "latin1.txt").write_bytes("\n".join(ESTONIAN).encode() + b"\n\xf5hk")
    interrupted(texts, target="latin1.txt", swap=10)
    for path in (texts / "out.work").iterdir() if damaged else ():
        path.write_bytes(path.read_bytes()[:20])
    found = adapted(texts, target="latin1.txt", swap=10)
    assert len(counted) == 1 + damaged
    assert any("target:" in warning and "UTF-8" in warning for warning in found.warnings)


OTHER_VALUES = {
    "text_field": "body",
    "documents": "files",
    "format": "text",
    "skip_bad": True,
    "shard": (0, 1),
    "normalize": "nfkc",
    "rules": tg.tokenizer.PieceRules(),
    "max_documents": 7,
    "max_bytes": 7,
    "min_count": 7,
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


@pytest.mark.usefixtures("model")
def test_a_folder_that_has_the_name_of_the_work_folder_keeps_its_files(texts):
    (texts / "out.work").mkdir()
    (texts / "out.work" / "mine.txt").write_text("mine")
    adapted(texts, add=5)
    assert [path.name for path in (texts / "out.work").iterdir()] == ["mine.txt"]


# Reading.


@pytest.mark.usefixtures("model")
def test_documents_are_lines_by_default_and_files_where_asked(texts):
    for given, n_documents in (({}, len(ESTONIAN)), ({"read_options": ReadOptions(documents="files")}, 1)):
        found = adapted(texts, add=5, force=True, **given)
        (target,) = [item for item in found.request["inputs"] if item["role"] == "target"]
        assert target["documents"] == n_documents


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("lines", "min_count", "match"),
    [
        (["üks\n"], 2, "`target` is too small: 0 bytes to learn from, 4 bytes to measure on"),
        (ESTONIAN, 10**6, "none can be learned"),
    ],
)
def test_text_that_nothing_can_be_learned_from_is_refused(texts, lines, min_count, match):
    (texts / "et.txt").write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(errors.CorpusError, match=match):
        adapted(texts, swap=5, limits=tg.Limits(min_count=min_count))
    assert not (texts / "out").exists()
