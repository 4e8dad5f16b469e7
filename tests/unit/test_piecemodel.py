"""SentencePiece model files: reading, writing, what is refused, and a model beside a tokenizer.json."""

import json
from contextlib import suppress
from pathlib import Path

import builders
import pytest
from builders import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED
from sentencepiece import SentencePieceProcessor
from sentencepiece import sentencepiece_model_pb2 as messages

import tokengraft as tg
from tokengraft import errors
from tokengraft.formats.huggingface import write_tokenizer_json
from tokengraft.tokenizer.change import Change
from tokengraft.tokenizer.piece_model import PieceModel, next_below
from tokengraft.verify.loaders import verify_folder

TEXTS = [*builders.TEXT[:4], "", " ", "  two  spaces  ", "a\nb\tc", "猫 🙂 e\u0301", "▁", "x" * 300, "1234567890"]


def parsed(raw):
    model = messages.ModelProto()
    model.ParseFromString(raw)
    return model


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "base" / "tokenizer.model"
    path.parent.mkdir()
    path.write_bytes(builders.llama2_like())
    return path


@pytest.fixture
def both(model_file):
    """A folder with the model and the tokenizer.json that is made of it."""
    document = json.loads(write_tokenizer_json(tg.load(model_file)))
    return builders.write(model_file.parent, document)


def mistral_models():
    data = builders._package("mistral_common") / "data"
    return sorted(path for path in data.glob("*.model.v*") if path.suffix in (".v1", ".v7m1"))


def test_an_untouched_model_is_written_back_byte_for_byte(model_file, tmp_path):
    raw = model_file.read_bytes()
    for source in (model_file, model_file.parent):
        out = tg.save(tg.load(source), tmp_path / f"out{source.suffix}", verify=False)
        assert {p.name: p.read_bytes() for p in out.iterdir()} == {"tokenizer.model": raw}
    assert PieceModel.read(raw, "x").write() == raw


@pytest.mark.parametrize("path", mistral_models(), ids=lambda path: path.name)
def test_real_models_are_read_alike_and_written_byte_for_byte(path):
    raw = path.read_bytes()
    model, theirs = PieceModel.read(raw, "x"), parsed(raw)
    assert model.write() == raw
    assert [piece[:3] for piece in model.pieces] == [(p.piece, p.score, p.type) for p in theirs.pieces]
    for name, value in vars(model.rules).items():
        assert value == getattr(theirs.trainer_spec, name)
    tokenizer, library = tg.load(path), SentencePieceProcessor(model_proto=raw)
    for text in TEXTS:
        assert tokenizer.encode(text) == library.encode(text)


def test_a_model_that_stands_alone_encodes_as_the_library_does(model_file):
    tokenizer = tg.load(model_file)
    library = SentencePieceProcessor(model_file=str(model_file))
    assert tokenizer.kind == "sentencepiece"
    assert tokenizer.encode("kass istus") == library.encode("kass istus") != []
    for text in TEXTS:
        assert tokenizer.encode(text) == library.encode(text)


@pytest.mark.parametrize(
    "normalizer",
    [
        {"add_dummy_prefix": False},
        {"remove_extra_whitespaces": True},
        {"remove_extra_whitespaces": True, "add_dummy_prefix": False},
    ],
    ids=str,
)
def test_every_normalizer_setting_is_followed(normalizer, tmp_path):
    path = tmp_path / "m.model"
    path.write_bytes(builders.piece_model(builders.pieces_of(["▁c", "at", "▁cat"], "cat▁"), normalizer=normalizer))
    tokenizer, library = tg.load(path), SentencePieceProcessor(model_file=str(path))
    for text in [*TEXTS, "  cat   cat  ", "cat\n cat"]:
        assert tokenizer.encode(text) == library.encode(text)


def test_a_compiled_normalizer_is_followed(tmp_path):
    import sentencepiece

    (tmp_path / "text.txt").write_text("\n".join(builders.TEXT).replace("\n\n", "\n"), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text.txt"),
        model_prefix=str(tmp_path / "m"),
        model_type="bpe",
        vocab_size=330,
        byte_fallback=True,
        normalization_rule_name="nfkc",
        character_coverage=1.0,
        minloglevel=2,
    )
    tokenizer = tg.load(tmp_path / "m.model")
    library = SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    for text in ["the ｃａｔ ﬁts Ⅳ", "kass istus matil", "e\u0301 é"]:
        assert tokenizer.encode(text) == library.encode(text)


def test_a_model_beside_a_tokenizer_json_comes_along(both, tmp_path):
    tokenizer = tg.load(both)
    assert tokenizer.main == "tokenizer.json"
    assert tokenizer.piece_model.normal["▁the"] == -3
    out = tg.save(tokenizer, tmp_path / "out")
    assert {p.name: p.read_bytes() for p in out.iterdir()} == {p.name: p.read_bytes() for p in both.iterdir()}


def test_a_model_that_differs_from_the_tokenizer_json_is_refused(both):
    def with_change(change):
        document = json.loads((both / "tokenizer.json").read_bytes())
        change(document["model"])
        builders.write(both, document)
        with pytest.raises(errors.InvalidTokenizerError, match="differ") as caught:
            tg.load(both)
        return str(caught.value)

    original = (both / "tokenizer.json").read_bytes()
    assert "'▁kass' has the id" in with_change(lambda model: model["vocab"].update({"▁kass": 5000}))
    (both / "tokenizer.json").write_bytes(original)
    assert "merges it later" in with_change(lambda model: model["merges"].insert(0, model["merges"].pop(5)))
    (both / "tokenizer.json").write_bytes(original)

    def longer(model):
        model["vocab"]["kk"] = 999
        model["merges"].append(["k", "k"])

    assert "no piece of the other" in with_change(longer)
    assert tg.load(both / "tokenizer.json").vocab["kk"] == 999


def test_models_of_other_kinds_are_refused(tmp_path):
    pieces = builders.pieces_of(["ab"], "ab▁")
    path = tmp_path / "m.model"
    for settings, match in (
        ({"model_type": 3}, "of the type word"),
        ({"model_type": 4}, "of the type character"),
        ({"pretokenization_delimiter": "|"}, "delimiter"),
        ({"treat_whitespace_as_suffix": True}, "no pipeline"),
        ({"normalizer": {"escape_whitespaces": False}}, "no pipeline"),
    ):
        path.write_bytes(builders.piece_model(pieces, **settings))
        with pytest.raises(errors.UnsupportedTokenizerError, match=match):
            tg.load(path)
    path.write_bytes(builders.piece_model([*pieces, ("abab", -9, UNUSED)]))
    with pytest.raises(errors.UnsupportedTokenizerError, match="unused"):
        tg.load(path)
    path.write_bytes(builders.piece_model([*pieces, ("ab", -9, NORMAL)]))
    with pytest.raises(errors.InvalidTokenizerError, match="twice"):
        tg.load(path)


def test_pieces_that_score_alike_are_merged_in_the_order_of_the_tokenizer_json(both, tmp_path):
    """BARThez has `<mask>` as a normal piece, which scores like `▁d`. SentencePiece merges the leftmost of such two."""
    document, model = json.loads((both / "tokenizer.json").read_text()), parsed((both / "tokenizer.model").read_bytes())
    places = {piece.piece: place for place, piece in enumerate(model.pieces)}
    first, second = (
        next(i for i, merge in enumerate(document["model"]["merges"]) if "".join(merge) == string)
        for string in ("tu", "as")
    )
    merges = document["model"]["merges"]
    merges.insert(first, merges.pop(second))  # before `tu`, and with its score
    for string in ("istu", "▁k", "as"):
        model.pieces[places[string]].score = model.pieces[places["tu"]].score
    model.pieces.add(piece="<mask>", score=model.pieces[places["tu"]].score, type=NORMAL)
    document["model"]["vocab"]["<mask>"] = len(places)
    document["added_tokens"].append(builders.added(len(places), "<mask>"))
    builders.write(both, document)
    (both / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(errors.UnsupportedTokenizerError, match="5 pieces that score alike"):
        tg.load(both / "tokenizer.model")
    base = tg.load(both)
    counts = tg.count(base, iter(builders.TEXT))
    order = tg.prune_order(base, counts, protection=tg.Protection(defaults=False))
    for name, new in {"small": order[:3].apply(base), "large": tg.extend(base, counts, 5).apply(base)}.items():
        folder = tg.save(new, tmp_path / name, base=base)
        processor = SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
        assert [processor.encode(text) for text in builders.TEXT] == new.encode_batch(builders.TEXT)
    model.pieces[places["tu"]].score += 0.5  # tokenizer.json merges it after `as`
    (both / "tokenizer.model").write_bytes(model.SerializeToString())
    with pytest.raises(errors.InvalidTokenizerError, match="'tu' scores higher than 'as'"):
        tg.load(both)


def test_damaged_files_are_refused_whatever_is_cut_or_changed(model_file):
    raw = model_file.read_bytes()
    for damaged in (raw[:100], raw[:-1], b"\n", b"\n\xff" * 40, raw[:2000] + b"\xff" * 9 + raw[2009:]):
        model_file.write_bytes(damaged)
        with suppress(errors.TokengraftError):  # anything else is a bug
            tg.load(model_file)
    model_file.write_bytes(b"IQ== 0\nIg== 1\n")
    with pytest.raises(errors.InvalidTokenizerError, match="254 of the 256 bytes have no rank"):
        tg.load(model_file)


def test_scores_go_down_in_steps_that_32_bits_hold():
    assert next_below(-3.0) == -4.0
    far = -(2.0**25)
    assert next_below(far) < far
    assert next_below(next_below(far)) < next_below(far)


def test_new_pieces_score_below_all_but_runs_and_change_nothing_else(both):
    base = tg.load(both)
    counts = tg.count(base, iter(builders.TEXT))
    extension = tg.extend(base, counts, 12)
    before, after = parsed(base.files["tokenizer.model"]), parsed(extension.apply(base).files["tokenizer.model"])
    assert list(after.pieces)[: len(before.pieces)] == list(before.pieces)
    assert after.trainer_spec == before.trainer_spec
    assert after.normalizer_spec == before.normalizer_spec
    new = list(after.pieces)[len(before.pieces) :]
    lowest = min(p.score for p in before.pieces if p.score > -1e9)
    assert [p.piece for p in new] == list(extension.tokens)
    assert [p.score for p in new] == [lowest - at for at in range(1, len(new) + 1)]
    assert {p.type for p in new} == {NORMAL}


def test_there_is_no_room_between_words_and_runs_that_score_close():
    pieces = builders.pieces_of(["ab"], "ab")
    raw = builders.piece_model([*pieces, ("▁▁", pieces[-1][1] - 1.5, NORMAL)])
    model = PieceModel.read(raw, "x")
    before = {piece.string: i for i, piece in enumerate(model.pieces)}
    assert model.changed(Change(before, before | {"ba": len(model.pieces)})).pieces[-1].score == pieces[-1][1] - 1
    with pytest.raises(errors.UnsupportedTokenizerError, match="no room for 2 scores"):
        model.changed(Change(before, before | {"ba": 999, "bb": 1000}))


def test_learned_merges_stand_before_those_of_white_space(both):
    base = tg.load(both)
    extended = tg.extend(base, tg.count(base, iter(builders.TEXT)), 12).apply(base)
    strings = {token.id: token.string for token in extended.tokens}
    products = [strings[left] + strings[right] for left, right in extended.merges]
    runs = [product for product in products if not product.strip("▁")]
    assert len(runs) > 2
    assert products[-len(runs) :] == runs


def test_a_new_token_brings_the_merges_that_the_model_implies(model_file, tmp_path):
    base = tg.load(model_file)
    extension = tg.extend(base, tg.count(base, ["kithe sethe kuthe kithe sethe"]), 1)
    assert "the" in extension.tokens
    assert "▁the" in base.ids
    extended = extension.apply(base)
    assert ("▁", "the") in extended.merge_strings()
    written = tg.load(tg.save(extended, tmp_path / "out", base=base))
    assert written.merge_strings() == extended.merge_strings()
    assert written == extended
    tg.check(written, base=base).raise_for_failures()


def test_added_tokens_beyond_the_model_keep_their_ids_in_both_files(both, tmp_path):
    document = json.loads((both / "tokenizer.json").read_bytes())
    size = len(document["model"]["vocab"])
    document["added_tokens"] += [builders.added(size, "<pad>"), builders.added(size + 1, "<x>", special=False)]
    builders.write(both, document)
    base = tg.load(both)
    extended = tg.extend(base, tg.count(base, iter(builders.TEXT)), 3).apply(base)
    loaded = tg.load(tg.save(extended, tmp_path / "out", verify=False))
    assert loaded == extended
    pieces = parsed(loaded.files["tokenizer.model"]).pieces
    assert [(p.piece, p.type) for p in pieces[size : size + 2]] == [("<pad>", CONTROL), ("<x>", USER_DEFINED)]
    assert [p.piece for p in pieces[size + 2 :]] == [s for s, i in extended.vocab.items() if i > size + 1]


def test_piece_types_have_the_numbers_of_the_library():
    kinds = messages.ModelProto.SentencePiece.Type
    named = {"NORMAL": NORMAL, "UNKNOWN": UNKNOWN, "CONTROL": CONTROL, "USER_DEFINED": USER_DEFINED, "BYTE": BYTE}
    assert {name: kinds.Value(name) for name in named} == named
    assert kinds.Value("UNUSED") == UNUSED


def test_a_folder_with_neither_form_is_refused(tmp_path):
    Path(tmp_path / "tokenizer.model").write_bytes(b"neither\n")
    with pytest.raises(errors.SourceNotFoundError, match="nor a SentencePiece model or rank file"):
        tg.load(tmp_path)


def test_runs_of_spaces_that_the_user_defined_are_no_difference_between_the_forms(tmp_path):
    """Gemma's: SentencePiece finds them before it merges, and `tokenizer.json` lists merges for them."""
    learned, characters = ["▁▁", "▁t", "he", "▁the", "at", "▁c", "▁cat"], "▁thecasz"
    pieces = builders.pieces_of(learned, characters)
    defined = [(text, score, builders.USER_DEFINED if text == "▁▁" else kind) for text, score, kind in pieces]
    for folder, listed in (("merged", pieces), ("both", defined)):
        builders.write_pieces(tmp_path / folder, builders.piece_model(listed, normalizer={"add_dummy_prefix": False}))
    document, merged = (json.loads((tmp_path / name / "tokenizer.json").read_text()) for name in ("both", "merged"))
    assert ["▁", "▁"] in merged["model"]["merges"]
    document["model"] = merged["model"]
    (run,) = (token for token in document["added_tokens"] if token["content"] == "▁▁")
    run["normalized"] = False  # it is not found in spaces
    base = tg.load(builders.write(tmp_path / "both", document))
    counts = tg.count(base, iter(["the  cat  sat  the"] * 50))
    pruned = tg.prune(base, counts, 2).apply(base).compact()
    tg.save(pruned, tmp_path / "out")
    found = verify_folder(tmp_path / "out", pruned, base=base, texts=["the  cat", " the   cat  "])
    found.raise_for_failures()
    assert "sentencepiece" in found.loaders
