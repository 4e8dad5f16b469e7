"""Every engine of counting gives the pretokens of the library, also for documents that are read in parts."""

import random

import builders
import pytest
from test_counting import assert_fast_equals_slow, texts_of_every_category, texts_of_random_bytes
from test_upstream import STRANGE, texts_of_joined_tokens

import tokengraft as tg

SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{SPACE}"
)


def split(pattern, behavior="Isolated"):
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": False}


def byte_level(*, prefix=False, regex=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex}


def digits(*, individual):
    return {"type": "Digits", "individual_digits": individual}


def replace(pattern, content):
    return {"type": "Replace", "pattern": pattern, "content": content}


NFC = {"type": "NFC"}
PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
BYTE_LEVEL = {
    "gpt-4o": (None, [split(O200K), byte_level()]),
    "falcon": (None, [PUNCTUATION, byte_level(regex=True), digits(individual=False), split("[0-9][0-9][0-9]")]),
    "qwen-3.5": (
        NFC,
        [split(rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}|{SPACE}"), byte_level()],
    ),
    "roberta": (None, [byte_level(prefix=True, regex=True)]),
    "digits": (NFC, [digits(individual=False), byte_level(prefix=True, regex=True)]),
    "removed": (None, [split(r"\s+", "Removed"), split(r"\p{P}", "MergedWithNext"), byte_level()]),
}
TEXT = {
    "two-replacements": ([replace({"String": "  "}, "▁▁"), replace({"Regex": r"\s"}, "▁")], []),
    "words": ([], [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True}]),
    "nfc": ([NFC, {"type": "Prepend", "prepend": "▁"}, replace({"String": " "}, "▁")], []),
}


def with_pipeline(document, normalizer, steps):
    pre_tokenizer = {"type": "Sequence", "pretokenizers": steps} if steps else None
    return document | {"normalizer": normalizer, "pre_tokenizer": pre_tokenizer}


def documents():
    for name, (normalizer, steps) in BYTE_LEVEL.items():
        yield pytest.param(with_pipeline(builders.byte_level(), normalizer, steps), id=name)
    for name, (normalizers, steps) in TEXT.items():
        for fallback in (True, False):
            base = builders.sentencepiece(byte_fallback=fallback)
            normalizer = {"type": "Sequence", "normalizers": normalizers}
            yield pytest.param(with_pipeline(base, normalizer, steps), id=f"{name}-{fallback}")


@pytest.fixture(params=[*documents()])
def tokenizer(request, tmp_path):
    return tg.load(builders.write(tmp_path / "tokenizer", request.param))


def test_automata_count_as_the_library(tokenizer):
    assert tg.inspect(tokenizer).engine == "automata"
    texts = STRANGE + texts_of_every_category(1500, seed=21) + texts_of_random_bytes(1000, seed=22)
    assert_fast_equals_slow(tokenizer, texts + texts_of_joined_tokens(tokenizer, 500, seed=23))


PIPELINES = ("gpt-4o", "roberta", "words-True", "nfc-False")


@pytest.mark.parametrize("tokenizer", [made for made in documents() if made.id in PIPELINES], indirect=True)
def test_a_document_that_is_read_in_parts_counts_as_a_whole(tokenizer, tmp_path):
    generator = random.Random(24)
    words = [
        *("tere", " the", "  cat's", " õhtust", "\n\n", "12 345", " 猫がいる", "!?", " <s>x", "e\u0301 ", "<|end|>"),
        *("▁", " "),
    ]
    path = tmp_path / "long.txt"
    path.write_text("".join(generator.choices(words, k=500_000)), encoding="utf-8")
    assert path.stat().st_size > 2 << 20
    parts = tg.count(tokenizer, path, count_options=tg.CountOptions(memory=25_000_000))
    whole = builders.count_through_upstream(tokenizer, path)
    assert (parts.tokens(tokenizer), parts.totals.bytes) == (whole.tokens(tokenizer), whole.totals.bytes)
    if tokenizer.kind == "byte-level":
        assert parts == whole


def test_inspect_names_the_engine(tmp_path, tokengraft):
    known = builders.write(tmp_path / "known", builders.byte_level())
    unknown = with_pipeline(builders.byte_level(), None, [split(r"(?<=a)\s+"), byte_level()])
    general = with_pipeline(builders.byte_level(), None, [split(r"\S+|\s+"), byte_level()])
    folders = [known, builders.write(tmp_path / "general", general), builders.write(tmp_path / "unknown", unknown)]
    engines = [tg.inspect(tg.load(folder)).engine for folder in folders]
    assert engines == ["hand-written scanner", "automata", "tokenizers crate"]
    assert "counted with    automata made from the steps of this pipeline" in tokengraft("inspect", folders[1]).out
    assert '"engine": "tokenizers crate"' in tokengraft("inspect", folders[2], "--json").out
