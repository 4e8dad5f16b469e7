"""Rank files that are refused: damaged ones, patterns that libraries read differently, and contradictions."""

import json

import builders
import pytest
import tiktoken
from rank_files import (
    both,
    following,
    plain_file,
    tiny_ranks,
    write_tekken,
)

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.rank_file import ENCODING


def test_an_unknown_tiktoken_file_without_a_pattern_is_refused(tmp_path):
    path = plain_file(tmp_path)
    with pytest.raises(errors.UnsupportedTokenizerError, match="is no known tiktoken file") as caught:
        tg.load(path)
    for wanted in ("`pattern`", "pattern=", "o200k_base", ENCODING):
        assert wanted in caught.value.hint


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"pattern": r"\p{N}{1,3}+|\s"}, "means something else"),
        ({"pattern": r"\s+$|\S"}, "means something else"),
        ({"pattern": r"a{3,1}|\s"}, r"`\{3,1\}` in the pattern .* means something else"),
        ({"pattern": r"a{,3}|\s"}, r"`\{,3\}` in the pattern .* means something else"),
        ({"pattern": r"\p{L}+\p{L}+|\s+|[^\s\p{L}]+"}, r"does not match all of 'a', and tiktoken drops"),
        ({"pattern": r"\S+|\s+(?!\S)"}, r"does not match all of ' a', and tiktoken drops"),
        ({"pattern": r"\<|end|>p{L}+|[\s\S]"}, "may read differently"),
        ({"pattern": r"\w+|[\s\S]"}, "may read differently"),
        ({"pattern": r"[^\p{L}&&[^a]]+|[\s\S]"}, "may read differently"),
        ({"pattern": ""}, "expected a regular expression"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": 5}}, "have the same id"),
        ({"pattern": "gpt2", "special_tokens": {"<s>": -1}}, "expected texts with their ids"),
        ({"pattern": "gpt2", "special_tokens": ["<s>", "<s>"]}, "expected texts with their ids"),
        ({"pattern": "gpt2", "special_tokens": 3}, "special.tokens.*3"),
        ({"pattern": "(a"}, "pattern|regex|parse|end"),
    ],
)
def test_patterns_and_special_tokens_that_do_not_fit_are_refused(given, match, tmp_path):
    path = plain_file(tmp_path)
    with pytest.raises(errors.TokengraftError, match=match):
        tg.load(path, **given)


def test_special_tokens_after_the_highest_possible_rank_are_refused(tmp_path):
    path = plain_file(tmp_path, xyzz=2**32 - 1)
    with pytest.raises(errors.InvalidTokenizerError, match="has the id 4,294,967,296, and ids end at"):
        tg.load(path, pattern="gpt2", special_tokens=["<s>"])


@pytest.mark.parametrize(
    "pattern",
    [
        r"[^$^\s]+|\$|\^|\s|[\]$]",  # classes and escapes, no anchors
        r"\[[^\[\]]+\]|[\s\S]",
        r"\\w|[\s\S]",
        r"[a\-\-b]+|(?:x{2,3}|[\s\S])",
        r"\p{L}+|\P{L}",
        r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}|[\s\S]",  # as Kimi has it
        r"[a[t-v]h]+|[\s\S]",
    ],
)
def test_plain_syntax_is_accepted_and_read_as_tiktoken_does(pattern, tmp_path):
    path = plain_file(tmp_path)
    tokenizer = tg.load(path, pattern=pattern)
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=tiny_ranks(), special_tokens={})
    for text in [
        "[the cat] the \\w xxxx --a the-the",
        "the猫the 猫猫 e\u0301猫the thethe",
        "a$b^c $ ^ $$^^ x]$",
        *builders.TEXT,
    ]:
        assert tokenizer.encode(text) == encoding.encode(text)


def test_a_pattern_is_refused_for_a_file_that_has_one(tmp_path):
    with pytest.raises(errors.OptionError, match="has its pattern"):
        tg.load(write_tekken(tmp_path / "a"), pattern="gpt2")
    with pytest.raises(errors.OptionError, match="has its pattern"):
        tg.load(builders.write(tmp_path / "b", builders.byte_level()), special_tokens=["<s>"])


SPECIALS_AND_SIZE = ("default_num_special_tokens", "default_vocab_size")


def damaged_tiktoken():
    good = builders.tiktoken_file(tiny_ranks())
    lines = good.splitlines(keepends=True)
    return {
        "not base64": (good + b"!!! 999\n", "expected a token in base64"),
        "a token without bytes": (good + b"= 999\n", "a token without bytes"),
        "white space": (good + b" \n", "expected a token in base64"),
        "no rank": (good + b"YWI=\n", "expected a token in base64"),
        "same rank": (good + b"eHl6eg== 5\n", "two tokens have the same rank"),
        "twice": (good + b"IQ== 9999\n", "a token is listed twice"),
        "no byte": (b"".join(lines[1:]), "have no rank, such as 0x00"),
        "high rank": (good + b"eHl6eg== 4294967296\n", "too high"),
        "negative rank": (good + b"eHl6eg== -1\n", "the rank -1 is negative"),
    }


@pytest.mark.parametrize("name", damaged_tiktoken())
def test_damaged_tiktoken_files_are_refused(name, tmp_path):
    raw, match = damaged_tiktoken()[name]
    (tmp_path / "x.tiktoken").write_bytes(raw)
    with pytest.raises(errors.TokengraftError, match=match):
        tg.load(tmp_path / "x.tiktoken", pattern="gpt2")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d["vocab"][300].update(rank=301), "ranks have no gaps"),
        (lambda d: d["vocab"][3].update(token_bytes="AA=="), "ranks have no gaps|begin with the bytes"),
        (lambda d: d["vocab"][300].pop("token_bytes"), "expected `rank`"),
        (lambda d: d["config"].update(default_vocab_size=10**6), "`config` gives 1,000,000 tokens"),
        (lambda d: d["config"].update(default_num_special_tokens=None), "`config` gives"),
        (lambda d: d["config"].update(pattern=None), "expected a regular expression"),
        (lambda d: d["special_tokens"][0].update(rank=7), "in the order of their ranks"),
        (lambda d: d["special_tokens"][0].update(token_str="</s>"), "each once"),
        (lambda d: d.update(special_tokens=5), "in the order of their ranks"),
        (lambda d: d.update(vocab={"token_bytes": "x"}), "no `vocab`"),
        (lambda d: d["config"].update(dict.fromkeys(SPECIALS_AND_SIZE, 10**9)), "at most 65,536 are read"),
    ],
)
def test_damaged_tekken_files_are_refused(change, match, tmp_path):
    folder = write_tekken(tmp_path)
    content = json.loads((folder / "tekken.json").read_bytes())
    change(content)
    (folder / "tekken.json").write_bytes(json.dumps(content).encode())
    with pytest.raises(errors.TokengraftError, match=match):
        tg.load(folder)


def test_a_damaged_encoding_file_is_refused(tmp_path):
    folder = following(tmp_path)
    for content in (b"{", b"[]", b"[" * 10**5, b'{"pat_str": 3}', b'{"pat_str": "gpt2", "special_tokens": 4}'):
        (folder / ENCODING).write_bytes(content)
        with pytest.raises(errors.TokengraftError):
            tg.load(folder)


def test_a_rank_file_that_differs_from_the_tokenizer_json_is_refused(tmp_path):
    folder = both(tmp_path, write_tekken)
    original = (folder / "tokenizer.json").read_bytes()

    def refusal(change):
        document = json.loads(original)
        change(document)
        builders.write(folder, document)
        with pytest.raises(errors.InvalidTokenizerError, match="differ: ") as caught:
            tg.load(folder)
        return str(caught.value)

    merges = len(json.loads(original)["model"]["merges"])
    assert "not in the order" in refusal(lambda d: d["model"]["merges"].insert(0, d["model"]["merges"].pop(9)))
    assert "is made of" in refusal(lambda d: d["model"]["merges"].pop(0))
    assert "by the pattern" in refusal(
        lambda d: d.update(pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True})
    )
    assert "has the id" in refusal(lambda d: d["model"]["vocab"].update({"the": 999}))
    assert "is not in the other" in refusal(lambda d: d["model"]["vocab"].update({"zzz": 999}))
    document = json.loads(original)
    reached = {tuple(pair) for pair in _firing(tg.load(folder / "tokenizer.json"), document)}
    document["model"]["merges"] = [pair for pair in document["model"]["merges"] if tuple(pair) in reached]
    assert len(document["model"]["merges"]) < merges
    assert tg.load(builders.write(folder, document)).rank_file == "tekken.json"


def test_rank_files_of_one_folder_that_differ_are_refused(tmp_path):
    folder = following(tmp_path / "two")
    raw = (folder / "tokenizer.model").read_bytes()
    (folder / "z.tiktoken").write_bytes(raw)
    assert tg.load(folder).main == "tokenizer.model"
    (folder / "z.tiktoken").write_bytes(b"".join(raw.splitlines(keepends=True)[:-1]))
    with pytest.raises(errors.InvalidTokenizerError, match=r"`z\.tiktoken` and `tokenizer\.model` .* differ") as caught:
        tg.load(folder)
    assert "take it out" in str(caught.value)
    beside = both(tmp_path / "beside", write_tekken)
    (beside / "z.tiktoken").write_bytes(raw)
    with pytest.raises(errors.InvalidTokenizerError, match=r"`z\.tiktoken` and `tekken\.json` .* differ"):
        tg.load(beside)


def _firing(_, document):
    """The merges that make a token when its own text is encoded."""
    import reference

    merges = [tuple(pair) for pair in document["model"]["merges"]]
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    for left, right in merges:
        symbols, used = reference.merge_all([*left, *right], ranks)
        yield used[-1] if len(symbols) == 1 else (left, right)
