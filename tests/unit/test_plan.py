"""`VocabPlan`: the difference of any two tokenizers."""

import json

import builders
import pytest

import tokengraft as tg
from tokengraft import cli, errors


@pytest.fixture
def base(tmp_path):
    return tg.load(builders.write(tmp_path / "base", builders.byte_level()))


@pytest.fixture
def swapped(base):
    """Thirty tokens pruned, fourteen learned in their place."""
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    return tg.extend(pruned, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 14).apply(pruned)


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


def test_moved_tokens_are_copied_from_where_they_were(base, swapped):
    found = tg.plan(base, swapped.compact())
    assert found.summary.unused == 0
    assert found.summary.moved > 0
    strings = {t.id: t.string for t in base.tokens}
    for token in swapped.compact().tokens:
        source = found.sources[token.id]
        assert not isinstance(source, int) or strings[source] == token.string


def test_tokenizers_of_different_kinds_are_compared_by_bytes(base, tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    forth, back = tg.plan(base, pieces), tg.plan(pieces, base)
    old, new = ({token.id: token.bytes for token in tok.tokens} for tok in (base, pieces))
    for token in pieces.tokens:
        source = forth.sources[token.id]
        ids = [source] if isinstance(source, int) else source
        assert b"".join(old[i] for i in ids) == token.bytes
    for token in base.tokens:
        source = back.sources[token.id]
        ids = [source] if isinstance(source, int) else source
        assert b"".join(new[i] for i in ids) == token.bytes
    assert forth.summary.added > 0


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


def test_the_command_shows_what_a_plan_saves(base, swapped, tmp_path, capsys):
    old, new = tg.save(base, tmp_path / "old"), tg.save(swapped.compact(), tmp_path / "new")
    arguments = ["plan", old, new, "--hidden-size", 64, "--dtype", "f32", "--untied", "--out", tmp_path / "p.json"]
    assert cli.main(list(map(str, arguments))) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"rows {base.n_rows:,} → {base.n_rows - 16:,}" in shown
    assert "parameters 2,048 saved, 0.0 MB" in shown
    assert tg.VocabPlan.load(tmp_path / "p.json") == tg.plan(base, swapped.compact())
    assert cli.main([*map(str, arguments[:3]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["added"] == 14


def test_a_plan_that_needs_more_parameters_says_that_they_are_added(base, swapped, tmp_path, capsys):
    old, new = tg.save(swapped.compact(), tmp_path / "old"), tg.save(base, tmp_path / "new")
    assert cli.main(["plan", str(old), str(new), "--hidden-size", "64"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "parameters 1,024 added, 0.0 MB" in shown
    assert "saved" not in shown


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--untied"], "--hidden-size was not given"),
        (["--dtype", "f32"], "--hidden-size was not given"),
        (["--hidden-size", "0"], "--hidden-size is 0"),
        (["--force"], "--force only applies to --out"),
    ],
)
def test_options_of_plan_that_would_do_nothing_are_refused(base, tmp_path, capsys, options, match):
    old = str(tg.save(base, tmp_path / "old"))
    assert cli.main(["plan", old, old, *options]) == 2
    assert match in capsys.readouterr().err


@pytest.mark.parametrize("place", ["old", "new"])
def test_ids_far_beyond_the_number_of_tokens_are_refused_before_a_table_is_made(base, tmp_path, place):
    document = builders.specials_first()
    vocab = document["model"]["vocab"]
    vocab[max(vocab, key=vocab.__getitem__)] = 2**32 - 2
    sparse = tg.load(builders.write(tmp_path / "sparse", document))
    pair = (sparse, base) if place == "old" else (base, sparse)
    with pytest.raises(errors.InvalidTokenizerError, match=r"ids up to 4,294,967,294"):
        tg.plan(*pair)


def test_a_small_vocabulary_may_have_many_holes(base, tmp_path):
    document = builders.specials_first()
    vocab = document["model"]["vocab"]
    vocab[max(vocab, key=vocab.__getitem__)] = 50_000
    sparse = tg.load(builders.write(tmp_path / "sparse", document))
    assert tg.plan(base, sparse).rows_after == 50_001


def test_a_token_of_another_kind_takes_the_row_of_the_piece_rather_than_of_the_byte(tmp_path):
    pieces = tg.load(builders.write(tmp_path / "pieces", builders.sentencepiece()))
    plain = tg.load(builders.write(tmp_path / "bytes", builders.byte_level()))
    found = tg.plan(pieces, plain)
    both = [text for text in plain.ids if text.isascii() and text in pieces.ids and len(text) == 1]
    assert both
    for text in both:
        assert f"<0x{ord(text):02X}>" in pieces.ids
        assert found.sources[plain.ids[text]] == pieces.ids[text]
