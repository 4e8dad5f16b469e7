"""Vocabulary and merges in the core against the obvious versions in Python: reading, writing, hash, summary."""

import json
import sys
from array import array
from collections import Counter
from hashlib import sha256
from itertools import chain, groupby

import builders
from hypothesis import assume, given
from hypothesis import strategies as st

from tokengraft import _core
from tokengraft.errors import TokengraftError
from tokengraft.formats import huggingface
from tokengraft.formats.huggingface import read_tokenizer_json, write_tokenizer_json
from tokengraft.output.json_file import JsonStyle
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.content import Token
from tokengraft.tokenizer.inspect import inspect
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

FIELDS = ("vocab", "merges", "rest", "files", "style", "merges_as_text", "main")


def outcome(read, raw):
    """The fields of a tokenizer, in their order, or the error."""
    try:
        tokenizer = read(raw, "tokenizer.json", {})
    except TokengraftError as error:
        return type(error), str(error)
    return tokenizer and [
        (list(value.items()), type(value)) if isinstance(value, dict) else value
        for value in (getattr(tokenizer, name) for name in FIELDS)
    ]


def require_same_reading(raw):
    """Both readers agree, or the fast one leaves the file to the other. Returns whether it read the file."""
    fast, slow = (outcome(read, raw) for read in (huggingface._read_in_core, huggingface._read_in_python))
    assert fast is None or fast == slow
    return fast is not None


CHARACTERS = st.sampled_from('ab ▁Ġ"\\/\n\t\b\f\r\0\x1f\x7f\x80é\u2028漢\ufeff\uffff😀#version')
STRINGS = st.text(CHARACTERS, max_size=5)


@st.composite
def vocabularies(draw):
    """A vocabulary in any order, with holes among its ids, and merges of it."""
    strings = draw(st.lists(STRINGS, min_size=1, max_size=12, unique=True))
    ids = draw(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 20), min_size=12, max_size=12, unique=True))
    pairs = [(a, b) for a in strings for b in strings if a + b in strings]
    return dict(zip(strings, ids, strict=False)), draw(st.permutations(pairs))


STYLES = st.builds(
    JsonStyle,
    indent=st.sampled_from([None, "", " ", "  ", "\t"]),
    spaced=st.booleans(),
    ascii_only=st.booleans(),
    final_newline=st.booleans(),
)


def document(vocab, merges, *, as_text=False):
    """A byte-level `tokenizer.json`."""
    whole = builders.byte_level()
    listed = [f"{left} {right}" if as_text else [left, right] for left, right in merges]
    whole["model"] |= {"vocab": vocab, "merges": listed}
    return whole | {"added_tokens": []}


@given(vocabularies(), STYLES, st.booleans())
def test_the_core_reads_what_is_well_formed(table, style, as_text):
    vocab, merges = table
    read = require_same_reading(style.dump(document(vocab, merges, as_text=as_text)))
    texts = [f"{left} {right}" for left, right in merges] if as_text else []
    assert read or any(text.count(" ") != 1 or text.startswith("#version") for text in texts)


PARTS = [
    *('"', ",", ":", "[", "]", "{", "}", " ", "\\", "\\u0061", "\\ud800", "\\udc00", "\\u00", "\0", "\ufeff", "é"),
    *("1", "-1", "-0", "1.0", "1e2", "01", "4294967295", "4294967296", "1" * 5000, "NaN", "Infinity", "null", "true"),
    *('"a"', '"a b"', '["a", "b"]', '["a"]', '"#version: 1"', '"model": 1', '"vocab": {}', '"merges": []', "[" * 200),
    *('"a": 0', '"a": 1,', ', "a": 7', '{"type": "BPE"}', "\n", "//", "a b"),
]


@given(st.data())
def test_the_core_reads_a_file_as_python_does_or_not_at_all(data):
    as_text, style = data.draw(st.booleans()), data.draw(STYLES)
    vocab, merges = {"a": 0, "b": 1, "ab": 2, "é": 5, "abé": 9}, [("a", "b"), ("ab", "é")]
    text = style.dump(document(vocab, merges, as_text=as_text)).decode()
    start = text.index('"model"')
    for _ in range(data.draw(st.integers(1, 3))):
        begin = data.draw(st.integers(start, len(text)) | st.integers(0, len(text)))
        end = data.draw(st.integers(begin, min(begin + 8, len(text))))
        text = text[:begin] + data.draw(st.sampled_from(["", *PARTS])) + text[end:]
    raw = text.encode()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(raw)))
        raw = raw[:at] + data.draw(st.binary(max_size=2)) + raw[at:]
    require_same_reading(raw)


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | STRINGS | st.sampled_from(["},\n{", "\ud800"]),
    lambda inner: st.lists(inner) | st.dictionaries(STRINGS | st.integers(), inner) | st.tuples(inner),
    max_leaves=12,
)
ROWS = st.lists(st.dictionaries(STRINGS, STRINGS | st.integers(), max_size=3), max_size=3)


@given(VALUES | ROWS | st.dictionaries(STRINGS, VALUES | ROWS), STYLES)
def test_a_layout_is_that_of_python(value, style):
    comma = ", " if style.indent is None and style.spaced else ","
    separators = (comma, ": " if style.spaced else ":")
    text = json.dumps(value, ensure_ascii=style.ascii_only, indent=style.indent, separators=separators)
    expected = (text + "\n" * style.final_newline).replace("\ud800", "\\ud800").encode()
    assert style.dump(value) == expected


def test_members_may_stand_in_any_order_and_have_any_neighbours():
    whole = document({"a": 0, "b": 1, "ab": 2}, [("a", "b")])
    whole["model"] = {"x": {"model": {"vocab": {"c": 3}}}, "y": '{"vocab": ', **dict(reversed(whole["model"].items()))}
    assert require_same_reading(json.dumps(whole).encode())
    escaped = json.dumps(whole).replace('"model"', '"mod\\u0065l"', 1).encode()
    assert not require_same_reading(escaped)
    assert read_tokenizer_json(escaped, name="x", files={}).vocab == {"a": 0, "b": 1, "ab": 2}


def test_another_model_type_is_refused_by_name_as_before():
    whole = document({"a": 0}, [])
    whole["model"]["type"] = "WordLevel"
    assert not require_same_reading(json.dumps(whole).encode())


def tokenizer_of(table, style=JsonStyle(), *, as_text=False, added=()):  # noqa: B008 (frozen)
    vocab, merges = table
    rest = document({}, []) | {"added_tokens": list(added)}
    pairs = tuple((vocab[left], vocab[right]) for left, right in merges)
    return Tokenizer(_core.Vocabulary(vocab, pairs), json.dumps(rest), style=style, merges_as_text=as_text)


@given(vocabularies(), STYLES, st.booleans())
def test_the_core_writes_a_file_as_python_would(table, style, as_text):
    vocab, merges = table
    texts = [f"{left} {right}" for left, right in merges]
    written_as_text = as_text and all(text.count(" ") == 1 and not text.startswith("#version") for text in texts)
    tokenizer = tokenizer_of(table, style, as_text=as_text)
    expected = json.loads(tokenizer.rest)
    expected["model"] |= {"vocab": vocab, "merges": texts if written_as_text else merges}
    assert write_tokenizer_json(tokenizer) == style.dump(expected)


def test_a_document_may_have_the_strings_that_mark_the_vocabulary():
    whole = document({"a": 0}, [])
    whole["model"]["x"] = ["0 vocab", "1 merges", {"2 vocab": '"3 vocab"'}]
    raw = json.dumps(whole, indent=2).encode()
    assert write_tokenizer_json(read_tokenizer_json(raw, name="x", files={})) == raw


ADDED = [
    {"id": 90, "content": "<new>"} | dict.fromkeys(("special", "normalized", "single_word", "lstrip", "rstrip"), 0)
]


@given(vocabularies())
def test_the_content_hash_is_that_of_the_obvious_version(table):
    assume(len(table[0]) not in table[0].values())  # the id of the added token
    tokenizer = tokenizer_of(table, added=ADDED)
    settings = {name: bool(tokenizer.model.get(name)) for name in ("ignore_merges", "byte_fallback", "fuse_unk")}
    strings = sorted(tokenizer.ids)
    content = [
        tokenizer.kind,
        settings | {"unk_token": tokenizer.model.get("unk_token")},
        [tokenizer.document.get(step) for step in ("normalizer", "pre_tokenizer")],
        sorted((t.content, t.special, t.normalized, t.single_word, t.lstrip, t.rstrip) for t in tokenizer.added),
        strings,
    ]
    places = {tokenizer.ids[string]: place for place, string in enumerate(strings)}
    pairs = array("Q", [places[part] for part in chain.from_iterable(tokenizer.merges)])
    if sys.byteorder == "big":
        pairs.byteswap()
    expected = sha256(json.dumps(content, sort_keys=True).encode() + pairs.tobytes()).hexdigest()
    assert tokenizer.content_hash == expected


def test_the_content_hash_never_changes():
    """Files of extensions, prune orders and plans hold it."""
    tokenizer = tokenizer_of(({"a": 0, "b": 1, "ab": 2, "é": 7, "😀\n": 4}, [("a", "b")]), added=ADDED)
    assert tokenizer.content_hash == "363c074092df213a80495b7fe261651e3f1f07fdfcd4dcb75ed847c8d8e9ffba"


@given(vocabularies(), st.sampled_from(["byte-level", "sentencepiece"]))
def test_tokens_and_summary_are_those_of_the_obvious_version(table, kind):
    vocab, merges = table
    pairs = [(vocab[left], vocab[right]) for left, right in merges]
    bpe = _core.Model.bpe(
        _core.Vocabulary(vocab, pairs),
        byte_level=kind == "byte-level",
        ignore_merges=False,
        byte_fallback=False,
        unk_token=None,
        fuse_unk=False,
    )
    more = [(next(i for i in range(99) if i not in vocab.values()), "<new>")]
    everything = sorted((i, string, token_bytes(string, kind)) for string, i in [*vocab.items(), ("<new>", more[0][0])])
    assert bpe.tokens(more) == everything
    added = {more[0][0], next(iter(vocab.values()))}
    learned = [Token(*token) for token in everything if token[0] not in added]
    _, atomic, unreachable = bpe.structure()
    sharing = Counter(token.bytes for token in learned)
    counted, longest = bpe.summary([*added], examples=3)
    assert bpe.runs([*added]) == [*id_runs([token_id for token_id, *_ in everything], added)]
    not_utf8 = sum(token.bytes.decode(errors="ignore").encode() != token.bytes for token in learned)
    shared = sum(count for count in sharing.values() if count > 1)
    assert counted == (len(learned), len(atomic), not_utf8, shared)
    assert bpe.unreachable([*added]) == [token_id for token_id in unreachable if token_id not in added]
    assert longest == [t.id for t in sorted(learned, key=lambda t: (-len(t.bytes), t.id))[:3]]


def id_runs(ids, added):
    """``[0, 1, 5], {5} -> (0, 1, False), (5, 5, True)``."""
    for (use, _), run in groupby(enumerate(ids), key=lambda at: (at[1] in added, at[1] - at[0])):
        members = [token_id for _, token_id in run]
        yield members[0], members[-1], use


def test_views_have_the_types_and_the_order_of_the_file():
    raw = json.dumps(document({"b": 7, "a": 2, "ab": 3, "": 1}, [("a", "b")])).encode()
    tokenizer = read_tokenizer_json(raw, name="x", files={})
    assert "vocab" not in vars(tokenizer)
    assert "merges" not in vars(tokenizer)
    assert (type(tokenizer.vocab), list(tokenizer.vocab)) == (FrozenDict, ["b", "a", "ab", ""])
    assert tokenizer.merges == ((2, 7),)
    assert tokenizer.vocab is tokenizer.vocab
    assert repr(tokenizer) == "<Tokenizer byte-level: 4 vocabulary entries, 1 merges>"
    assert not hasattr(tokenizer, "other")
    assert inspect(tokenizer).tokens == 4
