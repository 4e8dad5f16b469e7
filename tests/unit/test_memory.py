"""Memory: what may be cut is cut, exactly; what may not be is bounded, or refused by name."""

import re
import tempfile
from collections import Counter
from pathlib import Path

import builders
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft import cli, errors
from tokengraft.corpus import blocks
from tokengraft.counts import pretoken_counts as counts_module
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.tokenizer.kind import CHARACTER_OF
from tokengraft.verify import loaders as verify

LETTERS = ["a", "b", "1", "▁", "ж", ",", "õ", "\t"]
BYTES = ["<0xC3>", "<0xB5>", "<0x09>"]


def document_of(strings, merges, **model):
    vocab = {string: place for place, string in enumerate(strings)}
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    return builders.document({"vocab": vocab, "merges": merges} | model, [], normalizer=space)


@st.composite
def models(draw):
    """SentencePiece-type models that lack characters and bytes, with and without what stands for them."""
    strings = draw(st.lists(st.sampled_from([*LETTERS, *BYTES, "<unk>"]), unique=True, min_size=1))
    merges = []
    for _ in range(draw(st.integers(0, 6))):
        pair = [draw(st.sampled_from(strings)), draw(st.sampled_from(strings))]
        if pair not in merges and len("".join(pair)) < 14:
            merges.append(pair)
            strings = list(dict.fromkeys([*strings, "".join(pair)]))
    unk = "<unk>" if "<unk>" in strings and draw(st.booleans()) else None
    flags = {"fuse_unk": draw(st.booleans()), "byte_fallback": draw(st.booleans())}
    return document_of(strings, merges, unk_token=unk, **flags)


texts = st.lists(st.text(st.sampled_from("ab1 ж,õ\t猫"), max_size=20), min_size=1, max_size=4)


@given(models(), texts)
def test_token_counts_of_cut_text_are_those_of_whole_documents_in_any_model(document, documents):
    with tempfile.TemporaryDirectory() as folder:
        path = builders.write(Path(folder), document)
        tokenizer, upstream = tg.load(path), Upstream.from_file(str(path / "tokenizer.json"))
    whole = Counter(i for text in documents for i in upstream.encode(text, add_special_tokens=False).ids)
    assert tg.count(tokenizer, iter(documents)).tokens(tokenizer) == dict(sorted(whole.items()))


def loaded(folder, document):
    return tg.load(builders.write(folder, document))


def gemma2_like():
    """As `sentencepiece`, without the byte token of a tab, which is a token itself."""
    document = builders.sentencepiece()
    vocab = document["model"]["vocab"]
    vocab["\t"] = vocab.pop("<0x09>")
    return document


def test_a_vocabulary_whose_missing_byte_is_a_token_is_cut_like_a_complete_one(tmp_path):
    text = "the cat\tsat on the mat 猫 " * 50
    found = tg.count(loaded(tmp_path / "gemma", gemma2_like()), iter([text]))
    complete = tg.count(loaded(tmp_path / "whole", builders.sentencepiece()), iter([text]))
    assert found.fingerprint.between is None
    assert found.table == complete.table
    assert len(found) < 20


def test_text_without_byte_fallback_is_cut_between_known_characters(tmp_path):
    tokenizer = loaded(tmp_path, builders.sentencepiece(byte_fallback=False))
    counts = tg.count(tokenizer, iter(["the cat 猫 the " * 100]))
    assert max(len(pretoken.decode()) for pretoken, _ in counts.top(99)) < 20


def test_counts_cut_beside_a_character_are_refused_where_it_is_no_token(tmp_path):
    document = builders.sentencepiece(byte_fallback=False)
    counts = tg.count(loaded(tmp_path / "base", document), iter(["the cat"]))
    fewer = builders.sentencepiece(byte_fallback=False)
    del fewer["model"]["vocab"]["õ"]
    with pytest.raises(errors.CountsError, match="beside characters that the tokenizer lacks, such as 'õ'"):
        counts.tokens(loaded(tmp_path / "fewer", fewer))
    more = builders.sentencepiece(byte_fallback=False)
    more["model"]["vocab"]["猫"] = 9000
    assert counts.tokens(loaded(tmp_path / "more", more))
    complete = tg.count(loaded(tmp_path / "bytes", builders.sentencepiece()), iter(["the cat"]))
    with pytest.raises(errors.CountsError, match="spells every character, which this one does not"):
        complete.tokens(loaded(tmp_path / "again", document))


def test_whole_documents_are_right_for_every_rule_and_a_fingerprint_survives_json(tmp_path):
    tokenizer = loaded(tmp_path, builders.sentencepiece(byte_fallback=False))
    ours = Fingerprint.of(tokenizer)
    assert Fingerprint.from_dict(ours.as_dict()) == ours
    whole = Fingerprint.from_dict(ours.as_dict() | {"rules": None, "joined": [], "between": None})
    ours.require_counts(whole)
    with pytest.raises(errors.CountsError, match="cut rules"):
        whole.require_counts(ours)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return loaded(tmp_path_factory.mktemp("tok"), builders.byte_level())


@pytest.fixture(scope="module")
def slow_tokenizer(tmp_path_factory):
    """One whose pipeline runs through the `tokenizers` crate, because its pattern looks behind."""
    document = builders.byte_level()
    split = {"type": "Split", "pattern": {"Regex": r"(?<!x)\S+|\s+"}, "behavior": "Isolated", "invert": False}
    step = document["pre_tokenizer"] | {"use_regex": False}
    document["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, step]}
    return loaded(tmp_path_factory.mktemp("slow"), document)


def test_a_document_that_needs_more_memory_than_allowed_is_refused_by_name(slow_tokenizer, tokenizer, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("the cat sat\n" * 180_000)
    small = tg.CountOptions(memory=100_000_000)
    with pytest.raises(errors.CorpusError, match=r"long\.txt`.*bytes or more.*`memory` allows 2,097,152"):
        tg.count(slow_tokenizer, path, count_options=small)
    with pytest.raises(errors.CorpusError, match="the iterable`, a document of 2160000 bytes"):
        tg.count(slow_tokenizer, iter([path.read_text()]), count_options=small)
    assert tg.count(tokenizer, path, count_options=small).totals.bytes == 2_160_000
    lines = tg.count(slow_tokenizer, path, count_options=small, read_options=tg.ReadOptions(documents="lines"))
    assert lines.totals.documents == 180_000


@pytest.mark.parametrize("documents", ["files", "lines"])
def test_text_that_cannot_be_cut_is_refused_by_name(tokenizer, tmp_path, documents):
    path = tmp_path / "a.txt"
    path.write_text("a" * 3_200_000)
    with pytest.raises(errors.CorpusError, match=r"a\.txt`: 3,145,728 bytes or more"):
        tg.count(
            tokenizer, path, count_options=tg.CountOptions(memory=1), read_options=tg.ReadOptions(documents=documents)
        )


class Endless:
    """A stream without end, which says how much of it was read."""

    def __init__(self, data):
        self.data, self.read_bytes = data, 0

    def read(self, size):
        start, self.read_bytes = self.read_bytes, self.read_bytes + size
        return (self.data * (size // len(self.data) + 2))[start % len(self.data) :][:size]


@pytest.mark.parametrize("text", ["a", "õ", "猫x", "\0"])
@pytest.mark.parametrize("documents", ["files", "lines"])
@pytest.mark.parametrize("limit", [99, 100, 101, 102])
def test_a_limit_of_bytes_ends_a_stream_without_end(tokenizer, monkeypatch, text, documents, limit):
    monkeypatch.setattr(blocks, "BLOCK", 64)
    stream = Endless(text.encode())
    monkeypatch.setattr("sys.stdin", type("In", (), {"buffer": stream}))
    count_options = tg.CountOptions(max_bytes=limit)
    read_options = tg.ReadOptions(documents=documents, format="text")
    counts = tg.count(tokenizer, "-", count_options=count_options, read_options=read_options)
    assert counts == tg.count(tokenizer, iter([text * 300]), count_options=count_options)
    assert stream.read_bytes < 400


def test_samples_are_short_however_long_pretokens_are(tokenizer):
    counts = tg.count(tokenizer, iter([letter * 500_000 for letter in "abc"]))
    samples = verify.sample_pretokens(counts, "byte-level")
    assert len(samples) == verify.SAMPLES
    assert max(map(len, samples)) <= 8 * verify.LONGEST_SAMPLE


def test_every_batch_of_a_file_of_counts_is_loaded(tokenizer, tmp_path, monkeypatch):
    counts = tg.count(tokenizer, iter(["a b c d e f g a"]))
    path = counts.save(tmp_path / "c.parquet")
    shuffled = pq.read_table(path).take([3, 1, 0, 2, 6, 5, 4, 7])
    pq.write_table(shuffled, tmp_path / "s.parquet", row_group_size=3)
    for rows in (1, 2, 3, 100):
        monkeypatch.setattr(counts_module, "EVERYTHING", rows)
        assert tg.PretokenCounts.load(path) == counts
        assert tg.PretokenCounts.load(tmp_path / "s.parquet") == counts


# Vocabularies that cannot spell all text.


def lacking(*missing, **model):
    document = builders.byte_level(**model)
    gone = {token for token in document["model"]["vocab"] if set(token) & set(missing)}
    vocab = document["model"]["vocab"]
    document["model"]["vocab"] = {token: i for token, i in vocab.items() if token not in gone}
    document["model"]["merges"] = [m for m in document["model"]["merges"] if not {*m, "".join(m)} & gone]
    document["added_tokens"] = []
    return document


def test_bytes_that_no_text_has_need_no_token(tmp_path):
    never = [0xC0, 0xC1, *range(0xF5, 0x100)]
    tokenizer = loaded(tmp_path, lacking(*(CHARACTER_OF[byte] for byte in never)))
    assert (tokenizer.missing_bytes, tokenizer.spells_everything) == ((), True)
    text = "".join(chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000)
    assert {byte for byte in range(256) if byte not in text.encode()} == {*never}
    assert not tg.count(tokenizer, iter([text])).lost(tokenizer)


@pytest.mark.parametrize("byte", [0x04, 0x80, 0xBF, 0xC3, 0xF1, 0xF4])
def test_a_missing_byte_loses_some_text(tmp_path, byte):
    tokenizer = loaded(tmp_path, lacking(CHARACTER_OF[byte]))
    assert (tokenizer.missing_bytes, tokenizer.spells_everything) == ((byte,), False)
    text = next(chr(point) for point in range(0x110000) if byte in chr(point).encode(errors="replace"))
    assert tg.count(tokenizer, iter([text])).lost(tokenizer) == {text.encode(): 1}


@pytest.mark.parametrize(
    ("byte", "characters"), [(0x41, "A"), (0xC3, "".join(map(chr, range(0xC0, 0x100))))], ids=["ASCII", "lead"]
)
def test_a_byte_is_not_missing_where_every_character_with_it_is_a_token(tmp_path, byte, characters):
    for name, kept, missing in (("all", characters, ()), ("less", characters[1:], (byte,))):
        document = builders.sentencepiece()
        vocab = {token: i for token, i in document["model"]["vocab"].items() if token not in characters}
        del vocab[f"<0x{byte:02X}>"]
        document["model"]["vocab"] = vocab | {character: 5000 + i for i, character in enumerate(kept)}
        document["model"]["merges"] = []
        tokenizer = loaded(tmp_path / name, document)
        assert (tokenizer.missing_bytes, tokenizer.spells_everything) == (missing, not missing)


def test_extend_refuses_text_with_a_byte_that_would_be_dropped(tmp_path):
    tokenizer = loaded(tmp_path, lacking("q"))
    assert tokenizer.missing_bytes == (ord("q"),)
    counts = tg.count(tokenizer, iter(["aqua aqua the the", "q"]))
    with pytest.raises(errors.CountsError, match=r"1 bytes .* such as 0x71: 3 characters of the text would be dropped"):
        tg.extend(tokenizer, counts, 5)
    assert len(tg.extend(tokenizer, tg.count(tokenizer, iter(["zz zz"])), 1)) == 1


def test_extend_refuses_characters_that_would_be_dropped_unless_it_adds_them(tmp_path):
    document = builders.sentencepiece(byte_fallback=False)
    document["model"]["unk_token"] = None
    tokenizer = loaded(tmp_path, document)
    counts = tg.count(tokenizer, iter(["猫猫 the the"]))
    with pytest.raises(errors.CountsError, match="such as '猫': 2 characters"):
        tg.extend(tokenizer, counts, 2, character_coverage=0)
    assert "猫" in tg.extend(tokenizer, counts, 2, character_coverage=1).characters


def test_adapt_does_not_suggest_an_option_that_it_lacks(tmp_path, tokengraft):
    document = builders.sentencepiece(byte_fallback=False)
    document["model"]["unk_token"] = None
    folder = builders.write(tmp_path / "tok", document)
    rare = "".join(map(chr, range(0x4E00, 0x4E80)))
    (tmp_path / "t.txt").write_text("\n".join(["the cat"] * 60_000 + [*rare]), encoding="utf-8")
    arguments = ["adapt", folder, "--target", tmp_path / "t.txt", "--add", 2, "--out", tmp_path / "out"]
    hint = tokengraft(*arguments, code=2).err.partition("hint: ")[2]
    assert "`tokengraft extend --character-coverage 1`" in hint
    adapt = cli.build_parser(["adapt"])._subparsers._group_actions[0].choices["adapt"].format_help()
    assert {*re.findall(r"--[a-z-]+", re.sub(r"`[^`]*`", "", hint))} <= {*re.findall(r"--[a-z-]+", adapt)}


def test_a_token_that_skips_merges_is_not_lost_with_its_bytes(tmp_path):
    document = lacking("q", ignore_merges=True)
    document["model"]["vocab"]["qq"] = 9000
    tokenizer = loaded(tmp_path, document)
    counts = tg.count(tokenizer, iter(["qq qz"]))
    assert counts.lost(tokenizer) == {b"q": 1}
    assert counts.lost(tokenizer, by_merges=True) == {b"q": 3}


def test_dropped_bytes_are_no_gain(tmp_path):
    whole, less = loaded(tmp_path / "a", lacking()), loaded(tmp_path / "b", lacking("q"))
    text = ["the qqqqqqqq cat", "q"]
    for source in (iter(text), tg.count(whole, iter(text))):
        found = tg.evaluate({"whole": whole, "less": less}, {"t": source})
        assert (found["whole", "t"].dropped_bytes, found["less", "t"].dropped_bytes) == (0, 9)
        score = found["less", "t"]
        assert score.bytes_per_token == (score.bytes - 9) / score.tokens
        assert "less drops 9 of the 17 bytes of t" in found.notes[0]
        both = tg.evaluate({"less": less, "same": less}, {"t": iter(text), "u": iter(text)})
        assert len(both.notes) == 1
        assert "less drops 9 of the 17 bytes of u, same drops" in both.notes[0]


def test_dropped_bytes_are_no_gain_of_a_curve(tmp_path):
    less = loaded(tmp_path, lacking("q"))
    learned, text = tg.count(less, iter(["zz zz"])), ["the qqqqqqqq cat"]
    expected = tg.evaluate({"less": less}, {"t": iter(text)})["less", "t"].bytes_per_token
    for source in (iter(text), tg.count(less, iter(text))):
        assert tg.measure.curve(less, learned, source, [1]).points[0].bytes_per_token == expected


def test_examples_say_what_is_dropped(tmp_path, tokengraft):
    old, new = (builders.write(tmp_path / name, lacking(*name)) for name in ("q", "z"))
    (tmp_path / "t.txt").write_text("qqq", encoding="utf-8")
    shown = tokengraft("evaluate", old, new, "--text", tmp_path / "t.txt", "--examples")
    assert "the first tokenizer drops 3 bytes of the text" in shown.err
    assert "0 → 3\n" in shown.out


def test_a_character_is_lost_with_any_of_its_bytes(tmp_path):
    tokenizer = loaded(tmp_path, lacking("Ã"))
    counts = tg.count(tokenizer, iter(["õ õ a"]))
    assert counts.lost(tokenizer) == {"õ".encode(): 2}


@pytest.mark.parametrize("command", ["extend {0} --corpus {1} --add 1 --out {2}", "evaluate {0} --text {1}"])
def test_commands_warn_of_a_vocabulary_that_cannot_spell_all_text(tmp_path, tokengraft, command):
    folder = builders.write(tmp_path / "tok", lacking("q"))
    (tmp_path / "t.txt").write_text("zz zz\n")
    arguments = command.format(folder, tmp_path / "t.txt", tmp_path / "out").split()
    shown = tokengraft(*arguments).err
    assert shown.count("1 of the 256 bytes have no token (0x71)") == 1
    assert "text with them is dropped" in shown
