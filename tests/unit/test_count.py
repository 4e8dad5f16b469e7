"""Counting: what comes out, how it adds up, and what is refused."""

import random
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import builders
import pytest

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.corpus import blocks as corpus_module
from tokengraft.counts.count import count_to_file, merge_counts
from tokengraft.counts.pretoken_counts import weighted_sum
from tokengraft.counts.threads import CountJob
from tokengraft.options.option import given_options
from tokengraft.options.table import options_of
from tokengraft.pipeline.request import request_from
from tokengraft.pipeline.texts import _each
from tokengraft.tokenizer.kind import token_bytes

TEXTS = ["tere õhtust, kass!\n", "the cat  sat<|start|>on 12345 mats\n\nit's", "猫 ja kass", "", "a\r\nb"]


def expected(tokenizer, texts):
    """Pretokens and added tokens by the library, one text at a time."""
    pieces = Counter(piece for text in texts for piece in tokenizer.pretokenize(text) if piece != "")
    added = {token.id: token.content for token in tokenizer.added}
    spelled = {
        p.encode() if tokenizer.kind == "sentencepiece" else token_bytes(p, "byte-level"): n
        for p, n in pieces.items()
        if isinstance(p, str)
    }
    return spelled, {added[p]: n for p, n in pieces.items() if isinstance(p, int)}


def as_dict(counts):
    return dict(counts.top(len(counts)))


def written(folder, *texts):
    """Files with these texts."""
    paths = [folder / str(number) for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_counts_are_those_of_the_library(tokenizer):
    counts = tg.count(tokenizer, iter(TEXTS))
    pretokens, added = expected(tokenizer, TEXTS)
    assert as_dict(counts) == pretokens
    assert dict(counts.added) == added
    assert counts.totals == tg.corpus.options.Totals(
        documents=5,
        bytes=sum(len(text.encode()) for text in TEXTS),
        characters=sum(map(len, TEXTS)),
        pretokens=sum(pretokens.values()),
    )


def test_the_result_does_not_depend_on_workers_blocks_memory_or_order(tokenizer, tmp_path, monkeypatch):
    generator = random.Random(5)
    words = ["kass", "koer", "põder", "cat", ",", "12", "longest-word-of-them-all" * 2, "\n", "<|end|>"]
    names = []
    for number in range(4):
        path = tmp_path / f"{number}.txt"
        path.write_text(" ".join(generator.choices(words, k=3000)))
        names.append(path)
    expected_counts = tg.count(tokenizer, names)
    for block, workers, memory in [(100, 1, 1), (997, 3, 10**9), (1 << 20, 2, 1)]:
        monkeypatch.setattr(corpus_module, "BLOCK", block)
        generator.shuffle(names)
        count_options = tg.CountOptions(workers=workers, memory=memory)
        assert tg.count(tokenizer, names, count_options=count_options) == expected_counts
        out = tmp_path / f"{block}.parquet"
        count_to_file(CountJob.of(tokenizer, tg.ReadOptions(), count_options), names, out)
        assert tg.PretokenCounts.load(out) == expected_counts
    expected_counts.save(tmp_path / "again.parquet")
    assert (tmp_path / "again.parquet").read_bytes() == (tmp_path / "100.parquet").read_bytes()


def test_counts_add_up_and_scale_by_ratios(tokenizer):
    a, b = tg.count(tokenizer, iter(["kass kass<|end|>"])), tg.count(tokenizer, iter(["kass koer"]))
    both = tg.count(tokenizer, iter(["kass kass<|end|>", "kass koer"]))
    assert a + b == both == b + a
    assert as_dict(a.scale(3)) == {b"kass": 3, b" kass": 3}
    assert as_dict(both.scale("1/2")) == {b"kass": 1, b" kass": 1, b" koer": 1}  # halves go up
    assert as_dict(both.scale(Fraction(1, 3))) == {b"kass": 1}
    assert dict(a.scale(4).added) == {"<|end|>": 4}
    assert both.top(1) == [(b"kass", 2)]


@pytest.mark.parametrize("weight", [3, Fraction(2, 3), 10**14])
def test_tokens_of_sums_and_multiples_are_the_same_if_those_of_the_parts_are_known(tokenizer, weight):
    def part(text: str) -> tg.PretokenCounts:
        return tg.count(tokenizer, iter([text])).scale(3)

    texts = ("kass kass<|end|> koer", "koer kassid<|end|>")
    known, other = map(part, texts)
    for uses in (False, True):
        known.tokens(tokenizer, uses=uses)
        other.tokens(tokenizer, uses=uses)
        fresh = part(texts[0]).scale(weight).scale(10**4) + part(texts[1])
        made = known.scale(weight).scale(10**4) + other
        assert made.tokens(tokenizer, uses=uses) == fresh.tokens(tokenizer, uses=uses)
    assert (known + other).tokens(tokenizer, by_merges=True) == (known + other).tokens(tokenizer)


def test_weights_multiply_the_counts_of_each_corpus(tokenizer, tmp_path):
    paths = written(tmp_path, "kass", "koer")
    assert as_dict(tg.count(tokenizer, paths, weights=[2, "3"])) == {b"kass": 2, b"koer": 3}
    with pytest.raises(errors.OptionError, match="1 weights were given for 2 corpora"):
        tg.count(tokenizer, paths, weights=[2])
    for weight in (0, -1, "x", "1/0", "1e9999999", float("inf"), True, "0.0", "0/5"):
        with pytest.raises(errors.OptionError, match="the weight"):
            tg.count(tokenizer, paths, weights=[weight, 1])
        with pytest.raises(errors.OptionError, match="the weight"):
            tg.count(tokenizer, iter(["a"])).scale(weight)


@pytest.mark.parametrize("weights", [["1", "1/3"], ["0.3", "0.1"], [6, 2], ["1/2", "1/6"]])
def test_weights_of_the_same_ratio_give_the_same_counts_and_lose_no_pretoken(tokenizer, tmp_path, weights):
    paths = written(tmp_path, "kass kass", "koer tere<|end|>")
    whole = tg.count(tokenizer, paths, weights=[3, 1])
    assert as_dict(whole) == {b"kass": 3, b" kass": 3, b"koer": 1, b" tere": 1}
    assert tg.count(tokenizer, paths, weights=weights) == whole
    files = [tg.count(tokenizer, path).save(tmp_path / f"{path.name}.parquet") for path in paths]
    given = [text for weight in weights for text in ("--weight", str(weight))]
    command = ["prune", "model", "--counts", *map(str, files), *given, "--remove", "1", "--out", "pruned", "--quiet"]
    options = given_options(options_of("prune"), cli.build_parser().parse_args(command))
    request = request_from("prune", "model", options)
    parts = [*_each(SimpleNamespace(base=tokenizer, edit=request.edit, options=request.options))]
    assert weighted_sum(parts, request.edit.weight) == whole


def test_weights_that_need_too_large_factors_are_refused(tokenizer, tmp_path):
    paths = written(tmp_path, "tere", "tere")
    with pytest.raises(errors.OptionError, match="the weights 999999999999989, 1/999999999999947 need factors of 30"):
        tg.count(tokenizer, paths, weights=[999999999999989, "1/999999999999947"])
    paths = written(tmp_path, "tere " * 20_000, "tere")
    with pytest.raises(errors.CountsError, match="beyond 2"):
        tg.count(tokenizer, paths, weights=[999_999_999_999_999, 1])


def test_limits_stop_at_so_many_documents_and_bytes(tokenizer, tmp_path, monkeypatch):
    documents = [f"w{n} " for n in range(50)]
    assert tg.count(tokenizer, iter(documents), count_options=tg.CountOptions(max_documents=7)).totals.documents == 7
    limited = tg.count(tokenizer, iter(documents), count_options=tg.CountOptions(max_bytes=20, workers=2))
    assert as_dict(limited) == expected(tokenizer, [*documents[:6], "w6"])[0]
    monkeypatch.setattr(corpus_module, "BLOCK", 16)
    path = tmp_path / "long.txt"
    path.write_text("kass koer " * 40)
    one = tg.count(tokenizer, [path, path], count_options=tg.CountOptions(max_documents=1))
    assert (one.totals.documents, one.totals.bytes) == (1, 400)
    assert tg.count(tokenizer, path, count_options=tg.CountOptions(max_bytes=123)).totals.bytes == 123


def test_rare_pretokens_are_left_out_at_the_end_alone(tokenizer):
    texts = ["kass", "kass koer"] * 2
    counts = tg.count(tokenizer, iter(texts), count_options=tg.CountOptions(min_count=3))
    assert as_dict(counts) == {b"kass": 4}
    assert (counts.min_count, counts.totals.pretokens) == (3, 6)


def test_token_frequencies_are_those_of_encoding_the_corpus(tiny_folder):
    tokenizer = tg.load(tiny_folder)
    encoded = Counter(token for text in TEXTS for token in tokenizer.encode(text))
    assert tg.count(tokenizer, iter(TEXTS)).tokens(tokenizer) == dict(sorted(encoded.items()))


def test_token_frequencies_by_merges_alone(tmp_path):
    document = builders.byte_level(ignore_merges=True)
    document["model"]["vocab"]["zq"] = 900
    tokenizer = tg.load(builders.write(tmp_path, document))
    counts = tg.count(tokenizer, iter(["zq zq"]))
    assert counts.tokens(tokenizer)[900] == 1
    assert 900 not in counts.tokens(tokenizer, by_merges=True)


# What is refused.


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.update(normalizer={"type": "NFC"}), r'normalizer: counted with null, the tokenizer has .*"NFC"'),
        (lambda d: d["pre_tokenizer"].update(add_prefix_space=True), "pre-tokenizer: counted with"),
        (lambda d: d["added_tokens"][0].update(lstrip=True), "added tokens: 2 are not the same"),
        (
            lambda d: d["added_tokens"].append(builders.added(999, "<|new|>")),
            r"added tokens: 1 .* such as '<\|new\|>'",
        ),
    ],
)
def test_counts_of_another_pipeline_are_refused_with_the_difference(tokenizer, tmp_path, change, match):
    document = builders.byte_level()
    change(document)
    other = tg.load(builders.write(tmp_path, document))
    counts = tg.count(tokenizer, iter(TEXTS))
    with pytest.raises(errors.CountsError, match=match):
        counts.tokens(other)
    with pytest.raises(errors.CountsError, match="another pipeline"):
        counts + tg.count(other, iter(TEXTS))


def test_what_only_changes_offsets_is_no_difference(tokenizer, tmp_path):
    document = builders.byte_level()
    document["pre_tokenizer"]["trim_offsets"] = False
    assert tg.count(tokenizer, iter(TEXTS)).tokens(tg.load(builders.write(tmp_path, document)))


def test_a_vocabulary_with_a_token_across_a_cut_is_refused(tmp_path):
    plain, spanning = builders.sentencepiece(), builders.sentencepiece()
    spanning["model"]["vocab"]["d▁õ"] = 9000
    counts = tg.count(tg.load(builders.write(tmp_path / "plain", plain)), iter(["ad õ"]))
    with pytest.raises(errors.CountsError, match="tokens that span them, such as ones with 'd▁' inside"):
        counts.tokens(tg.load(builders.write(tmp_path / "spanning", spanning)))


def test_options_that_make_no_sense_are_refused():
    for name in ("workers", "memory", "max_bytes", "max_documents", "min_count"):
        with pytest.raises(errors.OptionError, match=f"`{name}` is 0"):
            tg.CountOptions(**{name: 0})
    with pytest.raises(errors.OptionError, match="there is no shard 3 of 3"):
        tg.ReadOptions(shard=(3, 3))


# What an adversarial reading of counting found.


def sentencepiece_with(tmp_path, *added, **model):
    document = builders.sentencepiece()
    document["model"] |= model
    for place, token in enumerate(added):
        document["model"]["vocab"][token["content"]] = token["id"] = 9000 + place
    document["added_tokens"] += added
    return tg.load(builders.write(tmp_path, document))


@pytest.mark.parametrize("block", [3, 4, 7, 13])
def test_a_cut_after_an_added_token_or_between_white_space_changes_nothing(tmp_path, monkeypatch, block):
    strip = builders.added(0, "<m>", lstrip=True)
    tokenizer = sentencepiece_with(tmp_path / "tok", builders.added(0, "\n "), strip)
    text = "the</s> cat</s> \t\t <m>sat\n on\n  mat " * 9
    (tmp_path / "c.txt").write_text(text)
    monkeypatch.setattr(corpus_module, "BLOCK", block)
    assert tg.count(tokenizer, tmp_path / "c.txt") == tg.count(tokenizer, iter([text]))


def test_a_limit_inside_a_character_ends_there(tokenizer, tmp_path, monkeypatch):
    counts = tg.count(tokenizer, iter(["ééé", "ää", "abc"]), count_options=tg.CountOptions(max_bytes=5))
    assert (counts.totals.documents, counts.totals.bytes) == (1, 4)
    monkeypatch.setattr(corpus_module, "BLOCK", 16)
    (tmp_path / "c.txt").write_text("x猫猫猫 tere kass koer " * 9)
    assert as_dict(tg.count(tokenizer, tmp_path / "c.txt", count_options=tg.CountOptions(max_bytes=6))) == {
        "x猫".encode(): 1
    }


def test_with_weights_the_minimum_holds_for_the_sum_and_limits_for_each_text(tokenizer, tmp_path):
    paths = written(tmp_path, "tere", "tere")

    def counted(**options):
        return tg.count(tokenizer, paths, weights=[1, 1], count_options=tg.CountOptions(**options))

    assert as_dict(counted(min_count=2)) == {b"tere": 2}
    assert counted(max_documents=1).totals.documents == 2


def test_a_sum_beyond_64_bits_is_an_error(tokenizer, tmp_path):
    huge = tg.count(tokenizer, iter(["tere"])).scale(10**14).scale(10**5)
    path = huge.save(tmp_path / "huge.parquet")
    with pytest.raises(errors.CountsError, match="beyond 2"):
        merge_counts([path, path], tmp_path / "sum.parquet", count_options=tg.CountOptions())
    assert not (tmp_path / "sum.parquet").exists()


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ({"byte_fallback": False, "unk_token": None}, "i猫s"),
        ({"byte_fallback": False, "fuse_unk": True}, "a猫犬a"),
        ({"byte_fallback": False, "fuse_unk": False}, "a猫犬a"),
    ],
)
def test_unknown_characters_touch_their_neighbours_as_in_the_library(tmp_path, model, text):
    tokenizer = sentencepiece_with(tmp_path, **model)
    encoded = Counter(tokenizer.encode(text))
    assert tg.count(tokenizer, iter([text])).tokens(tokenizer) == dict(sorted(encoded.items()))


def test_so_many_runs_on_disk_are_merged_on_the_way(tokenizer, monkeypatch):
    monkeypatch.setattr(corpus_module, "BLOCK", 8)
    texts = [f"w{n % 50} " for n in range(400)]
    count_options = tg.CountOptions(memory=1, workers=2)
    assert tg.count(tokenizer, iter(texts), count_options=count_options) == tg.count(tokenizer, iter(texts))


def test_the_command_says_that_a_text_file_is_one_document(tmp_path, capsys):
    builders.write(tmp_path / "model", builders.byte_level())
    (tmp_path / "et.txt").write_text("kass\nkoer\n")
    command = ["count", str(tmp_path / "model"), str(tmp_path / "et.txt"), "--quiet", "--force"]
    for more, said in (
        ([], "1: a text file is one; --documents lines: each line\n"),
        (["--documents", "lines"], "2\n"),
    ):
        assert cli.main([*command, *more, "--out", str(tmp_path / "counts.parquet")]) == 0
        line = next(line for line in capsys.readouterr().out.splitlines(keepends=True) if line.startswith("documents"))
        assert line.split(maxsplit=1)[1] == said
