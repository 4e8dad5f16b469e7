"""`VocabPlan`: the difference of any two tokenizers, and the lengths and scripts of their tokens."""

import json

import builders
import pytest
from checkpoints import changed

import tokengraft as tg
from tokengraft import errors
from tokengraft.vocab_plan import token_length


@pytest.fixture(scope="module")
def swapped(base):
    """Thirty tokens pruned, fourteen learned in their place."""
    return changed(base, remove=30, add=14)


def test_a_tokenizer_and_itself_differ_in_nothing(base):
    found = tg.plan(base, base)
    assert found.sources == tuple(range(base.n_rows))
    assert found.summary == (base.n_rows, 0, 0, 0, 0, base.n_rows, base.n_rows)


def test_kept_rows_are_copied_and_new_ones_have_their_pieces_under_the_old_tokenizer(base, swapped):
    found = tg.plan(base, swapped)
    assert found.summary[:5] == (base.n_rows - 30, 0, 14, 30, 16)
    old = {token.id: token.bytes for token in base.tokens}
    for token in swapped.tokens:
        source = found.sources[token.id]
        if isinstance(source, tuple):
            assert len(source) > 1
            assert b"".join(old[i] for i in source) == token.bytes
        else:
            assert old[source] == token.bytes
    assert found.moved == {t.id: t.id for t in swapped.tokens if isinstance(found.sources[t.id], int)}


def test_tokenizers_of_different_kinds_are_compared_by_bytes(base, tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    for old, new in ((base, pieces), (pieces, base)):
        spelled, sources = {token.id: token.bytes for token in old.tokens}, tg.plan(old, new).sources
        for token in new.tokens:
            source = sources[token.id]
            ids = [source] if isinstance(source, int) else source
            assert b"".join(spelled[i] for i in ids) == token.bytes
        assert tg.plan(old, new).summary.added > 0


def test_a_new_special_token_is_spelled_as_text(tmp_path, base):
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    document["added_tokens"].append(builders.added(size + 2, "<|naïve new|>"))
    new = tg.load(builders.write(tmp_path / "new", document))
    pieces = tg.plan(base, new).sources[size + 2]
    old = {token.id: token.bytes for token in base.tokens}
    assert b"".join(old[i] for i in pieces) == "<|naïve new|>".encode()


def test_a_plan_survives_saving(base, swapped, tmp_path):
    for new in (swapped, swapped.compact()):
        found = tg.plan(base, new)
        assert tg.VocabPlan.load(found.save(tmp_path / f"{new.n_rows}.json")) == found
    for bad in (
        "[]",
        '{"rows_before": 3, "sources": [0, 5], "removed": []}',
        '{"rows_before": 3, "sources": [[0, -1]], "removed": []}',
        '{"rows_before": 3, "sources": [true], "removed": []}',
    ):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(errors.CountsError, match="not a file of a plan"):
            tg.VocabPlan.load(tmp_path / "bad.json")


def with_highest_id(folder, highest):
    document = builders.specials_first()
    vocab = document["model"]["vocab"]
    vocab[max(vocab, key=vocab.__getitem__)] = highest
    return tg.load(builders.write(folder, document))


def test_many_holes_are_allowed_and_ids_far_beyond_the_number_of_tokens_refused(base, tmp_path):
    assert tg.plan(base, with_highest_id(tmp_path / "holes", 50_000)).rows_after == 50_001
    sparse = with_highest_id(tmp_path / "sparse", 2**32 - 2)
    for pair in ((sparse, base), (base, sparse)):
        with pytest.raises(errors.InvalidTokenizerError, match=r"ids up to 4,294,967,294"):
            tg.plan(*pair)


def test_a_token_of_another_kind_takes_the_row_of_the_piece_rather_than_of_the_byte(tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    plain = tg.load(builders.write(tmp_path / "bytes", builders.byte_level()))
    found = tg.plan(pieces, plain)
    both = [text for text in plain.ids if text.isascii() and text in pieces.ids and len(text) == 1]
    assert both
    for text in both:
        assert f"<0x{ord(text):02X}>" in pieces.ids
        assert found.sources[plain.ids[text]] == pieces.ids[text]


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
