"""Checking tokenizers: what is sound passes, and every kind of damage is found."""

import json
from dataclasses import replace
from types import MappingProxyType

import builders
import pytest

import tokengraft as tg
from tokengraft import cli, errors


@pytest.fixture
def base(tmp_path):
    others = {"chat_template.jinja": "{{ '<|end|>' }}", "added_tokens.json": '{"<|start|>": 395, "<|end|>": 396}'}
    return tg.load(builders.write(tmp_path / "base", builders.byte_level(), **others))


@pytest.fixture
def extended(base):
    return tg.extend(base, tg.count(base, iter(["põdrad põõsas õunad õues"] * 5)), 10).apply(base)


def outcome(found, name):
    return next(finding for finding in found.findings if finding.name == name)


def test_what_tokengraft_makes_passes(base, extended):
    pruned = tg.prune_order(base, tg.count(base, iter(builders.TEXT)))[:30].apply(base)
    for tokenizer in (base, extended, pruned, pruned.compact()):
        found = tg.check(tokenizer, base=base)
        assert found.passed, found.failures
        found.raise_for_failures()
    assert outcome(tg.check(pruned), "holes").outcome == "note"
    assert outcome(tg.check(pruned.compact(), base), "kept ids").outcome == "note"
    assert outcome(tg.check(extended, base), "added tokens reachable").detail == "all of 10 new tokens"


def test_tiny_tokenizers_of_every_shape_pass(tiny_folder):
    assert tg.check(tg.load(tiny_folder)).passed


def test_a_naive_extension_has_unreachable_tokens_and_fails(base):
    counts = tg.count(base, iter(["istumismatil kassiistumine matilistumine"] * 9))
    naive = tg.extend_naively(base, counts, 18)
    found = tg.check(naive, base)
    assert not found.passed
    assert outcome(found, "added tokens reachable").evidence
    with pytest.raises(errors.InvalidTokenizerError, match="added tokens reachable"):
        found.raise_for_failures()


def with_rest(tokenizer, change):
    document = json.loads(tokenizer.rest)
    change(document)
    return replace(tokenizer, rest=json.dumps(document))


def with_files(tokenizer, **files):
    return replace(tokenizer, files=MappingProxyType({**tokenizer.files, **files}))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pipeline", lambda t: with_rest(t, lambda d: d.update(normalizer={"type": "NFC"}))),
        ("special tokens", lambda t: with_rest(t, lambda d: d["added_tokens"].pop())),
        ("special tokens", lambda t: with_rest(t, lambda d: d["added_tokens"][0].update(lstrip=True))),
        ("chat template", lambda t: with_files(t, **{"chat_template.jinja": b"other"})),
        ("files", lambda t: with_files(t, **{"added_tokens.json": b'{"<|end|>": 7}'})),
        ("files", lambda t: with_files(t, **{"vocab.json": b'{"a": 99999}'})),
        ("files", lambda t: with_files(t, **{"merges.txt": b"#version: 0.2\na b\n"})),
        (
            "files",
            lambda t: with_files(
                t, **{"tokenizer_config.json": b'{"added_tokens_decoder": {"5": {"content": "<|end|>"}}}'}
            ),
        ),
        ("kept ids", lambda t: t.with_tokens({s: i + 1 for s, i in t.ids.items()}, t.merge_strings())),
        ("kept tokens reachable", lambda t: t.with_tokens(t.ids, t.merge_strings()[:40])),
        ("alphabet", lambda t: t.with_tokens({s: i for s, i in t.ids.items() if s != "ÿ"}, t.merge_strings())),
    ],
)
def test_damage_is_found_with_evidence(base, extended, name, change):
    found = tg.check(change(extended), base)
    assert outcome(found, name).outcome == "fail"
    assert outcome(found, name).evidence


def test_the_command_exits_with_1_where_something_fails(base, extended, tmp_path, capsys):
    folder, good = tg.save(base, tmp_path / "b"), tg.save(extended, tmp_path / "good")
    bad = tg.save(with_files(extended, **{"chat_template.jinja": b"other"}), tmp_path / "bad")
    assert cli.main(["check", str(good), "--base", str(folder)]) == 0
    assert "pass" in capsys.readouterr().out
    assert cli.main(["check", str(bad), "--base", str(folder)]) == 1
    assert "chat_template.jinja changed" in capsys.readouterr().out
    assert cli.main(["check", str(bad), "--base", str(folder), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["passed"] is False
    assert cli.main(["check", str(good)]) == 0
