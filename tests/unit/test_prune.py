"""Pruning: what never goes, every order, ids kept and closed up, every file, the command."""

import json
import pickle
from dataclasses import replace

import builders
import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.verify.loaders import verify_folder

TEXT = ["the cat sat on the mat", "kass istus matil"] * 3
BARE = tg.Protection(defaults=False)


@pytest.fixture(scope="module")
def counts(base):
    return tg.count(base, iter(TEXT))


@pytest.fixture(scope="module")
def pieces(tmp_path_factory):
    """A SentencePiece type in both forms."""
    return tg.load(builders.write_pieces(tmp_path_factory.mktemp("pieces")))


@pytest.fixture
def load(tmp_path):
    """Loads a `tokenizer.json`, in a folder with other files."""
    return lambda document, **others: tg.load(builders.write(tmp_path / "loaded", document, **others))


def strings(tokenizer):
    return {token.string for token in tokenizer.tokens}


def test_special_and_atomic_tokens_never_go(base, counts):
    for method in ("leaf-frequency", "frequency", "merge", "last-id", "last-id-leaf"):
        order = tg.prune_order(base, counts, method, protection=BARE)
        left = order.apply(base)
        assert strings(left) == set(builders.byte_alphabet()) | {"<|start|>", "<|end|>"}
        assert order.kept["atomic"] == 256
        assert order.kept["added or named"] == 2


def test_asking_for_too_many_says_how_many_can_go_and_what_stops_the_rest(base, counts):
    order = tg.prune_order(base, counts, protection=tg.Protection(pattern="^ the"))
    with pytest.raises(errors.OptionError, match="9,999 tokens are to be removed") as caught:
        order[:9999]
    assert f"`leaf-expected` can remove {len(order)}" in str(caught.value)
    assert "256 atomic" in str(caught.value)
    assert "2 added" in str(caught.value)
    assert "protected" in str(caught.value)
    for cut in (slice(3, 5), slice(None, -1), slice(None, None, 2), "5"):
        with pytest.raises(errors.OptionError, match="can only be cut"):
            order[cut]


def test_an_index_gives_a_token_of_an_order_and_of_an_extension(base, counts):
    for result in (tg.prune_order(base, counts), tg.extend(base, tg.count(base, iter(["õunad õues"] * 9)), 5)):
        assert [*result] == [result[place] for place in range(len(result))] == [*result.tokens]
        assert result[-1] == result.tokens[-1]
        with pytest.raises(IndexError):
            result[len(result)]


def test_prune_orders_and_cuts_in_one_call(base, counts):
    assert tg.prune(base, counts, 7) == tg.prune_order(base, counts)[:7]
    options = {"method": "script", "scripts": ["Latin"], "protection": tg.Protection(pattern="猫")}
    assert tg.prune(base, None, 3, **options) == tg.prune_order(base, **options)[:3]
    assert tg.prune(base, counts, 5, by_merges=True) == tg.prune_order(base, counts, by_merges=True)[:5]
    with pytest.raises(errors.OptionError, match="99,999 tokens are to be removed"):
        tg.prune(base, counts, 99_999)
    with pytest.raises(errors.OptionError, match="-1 tokens"):
        tg.prune(base, counts, -1)


def test_protected_tokens_stay_with_what_they_are_built_from(base, counts):
    wanted = max(base.vocab, key=len)
    for method in ("leaf-frequency", "frequency", "merge", "last-id"):
        left = tg.prune_order(base, counts, method, protection=tg.Protection(tokens=[wanted])).apply(base)
        assert left.core_model.encode(wanted, by_merges=True) == [base.vocab[wanted]]
    text = " the"
    left = tg.prune_order(base, counts, protection=tg.Protection(tokens=[text])).apply(base)
    assert left.encode(" the") == base.encode(" the")
    with pytest.raises(errors.OptionError, match="is no token"):
        tg.prune_order(base, counts, protection=tg.Protection(tokens=["no such token"]))
    with pytest.raises(errors.OptionError, match="regular expression"):
        tg.Protection(pattern="(")
    with pytest.raises(errors.OptionError, match="a list of strings"):
        tg.Protection(tokens="abc")


def test_naive_frequency_orphans_tokens_and_leaf_orders_do_not(base):
    # `the` is frequent, what it is built from never occurs by itself
    counts = tg.count(base, iter(["the the the"]))
    naive = tg.prune_order(base, counts, "frequency")
    damaged = naive[: len(naive) - 3].apply(base)
    assert damaged.structure.unreachable
    for method in ("leaf-frequency", "merge", "last-id-leaf"):
        order = tg.prune_order(base, counts, method)
        for size in range(0, len(order), 9):
            assert not order[:size].apply(base).structure.unreachable


def test_scripts_that_are_not_named_go(base):
    order = tg.prune_order(base, None, "script", scripts=["Latin", "Han"])
    assert order.tokens
    for token in order.tokens:
        text = {t.string: t.bytes for t in base.tokens}[token].decode(errors="replace")
        assert any("\u0400" <= c <= "\u04ff" or "\u3040" <= c <= "\u30ff" for c in text)
    safe = tg.prune_order(base, None, "script-leaf", scripts=["Latin", "Han"])
    assert set(safe.tokens) <= set(order.tokens)
    assert not safe.apply(base).structure.unreachable


@pytest.mark.parametrize(
    ("method", "scripts", "match"),
    [
        ("script", ["Klingon"], "no token is written in 'Klingon'"),
        *(("script", [], "scripts"), ("last-id", ["Latin"], "scripts"), ("script", "Latin", "scripts")),
        ("leaf-frequency", (), "none were given"),
        ("random", (), "there is no method"),
    ],
)
def test_orders_that_cannot_be_made_are_refused(base, method, scripts, match):
    with pytest.raises(errors.TokengraftError, match=match):
        tg.prune_order(base, None, method, scripts=scripts)


def test_unreachable_is_what_neither_merges_nor_whole_pretokens_make(tmp_path):
    for skips, expected in ((False, {"zq", "zqĠx"}), (True, {"zqĠx"})):
        document = builders.byte_level(ignore_merges=skips)
        document["model"]["vocab"] |= {"zq": 900, "zqĠx": 901}
        base = tg.load(builders.write(tmp_path / str(skips), document))
        order = tg.prune_order(base, None, "unreachable")
        assert set(order.tokens) == expected
        assert tg.prune_order(base, None, "unreachable").apply(base).structure.unreachable == (900,) * skips


def test_unreachable_tokens_are_removed_first(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"] |= {"tha": 900, "zqĠx": 901}  # the parts of one are frequent
    base = tg.load(builders.write(tmp_path / "model", document))
    order = tg.prune_order(base, tg.count(base, iter(["that cat sat on a mat"])))
    assert set(order.tokens[:2]) == {"tha", "zqĠx"}


def test_an_order_survives_saving_and_pickling(base, counts, tmp_path):
    order = tg.prune_order(base, counts)
    assert tg.PruneOrder.load(order.save(tmp_path / "o.json")) == order
    assert pickle.loads(pickle.dumps(order)) == order


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"base_hash": None}, "not a file of a prune order"),
        ({"removals": [[1, 2, 3]]}, "not a file of a prune order"),
        ({}, "base_hash"),
    ],
)
def test_a_damaged_order_is_refused(base, counts, tmp_path, change, message):
    document = json.loads(tg.prune_order(base, counts).save(tmp_path / "o.json").read_text(encoding="utf-8"))
    if not change:
        del document["base_hash"]
    (tmp_path / "bad.json").write_text(json.dumps(document | change))
    with pytest.raises(errors.CountsError, match=message):
        tg.PruneOrder.load(tmp_path / "bad.json")


def test_the_hash_of_a_tokenizer_ignores_ids_and_files_and_sees_what_decides_tokens(base, counts, tmp_path):
    pruned = tg.prune_order(base, counts)[:9].apply(base)
    saved = [tg.load(tg.save(tok, tmp_path / str(tok.n_rows), verify=False)) for tok in (pruned, pruned.compact())]
    assert {tokenizer.content_hash for tokenizer in (pruned.compact(), *saved)} == {pruned.content_hash}
    plain = builders.byte_level()
    model, (start, end) = plain["model"], plain["added_tokens"]
    others = [
        {"normalizer": {"type": "NFC"}},
        {"model": model | {"ignore_merges": True}},
        {"model": model | {"merges": model["merges"][::-1]}},
        {"added_tokens": [start | {"lstrip": True}, end]},
    ]
    loaded = [tg.load(builders.write(tmp_path / f"other{at}", plain | other)) for at, other in enumerate(others)]
    assert len({tokenizer.content_hash for tokenizer in (base, pruned, *loaded)}) == 6


def test_both_forms_of_a_sentencepiece_type_have_one_hash(pieces, tmp_path):
    out = tg.save(pieces, tmp_path / "out", verify=False)
    assert tg.load(out / "tokenizer.model").content_hash == tg.load(out / "tokenizer.json").content_hash


def test_the_hash_sees_scores_that_rank_a_token_which_merges_cannot_reach(tmp_path):
    def model(learned):
        path = tmp_path / f"{learned[0]}.model"
        path.write_bytes(builders.piece_model(builders.pieces_of(learned, "abcd", runs=("▁",))))
        return tg.load(path)

    best, worst = model(["abc", "cd"]), model(["cd", "abc"])  # only `cd` has a merge
    assert best.merge_strings() == worst.merge_strings()
    assert best.content_hash != worst.content_hash


def test_an_order_for_another_tokenizer_is_refused(base, counts):
    order = tg.prune_order(base, counts)[:5]
    pruned = order.apply(base)
    with pytest.raises(errors.InvalidTokenizerError, match=base.content_hash[:12]) as caught:
        order.apply(pruned)
    assert pruned.content_hash[:12] in str(caught.value)


def test_a_token_that_is_learned_again_gets_its_id_back(base):
    counts = tg.count(base, iter(builders.TEXT))
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])))
    pruned = order.apply(base)
    again = tg.extend(pruned, counts, 30).apply(pruned)
    old = {token.string: token.id for token in base.tokens}
    returned = [token for token in again.tokens if token.string in pruned.freed]
    assert len(returned) > 5
    assert all(token.id == old[token.string] for token in returned)
    assert tg.plan(base, again).summary.moved == 0
    assert pickle.loads(pickle.dumps(pruned)).freed == pruned.freed
    assert pruned.compact().freed == {}


def test_two_tokens_that_had_one_id_do_not_both_get_it(base, counts):
    pruned = tg.prune_order(base, counts).apply(base)
    first = tg.extend(pruned, tg.count(base, iter(["xyxyxy"] * 9)), 1)
    once = first.apply(pruned)
    twice = tg.prune_order(once, tg.count(once, iter(["a"]))).apply(once)
    again = tg.extend(twice, tg.count(base, iter([*TEXT * 9, "xyxyxy"])), 200, limits=tg.Limits(min_count=1))
    ids = [token.id for token in again.apply(twice).tokens]
    assert len(ids) == len(set(ids))


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


def test_reserved_tokens_go_first_unless_something_names_them(tmp_path):
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    names = ["<unused1>", "<|reserved_special_token_2|>", "<unused3>", "<|end|>"]
    document["added_tokens"] = [builders.added(size + at, name) for at, name in enumerate(names)]
    folder = builders.write(tmp_path / "base", document, **{"chat_template.jinja": "{{ '<unused3>' }}"})
    base = tg.load(folder)
    order = tg.prune_order(base, None, "last-id-leaf", protection=tg.Protection(reuse_reserved=True))
    assert order.tokens[:2] == ("<|reserved_special_token_2|>", "<unused1>")
    assert not {"<unused3>", "<|end|>"} & set(order.tokens)
    pruned = order[:2].apply(base)
    assert [token.content for token in pruned.added] == ["<unused3>", "<|end|>"]
    found = {finding.name: finding for finding in tg.check(pruned, base).findings}["special tokens"]
    assert (found.outcome, found.detail) == ("note", "2 reserved ones were removed, all others are the same")
    counts = tg.count(base, iter(TEXT))
    extended = tg.extend(pruned, counts, 2).apply(pruned)
    assert extended.n_rows == base.n_rows
    seen = tg.count(base, iter(["<unused1>"]))
    with pytest.raises(errors.CountsError, match="added tokens"):
        seen.require(pruned)


def test_a_reserved_token_that_the_text_has_or_that_is_protected_is_kept(load):
    document = builders.byte_level()
    size = len(document["model"]["vocab"])
    document["added_tokens"] = [builders.added(size + at, f"<unused{at}>") for at in range(4)]
    base = load(document)
    counts = tg.count(base, iter([*TEXT, "<unused0>"]))
    free = tg.Protection(tokens=["<unused1>"], reuse_reserved=True, highest_id=True)
    order = tg.prune_order(base, counts, protection=free)
    assert [token for token in order.tokens if "unused" in token] == ["<unused2>"]
    assert sum(counts.tokens(order.apply(base)).values()) > 0


def test_a_token_that_only_merge_skipping_makes_counts_and_its_count_flows_to_what_is_left(load):
    document = builders.byte_level(ignore_merges=True)
    document["model"]["vocab"] |= {"zqzq": 900, "zz": 901}
    base = load(document)
    counts = tg.count(base, iter(["zqzq"] * 5))
    order = {r.token: r.decided_by for r in tg.prune_order(base, counts).removals}
    assert (order["zqzq"], order["zz"]) == (5, 0)
    paper = tg.prune_order(base, counts, by_merges=True)
    assert {r.token: r.decided_by for r in paper.removals}["zqzq"] == 0
    assert paper.provenance["by_merges"] is True


def test_a_token_that_alone_spells_a_character_is_kept(load):
    document = builders.byte_level(ignore_merges=True)
    vocab, merges = document["model"]["vocab"], document["model"]["merges"]
    document["model"]["merges"] = [pair for pair in merges if "z" not in "".join(pair)]
    document["model"]["vocab"] = {s: i for s, i in vocab.items() if "z" not in s} | {"zq": 900, "qq": 901}
    base = load(document)
    pruned = tg.prune_order(base, tg.count(base, iter(["zq"]))).apply(base)
    assert pruned.encode("zq") == base.encode("zq") == [900]
    assert "qq" not in pruned.vocab


def test_kept_ids_keep_the_number_of_rows_when_the_highest_id_is_a_learned_token(tmp_path, capsys):
    document = builders.specials_first()
    base = tg.load(builders.write(tmp_path / "b", document))
    common = ["prune", tmp_path / "b", "--method", "last-id-leaf", "--remove", "20", "--json", "--out"]
    rows = {}
    for ids in ("keep", "compact"):
        assert cli.main([*map(str, common), str(tmp_path / ids), "--ids", ids]) == 0
        rows[ids] = json.loads(capsys.readouterr().out)["rows"]
        assert tg.load(tmp_path / ids).n_rows == rows[ids]
    assert rows == {"keep": base.n_rows, "compact": len(base.tokens) - 20}


def test_weighted_counts_decide_by_their_weight(base):
    english, estonian = (tg.count(base, iter([text])) for text in ("the the the", "kass kass"))
    for weighted, wins in ((english + estonian.scale(9), "Ġkass"), (english.scale(9) + estonian, "Ġthe")):
        order = tg.prune_order(base, weighted)
        assert order.removals[order.tokens.index(wins)].decided_by >= 9


def test_the_command_prunes_verifies_and_reports(base, folder, counts, tmp_path, capsys):
    (tmp_path / "c.txt").write_text("\n".join(TEXT))
    (tmp_path / "keep.txt").write_text(" the\n")
    counts.save(tmp_path / "c.parquet")
    common = ["prune", folder, "--remove", 20, "--order", tmp_path / "o.json", "--protect", tmp_path / "keep.txt"]
    arguments = [*common, "--corpus", tmp_path / "c.txt", "--out", tmp_path / "out", "--quiet"]
    assert cli.main(list(map(str, arguments))) == 0
    shown = capsys.readouterr().out
    assert "20 removed by leaf-expected" in shown
    assert "0 kept tokens became unreachable" in shown
    assert "ids have changed" in shown
    assert tg.load(tmp_path / "out").n_rows == base.n_rows - 20
    assert len(tg.PruneOrder.load(tmp_path / "o.json")) > 20
    again = ["prune", folder, "--remove", 20, "--counts", tmp_path / "c.parquet", "--ids", "keep", "--json"]
    assert cli.main([*map(str, again), "--out", str(tmp_path / "kept")]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["rows"] == base.n_rows
    assert facts["newly_unreachable"] == 0
    assert facts["tokens_in_text"][0] <= facts["tokens_in_text"][1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--remove", "5"], "no text was given"),
        (["--method", "last-id"], "the number of tokens to remove was not given"),
        (["--method", "last-id", "--remove", "0"], "--remove is 0"),
        (["--method", "last-id", "--remove", "99999"], "99,999 tokens are to be removed"),
        (["--method", "script"], "scripts"),
        (["--method", "last-id", "--remove", "5", "--by-merges"], "counts no tokens"),
        (["--method", "last-id", "--remove", "5", "--protect", "no/such"], "cannot read"),
    ],
)
def test_the_command_refuses_what_makes_no_sense(folder, tmp_path, capsys, options, message):
    assert cli.main(["prune", str(folder), "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_script_command_takes_all_of_its_order(folder, tmp_path, capsys):
    arguments = ["prune", folder, "--method", "script-leaf", "--scripts", "Latin", "Han", "--out", tmp_path / "out"]
    assert cli.main(list(map(str, arguments))) == 0
    assert "by script-leaf" in capsys.readouterr().out


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


def test_scripts_of_characters_that_stay_are_known_too(tmp_path):
    pieces = builders.sentencepiece()
    base = tg.load(builders.write(tmp_path, pieces))
    order = tg.prune_order(base, None, "script-leaf", scripts=["Cyrillic"])
    assert order.tokens
    assert all(token.strip("▁").isascii() for token in order.tokens)
