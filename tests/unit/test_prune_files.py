"""Pruned tokenizers as files: every id in every file, holes, both forms of SentencePiece."""

import json
from dataclasses import replace

import builders
import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft import errors
from tokengraft.verify.loaders import verify_folder

TEXT = ["the cat sat on the mat", "kass istus matil"] * 3
BARE = tg.Protection(defaults=False)


def strings(tokenizer):
    return {token.string for token in tokenizer.tokens}


def test_kept_ids_load_everywhere_with_their_holes(base, counts, tmp_path):
    pruned = tg.prune_order(base, counts)[:60].apply(base)
    assert pruned.n_rows == base.n_rows
    out = tg.save(pruned, tmp_path / "out", verify=False)
    assert verify_folder(out, pruned, TEXT).loaders == ("tokenizers", "transformers")
    assert Upstream.from_file(str(out / "tokenizer.json")).token_to_id("<|end|>") == base.vocab.get(
        "<|end|>", base.n_rows - 1
    )


@pytest.fixture
def many_files(tmp_path):
    """A tokenizer that names ids in every place that real ones do."""
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<|start|>": {"id": "<|start|>", "ids": [size], "tokens": ["<|start|>"]}},
    }
    roberta = {"type": "RobertaProcessing", "sep": ["<|end|>", size + 1], "cls": ["<|start|>", size]}
    roberta |= {"trim_offsets": True, "add_prefix_space": False}
    document["post_processor"] = {"type": "Sequence", "processors": [template, roberta]}
    padding = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_type_id": 0}
    document["padding"] = padding | {"pad_id": size + 1, "pad_token": "<|end|>"}
    decoder = {str(size + at): {"content": name, "special": True} for at, name in enumerate(("<|start|>", "<|end|>"))}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "added_tokens_decoder": decoder, "pad_token_id": size + 1}
    others = {
        "tokenizer_config.json": json.dumps(config),
        "added_tokens.json": json.dumps({"<|start|>": size, "<|end|>": size + 1}),
        "vocab.json": json.dumps(document["model"]["vocab"], ensure_ascii=False),
        "merges.txt": "#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in document["model"]["merges"]),
        "special_tokens_map.json": '{"eos_token": "<|end|>"}',
    }
    return tg.load(builders.write(tmp_path / "many", document, **others))


def test_closing_the_holes_rewrites_every_id_in_every_file(many_files, tmp_path):
    base = many_files
    pruned = tg.prune_order(base, tg.count(base, iter(TEXT)))[:60].apply(base).compact()
    start, end = base.n_rows - 62, base.n_rows - 61
    assert [token.id for token in pruned.tokens] == list(range(base.n_rows - 60))
    out = tg.save(pruned, tmp_path / "out", verify=False)
    document = json.loads((out / "tokenizer.json").read_bytes())
    assert [entry["id"] for entry in document["added_tokens"]] == [start, end]
    template, roberta = document["post_processor"]["processors"]
    assert template["special_tokens"]["<|start|>"]["ids"] == [start]
    assert roberta["sep"] == ["<|end|>", end]
    assert roberta["cls"] == ["<|start|>", start]
    assert document["padding"]["pad_id"] == end
    config = json.loads((out / "tokenizer_config.json").read_bytes())
    assert {int(i): entry["content"] for i, entry in config["added_tokens_decoder"].items()} == {
        start: "<|start|>",
        end: "<|end|>",
    }
    assert config["pad_token_id"] == end
    assert json.loads((out / "added_tokens.json").read_bytes()) == {"<|start|>": start, "<|end|>": end}
    vocab = json.loads((out / "vocab.json").read_bytes())
    assert vocab == {token.string: token.id for token in pruned.tokens if token.string in vocab}
    assert len((out / "merges.txt").read_text(encoding="utf-8").splitlines()) == 1 + len(pruned.merges)
    assert verify_folder(out, pruned, TEXT).loaders == ("tokenizers", "transformers")
    assert tg.load(out) == pruned


def test_both_forms_of_a_sentencepiece_type_are_pruned_alike(pieces, tmp_path):
    counts = tg.count(pieces, iter(TEXT))
    order = tg.prune_order(pieces, counts)
    for size in (3, len(order)):
        for pruned in (order[:size].apply(pieces), order[:size].apply(pieces).compact()):
            out = tg.save(pruned, tmp_path / f"{size}-{pruned.n_rows}", verify=False)
            assert verify_folder(out, pruned, TEXT).loaders == ("tokenizers", "transformers", "sentencepiece")
            assert tg.load(out) == pruned
            alone = tg.load(out / "tokenizer.model")
            assert strings(alone) == strings(pruned)
            assert alone.encode("kass istus") == pruned.encode("kass istus")


def test_a_pruned_model_is_extended_into_its_holes(pieces, tmp_path):
    pruned = tg.prune_order(pieces, tg.count(pieces, iter(["the cat"])))[:8].apply(pieces)
    loaded = tg.load(tg.save(pruned, tmp_path / "pruned", verify=False))
    extended = tg.extend(loaded, tg.count(loaded, iter(TEXT * 2)), 8).apply(loaded)
    assert extended.n_rows == pieces.n_rows
    assert len(extended.tokens) == len(pieces.tokens)
    out = tg.save(extended, tmp_path / "out", verify=False)
    assert verify_folder(out, extended, TEXT).loaders == ("tokenizers", "transformers", "sentencepiece")


def test_single_characters_go_where_bytes_can_spell_them(pieces, base, counts):
    order = tg.prune_order(pieces, tg.count(pieces, iter(TEXT)), protection=replace(BARE, characters=True))
    pruned = order.apply(pieces)
    assert not [token for token in pruned.tokens if len(token.string) == 1 and token.string != "▁"]
    assert "▁" in pruned.vocab
    text = "кот naïve the cat"
    model = SentencePieceProcessor(model_proto=pruned.files["tokenizer.model"])
    assert model.decode(pruned.encode(text)) == text
    with pytest.raises(errors.OptionError, match="no byte fallback"):
        tg.prune_order(base, counts, protection=tg.Protection(characters=True))


def test_kept_ids_keep_the_number_of_rows_when_the_highest_id_is_a_learned_token(tmp_path, tokengraft):
    document = builders.specials_first()
    base = tg.load(builders.write(tmp_path / "b", document))
    common = ["prune", tmp_path / "b", "--method", "last-id-leaf", "--remove", "20", "--json", "--out"]
    rows = {}
    for ids in ("keep", "compact"):
        rows[ids] = tokengraft(*common, tmp_path / ids, "--ids", ids).json["rows"]
        assert tg.load(tmp_path / ids).n_rows == rows[ids]
    assert rows == {"keep": base.n_rows, "compact": len(base.tokens) - 20}


def test_tokens_that_settings_and_post_processors_name_stay(tmp_path):
    document = builders.byte_level()
    by_id = {i: s for s, i in document["model"]["vocab"].items()}
    pad, named = by_id[394], by_id[393]
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"x": {"id": "x", "ids": [393], "tokens": [named]}},
    }
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad, "pad_token_id": 394}
    base = tg.load(builders.write(tmp_path, document, **{"tokenizer_config.json": json.dumps(config)}))
    pruned = tg.prune_order(base, None, "last-id-leaf").apply(base).compact()
    assert {pad, named} <= set(pruned.ids)
    assert json.loads(pruned.files["tokenizer_config.json"])["pad_token_id"] == pruned.ids[pad]
