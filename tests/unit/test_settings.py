"""Added tokens that only the files beside `tokenizer.json` name: their ids and flags, through every operation."""

import json

import builders
import checkpoints
import numpy as np
import pytest
from checkpoints import changed

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.edit import remove_tokens

SIZE = 395
"""Vocabulary entries of `builders.byte_level`; its two added tokens follow."""
EXTRA = ["<|think|>", "<|left|>", "<|right|>", "<|word|>", "<|both|>"]
TEXT = "".join(f"the {token} cat{token}sat  {token}" for token in EXTRA)


def written(folder, document=None, **config):
    """A tokenizer folder with these settings."""
    settings = {"tokenizer_config.json": json.dumps(config)}
    return builders.write(folder / "base", document or builders.byte_level(), **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return written(tmp_path_factory.mktemp("settings"), **json.loads(builders.settings()))


@pytest.fixture(scope="module")
def base(folder):
    return tg.load(folder)


def transformers_tokenizer(folder):
    transformers = pytest.importorskip("transformers")
    return transformers.AutoTokenizer.from_pretrained(str(folder))


def token(content, **flags):
    return {"content": content} | flags


PLAIN = dict.fromkeys(("lstrip", "rstrip", "single_word", "normalized", "special"), False)
FOLDERS = {
    "nothing": ({}, {}),
    "ids that are not the next": (
        {"added_tokens_decoder": {"405": token("<x>", **PLAIN | {"lstrip": True}), "99": token("<y>", special=True)}},
        {},
    ),
    "other flags than tokenizer.json": ({"added_tokens_decoder": {"395": token("<|start|>", lstrip=True)}}, {}),
    "a learned token": ({"added_tokens_decoder": {"7": token("the", **PLAIN)}}, {}),
    "flags left out": (
        {"added_tokens_decoder": {"397": token("<x>"), "398": token("<y>", special=True), "399": {"special": True}}},
        {},
    ),
    "named": (
        {
            "pad_token": "<pad>",
            "eos_token": "the",
            "image_token": "<image>",
            "bos_token": {"__type": "AddedToken", "content": "<bos>", "lstrip": True},
            "extra_special_tokens": ["<e>", "<pad>", {"__type": "AddedToken", "content": "<f>", "lstrip": True}],
        },
        {},
    ),
    "named and listed": ({"pad_token": "<p>", "added_tokens_decoder": {"397": token("<p>", **PLAIN)}}, {}),
    "extra by name": (
        {"extra_special_tokens": {"image_token": "<image>"}, "additional_special_tokens": ["<a>"]},
        {},
    ),
    "additional": ({"additional_special_tokens": ["<a>", "<b>"]}, {}),
    "old files": (
        {"bos_token": "<bos>"},
        {
            "added_tokens.json": {"<old>": 397, "<|start|>": 402, "<eos>": 400},
            "special_tokens_map.json": {
                "pad_token": "<pad>",
                "additional_special_tokens": ["<a>"],
                "eos_token": token("<eos>", lstrip=True),
                "sound_token": "<sound>",
            },
        },
    ),
    "old files that override additional tokens beside extra ones by name": (
        {"extra_special_tokens": {"image_token": "<image>"}, "additional_special_tokens": ["<a>"]},
        {"special_tokens_map.json": {"additional_special_tokens": ["<b>"]}},
    ),
    "old files that do not override additional tokens": (
        {"additional_special_tokens": []},
        {"special_tokens_map.json": {"additional_special_tokens": ["<b>"], "extra_special_tokens": {"w_token": "<w>"}}},
    ),
    "old files with special objects": (
        {"pad_token": {"__type": "AddedToken", "content": "<pad>", "normalized": False}},
        {
            "added_tokens.json": {"<pad>": 397, "<a>": 398},
            "special_tokens_map.json": {
                "vid_token": token("<v>", normalized=True),
                "extra_special_tokens": [token("<e>", normalized=True)],
                "additional_special_tokens": ["<a>"],
            },
        },
    ),
    "of the model": (
        {"model_specific_special_tokens": {"v_token": "<v>"}, "sound_token": {"content": "<no>"}},
        {},
    ),
    "of the model, replaced by others": (
        {"model_specific_special_tokens": {"v_token": "<v>"}, "sound_token": "<sound>"},
        {},
    ),
    "switches": ({"add_bos_token": "the", "add_eos_token": "<e>"}, {}),
    "named twice": (
        {"pad_token": {"__type": "AddedToken", "content": "<p>", "rstrip": True}, "extra_special_tokens": ["<p>"]},
        {},
    ),
    "old files that are not read": (
        {"added_tokens_decoder": {}},
        {"added_tokens.json": {"<old>": 397}, "special_tokens_map.json": {"pad_token": "<pad>"}},
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_added_tokens_have_the_ids_and_flags_that_transformers_gives(tmp_path, case):
    config, others = FOLDERS[case]
    config = {"tokenizer_class": "PreTrainedTokenizerFast"} | config
    files = {"tokenizer_config.json": config} | others
    folder = builders.write(
        tmp_path / "base", builders.byte_level(), **{name: json.dumps(content) for name, content in files.items()}
    )
    flags = ("special", "normalized", "single_word", "lstrip", "rstrip")
    expected = {
        token_id: (str(entry), *(getattr(entry, flag) for flag in flags))
        for token_id, entry in transformers_tokenizer(folder).added_tokens_decoder.items()
    }
    found = {token.id: (token.content, *(getattr(token, flag) for flag in flags)) for token in tg.load(folder).added}
    assert found == expected


def test_tokens_of_the_settings_are_split_out_of_text_as_transformers_does(folder, base):
    assert [token.id for token in base.added] == list(range(SIZE, SIZE + 7))
    assert base.encode(TEXT) == transformers_tokenizer(folder)(TEXT)["input_ids"]
    assert set(range(SIZE + 2, SIZE + 7)) <= set(base.encode(TEXT))


def test_an_unchanged_tokenizer_is_written_byte_for_byte(folder, base, tmp_path):
    saved = tg.save(base, tmp_path / "saved", verify=False)
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == {p.name: p.read_bytes() for p in folder.iterdir()}


def extended(base):
    return changed(base, add=10)


def pruned(base, method="leaf-frequency", n=30):
    return tg.prune_order(base, tg.count(base, iter(builders.TEXT)), method)[:n].apply(base)


CHANGES = {
    "extended": extended,
    "pruned": pruned,
    "compact": lambda base: pruned(base).compact(),
    "pruned and extended": lambda base: extended(pruned(base)),
    "pruned, extended and compact": lambda base: extended(pruned(base)).compact(),
    "extended and pruned": lambda base: pruned(extended(base), "last-id-leaf", 25),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_operation_keeps_the_tokens_of_the_settings(base, tmp_path, change):
    tokenizer = CHANGES[change](base)
    saved = tg.save(tokenizer, tmp_path / "saved", verify=False)
    assert {token.content for token in tg.load(saved).added} == {"<|start|>", "<|end|>", *EXTRA}
    strings = {token.id: token.content for token in tokenizer.added}
    names = {token.id: token.content for token in base.added}
    text = TEXT.replace("cat", "xq")
    before = [names[i] for i in base.encode(text) if i in names]
    assert [strings[i] for i in tokenizer.encode(text) if i in strings] == before
    if not change.endswith("compact"):
        assert {token.content: token.id for token in tokenizer.added} == {t.content: t.id for t in base.added}
    assert tg.load(saved / "tokenizer.json").encode(text) == tokenizer.encode(text)
    assert transformers_tokenizer(saved)(text)["input_ids"] == tokenizer.encode(text)
    assert tg.check(tg.load(saved), base).passed


@pytest.mark.parametrize("method", ["naive-regen", "naive-append"])
def test_the_naive_baselines_keep_the_tokens_of_the_settings(base, method):
    counts = tg.count(base, iter(["põdrad põõsas õunad õues"] * 5))
    new = tg.learn.extend_naively(base, counts, 5, method)
    assert {token.content: token.id for token in new.added} == {token.content: token.id for token in base.added}


def test_counts_made_without_the_settings_are_refused(folder, base):
    alone = tg.load(folder / "tokenizer.json")
    assert len(alone.added) == 2
    counts = tg.count(alone, iter(builders.TEXT))
    with pytest.raises(errors.CountsError, match="added tokens: 5"):
        tg.extend(base, counts, 5)


@pytest.mark.parametrize(
    ("change", "as_file"),
    [*((change, False) for change in CHANGES), ("compact", True), ("pruned and extended", True)],
)
def test_a_transplant_keeps_the_tokens_of_the_settings_and_their_rows(tmp_path, change, as_file):
    """Also if the new tokenizer is a `tokenizer.json` alone, and the settings are those of the source."""
    config = {"bos_token_id": None, "pad_token_id": None, "num_attention_heads": 2}
    checkpoints.checkpoint(tmp_path / "model", rows=SIZE + 7, config=config)
    (tmp_path / "model" / "tokenizer_config.json").write_text(builders.settings())
    base = tg.load(tmp_path / "model")
    new = CHANGES[change](base)
    source = tg.save(new, tmp_path / "new", base=base) / "tokenizer.json" if as_file else new
    tg.transplant(tmp_path / "model", source, tmp_path / "out")
    written = tg.load(tmp_path / "out")
    assert {token.content: token.id for token in written.added} == {token.content: token.id for token in new.added}
    before, after = (checkpoints.tables(tmp_path / name)["lm_head.weight"] for name in ("model", "out"))
    for token in base.added:
        assert np.array_equal(after[written.ids[token.content]], before[token.id])
    text = TEXT.replace("cat", "xq")
    assert transformers_tokenizer(tmp_path / "out")(text)["input_ids"] == written.encode(text)


@pytest.mark.parametrize("sizes", [{"swap": 6}, {"add": 6}, {"remove": 6}, {"add": 3, "remove": 9}])
def test_an_adaptation_keeps_the_tokens_of_the_settings(folder, base, tmp_path, sizes):
    text = tmp_path / "et.txt"
    text.write_text("\n".join(checkpoints.ESTONIAN))
    tg.adapt(folder, target=text, out=tmp_path / "out", **sizes, options=tg.AdaptOptions(report=False))
    new = tg.load(tmp_path / "out")
    assert [token.content for token in new.added] == [token.content for token in base.added]
    if "remove" not in sizes:
        assert {token.content: token.id for token in new.added} == {token.content: token.id for token in base.added}
    assert transformers_tokenizer(tmp_path / "out")(TEXT)["input_ids"] == new.encode(TEXT)


def test_a_reserved_token_of_the_settings_that_is_removed_stays_removed(tmp_path):
    entries = {str(SIZE + 2): builders.added(0, "<|reserved_special_token_0|>")}
    base = tg.load(written(tmp_path, tokenizer_class="PreTrainedTokenizerFast", added_tokens_decoder=entries))
    order = tg.prune_order(base, tg.count(base, iter(builders.TEXT)), protection=tg.Protection(reuse_reserved=True))
    assert order.tokens[0] == "<|reserved_special_token_0|>"
    saved = tg.save(order[:1].apply(base), tmp_path / "new", base=base)
    assert "<|reserved_special_token_0|>" not in transformers_tokenizer(saved).get_vocab()
    assert len(tg.load(saved).ids) == len(base.ids) - 1


def test_a_token_of_the_settings_with_the_id_of_a_learned_token_is_refused(tmp_path):
    document = builders.specials_first()
    document["model"]["vocab"]["a"] = len(document["model"]["vocab"])
    with pytest.raises(errors.InvalidTokenizerError, match=r"<pad>.*loaders give it the id 397, which `a` has"):
        tg.load(written(tmp_path, document, pad_token="<pad>"))


def test_an_added_token_beyond_the_last_id_is_refused(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"]["<|end|>"] = 2**32 - 1
    with pytest.raises(errors.InvalidTokenizerError, match="4294967296, and ids end at"):
        tg.load(written(tmp_path, document, pad_token="<pad>"))


def test_a_token_that_the_settings_name_cannot_be_removed(tmp_path):
    base = tg.load(written(tmp_path, pad_token="<pad>"))
    kept = {string: token_id for string, token_id in base.ids.items() if string != "<pad>"}
    with pytest.raises(errors.InvalidTokenizerError, match="'<pad>' cannot be removed"):
        base.with_tokens(kept, base.merge_strings())


@pytest.mark.parametrize("file", ["tokenizer.model", "spiece.model"])
def test_a_piece_model_alone_has_the_tokens_of_its_settings(tmp_path, file):
    pytest.importorskip("sentencepiece")
    tmp_path.joinpath(file).write_bytes(builders.llama2_like())
    size = len(tg.load(tmp_path).vocab)
    entry = {"content": "<|think|>", "special": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": {str(size): entry}}))
    base = tg.load(tmp_path)
    assert size in base.encode("the <|think|> cat")
    extended = changed(base, add=4)
    again = tg.load(tg.save(extended, tmp_path / "saved", verify=False))
    assert again.ids["<|think|>"] == size
    assert again.encode("the <|think|> põdrad") == extended.encode("the <|think|> põdrad")


# Settings that cannot be read, or only leniently.


@pytest.mark.parametrize(
    ("name", "raw", "match"),
    [
        ("tokenizer_config.json", b"[]", "holds a list"),
        ("tokenizer_config.json", b"{", "not valid JSON"),
        ("tokenizer_config.json", b'{"a": "\xff"}', "not UTF-8"),
        ("tokenizer_config.json", b'{"a":' * 400 + b"1" + b"}" * 400, "nested deeper than 128"),
        ("tokenizer_config.json", b'{"pad_token": "\\ud800"}', "half of a surrogate pair"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": []}', "added_tokens_decoder is"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"x": {}}}', "the key 'x'"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"5": "x"}}', "is 'x'; expected an object"),
        ("tokenizer_config.json", b'{"added_tokens_decoder": {"5": {"content": "x", "lstrip": 1}}}', "true or false"),
        ("added_tokens.json", b'{"<x>": -1}', "the id -1"),
    ],
)
def test_settings_that_no_loader_reads_are_refused(tmp_path, name, raw, match):
    folder = builders.write(tmp_path / "base", builders.byte_level())
    (folder / name).write_bytes(raw)
    with pytest.raises(errors.TokengraftError, match=match) as raised:
        tg.load(folder)
    assert name in str(raised.value)


def test_values_that_only_python_reads_stay_as_they_are(tmp_path):
    raw = b'{"a": NaN, "b": [Infinity, -Infinity], "c": "\\ud800 \xc3\xb5", "pad_token_id": 3}'
    folder = builders.write(tmp_path / "base", builders.byte_level())
    (folder / "tokenizer_config.json").write_bytes(raw)
    base = tg.load(folder)
    assert tg.save(base, tmp_path / "same", verify=False).joinpath("tokenizer_config.json").read_bytes() == raw
    moved = base.with_tokens({string: i + 1 for string, i in base.ids.items()}, base.merge_strings())
    assert moved.files["tokenizer_config.json"] == raw.replace(b"3}", b"4}")


def test_an_id_in_the_settings_is_null_once_its_token_is_gone(tmp_path):
    token_id = builders.byte_level()["model"]["vocab"]["Ġthe"]
    content = {"a_token_id": token_id, "b_token_id": [token_id, 5], "c_token_id": True, "d_token_id": 9999}
    changed = remove_tokens(tg.load(written(tmp_path, **content)), ["Ġthe"])
    expected = {"a_token_id": None, "b_token_id": [5], "c_token_id": True, "d_token_id": 9999}
    assert json.loads(changed.files["tokenizer_config.json"]) == expected
