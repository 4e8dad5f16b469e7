"""Extending SentencePiece types: rules, characters, both files, the command."""

from dataclasses import replace

import builders
import pytest
from sentencepiece import SentencePieceProcessor

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.corpus import blocks

TEXT = ["kassid ja koerad jooksevad, kassipojad ja kutsikad magavad 123 123"] * 3 + ["猫が座る 猫が座る ежик ежик"] * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return builders.write_pieces(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def base(folder):
    return tg.load(folder)


@pytest.fixture(scope="module")
def counts(base):
    return tg.count(base, iter(TEXT))


def assert_library_agrees(tokenizer, texts):
    """SentencePiece gives the same ids, by the model of the tokenizer."""
    library = SentencePieceProcessor(model_proto=tokenizer.files["tokenizer.model"])
    for text in texts:
        assert tokenizer.encode(text) == library.encode(text)


def pieces(folder, listed, **settings):
    (folder / "tokenizer.model").write_bytes(builders.piece_model(listed, **settings))
    return tg.load(folder / "tokenizer.model")


def test_missing_characters_come_first_and_most_frequent_first(base, counts, tmp_path):
    extension = tg.extend(base, counts, 60, character_coverage=1.0)
    assert set(extension.characters) >= {"猫", "ж"}
    frequency = dict(counts.table.characters())
    assert list(extension.characters) == sorted(extension.characters, key=lambda c: (-frequency[c], c))
    assert extension.tokens[: len(extension.characters)] == extension.characters
    extended = extension.apply(base)
    for character in extension.characters:
        assert extended.encode_pretoken(character) == [extended.vocab[character]]
    assert any("猫" in token and len(token) > 1 for token in extension.tokens)
    assert tg.Extension.load(extension.save(tmp_path / "e.json")) == extension


def test_coverage_says_how_many_characters_are_added(base, counts):
    missing = {c for c, _ in counts.table.characters()} - set(base.vocab) - {" "}
    assert tg.extend(base, counts, 5, character_coverage=0).characters == ()
    assert set(tg.extend(base, counts, 60, character_coverage=1).characters) == {c for c in missing if not c.isascii()}
    some = tg.extend(base, counts, 60, character_coverage=0.95).characters
    assert 0 < len(some) < len(missing)
    assert some == tg.extend(base, counts, 60, character_coverage=1).characters[: len(some)]
    for character_coverage in (-0.1, 1.5, float("nan")):
        with pytest.raises(errors.OptionError, match="coverage"):
            tg.extend(base, counts, 5, character_coverage=character_coverage)


def test_white_space_controls_and_bytes_are_never_added_as_characters(base):
    counts = tg.count(base, iter(["a\nb\tc\u00a0d\u3000e\x07f\u2585g\ufffdh~"]))
    assert tg.extend(base, counts, 20, character_coverage=1, limits=tg.Limits(min_count=9)).tokens == ()


def test_no_piece_breaks_the_rules(base, counts):
    for token in tg.extend(base, counts, 500, character_coverage=1, limits=tg.Limits(min_count=1)).tokens:
        assert "▁" not in token[1:]
        assert len(token) <= 16
        assert len(token) == 1 or not any(c.isdigit() for c in token)
        scripts = {"kana-han" if c in "猫が座る" else "cyrillic" if c in "ежик" else "other" for c in token.strip("▁")}
        assert len(scripts) <= 1


def test_rules_may_be_given_in_place_of_the_models_own(base):
    rules = replace(base.piece_model.rules, split_digits=False, max_sentencepiece_length=5)
    counts = tg.count(base, iter(TEXT), read_options=tg.ReadOptions(rules=rules))
    tokens = tg.extend(base, counts, 100, limits=tg.Limits(min_count=1)).tokens
    assert "123" in tokens
    assert max(map(len, tokens)) == 5
    with pytest.raises(errors.CountsError, match="cut rules"):
        _ = counts + tg.count(base, iter(TEXT))


def test_a_tokenizer_json_alone_has_llamas_rules(folder):
    alone = tg.load(folder / "tokenizer.json")
    extension = tg.extend(alone, tg.count(alone, iter(TEXT)), 10)
    assert extension.provenance["rules"]["max_sentencepiece_length"] == 16
    assert extension.merges == tg.extend(tg.load(folder), tg.count(tg.load(folder), iter(TEXT)), 10).merges


def test_text_is_normalized_where_that_is_asked(base):
    plain = tg.count(base, iter(["ｋａｓｓ ﬁ"]))
    normalized = tg.count(base, iter(["ｋａｓｓ ﬁ"]), read_options=tg.ReadOptions(normalize="nfkc"))
    assert normalized.table == tg.count(base, iter(["kass fi"])).table != plain.table
    assert normalized.normalize == "nfkc"
    with pytest.raises(errors.CountsError, match="normalized"):
        _ = plain + normalized
    with pytest.raises(errors.OptionError, match="normalization"):
        tg.ReadOptions(normalize="nfx")


def test_normalized_text_is_counted_alike_fast_and_slow(base, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 10_000)
    texts = [*TEXT, "ﬁ ½ Ⅳ e\u0301 \u00a0x", "① ② ｱ", "a\u0301 \u0301b"]
    read_options = tg.ReadOptions(normalize="nfkc")
    fast = tg.count(base, iter(texts), read_options=read_options)
    assert fast == builders.count_through_upstream(base, iter(texts), read_options=read_options)
    (tmp_path / "long.txt").write_text(" ".join(texts * 900), encoding="utf-8")
    whole = tg.count(base, iter([" ".join(texts * 900)]), read_options=read_options)
    assert tg.count(base, tmp_path / "long.txt", read_options=read_options).table == whole.table


def test_a_piece_that_comes_alive_splits_alike_in_both_forms(tmp_path):
    # `abc` cannot be reached: neither `ab` nor `bc` is a piece. Once `ab` is learned, SentencePiece makes `abc`, and
    # before anything else, for it scores best.
    base = pieces(tmp_path, builders.pieces_of(["abc", "cd"], "abcd", runs=("▁",)))
    assert [token.string for token in base.tokens if token.id in base.structure.unreachable] == ["abc"]
    extension = tg.extend(base, tg.count(base, iter(["ab"] * 9 + ["abcd", "abcabc"])), 2)
    assert extension.merges[0] == ("ab", "c", 0, False)
    assert extension.merges[1][:2] == ("a", "b")
    extended = extension.apply(base)
    assert_library_agrees(extended, ("abc", "abcd", "abab", "abcabcd", "aabcc"))
    assert extended.structure.unreachable == ()


def test_pieces_learned_after_a_run_of_spaces_split_alike_in_both_forms(tmp_path):
    # The run was learned last and scores above the characters, so new pieces score below it.
    base = pieces(tmp_path, builders.pieces_of(["ab", "▁▁"], "▁abc"))
    extended = tg.extend(base, tg.count(base, iter(["c ab"] * 9)), 2).apply(base)
    again = tg.load(tg.save(extended, tmp_path / "out"))
    assert "▁c" in extended.ids
    assert again.merge_strings() == extended.merge_strings()
    assert_library_agrees(extended, ("a  c", "a   c", "a    c  c"))


def test_byte_and_special_pieces_never_merge(base):
    texts = ["<s> <0x41> 🙂🙂🙂 [x]"] * 9
    tokens = tg.extend(
        base, tg.count(base, iter(texts)), 50, character_coverage=0, limits=tg.Limits(min_count=1)
    ).tokens
    assert not [token for token in tokens if "<0x" in token or "<s" in token]


def test_the_command_writes_both_forms_and_compares_them(folder, tmp_path, capsys):
    (tmp_path / "c.txt").write_text("\n".join(TEXT), encoding="utf-8")
    arguments = ["extend", folder, "--corpus", tmp_path / "c.txt", "--add", 20, "--out", tmp_path / "out", "--quiet"]
    arguments += ["--normalize", "nfkc", "--rule", "split_digits=false", "--character-coverage", 0.99]
    assert cli.main(list(map(str, arguments))) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "tokenizers, transformers, sentencepiece: the same ids" in shown
    assert "piece rules of tokenizer.model" in shown
    assert {p.name for p in (tmp_path / "out").iterdir()} == {p.name for p in folder.iterdir()}
    tg.load(tmp_path / "out")
    for rule in ("split_digits=maybe", "no_such=true", "max_sentencepiece_length=0", "split_digits"):
        with pytest.raises(SystemExit):
            cli.main([*map(str, arguments), "--rule", rule])
        assert "is not a rule" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tokenizer.json", "Llama's, because there is no tokenizer.model"),
        ("tokenizer.model", "tokenizers, sentencepiece: the same ids"),
    ],
)
def test_one_form_alone_is_extended_and_written_alone(folder, tmp_path, capsys, name, said):
    (tmp_path / "c.txt").write_text("\n".join(TEXT), encoding="utf-8")
    arguments = ["extend", folder / name, "--corpus", tmp_path / "c.txt", "--add", 5, "--out", tmp_path / "out"]
    assert cli.main([*map(str, arguments)]) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    assert {p.name for p in (tmp_path / "out").iterdir()} - {"tokenizer_config.json"} == {name}
    assert len(tg.load(tmp_path / "out").tokens) == len(tg.load(folder).tokens) + 5


def test_a_model_that_splits_otherwise_is_not_written(base, counts, tmp_path):
    extended = tg.extend(base, counts, 5).apply(base)
    stale = replace(extended, files=base.files)
    with pytest.raises(errors.InvalidTokenizerError, match="differently from"):
        tg.save(stale, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_runs_of_white_space_are_not_learned_and_the_forms_agree_around_them(tmp_path):
    for runs in ([("▁▁", -1e9, 1)], [("▁▁", -1e9, 1), ("▁▁▁▁", -1e9 - 64, 1)], []):
        base = pieces(tmp_path, builders.pieces_of([], "▁ab1") + runs)
        texts = ["1   1"] * 20 + ["1    1"] * 9 + ["a  b ab"] * 9
        extended = tg.extend(base, tg.count(base, iter(texts)), 3).apply(base)
        assert not [s for s in extended.ids if s not in base.ids and not s.strip("▁")]
        assert set(extended.structure.unreachable) <= set(base.structure.unreachable)
        assert_library_agrees(extended, texts)
        again = tg.extend(extended, tg.count(extended, iter(["ba ba b1"] * 5)), 1)
        assert len(again.apply(extended).ids) == len(extended.ids) + 1


def test_pieces_that_wake_together_rank_by_their_scores(tmp_path):
    base = pieces(tmp_path, builders.pieces_of(["bac", "aba"], "▁abc"))
    extended = tg.extend(base, tg.count(base, iter(["ba ba ba ba"])), 1).apply(base)
    assert_library_agrees(extended, ("abac", "baba", "abacaba", "bacba"))


def test_models_that_no_list_of_merges_can_say_are_refused(tmp_path):
    alike = [("▁", -9.0, 1), ("bc", 0.0, 1), ("ab", 0.0, 1)]
    with pytest.raises(errors.UnsupportedTokenizerError, match="score alike"):
        pieces(tmp_path, builders.pieces_of([], "abcde") + alike)
    with pytest.raises(errors.UnsupportedTokenizerError, match="a character of which is no piece"):
        pieces(tmp_path, builders.pieces_of(["▁猫"], "▁ab"))
    runs = [("▁▁", 0.0, 4), ("▁▁▁", 0.0, 4)]
    with pytest.raises(errors.UnsupportedTokenizerError, match="no pipeline does both"):
        pieces(tmp_path, builders.pieces_of(["▁a"], "▁ab") + runs)
    base = pieces(tmp_path, builders.pieces_of(["▁a"], "▁ab") + runs, normalizer={"add_dummy_prefix": False})
    assert_library_agrees(base, ("a  b", "a   b a", "ab"))
