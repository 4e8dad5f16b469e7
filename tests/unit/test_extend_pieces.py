"""`extend` for Unigram and WordPiece: every new token is reachable, and what is written is read alike."""

import json
import os
import random
import signal
from collections import Counter
from itertools import pairwise
from threading import Event

import builders
import pytest
import sentencepiece
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft import errors
from tokengraft.formats.huggingface import read_tokenizer_json
from tokengraft.tokenizer.piece_model import BYTE, CONTROL, NORMAL, UNKNOWN, PieceModel
from tokengraft.verify.loaders import verify_folder

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


def test_pairs_are_as_frequent_as_an_extension_says_also_where_rounding_decides():
    numbers = random.Random(1)
    for _ in range(400):
        unit = numbers.choice([7, 10, 3])
        scores = {token: -1 - numbers.randrange(64) / unit for token in ("▁", "a", "b", "aa", "ab", "ba")}
        base = read_tokenizer_json(json.dumps(builders.unigram(scores)).encode(), name="tiny", files={})
        texts = ["".join(numbers.choices("aab", k=numbers.randrange(2, 9))) for _ in range(6)]
        extension = extended(base, 6, texts, limits=tg.Limits(min_count=1))
        for size, merge in enumerate(extension.merges):
            cut = extension[:size].apply(base)
            found = Counter(pair for text in texts for pair in pairwise(strings(cut, text)))
            assert found[merge.left, merge.right] == merge.frequency


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


def test_a_word_of_a_megabyte_is_left_out(base):
    """Time that grows with the square of its length would be days."""
    long = "kas" * 300_000
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


def swapped(base, n=8):
    """The tokenizer with n tokens replaced, and the removed ones."""
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=tg.Protection(defaults=False))[:n]
    return extended(order.apply(base), n).apply(order.apply(base)), order.tokens


def fairseq():
    """In the manner of XLM-R: `tokenizer.json` has one special token more than the `.model`, in another order."""
    document = builders.unigram()
    pieces = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL)]
    pieces += [(token, score, NORMAL) for token, score in document["model"]["vocab"][3:]]
    return document, pieces


def shuffled():
    """In the manner of M2M-100: the `.model` has another order than the ids, which `vocab.json` lists too."""
    document = builders.unigram()
    pieces = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL), ("<pad>", 0.0, CONTROL)]
    return document, pieces + [(token, score, NORMAL) for token, score in document["model"]["vocab"][:2:-1]]


def extra_ids():
    """In the manner of T5: `tokenizer.json` lists tokens after those of the `.model`."""
    document = builders.unigram()
    vocab, kinds = document["model"]["vocab"], {"<unk>": UNKNOWN, "<pad>": CONTROL, "</s>": CONTROL}
    pieces = [(token, score, kinds.get(token, NORMAL)) for token, score in vocab]
    document["added_tokens"] += [builders.added(len(vocab) + i, f"<extra_id_{1 - i}>") for i in range(2)]
    vocab += [["<extra_id_1>", 0.0], ["<extra_id_0>", 0.0]]
    return document, pieces


def camembert():
    """In the manner of CamemBERT: `tokenizer.json` lists more special tokens, not all of which are added tokens."""
    document = builders.unigram()
    learned = document["model"]["vocab"][3:]
    first = ["<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", "<s>", "</s>"]
    vocab = [[token, -100.0 if token == "<unk>NOTUSED" else 0.0] for token in first] + learned + [["<mask>", 0.0]]
    document["model"] |= {"vocab": vocab, "unk_id": 3}
    listed = [(place, token) for place, (token, _) in enumerate(vocab) if token in ("<s>", "<pad>", "</s>", "<unk>")]
    document["added_tokens"] = [builders.added(*one) for one in [*listed, (len(vocab) - 1, "<mask>")]]
    document["post_processor"] |= {"sep": ["</s>", 6], "cls": ["<s>", 5]}
    pieces = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
    return document, pieces + [(token, score, NORMAL) for token, score in learned]


def test_the_tokens_that_the_class_of_camembert_adds_are_no_sign_of_a_stale_file(tmp_path):
    document, pieces = camembert()
    folder = builders.write(tmp_path / "base", document)
    raw = builders.piece_model(pieces, model_type=1, byte_fallback=False)
    (folder / "sentencepiece.bpe.model").write_bytes(raw)
    base = tg.load(folder)
    every = tg.Protection(defaults=False, characters=True)
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=every)
    # SentencePiece gives unknown characters a score below that of its lowest piece, which is another than here.
    lowest = min(pieces[3:], key=lambda piece: piece[1])[0]
    assert {lowest, *(token for token, _ in document["model"]["vocab"][:7])}.isdisjoint(order.tokens)
    small = order[:8].apply(base)
    for name, new in {"extended": extended(base).apply(base), "small": small, "swapped": swapped(base)[0]}.items():
        written = tg.save(new, tmp_path / name, base=base)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(written / "sentencepiece.bpe.model"))
        for text in TEXT:
            assert [processor.id_to_piece(i) for i in processor.encode(text)] == strings(new, text)
            known = [i for i in processor.encode(text) if i != processor.unk_id()]
            assert [i + 4 for i in known] == [i for i in new.encode(text) if i != new.ids["<unk>"]]
    vocab = document["model"]["vocab"]
    vocab[4] = ["stale", -100.0]
    builders.write(folder, document)
    with pytest.raises(errors.InvalidTokenizerError, match="has 'stale', which is no piece"):
        tg.load(folder)


def test_unknown_characters_are_the_only_difference_where_one_of_two_files_has_byte_fallback(tmp_path):
    """As transformers 5 writes XLM-R types: no byte fallback in `tokenizer.json`, whatever the `.model` has."""
    document = builders.unigram()
    vocab, spelled = document["model"]["vocab"], [f"<0x{byte:02X}>" for byte in range(256)]
    pieces = [("<unk>", 0.0, UNKNOWN), ("</s>", 0.0, CONTROL), *((token, 0.0, BYTE) for token in spelled)]
    pieces += [(token, score, NORMAL) for token, score in vocab[3:]]
    vocab[3:3] = [[token, 0.0] for token in spelled]
    folder = builders.write(tmp_path / "base", document)
    (folder / "spiece.model").write_bytes(builders.piece_model(pieces, model_type=1, byte_fallback=True))
    base = tg.load(folder)
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=tg.Protection(defaults=False))
    assert {*spelled, *(string for string in base.ids if len(string) == 1)}.isdisjoint(order.tokens)
    with pytest.raises(errors.OptionError, match=r"spiece\.model.*bytes.*tokenizer\.json"):
        tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=tg.Protection(characters=True))
    for name, new in {"small": order[:9].apply(base), "large": extended(base).apply(base)}.items():
        written = tg.save(new, tmp_path / name, base=base)
        processor = sentencepiece.SentencePieceProcessor(model_file=str(written / "spiece.model"))
        for text in [*(text for text in TEXT if "ü" not in text), "кот 猫 õ"]:
            assert [processor.id_to_piece(i) for i in processor.encode(text)] == strings(new, text)
        assert [processor.id_to_piece(i) for i in processor.encode("ж")] == ["▁", "<0xD0>", "<0xB6>"]
        assert strings(new, "ж") == ["▁", "<unk>"]
        (note,) = verify_folder(written, new, ["жюйка", "the ж cat"], base=base).notes
        assert "unknown characters" in note
        assert not verify_folder(written, new, ["жюйка", "the ж cat"], base=base).failures


@pytest.mark.parametrize("layout", [fairseq, shuffled, extra_ids, camembert])
def test_a_swap_moves_no_id_of_a_unigram_model_in_any_file(tmp_path, layout):
    document, pieces = layout()
    ids = {token: token_id for token_id, (token, _) in enumerate(document["model"]["vocab"])}
    folder = builders.write(tmp_path / "base", document, **{"vocab.json": json.dumps(ids)})
    (folder / "spiece.model").write_bytes(builders.piece_model(pieces, model_type=1, byte_fallback=False))
    base = tg.load(folder)
    new, removed = swapped(base)
    written = tg.save(new, tmp_path / "new", base=base)
    assert tg.load(written) == new
    assert {token: i for token, i in base.ids.items() if token not in removed}.items() <= new.ids.items()
    assert (new.n_rows, len(new)) == (base.n_rows, len(base))
    assert json.loads((written / "vocab.json").read_text()) == dict(new.ids)
    # In the `.model`, too, a new piece has the place of the token whose id it has.
    places = {base.ids[string]: place for place, (string, _, _) in enumerate(pieces) if string in base.ids}
    model = PieceModel.read((written / "spiece.model").read_bytes(), "m")
    assert {i: model.pieces[place].string for i, place in places.items()} == {i: new.strings[i] for i in places}
    assert len(model.pieces) == len(pieces)
    upstream = Upstream.from_file(str(written / "tokenizer.json"))
    processor = sentencepiece.SentencePieceProcessor(model_file=str(written / "spiece.model"))
    for text in TEXT:
        assert new.encode(text) == upstream.encode(text, add_special_tokens=False).ids
        assert [processor.id_to_piece(i) for i in processor.encode(text)] == strings(new, text)


def test_a_swap_moves_no_line_of_vocab_txt(tmp_path):
    document = builders.word_piece()
    tokens = sorted(document["model"]["vocab"], key=document["model"]["vocab"].get)
    lines = "".join(f"{token}\n" for token in tokens)
    base = tg.load(builders.write(tmp_path / "base", document, **{"vocab.txt": lines}))
    new, removed = swapped(base)
    after = (tg.save(new, tmp_path / "new", base=base) / "vocab.txt").read_text().split("\n")[:-1]
    assert after == [token.string for token in new.tokens]
    assert [place for place, token in enumerate(tokens) if after[place] != token] == sorted(map(base.ids.get, removed))


@pytest.mark.usefixtures("base")
def test_a_swap_keeps_added_tokens_outside_the_vocabulary_and_their_ids(tmp_path):
    document = json.loads((tmp_path / "base" / "tokenizer.json").read_text())
    size = len(document["model"]["vocab"])
    document["added_tokens"].append(builders.added(size, "<x>"))
    apart = tg.load(builders.write(tmp_path / "apart", document))
    new, _ = swapped(apart)
    assert "<x>" not in new.vocab
    assert new.ids["<x>"] == size
    written = tg.save(new, tmp_path / "new", base=apart)
    assert Upstream.from_file(str(written / "tokenizer.json")).token_to_id("<x>") == size
    order = tg.prune_order(apart, tg.count(apart, iter(["the cat"])), protection=tg.Protection(defaults=False))[:8]
    small = order.apply(apart)
    with pytest.raises(errors.UnsupportedTokenizerError, match="does not list the added token `<x>`"):
        extended(small, 9)
    with pytest.raises(errors.UnsupportedTokenizerError, match="does not list the added token `<x>`"):
        extended(small, 8)[:7].apply(small)


def test_a_token_that_is_removed_and_learned_again_has_its_id_and_passes_the_check(base):
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=tg.Protection(defaults=False))
    kass = next(place for place, token in enumerate(order.tokens) if token.endswith("kass"))
    small = order[: kass + 1].apply(base)
    new = extended(small, kass + 1, [*TEXT, *["kass"] * 50]).apply(small)
    assert new.ids[order.tokens[kass]] == base.ids[order.tokens[kass]]
    assert tg.plan(base, new).summary.moved == 0
    tg.check(new, base=base).raise_for_failures()


def test_fewer_new_tokens_than_removed_ones_follow_the_renumbered_ones(base):
    """Their vocabularies are lists, which cannot leave out an id."""
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])), protection=tg.Protection(defaults=False))
    small = order[:3].apply(base)
    new = extended(small, 2).apply(small)
    assert [token.id for token in new.tokens] == [*range(len(base) - 1)]
    more = extended(small, 5)
    kept = {token: i for token, i in base.ids.items() if token in small.ids}
    assert kept.items() <= more.apply(small).ids.items()
    assert more.apply(small).n_rows == base.n_rows + 2


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
