"""Pruning: what is protected by default, sample texts, and the summary of what was removed."""

import json

import builders
import pytest
import reference

import tokengraft as tg
from tokengraft.cli.edit import sample_rows
from tokengraft.measure.compare import ADDED, REMOVED, SampleChange, sample_changes, sample_warnings
from tokengraft.pruning.cost import removed_summary
from tokengraft.pruning.methods import METHODS
from tokengraft.pruning.removable import chat_templates, template_texts

TEXT = ["the cat sat on the mat", "kass istus matil"] * 3
BARE = tg.Protection(defaults=False)


def is_plain(token):
    """Whether a token has nothing but ASCII that is no letter, and white space."""
    text = token.bytes.decode(errors="replace")
    return bool(text) and all(c.isspace() or (c.isascii() and not c.isalpha()) for c in text)


def orders(base, counts, **options):
    """The order of every method."""
    for method in METHODS:
        scripts = {"scripts": ["Han"]} if method.startswith("script") else {}
        yield tg.prune_order(base, counts, method, **scripts, **options)


@pytest.mark.parametrize("kind", builders.TINY)
def test_white_space_digits_and_punctuation_are_never_removed_by_default(kind, tmp_path):
    bytewise = (");\n\n", ".\n\n", "\t\t", "77", "\u2003", " ;:")
    runs = ("():", "33", " ({") if "sentencepiece" in kind else bytewise
    base = tg.load(builders.write(tmp_path, builders.with_tokens(builders.TINY[kind](), *runs)))
    plain = {token.id for token in base.tokens if is_plain(token)}
    learned = plain & base.structure.splits.keys()
    assert {token.bytes.decode() for token in base.tokens if token.id in learned} >= {*runs}
    counts = tg.count(base, iter(["the cat", "kass istus"]))
    for order in orders(base, counts):
        assert not plain & {removal.id for removal in order.removals}
        left = order.apply(base)
        assert [left.encode(run) for run in runs] == [base.encode(run) for run in runs]
        assert order.kept["white space, digits, punctuation"] >= len(runs)
    bare = tg.prune_order(base, counts, protection=BARE)
    assert learned & {removal.id for removal in bare.removals}


def test_without_defaults_the_order_is_that_of_the_paper(base, counts):
    counted = {base.strings[token_id]: count for token_id, count in counts.tokens(base).items()}
    expected = reference.leaf_order(
        [*base.vocab], base.merge_strings(), counted, {token.content for token in base.added}
    )
    order = tg.prune_order(base, counts, "leaf-frequency", protection=BARE)
    assert [(removal.token, removal.decided_by) for removal in order.removals] == expected
    assert len(tg.prune_order(base, counts)) < len(order)


def test_names_of_source_code_are_kept_with_what_is_around_them(load):
    document = builders.with_tokens(
        builders.byte_level(), " elif", ".append", "\tkwargs", "_main_", " Ülikool", " elifs"
    )
    base = load(document)
    order = tg.prune_order(base, tg.count(base, iter(["the cat"])))
    left = {token.bytes.decode(errors="replace") for token in order.apply(base).tokens}
    assert {" elif", ".append", "\tkwargs", "_main_"} <= left
    assert not {" Ülikool", " elifs"} & left


CHAT = (
    "{#- kommentaar -#}<|start|>{% for m in messages %}{%- if m['role'] == \"tool\" %}{{ '\\n\\nkass ' + m.content }}"
    "{% else %}{{- {'a': {'b': \"sat }} on\"}} | tojson }}{% endif %}matil\n{% endfor %}"
)


def test_the_text_that_a_chat_template_writes_is_kept_and_its_source_is_not(tmp_path):
    assert [*template_texts(CHAT)] == ["<|start|>", "role", "tool", "\n\nkass ", "a", "b", "sat }} on", "matil\n"]
    settings = {"chat_template": [{"name": "x", "template": "{{ 'istus' }}"}]}
    others = {"chat_template.jinja": CHAT, "tokenizer_config.json": json.dumps(settings)}
    document = builders.with_tokens(builders.byte_level(), " endfor", " messages")
    base = tg.load(builders.write(tmp_path, document, **others))
    assert sorted(chat_templates(base)) == sorted([CHAT, "{{ 'istus' }}"])
    order = tg.prune_order(base, tg.count(base, iter(["zzz"])))
    assert order.kept["chat template"]
    left = order.apply(base)
    for text in ("\n\nkass ", "sat }} on", "matil\n", "istus", "\nistus", "user", "assistant"):
        assert left.encode(text) == base.encode(text)
    assert not {"Ġendfor", "Ġmessages"} & left.ids.keys()


def test_a_chat_template_of_a_sentencepiece_type_is_kept_at_the_start_and_within_a_line(tmp_path):
    others = {"chat_template.jinja": "{{ 'the cat' }}"}
    base = tg.load(builders.write(tmp_path, builders.sentencepiece(), **others))
    left = tg.prune_order(base, tg.count(base, iter(["zzz"]))).apply(base)
    for text in ("the cat", "\nthe cat"):
        assert left.encode(text) == base.encode(text)


@pytest.mark.parametrize(
    "template",
    [
        "{% for i in range(10 ** 12) %}{% for j in range(10 ** 12) %}x{% endfor %}{% endfor %}",
        "{{ 'never closed",
        "{% if {{ {# '",
        "\\'" * 100_000,
        "{{" * 100_000 + "'\\'" * 100_000,
        "{{ '\\ud800 \\x4 \\u12 \\' }}",
        "}} %} #} {{}} {%%} {##}",
        "",
    ],
)
def test_a_chat_template_that_never_ends_or_is_invalid_does_no_harm(template, tmp_path):
    with_it = tg.load(builders.write(tmp_path / "with", builders.byte_level(), **{"chat_template.jinja": template}))
    without = tg.load(builders.write(tmp_path / "without", builders.byte_level()))
    texts = ["the cat", "kass istus matil"]
    kept = [tg.prune_order(tok, tg.count(tok, iter(texts)))[:20].apply(tok) for tok in (with_it, without)]
    assert all(tok.encode("kass istus") == with_it.encode("kass istus") for tok in kept)


def test_the_samples_of_an_unchanged_tokenizer_do_not_change(base):
    samples = sample_changes(base, base)
    assert {sample.name for sample in samples} >= {
        "Python",
        "JavaScript",
        "C",
        "SQL",
        "Markdown",
        "JSON",
        "LaTeX",
        "chat",
    }
    assert all(sample.before == sample.after > 0 for sample in samples)
    assert not sample_warnings(samples, ADDED)


def test_a_sample_with_more_than_one_percent_more_tokens_is_named_with_what_helps():
    samples = (SampleChange("C", 100, 103), SampleChange("SQL", 1000, 1010), SampleChange("chat", 100, 90))
    (warning,) = sample_warnings(samples, REMOVED.format("--keep"))
    assert "C +3.0%;" in warning
    assert "SQL" not in warning
    assert "--keep, protect its tokens with --protect FILE, or remove fewer" in warning
    assert [*sample_rows(samples)] == [("sample texts", "C 100 → 103 tokens (+3.0%), 2 more at most +1%")]
    assert [*sample_rows(samples[1:])] == [("sample texts", "-10.0% to +1.0% tokens for SQL, chat")]


def test_samples_are_neither_counted_nor_protected(base):
    everything = tg.prune_order(base, tg.count(base, iter(["zzz"]))).apply(base)
    assert sample_warnings(sample_changes(base, everything), ADDED)


def test_removed_tokens_are_summarised_by_kind_and_script(load):
    document = builders.with_tokens(builders.specials_first(), "\n\n", "77", "):", " кот", "猫")
    document["model"]["vocab"]["<unused1>"] = 9
    document["added_tokens"].append(builders.added(9, "<unused1>"))
    base = load(document)
    texts = ["<unused1>", "\n\n", "77", "):", " кот"]
    ids = [token.id for text in texts for token in base.tokens if token.bytes == text.encode()]
    partial = next(token for token in base.tokens if token.bytes == "猫".encode()[:2])
    cat, kass = base.ids["Ġcat"], base.ids["Ġkass"]
    found = removed_summary(base, [cat, *ids, partial.id, kass])
    assert found.kinds[0] == ("words", 3, (" kass", " кот", " cat"))
    assert {group.name: group.examples for group in found.kinds[1:]} == {
        "digits": ("77",),
        "partial characters": (r"\xe7\x8c",),
        "punctuation": ("):",),
        "reserved": ("<unused1>",),
        "white space": ("\n\n",),
    }
    assert {group.name: group.tokens for group in found.scripts} == {"Latin": 3, "Cyrillic": 1}
    assert removed_summary(base, []).as_dict() == {"kinds": [], "scripts": []}


def test_the_command_shows_what_was_removed_and_what_samples_need(folder, tmp_path, tokengraft):
    command = ["prune", str(folder), "--method", "last-id-leaf", "--remove", "90", "--out"]
    shown, warned = tokengraft(*command, tmp_path / "text")
    assert "words, such as `" in shown
    assert "white space, digits, punctuation; " in shown
    assert "\nsample texts    " in shown
    assert "\nby script       " in shown
    assert "warning: built-in sample texts need more tokens" in warned
    result = tokengraft(*command, tmp_path / "json", "--json").json
    assert sum(kind["tokens"] for kind in result["removed_tokens"]["kinds"]) == 90
    assert result["samples"][0]["after"] > result["samples"][0]["before"]
    assert result["kept"]["atomic"] == 256
    assert any("sample texts" in warning for warning in result["warnings"])


def test_tokens_of_the_language_that_happen_not_to_occur_outlive_those_of_others(load):
    """`leaf-frequency` removes the highest id first: here those of the language."""
    base = load(builders.with_tokens(builders.byte_level(), "αβ", "γδ", "ceno", "hosm"))
    assert not base.structure.unreachable
    counts = tg.count(base, iter(["the cat sat on the mat"] * 9))
    assert not {base.ids["ceno"], base.ids["hosm"]} & counts.tokens(base).keys()

    def removed(method):
        tokens = [removal.token for removal in tg.prune_order(base, counts, method, protection=BARE).removals]
        foreign = [token for token in tokens if token.startswith("Î")]
        return max(map(tokens.index, foreign)) < min(tokens.index("ceno"), tokens.index("hosm"))

    assert removed("leaf-expected")
    assert not removed("leaf-frequency")
