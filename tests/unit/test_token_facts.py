"""Lengths and scripts of tokens, and the lengths of a plan."""

import json

import builders
import pytest

import tokengraft as tg
from tokengraft import errors
from tokengraft.page.pack import token_scripts
from tokengraft.vocab_plan import token_length


@pytest.mark.parametrize(
    ("data", "quarters"),
    [
        (b"", 0),
        (b"cat", 12),
        ("õ".encode(), 4),
        ("õ".encode()[:1], 1),
        ("€".encode()[:2], 2),
        ("€".encode()[1:] + b"a", 6),
        (b"a" + "😀".encode()[:3], 7),
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
        ("1999", "Common"),
        ("\u0301", "Common"),
        ("aб", "Latin"),
        ("aбв", "Cyrillic"),
        ("猫が", "Han"),
        ("кот".encode()[:5], "Cyrillic"),
        ("кот".encode()[:1], "part of a character"),
        (b" \xd0", "part of a character"),
    ],
)
def test_the_script_of_a_token_is_that_of_most_of_its_characters(data, script):
    assert token_scripts([data if isinstance(data, bytes) else data.encode()]) == [script]


def test_a_plan_has_the_lengths_of_pieces(base, extended):
    plan = tg.plan(base, extended)
    pieces = {piece for source in plan.sources if isinstance(source, tuple) for piece in source}
    expected = {token.id: token_length(token.bytes) for token in base.tokens if token.id in pieces}
    assert expected
    assert plan.lengths == tuple(expected.get(i, 0) for i in range(base.n_rows))


def test_lengths_of_pieces_and_bytes_of_sentencepiece(tmp_path):
    base = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    new = tg.extend(base, tg.count(base, iter(["\U0001f40b\U0001f40b mittekuskil"] * 30)), 12).apply(base)
    lengths = tg.plan(base, new).lengths
    assert lengths[base.ids["<0xF0>"]] == 1
    words = [string for string, i in base.ids.items() if lengths[i] and not string.startswith("<0x")]
    assert words
    assert all(lengths[base.ids[word]] == 4 * len(word) for word in words)


@pytest.mark.parametrize("lengths", [[4], [4, 4, -1], [4, True, 4], [4, 4, 4, 4], None])
def test_lengths_that_do_not_fit_are_refused(lengths, tmp_path):
    document = {"rows_before": 3, "sources": [[1, 2]], "removed": []}
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document | {"lengths": [4, 4, 4]}))
    assert tg.VocabPlan.load(path).lengths == (4, 4, 4)
    path.write_text(json.dumps(document | {"lengths": lengths}))
    with pytest.raises(errors.CountsError, match="not a file of a plan"):
        tg.VocabPlan.load(path)
