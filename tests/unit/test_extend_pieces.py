"""`extend` for Unigram and WordPiece: every new token is reachable, and what is written is read alike."""

import json
import os
import signal
from threading import Event

import builders
import pytest
import sentencepiece
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.tokenizer.piece_model import CONTROL, NORMAL, UNKNOWN, PieceModel

TEXT = ["katsed kassidest", "kassid istusid katusel", "the cat sat on the mat", "üks kass ja üks kassike"] * 5
DOCUMENTS = {"unigram": builders.unigram, "word_piece": builders.word_piece}


@pytest.fixture(params=DOCUMENTS)
def base(request, tmp_path):
    return tg.load(builders.write(tmp_path / "base", DOCUMENTS[request.param]()))


def strings(tokenizer, text):
    return [tokenizer.strings[i] for i in tokenizer.encode(text)]


def extended(base, n=20, text=TEXT, **options):
    return tg.extend(base, tg.count(base, iter(text)), n, **options)


def test_every_new_token_is_reachable_and_what_is_written_is_read_alike(base, tmp_path):
    extension = extended(base)
    new = extension.apply(base)
    assert len(extension) == 20
    assert new.structure.unreachable == base.structure.unreachable
    assert {token: new.ids[token] for token in base.ids} == dict(base.ids)
    assert [new.ids[token] for token in extension.tokens] == [*range(base.n_rows, base.n_rows + 20)]
    written = tg.save(new, tmp_path / "new", base=base)
    assert tg.load(written) == new
    upstream = Upstream.from_file(str(written / "tokenizer.json"))
    for text in [*TEXT, "kassikatsed  ümber ☃ kass", ""]:
        assert new.encode(text) == upstream.encode(text, add_special_tokens=False).ids
    assert sum(map(len, new.encode_batch(TEXT))) < sum(map(len, base.encode_batch(TEXT)))
    assert tg.check(new, base=base).passed


def test_the_first_tokens_are_those_of_a_shorter_training(base, tmp_path):
    extension = extended(base)
    for k in (0, 1, len(extension.characters), 7):
        assert extension[:k].tokens == extension.tokens[:k]
        if k:
            assert extension[:k] == extended(base, k)
    assert tg.Extension.load(extension.save(tmp_path / "extension.json")) == extension
    document = json.loads((tmp_path / "extension.json").read_text())
    document["scores"] = [0.0]
    (tmp_path / "extension.json").write_text(json.dumps(document))
    with pytest.raises(errors.CountsError, match="20 tokens and 1 scores"):
        tg.Extension.load(tmp_path / "extension.json")


def test_missing_characters_come_first_in_every_form_that_the_text_has(base):
    characters = extended(base, text=["ж", "aж", "жж"] * 4).characters
    assert characters == (("##ж", "ж") if base.algorithm == "WordPiece" else ("ж",))
    assert not extended(base, 5, character_coverage=0).characters
    assert "ж" not in "".join(extended(base, 3, text=["ж", "жa kass"] * 4, limits=tg.Limits(scripts=["Greek"])).tokens)


def test_words_of_a_list_become_tokens(base):
    extension = extended(base, 30, include=["kassikatus", "New York"])
    first, second = extension.included[0], extension.included[-1]
    new = extension.apply(base)
    assert strings(new, "kassikatus") == [first.token]
    assert second.token is None
    assert "pre-tokenizer splits it" in second.reason
    assert extension.merges[: extension.list_merges][0].frequency == 0
    with pytest.raises(errors.OptionError, match="new tokens, 1 were asked for"):
        extended(base, 1, include=["kassikatus", "kassidele"])


def test_words_of_a_list_do_not_change_the_first_tokens(base):
    words = ["kassi", "istu"]
    extension = extended(base, 20, include=words)
    first = extension.n_listed
    assert extension[:first] == extended(base, first, include=words)


def test_a_word_that_is_too_long_for_word_piece_is_not_added(tmp_path):
    base = tg.load(builders.write(tmp_path / "base", builders.word_piece()))
    (word,) = extended(base, 5, include=["kas" * 50]).included
    assert word.token is None
    assert "unreachable" in word.reason


def test_tokens_of_one_frequency_have_scores_that_every_library_tells_apart(tmp_path):
    document = builders.unigram()
    vocab = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], *([c, -3.0 - place / 7] for place, c in enumerate("▁abcd"))]
    document["model"]["vocab"] = vocab
    base = tg.load(builders.write(tmp_path / "base", document))
    scores = extended(base, 12, text=["ab", "bc", "cd", "da", "ac", "bd"] * 4).scores
    assert min(abs(one - other) for place, one in enumerate(scores) for other in scores[:place]) > 1e-5


def test_preserved_text_keeps_its_tokens(base):
    keep = ["kassid ja katsed", "the cat"]
    counts = tg.count(base, iter(keep))
    extension = extended(base, 12, preserve=counts)
    new = extension.apply(base)
    assert extension.refused
    assert [strings(new, text) for text in keep] == [strings(base, text) for text in keep]
    assert [strings(extended(base, 12).apply(base), text) for text in keep] != [strings(base, text) for text in keep]


def test_a_word_of_megabytes_is_left_out(base):
    """Time that grows with the square of its length would be days."""
    long = "kas" * 1_000_000
    with_long = extended(base, text=[*TEXT, long], character_coverage=1)
    assert with_long.tokens == extended(base, character_coverage=1).tokens
    extension = extended(base, 12, preserve=tg.count(base, iter([long])))
    assert strings(extension.apply(base), long) == strings(base, long)


def test_a_signal_stops_learning(base):
    """Its handler runs while the core works: Python runs it in no other thread than the main one."""
    handled = Event()

    def stop(*_):
        handled.set()
        raise InterruptedError("stopped")

    def wait_for_the_handler(*_):
        os.kill(os.getpid(), signal.SIGUSR1)
        assert handled.wait(60)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(InterruptedError, match="stopped"):
            tg.extend(base, tg.count(base, iter(TEXT)), 4, progress=wait_for_the_handler)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_limits_hold(base):
    limits = tg.Limits(deny=["kass"], max_token_bytes=5, min_count=10)
    extension = extended(base, 50, limits=limits)
    texts = [token.removeprefix("##").replace("▁", " ") for token in extension.tokens]
    assert all(len(text.encode()) <= 5 and text != "kass" for text in texts)
    assert all(merge.frequency >= 10 for merge in extension.merges)
    assert "ran out" in extension.stopped


def test_rows_of_new_tokens_come_from_their_pieces(base):
    extension = extended(base)
    new = extension.apply(base)
    plan = tg.plan(base, new)
    for merge in extension.merges:
        token = merge.left + merge.right
        pieces = [base.strings[piece].removeprefix("##") for piece in plan.sources[new.ids[token]]]
        if base.unknown not in pieces:
            assert "".join(pieces) == token.removeprefix("##")
    inside = next((token for token in extension.tokens if token.startswith("##") and len(token) > 3), None)
    if inside:
        assert all(base.strings[piece].startswith("##") for piece in plan.sources[new.ids[inside]])


def test_vocab_txt_lists_the_new_tokens(tmp_path):
    document = builders.word_piece()
    folder = builders.write(tmp_path / "base", document)
    tokens = sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    base = tg.load(folder)
    extension = extended(base)
    written = tg.save(extension.apply(base), tmp_path / "new", base=base)
    assert (written / "vocab.txt").read_text().split("\n") == [*tokens, *extension.tokens, ""]


@pytest.mark.parametrize("offset", [0, 1])
def test_a_sentencepiece_model_gets_the_new_pieces_with_their_scores_and_ids(tmp_path, offset):
    """As for XLM-R, the file may count from another number than tokenizer.json; an added token stands between."""
    document = builders.unigram()
    vocab = document["model"]["vocab"]
    specials = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL), ("<pad>", 0.0, CONTROL)][: 3 - offset]
    pieces = [*specials, *((token, score, NORMAL) for token, score in vocab[3:])]
    vocab.append(["<mask>", 0.0])
    document["added_tokens"].append(builders.added(len(vocab) - 1, "<mask>"))
    folder = builders.write(tmp_path / "base", document)
    (folder / "spiece.model").write_bytes(builders.piece_model(pieces, model_type=1, byte_fallback=False))
    base = tg.load(folder)
    extension = extended(base)
    new = extension.apply(base)
    written = tg.save(new, tmp_path / "new", base=base)
    model = PieceModel.read((written / "spiece.model").read_bytes(), "m")
    assert [model.pieces[new.ids[token] - offset].string for token in extension.tokens] == [*extension.tokens]
    assert [model.normal[token] for token in extension.tokens] == [*extension.scores]
    between = model.pieces[base.ids["<mask>"] - offset]
    assert (between.string, between.type) == ("<mask>", CONTROL)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(written / "spiece.model"))
    for text in TEXT:
        assert [processor.id_to_piece(i) for i in processor.encode(text)] == strings(new, text)


def test_what_cannot_be_done_is_refused_by_name(base, tmp_path):
    counts = tg.count(base, iter(TEXT))
    with pytest.raises(errors.UnsupportedTokenizerError, match="balanced for BPE only"):
        tg.extend(base, tg.learn.Parity({"et": counts, "fi": counts}), 4)
    document = json.loads((tmp_path / "base" / "tokenizer.json").read_text())
    replaced = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    whole = tg.load(builders.write(tmp_path / "whole", document | {"pre_tokenizer": None, "normalizer": replaced}))
    with pytest.raises(errors.UnsupportedTokenizerError, match="a whole document is one pretoken"):
        tg.extend(whole, tg.count(whole, iter(TEXT)), 4)
    with pytest.raises(errors.UnsupportedTokenizerError, match=f"is {base.algorithm}"):
        tg.learn.extend_naively(base, counts, 4)
    document = json.loads((tmp_path / "base" / "tokenizer.json").read_text())
    document["added_tokens"].append(builders.added(len(document["model"]["vocab"]), "<x>"))
    apart = tg.load(builders.write(tmp_path / "apart", document))
    with pytest.raises(errors.UnsupportedTokenizerError, match="does not list the added token `<x>`"):
        tg.extend(apart, tg.count(apart, iter(TEXT)), 4)


@pytest.mark.usefixtures("base")
def test_commands(tmp_path, capsys):
    source, text, out = str(tmp_path / "base"), tmp_path / "text.txt", str(tmp_path / "new")
    text.write_text("\n".join(TEXT))
    for command in (
        ["extend", source, "--corpus", str(text), "--add", "12", "--character-coverage", "1", "--out", out],
        ["check", out, "--base", source],
        ["evaluate", f"base={source}", f"new={out}", "--text", str(text)],
        ["report", source, out, "--text", str(text), "--out", str(tmp_path / "report.html")],
        ["extend", source, "--corpus", str(text), "--add", "12", "--held-out", str(text), "--curve"],
        ["adapt", source, "--target", str(text), "--add", "8", "--out", str(tmp_path / "adapted")],
    ):
        assert cli.main(command) == 0, capsys.readouterr()
    assert "merges" not in capsys.readouterr().out.split("embedding rows")[0]
