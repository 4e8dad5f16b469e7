"""Lengths, scripts and similar tokens of a plan."""

import json
import pickle
import random
from collections import Counter
from itertools import pairwise

import builders
import pytest
from checkpoints import ENGLISH, ESTONIAN

import tokengraft as tg
from tokengraft import errors
from tokengraft import similar as similar_module
from tokengraft.token_facts import TokenFacts, token_length, token_scripts


@pytest.fixture
def base(tmp_path):
    return tg.load(builders.write(tmp_path / "base", builders.byte_level()))


@pytest.fixture
def extended(base):
    return tg.extend(base, tg.count(base, iter(ESTONIAN)), 40).apply(base)


@pytest.mark.parametrize(
    ("data", "quarters"),
    [
        (b"", 0),
        (b"cat", 12),
        (b" cat", 16),
        ("õ".encode(), 4),
        ("õ".encode()[:1], 1),
        ("õ".encode()[1:], 1),
        ("€".encode()[:2], 2),
        ("€".encode()[1:] + b"a", 6),
        (b"a" + "😀".encode()[:3], 7),
        ("😀".encode(), 4),
        (b"\xff", 1),
    ],
)
def test_a_byte_of_an_incomplete_character_is_a_quarter_of_a_character(data, quarters):
    assert token_length(data) == quarters


@pytest.mark.parametrize(
    ("data", "script"),
    [
        (" tere", "Latin"),
        ("привет", "Cyrillic"),
        ("e\u0301", "Latin"),
        ("1999", "Common"),
        (" (", "Common"),
        ("\u0301", "Common"),
        ("aб", "Latin"),
        ("aбв", "Cyrillic"),
        ("猫が", "Han"),
        ("がが猫", "Hiragana"),
        ("кот".encode()[:5], "Cyrillic"),
        ("кот".encode()[:1], "part of a character"),
        (b" \xd0", "part of a character"),
        (b"\x80\x80", "part of a character"),
    ],
)
def test_the_script_of_a_token_is_that_of_most_of_its_characters(data, script):
    assert token_scripts([data if isinstance(data, bytes) else data.encode()]) == [script]


def test_facts_are_those_of_the_tokens(base, extended):
    facts = tg.plan(base, extended).facts
    assert len(facts.lengths) == len(facts.scripts) == base.n_rows
    assert len(facts.new_scripts) == extended.n_rows
    added = {token.id for token in base.added}
    for token in base.tokens:
        assert facts.lengths[token.id] == token_length(token.bytes)
        typical = token.id not in added and len(token.bytes) > 1
        assert (facts.scripts[token.id] is not None) == typical
    assert facts.new_scripts[: base.n_rows] == (None,) * base.n_rows
    assert {*facts.new_scripts[base.n_rows :]} <= {"Latin", "Common", "part of a character"}
    assert facts.similar is None


def test_facts_of_pieces_and_bytes_of_sentencepiece(tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    facts = tg.plan(pieces, pieces).facts
    assert facts.lengths[pieces.ids["<0xC3>"]] == 1
    assert facts.scripts[pieces.ids["<0xC3>"]] is None
    words = [string for string in pieces.ids if string.startswith("▁") and string[1:].isalpha()]
    assert words
    for word in words:
        assert facts.lengths[pieces.ids[word]] == 4 * len(word)
        assert facts.scripts[pieces.ids[word]] == "Latin"


def test_a_plan_survives_saving_and_pickling_with_its_facts(base, extended, tmp_path):
    counts = tg.count(base, iter(ESTONIAN + ENGLISH))
    for n, plan in enumerate((tg.plan(base, extended), tg.plan(base, extended, counts=counts))):
        loaded = tg.VocabPlan.load(plan.save(tmp_path / f"{n}.json"))
        assert loaded == plan
        assert loaded.facts == plan.facts == pickle.loads(pickle.dumps(plan)).facts


def test_a_plan_file_of_an_earlier_version_is_read(tmp_path):
    (tmp_path / "plan.json").write_text('{"rows_before": 3, "sources": [0, null, [1, 2]], "removed": [1, 2]}')
    plan = tg.VocabPlan.load(tmp_path / "plan.json")
    assert plan == tg.VocabPlan(3, (0, None, (1, 2)), (1, 2))
    assert plan.facts is None
    assert tg.VocabPlan.load(plan.save(tmp_path / "again.json")).facts is None


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": [4]},
        {"lengths": [4, 4, -1]},
        {"scripts": ["Latin", 1, None]},
        {"new_scripts": []},
        {"similar": [[0, 3]]},
        {"similar": [[1, 0]]},
        {"similar": [[0]]},
        {"similar": [[True, 0]]},
    ],
)
def test_facts_that_do_not_fit_are_refused(change, tmp_path):
    facts = TokenFacts((4, 4, 4), ("Latin",) * 3, ("Latin",), {0: 1}).as_dict()
    document = {"rows_before": 3, "sources": [[1, 2]], "removed": []}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document | {"facts": facts}))
    assert tg.VocabPlan.load(path).facts.similar == {0: 1}
    path.write_text(json.dumps(document | {"facts": facts | change}))
    with pytest.raises(errors.CountsError, match="not a file of a plan"):
        tg.VocabPlan.load(path)


def obvious_neighbours(tokenizer, counts):
    """The neighbours of every token, before and after it, with their numbers."""
    beside = {}
    for pretoken, count in counts.top(10**6):
        ids = tokenizer.encode(pretoken.decode())
        for left, right in pairwise(ids):
            beside.setdefault(left, Counter())["after", right] += count
            beside.setdefault(right, Counter())["before", left] += count
    return beside


def test_a_similar_token_has_the_same_neighbours(base):
    """Two words that occur in the same compounds: the new one gets the row of the old one."""
    ends = ["ide", "ade", "tus", "mine", "ja", "laste"]
    old = tg.extend(base, tg.count(base, iter(["kass"] * 50)), 3).apply(base)
    text = [f"{word}{end}" for word in ("kass", "koer") for end in ends] * 60
    new = tg.extend(old, tg.count(old, iter(["koer"] * 50)), 3).apply(old)
    counts = tg.count(old, iter(text))
    plan = tg.plan(old, new, counts=counts)
    assert "koer" in new.ids
    assert "koer" not in old.ids
    assert plan.facts.similar[new.ids["koer"]] == old.ids["kass"]


def test_support_is_the_number_of_neighbours(base, extended):
    counts = tg.count(base, iter(ESTONIAN + ENGLISH))
    support = similar_module._neighbours(extended, counts).support
    beside = obvious_neighbours(extended, counts)
    assert {i: int(n) for i, n in enumerate(support) if n} == {i: found.total() for i, found in beside.items()}


def test_words_without_neighbours_and_rare_tokens_have_no_similar_token(base, extended):
    counts = tg.count(base, iter(ESTONIAN + ENGLISH))
    similar = tg.plan(base, extended, counts=counts).facts.similar
    beside = obvious_neighbours(extended, counts)
    new = [i for i, source in enumerate(tg.plan(base, extended).sources) if isinstance(source, tuple)]
    assert {*similar} <= {*new}
    assert all(beside[i].total() >= similar_module.MIN_SUPPORT for i in similar)
    alone = [i for i in new if i not in beside]
    assert alone
    assert not {*alone} & {*similar}


def test_the_similar_token_has_the_largest_cosine_of_hashed_neighbours(base):
    """An obvious version: vectors one by one, in whole numbers of Python."""
    parts = [string for string in base.ids if string.isascii() and string.isalpha() and len(string) > 1]
    generator = random.Random(5)
    counts = tg.count(base, iter(["".join(generator.choices(parts, k=4)) for _ in range(3000)])).scale(20)
    extended = tg.extend(base, counts, 30).apply(base)
    plan = tg.plan(base, extended, counts=counts)
    vectors = similar_module._vectors(similar_module._neighbours(extended, counts))
    beside = obvious_neighbours(extended, counts)
    kept = [
        (new, old)
        for new, old in enumerate(plan.sources)
        if isinstance(old, int) and plan.facts.scripts[old] and beside.get(new, Counter()).total() >= 100
    ]
    assert len(kept) > 5
    assert len(plan.facts.similar) > 5
    for new_id, chosen in plan.facts.similar.items():

        def cosine(pair, own=vectors[new_id]):
            other = vectors[pair[0]]
            dot = sum(int(a) * int(b) for a, b in zip(own, other, strict=True))
            return dot / sum(int(b) ** 2 for b in other) ** 0.5

        best = max(kept, key=lambda pair: (cosine(pair), -pair[0]))
        assert best[1] == chosen


def test_counts_without_text_give_no_similar_token(base, extended):
    counts = tg.count(base, iter(["a"]))
    assert tg.plan(base, extended, counts=counts).facts.similar == {}
