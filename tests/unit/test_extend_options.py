"""Preserved text, scripts and languages in balance: the Python interface, and what is refused."""

import json
from itertools import pairwise

import builders
import pytest

import tokengraft as tg
from tokengraft import _core, errors
from tokengraft.tokenizer.edit import before_whitespace_merges
from tokengraft.tokenizer.kind import spell, token_bytes

ESTONIAN = ["kassid ja koerad jooksevad, kassipojad ja kutsikad magavad"] * 6
ARABIC = ["مرحبا، يا عالم؛ مرحبا، يا قطة 123 abc"] * 5
HINDI = ["नमस्ते दुनिया। बिल्ली बैठी है। नमस्ते"] * 4
SOURCE = ["if (x == 'kass') {\n    return x[1];\n}\n", "kassid"]


@pytest.fixture(params=["base", "llama2"])
def either(request):
    return request.getfixturevalue(request.param)


def counted(tokenizer, texts):
    return tg.count(tokenizer, iter(texts) if texts else set())


def test_preserved_text_keeps_its_ids_and_refused_pairs_are_listed(either):
    counts, preserve = counted(either, ESTONIAN), counted(either, SOURCE)
    extension = tg.extend(either, counts, 30, preserve=preserve)
    free = tg.extend(either, counts, 30)
    assert any(either.encode(text) != free.apply(either).encode(text) for text in SOURCE)
    extended = extension.apply(either)
    assert [extended.encode(text) for text in SOURCE] == [either.encode(text) for text in SOURCE]
    pretokens = [pretoken for pretoken, _ in preserve.top(len(preserve))]
    model = before_whitespace_merges(either).core_model
    segmented = (model.encode(spell(pretoken, either.kind)) for pretoken in pretokens)
    pairs = {pair for ids in segmented for pair in pairwise(either.strings[token_id] for token_id in ids)}
    assert extension.refused
    assert {pair[:2] for pair in extension.refused} <= pairs
    assert not {merge[:2] for merge in extension.merges} & pairs
    assert extension.refused[0][:3] == free.merges[extension.refused[0].place][:3]
    assert extension.provenance["preserved"]["documents"] == 2


def test_refused_pairs_and_languages_are_saved_loaded_and_cut(base, tmp_path):
    texts = tg.learn.Parity({"et": counted(base, ESTONIAN), "hi": counted(base, HINDI)})
    extension = tg.extend(base, texts, 30, preserve=counted(base, SOURCE))
    assert set(extension.languages) == {"et", "hi"}
    assert len(extension.languages) == len(extension.merges)
    assert tg.Extension.load(extension.save(tmp_path / "e.json")) == extension
    for size in (0, 1, 7, 99):
        part = extension[:size]
        assert tg.Extension.load(part.save(tmp_path / f"{size}.json")) == part


def test_a_file_with_wrong_languages_or_refused_pairs_is_refused(base, tmp_path):
    extension = tg.extend(base, counted(base, ESTONIAN), 5)
    document = json.loads(extension.save(tmp_path / "e.json").read_text())
    for field in ({"languages": ["et"]}, {"languages": [1] * 5}, {"refused": [["a", "b", 1]]}, {"refused": [[1] * 4]}):
        (tmp_path / "bad.json").write_text(json.dumps(document | field))
        with pytest.raises(errors.CountsError, match="not a file of an extension"):
            tg.Extension.load(tmp_path / "bad.json")


def test_the_cost_of_preserved_text_is_measured_against_training_without_it(either):
    counts = counted(either, ESTONIAN)
    extension = tg.extend(either, counts, 20, preserve=counted(either, SOURCE))
    cost = tg.learn.preserve_cost(either, counts, extension)
    tokenizers = (either, extension.apply(either), tg.extend(either, counts, 20).apply(either))
    assert (cost.base, cost.preserved, cost.free) == tuple(sum(counts.tokens(one).values()) for one in tokenizers)
    assert cost.base > cost.preserved >= cost.free
    assert cost.share == cost.preserved / cost.free - 1
    unchanged = tg.learn.preserve_cost(either, counts, tg.extend(either, counts, 20))
    assert unchanged.share == 0


def test_preserving_the_training_text_itself_leaves_nothing_to_learn(either):
    counts = counted(either, ESTONIAN)
    extension = tg.extend(either, counts, 20, preserve=counts, character_coverage=0)
    assert extension.merges == ()
    assert extension.refused
    assert extension.stopped.endswith("were refused because they occur in the preserved text")
    assert extension[:5].refused == extension.refused
    assert tg.extend(either, counts, 5, preserve=counts, character_coverage=0).refused == extension.refused


def test_characters_of_preserved_text_and_of_other_scripts_are_not_added(llama2):
    counts = counted(llama2, ARABIC + HINDI)
    free = tg.extend(llama2, counts, 60, character_coverage=1).characters
    assert {"م", "न"} <= set(free)
    preserve = counted(llama2, ["मम ق"])
    kept = tg.extend(llama2, counts, 60, character_coverage=1, preserve=preserve)
    assert set(kept.characters) == set(free) - set("मق")
    assert kept.apply(llama2).encode("मम ق") == llama2.encode("मम ق")
    arabic = tg.extend(llama2, counts, 60, character_coverage=1, limits=tg.Limits(scripts=["Arab"]))
    assert set(arabic.characters) == set(_core.of_scripts("".join(free), ["Arabic"]))
    assert not set("".join(arabic.tokens)) & set("abcनमस्ते।123")


def test_new_tokens_keep_to_the_scripts(either):
    counts = counted(either, ARABIC + ESTONIAN)
    free = tg.extend(either, counts, 200)
    found = tg.extend(either, counts, 200, limits=tg.Limits(scripts=["ARABIC"]))
    texts = [token_bytes(token, either.kind) for token in found.tokens]
    assert {"مرحبا", "يا"} <= {text.decode(errors="ignore").strip() for text in texts}
    for text in texts:
        whole = text.decode(errors="ignore").removeprefix(" ")
        assert _core.of_scripts(whole, ["Arabic"]) == whole
    assert 0 < len(found) < len(free)
    merges = [merge for merge in free.merges if merge.new]
    latin = tg.extend(either, counts, 5, limits=tg.Limits(scripts=["Latin", "latn"]))
    assert latin.merges[0] == next(m for m in merges if (m.left + m.right).strip("Ġ▁").isascii())


def test_names_of_scripts_are_matched_loosely_and_unknown_ones_named():
    assert tg.Limits(scripts=["old italic", "HAN", "Zyyy"]).script_names == ("Common", "Han", "Old_Italic")
    with pytest.raises(errors.OptionError, match="no Unicode script 'Arabik'; names like it: Arabic"):
        tg.Limits(scripts=["Latin", "Arabik"])
    for scripts in ([""], ["☃"], [None]):
        with pytest.raises(errors.OptionError, match=r"names like it|an item of `scripts` is None"):
            tg.Limits(scripts=scripts)
    with pytest.raises(errors.OptionError, match="`scripts` is 'Latin', a str"):
        tg.Limits(scripts="Latin")


def test_one_language_alone_is_trained_as_always(either):
    counts = counted(either, ESTONIAN)
    free = tg.extend(either, counts, 25)
    alone = tg.extend(either, tg.learn.Parity({"et": counts}), 25)
    assert alone.merges == free.merges
    assert set(alone.languages) == {"et"}


def test_the_language_that_gained_least_is_next(base):
    texts = {"et": counted(base, ESTONIAN * 50), "hi": counted(base, HINDI)}
    start = {name: sum(text.tokens(base).values()) for name, text in texts.items()}
    extension = tg.extend(base, tg.learn.Parity(texts), 40)
    assert extension.merges != tg.extend(base, texts["et"] + texts["hi"], 40).merges
    for size in range(1, 40):
        now = extension[: size - 1].apply(base) if size > 1 else base
        share = {name: sum(text.tokens(now).values()) / start[name] for name, text in texts.items()}
        end = len(extension[: size - 1].merges)
        assert share[extension.languages[end]] == max(share.values())


def test_parallel_text_decides_for_whom_is_learned(base):
    texts = {"et": counted(base, ESTONIAN), "hi": counted(base, HINDI)}
    short, long = counted(base, ["ja"]), counted(base, HINDI * 9)
    reference = counted(base, ["and"])
    one = tg.extend(base, tg.learn.Parity(texts, {"et": short, "hi": long}, reference), 20)
    other = tg.extend(base, tg.learn.Parity(texts, {"et": long, "hi": short}, reference), 20)
    assert set(one.languages) == {"hi"}
    assert set(other.languages) == {"et"}
    assert one.provenance["languages"]["hi"]["documents"] == len(HINDI)


def test_a_language_that_has_nothing_left_is_passed_over(base):
    texts = {"et": counted(base, ESTONIAN), "lv": counted(base, ["xyxy"])}
    found = tg.extend(base, tg.learn.Parity(texts), 1000)
    assert set(found.languages) == {"et", "lv"}
    assert len(found) < 1000
    assert tg.extend(base, tg.learn.Parity({"a": texts["lv"], "b": counted(base, ["q"])}), 9).stopped.startswith(
        "1 new"
    )


def test_texts_that_do_not_fit_are_refused_by_name(base, llama2, tmp_path):
    other = tg.load(builders.write(tmp_path / "other", builders.byte_level() | {"normalizer": {"type": "NFC"}}))
    good, bad, empty = counted(base, ESTONIAN), counted(other, ESTONIAN), counted(base, [])
    both = {"et": good, "hi": good}
    for counts, preserve, message in [
        (good, bad, "the preserved counts: the counts were made for another pipeline"),
        (good, empty, "the preserved counts are empty"),
        (tg.learn.Parity({"et": good, "hi": bad}), None, "the counts of `hi`: .*another pipeline"),
        (tg.learn.Parity({"et": good, "hi": empty}), None, "the counts of `hi` are empty"),
        (tg.learn.Parity(both, {"et": good, "hi": bad}, good), None, "the parallel counts of `hi`: .*another pipeline"),
        (tg.learn.Parity(both, {"et": empty, "hi": good}, good), None, "the parallel counts of `et` are empty"),
        (tg.learn.Parity(both, both, bad), None, "the counts of the reference: .*another pipeline"),
    ]:
        with pytest.raises(errors.CountsError, match=message):
            tg.extend(base, counts, 5, preserve=preserve)
    rules = tg.ReadOptions(rules=tg.tokenizer.PieceRules(split_digits=False))
    cut = tg.count(llama2, iter(ESTONIAN), read_options=rules)
    with pytest.raises(errors.CountsError, match="the preserved counts were cut by other rules"):
        tg.extend(llama2, counted(llama2, ESTONIAN), 5, preserve=cut)
    nfc = tg.count(base, iter(ESTONIAN), read_options=tg.ReadOptions(normalize="nfkc"))
    with pytest.raises(errors.CountsError, match="normalized differently: None, nfkc"):
        tg.extend(base, tg.learn.Parity({"et": good, "hi": nfc}), 5)


def test_languages_that_do_not_fit_are_refused(base):
    good = counted(base, ESTONIAN)
    for arguments, message in [
        (({},), "no language"),
        (({1: good},), "`language` is 1, an int; it must be a string"),
        (({"": good},), "a language has an empty name"),
        (({"et": good}, {"et": good}), "`parallel` is given and `reference` is not"),
        (({"et": good}, None, good), "`reference` is given and `parallel` is not"),
        (({"et": good}, {"hi": good}, good), "the parallel text are 'hi', those of the text 'et'"),
    ]:
        with pytest.raises(errors.OptionError, match=message):
            tg.learn.Parity(*arguments)
