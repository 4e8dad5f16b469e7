"""`convert`: what is exact, what is refused, and the command."""

import json

import builders
import pytest
import rank_files as ranks
from rank_files import isolated
from sentencepiece import SentencePieceProcessor

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.rank_file import CL100K, ENCODING, GPT2, QWEN2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return builders.write(tmp_path_factory.mktemp("plain"), isolated(builders.byte_level(), CL100K))


@pytest.fixture(scope="module")
def plain(folder):
    return tg.load(folder)


@pytest.mark.parametrize("to", ["tiktoken", "tekken"])
def test_a_tokenizer_json_becomes_a_rank_file_and_back_with_the_same_tokens(plain, to, tmp_path):
    converted = tg.convert(plain, to, renumber=True)
    out = tg.save(converted, tmp_path / to)
    ranks.assert_library_agrees(out, converted)
    back = tg.convert(tg.load(out), "huggingface")
    again = tg.load(tg.save(back, tmp_path / "back"))
    for text in [*ranks.TEXTS, *ranks.drawn(plain)]:
        strings = [plain.strings[i] for i in plain.encode(text)]
        assert [again.strings[i] for i in again.encode(text)] == strings
        assert [converted.strings[i] for i in converted.encode(text)] == strings


def test_ids_stay_if_they_are_in_the_order_of_the_merges(plain):
    converted = tg.convert(plain, "tiktoken")
    assert converted.ids == plain.ids
    assert converted.main == "tokenizer.tiktoken"
    assert json.loads(converted.files[ENCODING])["pat_str"] == CL100K


def test_formats_that_do_not_exist_and_tekken_without_renumbering_are_refused(plain):
    with pytest.raises(errors.OptionError, match="no format 'gguf'"):
        tg.convert(plain, "gguf")
    with pytest.raises(errors.UnsupportedTokenizerError, match="do not begin with the special tokens") as caught:
        tg.convert(plain, "tekken")
    assert "`renumber`" in caught.value.hint


def test_rank_files_become_each_other(tmp_path):
    tekken = tg.load(ranks.write_tekken(tmp_path / "tekken"))
    as_tiktoken = tg.convert(tekken, "tiktoken")
    assert as_tiktoken.ids == tekken.ids
    out = tg.save(as_tiktoken, tmp_path / "tiktoken")
    ranks.assert_library_agrees(out, as_tiktoken)
    back = tg.convert(tg.load(out), "tekken")
    assert back.ids == tekken.ids
    assert tg.convert(back, "tekken") == back


def test_the_rank_file_of_a_folder_is_taken_as_it_is(tmp_path):
    folder = ranks.both(tmp_path, ranks.write_tekken)
    converted = tg.convert(tg.load(folder), "tekken")
    assert dict(converted.files) == {"tekken.json": (folder / "tekken.json").read_bytes()}
    model = tg.load(ranks.both(tmp_path / "b", ranks.following))
    assert tg.convert(model, "tiktoken").ids == model.ids


def test_a_swapped_vocabulary_is_renumbered_by_priority(plain, tmp_path):
    counts = ranks.counts_of(plain)
    pruned = tg.prune_order(plain, counts)[:20].apply(plain)
    swapped = tg.extend(pruned, counts, 20).apply(pruned)
    with pytest.raises(errors.UnsupportedTokenizerError, match=r"not in the order|is made of"):
        tg.convert(swapped, "tiktoken")
    for to in ("tiktoken", "tekken"):
        converted = tg.convert(swapped, to, renumber=True)
        assert len(converted.ids) == converted.n_rows
        ranks.assert_library_agrees(tg.save(converted, tmp_path / to), converted)


def refused(document, to, match, tmp_path, **options):
    tokenizer = tg.load(builders.write(tmp_path / "refused", document))
    with pytest.raises(errors.UnsupportedTokenizerError, match=match):
        tg.convert(tokenizer, to, **options)


def test_what_a_format_cannot_express_is_refused_with_the_reason(tmp_path):
    base = isolated(builders.byte_level(), CL100K)
    refused(base | {"normalizer": {"type": "NFC"}}, "tiktoken", "its pipeline is NFC, Split, ByteLevel", tmp_path)
    refused(isolated(base, r"\w+|\s"), "tiktoken", "drops what is not matched", tmp_path)
    spaced = {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}}
    refused(base | spaced, "tekken", "a space in front", tmp_path)
    refused(base, "sentencepiece", "made of bytes", tmp_path)
    refused(builders.sentencepiece(), "tiktoken", "made of characters", tmp_path)
    nmt = builders.sentencepiece() | {"normalizer": {"type": "NFKC"}}
    refused(nmt, "sentencepiece", "its pipeline is .*NFKC", tmp_path)
    refused(builders.sentencepiece(metaspace=True), "sentencepiece", "its pipeline is .*Metaspace", tmp_path)
    for odd in ("a b", "猫"):
        vocab = base["model"]["vocab"] | {odd: len(base["model"]["vocab"])}
        model = base["model"] | {"vocab": vocab, "ignore_merges": True}
        refused(base | {"model": model}, "tiktoken", f"the token '{odd}' is not spelled in bytes", tmp_path)
    strip = base | {"added_tokens": [entry | {"lstrip": True} for entry in base["added_tokens"]]}
    refused(strip, "tiktoken", "takes white space along", tmp_path)


def test_merges_that_do_not_follow_the_rule_of_ranks_are_refused(tmp_path):
    base = isolated(builders.byte_level(), CL100K)
    vocab, merges = base["model"]["vocab"], base["model"]["merges"]

    def changed(**model):
        return base | {"model": base["model"] | model}

    unreachable = {"zqzq": len(vocab)}
    for options in ({}, {"renumber": True}):
        refused(
            changed(vocab=vocab | unreachable), "tiktoken", "merges do not make the token 'zqzq'", tmp_path, **options
        )
    listed = changed(vocab=vocab | unreachable, ignore_merges=True)
    assert tg.convert(tg.load(builders.write(tmp_path / "fine", listed)), "tiktoken").ids["zqzq"] == len(vocab)
    # `th` + `e` is not listed any more: merges reach `the` no longer, ranks do.
    without = [pair for pair in merges if "".join(pair) != "the"]
    refused(changed(merges=without), "tiktoken", "'the' is made of nothing by the merges", tmp_path)


def test_a_gpt2_pipeline_has_a_pattern(tmp_path):
    tokenizer = tg.load(builders.write(tmp_path / "gpt2", builders.byte_level()))
    converted = tg.convert(tokenizer, "tiktoken")
    assert json.loads(converted.files[ENCODING])["pat_str"] == GPT2
    ranks.assert_library_agrees(tg.save(converted, tmp_path / "out"), converted)


def test_a_sentencepiece_model_becomes_a_tokenizer_json_and_back(tmp_path):
    path = tmp_path / "tokenizer.model"
    path.write_bytes(builders.llama2_like())
    model = tg.load(path)
    plain = tg.convert(model, "huggingface")
    assert "tokenizer.model" not in plain.files
    assert tg.load(tg.save(plain, tmp_path / "out")).ids == model.ids
    assert tg.convert(model, "sentencepiece") == model
    again = tg.convert(plain, "sentencepiece")
    out = tg.save(again, tmp_path / "again")
    library = SentencePieceProcessor(model_file=str(out / "tokenizer.model"))
    for text in [*ranks.TEXTS, "kass istus  matil", "<0x41>A", "🙂 ▁"]:
        ids = model.encode(text.strip(" "))
        assert again.encode(text.strip(" ")) == ids
        assert library.encode(text.strip(" ")) == ids


@pytest.mark.parametrize("scheme", [None, "never"])
def test_a_tokenizer_json_of_a_sentencepiece_type_becomes_a_model(scheme, tmp_path, tokengraft):
    document = builders.sentencepiece(metaspace=scheme is not None)
    if scheme:
        document["pre_tokenizer"]["prepend_scheme"] = scheme
    folder = builders.write(tmp_path / "base", document)
    base = tg.load(folder)
    arguments = ["convert", folder, "--to", "sentencepiece", "--out", tmp_path / "out"]
    assert "tokenizers, sentencepiece: the same ids" in " ".join(tokengraft(*arguments).out.split())
    assert tg.load(tmp_path / "out").ids == base.ids


def test_pieces_that_sentencepiece_would_merge_otherwise_are_refused(tmp_path):
    document = builders.sentencepiece()
    document["model"]["merges"].remove(["▁t", "he"])
    refused(document, "sentencepiece", "'▁the' is made of nothing", tmp_path)
    unknown = builders.sentencepiece()
    unknown["model"]["unk_token"] = None
    refused(unknown, "sentencepiece", "no unknown token", tmp_path)


def test_the_command_converts_and_says_what_was_proven(folder, plain, tmp_path, tokengraft):
    out = tmp_path / "out"
    arguments = ["convert", folder, "--to", "tekken", "--renumber", "--out", out]
    shown = " ".join(tokengraft(*arguments).out.split())
    assert f"the same tokens for the text of all {len(plain.tokens)} tokens and for" in shown
    assert "tokenizers, mistral-common: the same ids" in shown
    assert "ids have changed" in shown
    summary = tokengraft("convert", out, "--to", "huggingface", "--out", tmp_path / "hf", "--json").json
    assert (summary["files"], summary["proven"]["moved"]) == (["tokenizer.json", "tokenizer_config.json"], 0)
    assert "transformers" in summary["loaded_by"]
    tokengraft("convert", out, "--to", "sentencepiece", "--out", tmp_path / "sp", code=2)
    assert not (tmp_path / "sp").exists()


def test_the_command_takes_the_pattern_and_the_special_tokens_of_an_unknown_file(tmp_path, tokengraft):
    (tmp_path / "x.tiktoken").write_bytes(builders.tiktoken_file(ranks.tiny_ranks()))
    (tmp_path / "s.json").write_text('["<s>", "</s>"]')
    arguments = ["convert", tmp_path / "x.tiktoken", "--to", "tiktoken", "--out", tmp_path / "out"]
    given = ["--pattern", "qwen2", "--special-tokens", tmp_path / "s.json"]
    assert "--pattern" in tokengraft(*arguments, code=2).err
    tokengraft(*arguments, *given)
    loaded = tg.load(tmp_path / "out")
    assert [token.content for token in loaded.added] == ["<s>", "</s>"]
    assert json.loads(loaded.files[ENCODING])["pat_str"] == QWEN2
    (tmp_path / "s.json").write_text("{")
    assert "check --special-tokens" in tokengraft(*arguments, *given, "--force", code=2).err


def test_a_tekken_file_with_other_special_tokens_than_the_tokenizer_json_is_not_its_conversion(tmp_path):
    """As in the published folder of Mistral-Nemo: the reserved tokens have other texts in the two files."""
    folder = ranks.both(tmp_path / "model", ranks.write_tekken)
    raw = (folder / "tokenizer.json").read_text(encoding="utf-8")
    (folder / "tokenizer.json").write_text(raw.replace("<|x|>", "<pad>"), encoding="utf-8")
    with pytest.raises(errors.UnsupportedTokenizerError, match=r"'<\|x\|>' in `tekken\.json`") as caught:
        tg.convert(tg.load(folder), "tekken")
    assert "tekken.json" in str(caught.value.hint)


def test_the_command_says_what_the_format_does_not_have(tmp_path, tokengraft):
    document = isolated(builders.byte_level(), CL100K)
    start = document["added_tokens"][0]
    special = {start["content"]: {"id": start["content"], "ids": [start["id"]], "tokens": [start["content"]]}}
    single = [{"SpecialToken": {"id": start["content"], "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    template = {"type": "TemplateProcessing", "single": single, "pair": single, "special_tokens": special}
    folder = builders.write(tmp_path / "model", document | {"post_processor": template})
    (folder / "tokenizer_config.json").write_text("{}")
    command = ["convert", str(folder), "--quiet", "--out"]
    shown = tokengraft(*command, tmp_path / "ranks", "--to", "tiktoken").out
    assert "left out        post-processor (special tokens around text), tokenizer_config.json" in shown
    assert "left out" not in tokengraft(*command, tmp_path / "same", "--to", "huggingface").out
