"""Checking tokenizers: what is sound passes, and every kind of damage is found."""

import json
from dataclasses import replace
from types import MappingProxyType

import builders
import pytest
from checkpoints import changed
from checks import SETTINGS, outcome, template, with_files

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.tokenizer.edit import remove_tokens


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    others = {
        "chat_template.jinja": "{{ '<|end|>' }}",
        "added_tokens.json": '{"<|start|>": 395, "<|end|>": 396}',
        "tokenizer_config.json": json.dumps(SETTINGS),
    }
    document = builders.byte_level() | {"post_processor": template("<|start|>", 395)}
    return tg.load(builders.write(tmp_path_factory.mktemp("base"), document, **others))


@pytest.fixture(scope="module")
def extended(base):
    return changed(base, add=10)


@pytest.fixture
def libraries():
    """Asks other libraries to load what is checked."""


@pytest.fixture(autouse=True)
def _quick(request):
    """Other libraries are not asked: that takes seconds, and other tests do it."""
    if "libraries" not in request.fixturenames:
        request.getfixturevalue("without_libraries")


@pytest.mark.usefixtures("libraries")
def test_what_tokengraft_makes_passes(base, extended):
    pruned = changed(base, remove=30)
    made = {"base": base, "extended": extended, "pruned": pruned, "compact": pruned.compact()}
    found = {name: tg.check(tokenizer, base) for name, tokenizer in made.items()}
    for one in found.values():
        assert one.passed, one.failures
        one.raise_for_failures()
    assert outcome(found["pruned"], "holes").outcome == "note"
    assert outcome(found["compact"], "kept ids").outcome == "note"
    assert outcome(found["extended"], "added tokens reachable").detail == "all of 10 new tokens"


@pytest.mark.usefixtures("libraries")
def test_tiny_tokenizers_of_every_shape_pass(tiny_folder):
    assert tg.check(tg.load(tiny_folder)).passed


@pytest.mark.usefixtures("libraries")
def test_a_folder_that_transformers_saved_again_has_notes_and_no_failure(tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = json.loads(builders.settings(bos_token="<|start|>", eos_token="<|end|>", add_bos_token=False))
    settings |= {"chat_template": "{{ '<|end|>' }}", "model_max_length": 4096}
    others = {
        "tokenizer_config.json": json.dumps(settings),
        "special_tokens_map.json": '{"bos_token": "<|start|>", "eos_token": "<|end|>"}',
    }
    document = builders.byte_level() | {"post_processor": template("<|start|>", 395)}
    folder = builders.write(tmp_path / "base", document, **others)
    transformers.AutoTokenizer.from_pretrained(str(folder)).save_pretrained(str(tmp_path / "saved"))
    found = tg.check(tg.load(tmp_path / "saved"), tg.load(folder))
    assert found.passed, found.failures
    assert any("special_tokens_map.json" in each for each in outcome(found, "other changes").evidence)


def test_a_naive_extension_has_unreachable_tokens_and_fails(base):
    counts = tg.count(base, iter(["istumismatil kassiistumine matilistumine"] * 9))
    naive = tg.learn.extend_naively(base, counts, 18)
    found = tg.check(naive, base)
    assert not found.passed
    assert outcome(found, "added tokens reachable").evidence
    with pytest.raises(errors.InvalidTokenizerError, match="added tokens reachable"):
        found.raise_for_failures()


def with_rest(tokenizer, change):
    document = json.loads(tokenizer.rest)
    change(document)
    return replace(tokenizer, rest=json.dumps(document))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("files", lambda t: with_files(t, **{"added_tokens.json": b'{"<|end|>": 7}'})),
        ("files", lambda t: with_files(t, **{"vocab.json": b'{"a": 99999}'})),
        ("files", lambda t: with_files(t, **{"vocab.json": b"[" * 100_000})),
        ("files", lambda t: with_files(t, **{"vocab.json": b"[]"})),
        ("files", lambda t: with_files(t, **{"merges.txt": b"#version: 0.2\na b\n"})),
        (
            "files",
            lambda t: with_files(
                t, **{"tokenizer_config.json": b'{"added_tokens_decoder": {"5": {"content": "<|end|>"}}}'}
            ),
        ),
        ("kept tokens reachable", lambda t: t.with_tokens(t.ids, t.merge_strings()[:40])),
        ("files", lambda t: with_rest(t, lambda d: d.update(post_processor=template("<|start|>", 7)))),
        ("files", lambda t: with_files(t, **{"vocab.json": b'{"a": 64}'})),
        ("alphabet", lambda t: t.with_tokens({s: i for s, i in t.ids.items() if s != "ÿ"}, t.merge_strings())),
    ],
)
def test_damage_is_found_with_evidence(base, extended, name, change):
    found = tg.check(change(extended), base)
    assert outcome(found, name).outcome == "fail"
    assert outcome(found, name).evidence


def test_a_byte_that_the_base_lacks_too_is_a_note_in_hex_unless_no_text_has_it(base):
    lacking = base.with_tokens({s: i for s, i in base.ids.items() if s not in "ñÿ"}, base.merge_strings())
    found = outcome(tg.check(lacking, lacking), "alphabet")
    assert (found.outcome, found.evidence) == ("note", ("0xF1",))
    assert found.detail == "1 of the 256 bytes have no token, as in the base: text with them is lost"


def test_a_token_that_vocab_json_lacked_before_is_a_note(base):
    listed = {token: i for token, i in base.vocab.items() if token != "Ġthe"}
    incomplete = with_files(base, **{"vocab.json": json.dumps(listed).encode()})
    extended = tg.extend(incomplete, tg.count(base, iter(["põdrad põõsas"] * 5)), 5).apply(incomplete)
    assert outcome(tg.check(extended, incomplete), "files").outcome == "note"
    assert outcome(tg.check(extended), "files").outcome == "fail"


def test_the_command_exits_with_1_where_something_fails(base, extended, tmp_path, tokengraft):
    folder, good = tg.save(base, tmp_path / "b"), tg.save(extended, tmp_path / "good")
    bad = tg.save(with_files(extended, **{"chat_template.jinja": b"other"}), tmp_path / "bad")
    assert "pass" in tokengraft("check", good, "--base", folder).out
    assert "chat template 'default': " in tokengraft("check", bad, "--base", folder, code=1).out
    found = tokengraft("check", bad, "--base", folder, "--json", code=1).json
    assert found["passed"] is False
    tokengraft("check", good)


def pruned_and_learned_again(base, *, remember):
    """A tokenizer that lost the tokens of a text and learned some of them again, among others."""
    gone = ["Ġcat", "Ġcomat", "Ġon", "Ġmat", "Ġsat"]
    pruned = remove_tokens(base, [token for token in gone if token in base.ids])
    counts = tg.count(pruned, iter(["õun cat mat on sat õue"] * 9 + ["sat õun"] * 3))
    kept = pruned if remember else replace(pruned, freed=MappingProxyType({}))
    return tg.extend(kept, counts, 9).apply(kept)


def test_a_token_that_was_removed_and_learned_again_may_have_another_id(base):
    again = pruned_and_learned_again(base, remember=False)
    moved = [string for string, i in again.ids.items() if base.ids.get(string, i) != i]
    assert moved
    found = outcome(tg.check(again, base), "kept ids")
    assert found.outcome == "note"
    assert set(moved) <= set(found.evidence)


def test_tokens_learned_again_may_be_closed_up_with_the_others(base):
    smaller = pruned_and_learned_again(remove_tokens(base, ["Ġthe"]), remember=False).compact()
    assert outcome(tg.check(smaller, base), "kept ids").outcome == "note"


def swapped(tokenizer, one, other):
    ids = dict(tokenizer.ids)
    ids[one], ids[other] = ids[other], ids[one]
    return tokenizer.with_tokens(ids, tokenizer.merge_strings())


@pytest.mark.parametrize("made", ["base", "extended", "again"])
def test_a_kept_token_with_another_id_fails(base, extended, made):
    again = pruned_and_learned_again(base, remember=False)
    last = [left + right for left, right in base.merge_strings()[-2:]]
    for pair in (("a", "b"), ("<|start|>", "<|end|>"), ("Ġthe", "the"), last):
        damaged = swapped({"base": base, "extended": extended, "again": again}[made], *pair)
        assert outcome(tg.check(damaged, base), "kept ids").outcome == "fail"


def test_reordered_merges_do_not_excuse_ids_that_were_mixed_up(base, extended):
    merges = extended.merge_strings()
    free = [i for i, (left, right) in enumerate(merges) if not {left, right} & {a + b for a, b in merges[:6]}]
    merges[0], merges[free[0]] = merges[free[0]], merges[0]
    first, second = ("".join(pair) for pair in base.merge_strings()[40:42])
    damaged = swapped(extended.with_tokens(extended.ids, merges), first, second)
    assert outcome(tg.check(damaged, base), "kept ids").outcome == "fail"


def test_ids_near_the_last_one_do_not_fill_the_memory(tmp_path):
    document = builders.byte_level()
    document["model"]["vocab"]["<|end|>"] = 2**32 - 1
    tokenizer = tg.load(builders.write(tmp_path / "far", document))
    found = outcome(tg.check(tokenizer, tokenizer), "holes")
    assert found.evidence == ("395", "397 to 4294967294")
    assert found.detail == "4,294,966,899 ids have no token"


def test_an_added_token_that_another_one_hides_fails(tmp_path):
    document = builders.byte_level()
    document["added_tokens"].append(builders.added(397, "x<|end|>", normalized=True, special=False))
    found = tg.check(tg.load(builders.write(tmp_path / "base", document)))
    assert outcome(found, "added tokens found").evidence[0].startswith("'x<|end|>' encodes to [")


def test_text_that_the_pipeline_drops_fails_the_round_trip(base):
    white = {"type": "Split", "pattern": {"String": "t"}, "behavior": "Removed", "invert": False}

    def drop(document):
        steps = [white, document["pre_tokenizer"]]
        document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps}

    dropping = with_rest(base, drop)
    assert outcome(tg.check(dropping, base), "round trip").outcome == "fail"
    assert outcome(tg.check(dropping), "round trip").outcome == "note"
    assert outcome(tg.check(base, base), "round trip").outcome == "pass"


def test_an_id_in_tokenizer_json_that_loaders_ignore_fails(tmp_path):
    document = builders.byte_level()
    document["added_tokens"][0]["id"] = 7777
    found = tg.check(tg.load(builders.write(tmp_path / "base", document)))
    assert outcome(found, "files").evidence == (
        "tokenizer.json lists '<|start|>' with the id 7777, and loaders use 395",
    )


def test_preserved_text_passes_where_it_is_unchanged_and_fails_with_examples_where_not(base, extended):
    untouched = tg.count(base, iter(["cat sat mat " * 3]))
    found = outcome(tg.check(extended, base, preserve=untouched), "preserved text")
    assert (found.outcome, found.detail) == ("pass", f"all {len(untouched)} distinct pretokens have the same ids")
    changed = tg.count(base, iter(["cat põdrad põdrad sat"]))
    found = outcome(tg.check(extended, base, preserve=changed), "preserved text")
    assert found.outcome == "fail"
    assert found.detail == "1 of 3 distinct pretokens (50.00% of all) have other tokens"
    assert found.evidence == ("' põdrad', 2 times",)


def test_preserved_text_with_other_ids_is_a_note(base):
    counts = tg.count(base, iter(["the mat is on the mat"]))
    used = counts.tokens(base)
    order = tg.prune_order(base, counts, protection=tg.Protection(tokens=[base.strings[i] for i in used]))
    pruned = order.apply(base).compact()
    found = outcome(tg.check(pruned, base, preserve=counts), "preserved text")
    assert found.outcome == "note"
    assert found.detail.startswith(f"all {len(counts)} distinct pretokens have the same tokens; ")


def test_preserved_text_needs_a_base_and_the_same_pipeline(base, tmp_path):
    counts = tg.count(base, iter(["cat"]))
    with pytest.raises(errors.OptionError, match="without the base"):
        tg.check(base, preserve=counts)
    other = tg.load(builders.write(tmp_path / "other", builders.sentencepiece()))
    with pytest.raises(errors.CountsError):
        tg.check(base, base, preserve=tg.count(other, iter(["cat"])))


def test_preserve_on_the_command_line_takes_text_and_counts(base, extended, tmp_path, capsys):
    tg.save(base, tmp_path / "old")
    tg.save(extended, tmp_path / "new")
    text = tmp_path / "text.txt"
    text.write_text("põdrad sat")
    tg.count(base, iter(["cat"])).save(tmp_path / "counts.parquet")
    command = ["check", str(tmp_path / "new"), "--base", str(tmp_path / "old"), "--quiet", "--preserve"]
    assert cli.main([*command, str(tmp_path / "counts.parquet")]) == 0
    assert "preserved text: all 1 distinct pretokens have the same ids" in capsys.readouterr().out
    assert cli.main([*command, str(tmp_path / "counts.parquet"), str(text)]) == 1
    assert "1 of 3 distinct pretokens" in capsys.readouterr().out
    assert cli.main(["check", str(tmp_path / "new"), "--preserve", str(text)]) == 2
    assert "--preserve has no effect without --base" in capsys.readouterr().err
    assert cli.main(["check", str(tmp_path / "new"), "--documents", "lines"]) == 2
    assert "--documents has no effect without --preserve" in capsys.readouterr().err
