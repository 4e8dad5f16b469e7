"""Unigram and WordPiece tokenizers as files: reading, pruning and writing them, and what is refused."""

import json

import builders
import pytest
import sentencepiece

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.page.pack import tokenizer_settings
from tokengraft.pruning.cost import removed_summary
from tokengraft.tokenizer.piece_model import CONTROL, NORMAL, UNKNOWN, USER_DEFINED, PieceModel

TEXT = ["the cat sat", "the cat is a cat", "kass istus"] * 4


def pruned(tokenizer, n):
    return tg.prune(tokenizer, tg.count(tokenizer, iter(TEXT)), n, protection=tg.Protection(defaults=False))


def strings(tokenizer, text):
    return [tokenizer.strings[i] for i in tokenizer.encode(text)]


@pytest.fixture
def unigram(tmp_path):
    return tg.load(builders.write(tmp_path / "unigram", builders.unigram()))


@pytest.fixture
def word_piece(tmp_path):
    return tg.load(builders.write(tmp_path / "word_piece", builders.word_piece()))


def test_what_a_text_is_split_into(unigram, word_piece):
    assert strings(unigram, "the cats") == ["▁the", "▁cat", "s"]
    assert strings(unigram, "the ☃☃ cat") == ["▁the", "▁", "<unk>", "▁cat"]
    assert strings(word_piece, "The cats, kasstus") == ["the", "cat", "##s", ",", "kass", "##tus"]
    assert strings(word_piece, "cat☃") == ["[UNK]"]
    assert (unigram.algorithm, unigram.unknown, word_piece.algorithm, word_piece.unknown) == (
        "Unigram",
        "<unk>",
        "WordPiece",
        "[UNK]",
    )


@pytest.mark.parametrize("document", [builders.unigram(), builders.word_piece()], ids=["unigram", "word-piece"])
def test_a_file_that_does_not_name_the_type_is_read_alike(tmp_path, document):
    named = tg.load(builders.write(tmp_path / "named", document))
    del document["model"]["type"]
    unnamed = tg.load(builders.write(tmp_path / "unnamed", document))
    assert unnamed.algorithm == named.algorithm
    assert unnamed.encode_batch(TEXT) == named.encode_batch(TEXT)
    assert pruned(unnamed, 3).tokens == pruned(named, 3).tokens


@pytest.mark.parametrize("kind", ["unigram", "word_piece"])
def test_ids_are_listed_without_holes_and_named_tokens_follow(kind, request, tmp_path):
    base = request.getfixturevalue(kind)
    # The tokens before the unknown one move it.
    first = builders.unigram() if kind == "unigram" else builders.word_piece()
    order = pruned(base, 6)
    small = order.apply(base).compact()
    folder = tg.save(small, tmp_path / "small", base=base)
    again = tg.load(folder)
    assert (again.vocab, again.scores, again.rest) == (small.vocab, small.scores, small.rest)
    assert len(again) == len(base) - 6 == again.n_rows
    assert again.unknown == base.unknown
    assert again.ids[again.unknown] == first["model"].get("unk_id", 1)
    assert order.apply(base) == small  # a list has no holes
    out = ["--out", str(tmp_path / "no")]
    text = tmp_path / "text.txt"
    text.write_text("\n".join(TEXT))
    prune = ["prune", str(tmp_path / kind), "--corpus", str(text), "--remove", "3"]
    assert cli.main([*prune, "--ids", "keep", *out]) == 2
    assert cli.main([*prune, "--method", "merge", *out]) == 2
    assert cli.main([*prune, "--by-merges", *out]) == 2


def test_the_unknown_token_keeps_its_role_when_its_id_changes(tmp_path):
    document = builders.unigram()
    vocab = document["model"]["vocab"]
    vocab.insert(2, ["▁jj", -9.0])
    document["model"]["unk_id"] = 3
    document["added_tokens"][2]["id"] = 3
    base = tg.load(builders.write(tmp_path / "model", document))
    small = tg.prune_order(base, tg.count(base, iter(TEXT)))
    assert "▁jj" not in small.tokens  # it has the lowest score, which decides that of unknown characters
    vocab.append(["▁jjj", -10.0])
    base = tg.load(builders.write(tmp_path / "model2", document))
    order = tg.prune_order(base, tg.count(base, iter(TEXT)))
    assert "▁jj" in order.tokens
    assert "▁jjj" not in order.tokens
    small = order[: order.tokens.index("▁jj") + 1].apply(base).compact()
    assert small.ids["<unk>"] == small.model["unk_id"] == 2
    assert strings(small, "☃") == ["▁", "<unk>"]


def test_characters_of_the_text_and_of_its_scripts_stay(word_piece):
    order = tg.prune_order(word_piece, tg.count(word_piece, iter(TEXT)), protection=tg.Protection(defaults=False))
    assert {"к", "##о", "##т", "猫", "кот"} <= {*order.tokens}
    assert {"v", "##v", "a", "##s"}.isdisjoint(order.tokens)
    every = tg.Protection(defaults=False, characters=True)
    order = tg.prune_order(word_piece, tg.count(word_piece, iter(TEXT)), protection=every)
    assert {"v", "##v"} <= {*order.tokens}
    assert {"a", "##a", "s", "##s"}.isdisjoint(order.tokens)
    removed = removed_summary(word_piece, (removal.id for removal in order.removals))
    assert {"v", "к", "猫"} <= {*removed.characters}
    assert "a" not in removed.characters


def test_the_only_spelling_of_a_character_stays(tmp_path):
    base = tg.load(builders.write(tmp_path / "m", builders.word_piece(["a", "b", "##b", "ab", "axb", "##bc"])))
    order = tg.prune_order(base, tg.count(base, iter(["ab"])), protection=tg.Protection(defaults=False))
    assert {"axb", "##bc"}.isdisjoint(order.tokens)  # there is no ##x and no ##c


def test_vocab_txt_alone_and_beside_a_tokenizer_json(tmp_path, word_piece):
    lines = "".join(f"{token}\n" for token in sorted(word_piece.vocab, key=word_piece.vocab.__getitem__))
    folder = tmp_path / "alone"
    folder.mkdir()
    (folder / "vocab.txt").write_text(lines, encoding="utf-8")
    alone = tg.load(folder)
    assert alone.encode_batch([*TEXT, "The Cät, [MASK] ☃"]) == word_piece.encode_batch([*TEXT, "The Cät, [MASK] ☃"])
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert strings(tg.load(folder), "The") == ["[UNK]"]
    both = tg.load(builders.write(tmp_path / "both", builders.word_piece(), **{"vocab.txt": lines}))
    for base in (alone, both):
        small = pruned(base, 5).apply(base).compact()
        kept = tg.save(small, tmp_path / base.main, base=base) / "vocab.txt"
        assert kept.read_text(encoding="utf-8").split("\n")[:-1] == [token.string for token in small.tokens]
    (tmp_path / "both" / "vocab.txt").write_text(lines.replace("the\ncat", "cat\nthe"), encoding="utf-8")
    with pytest.raises(errors.InvalidTokenizerError, match=r"has 'cat' on line 6, and `tokenizer.json` gives it 6"):
        tg.load(tmp_path / "both")
    (folder / "tokenizer_config.json").write_text('{"mask_token": "<mask>"}')
    masked = tg.load(folder)
    again = tg.load(tg.save(pruned(masked, 5).apply(masked), tmp_path / "masked", base=masked))
    assert again.ids["<mask>"] == again.n_rows - 1
    assert "<mask>" not in again.vocab
    (folder / "tokenizer_config.json").write_text('{"word_tokenizer_type": "mecab"}')
    with pytest.raises(errors.UnsupportedTokenizerError, match="mecab"):
        tg.load(folder)
    (folder / "tokenizer_config.json").write_text('{"unk_token": {"__type": "AddedToken", "content": "the"}}')
    assert tg.load(folder).unknown == "the"
    (folder / "tokenizer_config.json").unlink()
    for text, match in (("a\na\n[UNK]\n[CLS]\n[SEP]\n", "twice"), ("a\n", "lacks the token")):
        (folder / "vocab.txt").write_text(text)
        with pytest.raises(errors.InvalidTokenizerError, match=match):
            tg.load(folder)


def pieces_of(document):
    """The pieces of a SentencePiece model with the specials in another place, as XLM-R has them."""
    kinds = {"<unk>": UNKNOWN, "<pad>": CONTROL, "</s>": CONTROL}
    listed = sorted(document["model"]["vocab"], key=lambda entry: entry[0] != "<unk>")
    return [(token, score, kinds.get(token, NORMAL)) for token, score in listed]


def test_a_sentencepiece_model_follows_by_its_pieces_whatever_their_ids(tmp_path):
    document = builders.unigram()
    raw = builders.piece_model(pieces_of(document), model_type=1, byte_fallback=False)
    folder = builders.write(tmp_path / "both", document)
    (folder / "spiece.model").write_bytes(raw)
    base = tg.load(folder)
    small = pruned(base, 8).apply(base).compact()
    written = tg.save(small, tmp_path / "small", base=base)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(written / "spiece.model"))
    for text in [*TEXT, "the ☃ mat"]:
        assert [processor.id_to_piece(i) for i in processor.encode(text)] == strings(small, text)
    assert len(PieceModel.read((written / "spiece.model").read_bytes(), "m").pieces) == len(small)
    document["model"]["vocab"][5][1] = -7.5
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(errors.InvalidTokenizerError, match=r"scores -7\.5 in the one"):
        tg.load(folder)


def test_a_piece_that_tokenizer_json_lacks_stays_in_its_place(tmp_path):
    """Without it, the ids of all later pieces would move, and libraries that read the file would shift every token."""
    document = builders.unigram()
    pieces = [*pieces_of(document)[:1], ("<s>", 0.0, CONTROL), *pieces_of(document)[1:]]
    folder = builders.write(tmp_path / "both", document)
    (folder / "spiece.model").write_bytes(builders.piece_model(pieces, model_type=1, byte_fallback=False))
    base = tg.load(folder)
    order = pruned(base, 5)
    small = order.apply(base)
    assert small.piece_model is not None
    assert [piece.string for piece in small.piece_model.pieces] == [
        string for string, _, _ in pieces if string not in order.tokens
    ]


def test_a_sentencepiece_model_alone(tmp_path):
    document = builders.unigram()
    path = tmp_path / "spiece.model"
    path.write_bytes(builders.piece_model(pieces_of(document), model_type=1, byte_fallback=False))
    base = tg.load(path)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    for text in [*TEXT, "the ☃☃ mat", "  two  spaces "]:
        assert processor.encode(text) == base.encode(text)
    small = pruned(base, 8).apply(base).compact()
    written = tg.save(small, tmp_path / "small", base=base)
    assert tg.load(written / "spiece.model") == small
    with pytest.raises(errors.UnsupportedTokenizerError, match="may not be those of the model"):
        tg.load(written)
    defined = [*pieces_of(document), ("(", 0.0, USER_DEFINED)]
    path.write_bytes(builders.piece_model(defined, model_type=1, byte_fallback=False))
    with pytest.raises(errors.UnsupportedTokenizerError, match="user-defined"):
        tg.load(path)


def _other_score(model):
    model["vocab"][5][1] -= 0.5


@pytest.mark.parametrize(
    ("document", "change", "what"),
    [
        (builders.unigram(), _other_score, "the score of 'at'"),
        (builders.unigram(), lambda model: model.update(unk_id=5), "the unknown token"),
        (builders.word_piece(), lambda model: model.update(max_input_chars_per_word=3), "max_input_chars_per_word"),
    ],
    ids=["score", "unknown", "longest word"],
)
def test_what_decides_how_text_is_split_may_not_differ_from_the_base(tmp_path, document, change, what):
    base = tg.load(builders.write(tmp_path / "base", document))
    change(document["model"])
    changed = tg.load(builders.write(tmp_path / "changed", document))
    found = next(finding for finding in tg.check(changed, base=base).findings if finding.name == "pipeline")
    assert found.outcome == "fail"
    assert what in found.evidence[0]


REFUSED = [
    (builders.unigram(vocab=[["a"]]), "must be a token and its score"),
    (builders.unigram(vocab=[["a", -1.0], ["a", -2.0]]), "listed twice"),
    (builders.unigram(vocab=[["a", 10**400]]), "must be a token and its score"),
    (builders.unigram(vocab={}), "as Unigram has it"),
    (builders.unigram(unk_id=999), "no token has this id"),
    (builders.unigram(unk_id=2.0), "`model.unk_id`"),
    (builders.unigram(unk_id=-1), "`model.unk_id`"),
    (builders.unigram(unk_id=2**40), "`model.unk_id`"),
    (builders.unigram(byte_fallback=None), "`model.byte_fallback`"),
    (builders.word_piece(unk_token="[NONE]"), "not in its vocabulary"),
    (builders.word_piece(max_input_chars_per_word=-1), "`model.max_input_chars_per_word`"),
    (builders.word_piece(continuing_subword_prefix=None), "`model.continuing_subword_prefix`"),
    (builders.word_piece(max_input_chars_per_word=2**64), "`model.max_input_chars_per_word`"),
    (builders.word_piece(vocab=[]), "as WordPiece has it"),
]


@pytest.mark.parametrize(("document", "match"), REFUSED)
def test_broken_models_are_refused(tmp_path, document, match):
    with pytest.raises(errors.InvalidTokenizerError, match=match):
        tg.load(builders.write(tmp_path / "model", document))


@pytest.mark.parametrize("prefix", ["@@", ""])
def test_another_prefix_of_word_piece_is_refused(tmp_path, prefix):
    document = builders.word_piece(continuing_subword_prefix=prefix)
    with pytest.raises(errors.UnsupportedTokenizerError, match=repr(prefix)):
        tg.load(builders.write(tmp_path / "model", document))


@pytest.mark.parametrize("kind", ["unigram", "word_piece"])
def test_what_only_bpe_has_is_refused_by_name(kind, request, tmp_path):
    base = request.getfixturevalue(kind)
    assert base.algorithm in tokenizer_settings(base)["pipeline"]["reason"]
    for target in ("tiktoken", "sentencepiece"):
        assert cli.main(["convert", str(tmp_path / kind), "--to", target, "--out", str(tmp_path / "no")]) == 2


@pytest.mark.parametrize("kind", ["unigram", "word_piece"])
def test_every_command_takes_them(kind, request, tmp_path, tokengraft):
    request.getfixturevalue(kind)
    source, text, small, large = (tmp_path / name for name in (kind, "text.txt", "small", "large"))
    text.write_text("\n".join(TEXT))
    lines = tokengraft("inspect", source).out.splitlines()
    shown = next(line.split(maxsplit=1)[1] for line in lines if line.startswith("kind"))
    assert shown == {"unigram": "sentencepiece Unigram", "word_piece": "wordpiece"}[kind]
    learn = ["--corpus", text, "--add", 5, "--character-coverage", 1]
    tokengraft("prune", source, "--corpus", text, "--remove", 5, "--out", small, "--no-protect-defaults")
    assert "merges" not in tokengraft("extend", source, *learn, "--out", large).out
    for new in (small, large):
        tokengraft("check", new, "--base", source)
        tokengraft("evaluate", f"base={source}", f"new={new}", "--text", text)
        tokengraft("report", source, new, "--text", text, "--out", tmp_path / f"{new.name}.html")
    tokengraft("extend", source, *learn, "--held-out", text, "--curve")
    tokengraft("adapt", source, "--target", text, "--add", 4, "--out", tmp_path / "adapted")


@pytest.mark.parametrize("kind", ["unigram", "word_piece"])
def test_added_tokens_outside_the_vocabulary_stay_outside(kind, tmp_path):
    """Inside, the model would find their text by itself: where a normalizer makes it, or a word goes on."""
    document = builders.unigram() if kind == "unigram" else builders.word_piece()
    size = len(document["model"]["vocab"])
    document["added_tokens"].append(builders.added(size, "catz", single_word=True, special=False))
    document["added_tokens"].append(builders.added(size + 1, "<x>"))
    base = tg.load(builders.write(tmp_path / "model", document))
    texts = ["catz", "catzz", "a catz.", "<x>the", "Catz"]
    assert base.ids["<x>"] == size + 1
    order = pruned(base, 5)
    small = order.apply(base)
    assert "catz" not in small.vocab
    assert (small.ids["catz"], small.ids["<x>"]) == (size - 5, size - 4)
    again = tg.load(tg.save(small, tmp_path / "small", base=base))
    assert again.ids == small.ids
    assert again.content_hash == small.content_hash == small.compact().content_hash
    gone = set(order.tokens)
    for text in texts:
        if gone.isdisjoint(strings(base, text)):
            assert strings(again, text) == strings(base, text)
    listed = builders.unigram() if kind == "unigram" else builders.word_piece()
    listed["added_tokens"] = document["added_tokens"]
    vocab = listed["model"]["vocab"]
    if kind == "unigram":
        vocab += [["catz", -3.0], ["<x>", -3.0]]
    else:
        vocab |= {"catz": size, "<x>": size + 1}
    assert tg.load(builders.write(tmp_path / "listed", listed)).content_hash != base.content_hash


def test_lost_characters_are_a_note_of_the_check(word_piece, tmp_path):
    order = tg.prune_order(word_piece, tg.count(word_piece, iter(TEXT)), protection=tg.Protection(defaults=False))
    removal = next(removal for removal in order.removals if removal.token == "##о")
    small = tg.PruneOrder(order.method, (removal,), order.base_hash).apply(word_piece)
    found = {finding.name: finding for finding in tg.check(small, base=word_piece).findings}
    assert found["round trip"].outcome != "fail"
    assert removed_summary(word_piece, [removal.id]).characters == ("о",)
    assert tg.load(tg.save(small, tmp_path / "small", base=word_piece)) == small


def test_the_counted_text_stays_known_if_a_character_has_no_token_of_its_own(tmp_path):
    base = tg.load(builders.write(tmp_path / "m", builders.word_piece(["a", "ab", "##b", "##bc", "##cd", "q"])))
    assert strings(base, "abcd") == ["ab", "##cd"]
    counts = tg.count(base, iter(["abcd"]))
    small = tg.prune_order(base, counts, protection=tg.Protection(defaults=False))
    assert strings(small.apply(base), "abcd") == ["ab", "##cd"]
