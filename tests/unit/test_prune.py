"""Pruning: what never goes, every order, ids kept and closed up, every file, the command."""

import json
import pickle

import builders
import pytest

import tokengraft as tg
from tokengraft import errors

TEXT = ["the cat sat on the mat", "kass istus matil"] * 3
BARE = tg.Protection(defaults=False)


def strings(tokenizer):
    return {token.string for token in tokenizer.tokens}


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


def test_weighted_counts_decide_by_their_weight(base):
    english, estonian = (tg.count(base, iter([text])) for text in ("the the the", "kass kass"))
    for weighted, wins in ((english + estonian.scale(9), "Ġkass"), (english.scale(9) + estonian, "Ġthe")):
        order = tg.prune_order(base, weighted)
        assert order.removals[order.tokens.index(wins)].decided_by >= 9


def test_the_command_prunes_verifies_and_reports(base, folder, counts, tmp_path, tokengraft):
    (tmp_path / "c.txt").write_text("\n".join(TEXT))
    (tmp_path / "keep.txt").write_text(" the\n")
    counts.save(tmp_path / "c.parquet")
    common = ["prune", folder, "--remove", 20, "--order", tmp_path / "o.json", "--protect", tmp_path / "keep.txt"]
    arguments = [*common, "--corpus", tmp_path / "c.txt", "--out", tmp_path / "out", "--quiet"]
    shown = tokengraft(*arguments).out
    assert "20 removed by leaf-expected" in shown
    assert "0 kept tokens became unreachable" in shown
    assert "ids have changed" in shown
    assert tg.load(tmp_path / "out").n_rows == base.n_rows - 20
    assert len(tg.PruneOrder.load(tmp_path / "o.json")) > 20
    again = ["prune", folder, "--remove", 20, "--counts", tmp_path / "c.parquet", "--ids", "keep", "--json"]
    facts = tokengraft(*again, "--out", tmp_path / "kept").json
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
def test_the_command_refuses_what_makes_no_sense(folder, tmp_path, tokengraft, options, message):
    assert message in tokengraft("prune", folder, "--out", tmp_path / "out", *options, code=2).err
    assert not (tmp_path / "out").exists()


def test_the_script_command_takes_all_of_its_order(folder, tmp_path, tokengraft):
    arguments = ["prune", folder, "--method", "script-leaf", "--scripts", "Latin", "Han", "--out", tmp_path / "out"]
    assert "by script-leaf" in tokengraft(*arguments).out


def test_scripts_of_characters_that_stay_are_known_too(tmp_path):
    pieces = builders.sentencepiece()
    base = tg.load(builders.write(tmp_path, pieces))
    order = tg.prune_order(base, None, "script-leaf", scripts=["Cyrillic"])
    assert order.tokens
    assert all(token.strip("▁").isascii() for token in order.tokens)
