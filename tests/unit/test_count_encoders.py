"""Counting with the pipelines of encoders: compiled rules of SentencePiece, and words that are cut at white space."""

import base64
import io
import random
from collections import Counter
from functools import partial

import builders
import pytest
from sentencepiece import SentencePieceTrainer
from sentencepiece import sentencepiece_model_pb2 as messages

import tokengraft as tg
from tokengraft.corpus import blocks as corpus_module


def rules(**options):
    """The normalizer for the rules that SentencePiece compiles by default, or for others."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(["the cat sat on the mat"] * 9),
        model_writer=model,
        vocab_size=17,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    compiled = messages.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(compiled).decode()}


def t5_like():
    """A Unigram tokenizer with the pipeline of T5: compiled rules, then words with `▁`."""
    document = builders.unigram() | {"normalizer": rules()}
    words = [{"type": "WhitespaceSplit"}, document["pre_tokenizer"]]
    return document | {"pre_tokenizer": {"type": "Sequence", "pretokenizers": words}}


def converted(*, scheme="always", spaces="▁", words=False):
    """The same as `transformers` converts a SentencePiece model. `spaces`: what several spaces become."""
    document = t5_like()
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    replace = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": spaces}
    document["normalizer"] = {"type": "Sequence", "normalizers": [document["normalizer"], strip, replace]}
    metaspace = builders.unigram()["pre_tokenizer"] | {"prepend_scheme": scheme}
    document["pre_tokenizer"] = document["pre_tokenizer"] if words else metaspace
    return document


CONVERTED = [
    pytest.param(partial(converted, scheme=scheme, spaces=spaces, words=words), id=f"{scheme}{spaces}{words}")
    for scheme, spaces, words in [
        *(("always", "▁", False), ("always", " ", False), ("always", "▁", True), ("always", " ", True)),
        *(("first", "▁", False), ("first", " ", False)),
    ]
]


@pytest.mark.parametrize("document", [t5_like, *CONVERTED])
def test_every_character_is_counted_as_by_the_library_with_compiled_rules(document, tmp_path):
    tokenizer = tg.load(builders.write(tmp_path / "model", document()))
    assert tg.inspect(tokenizer).engine == "automata"
    characters = [chr(code) for code in range(0x30000) if not 0xD800 <= code < 0xE000]
    texts = ["".join(f"x{c} e{c}\u0301{c}" for c in characters[at : at + 64]) for at in range(0, len(characters), 64)]
    # Letters, marks and parts of Hangul in any order: what joins in a grapheme is looked up together.
    joining = "aé가ﬁﾊ \r\n\0\u0301\u0323\u1100\u1161\u11a8\u200d\U0001f600\U0001f1e6\u0915\u094d\u0600"
    numbers = random.Random(7)
    texts += ["".join(numbers.choices(joining, k=12)) for _ in range(20_000)]
    # At both ends of a document: what is removed, becomes a space, or becomes a space and more.
    ends = ["", " ", "  ", "\t", "\n", "\0", "\u00a0", "\u200b", "\u3000", "▁", "¨", "\ufdfa", "a", "<unk>", "</s>"]
    texts += ["".join(numbers.choices(ends, k=numbers.randrange(7))) for _ in range(20_000)]
    pretokens = Counter(piece for text in texts for piece in tokenizer.pretokenize(text) if isinstance(piece, str))
    counted = tg.count(tokenizer, texts).top(10**9)
    assert {pretoken.decode(): n for pretoken, n in counted} == {piece: n for piece, n in pretokens.items() if piece}


def test_rules_for_a_space_and_what_joins_it_are_applied_in_words_and_at_cuts(tmp_path, monkeypatch):
    rows = ["20 200C\t200C", "20 200D\t", "20 93C\t93C", "20 301\t58", "9 301\t59", "A0 200D\t5A 20"]
    (tmp_path / "rules.tsv").write_text("\n".join(rows) + "\n")
    compiled = rules(normalization_rule_tsv=str(tmp_path / "rules.tsv"))
    metaspace = builders.unigram()["pre_tokenizer"]
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    numbers = random.Random(9)
    parts = ["a", "b", "\u0915", " ", " ", "\t", "\u00a0", "\u0301", "\u200c", "\u200d", "\u093c", "\0"]
    texts = ["".join(numbers.choices(parts, k=numbers.randrange(12))) for _ in range(5_000)]
    documents = [builders.unigram() | {"pre_tokenizer": step} for step in (words, metaspace)]
    documents = [document | {"normalizer": compiled} for document in (*documents, builders.word_piece())]
    for pattern, content in (({"Regex": " {2,}"}, " "), ({"String": "b"}, "\u0301"), ({"String": "b"}, "")):
        steps = [{"type": "Replace", "pattern": pattern, "content": content}, compiled]
        documents.append(documents[0] | {"normalizer": {"type": "Sequence", "normalizers": steps}})
    for place, document in enumerate(documents):
        tokenizer = tg.load(builders.write(tmp_path / str(place), document))
        assert tg.inspect(tokenizer).engine == "automata"
        pretokens = Counter(piece for text in texts for piece in tokenizer.pretokenize(text) if isinstance(piece, str))
        counted = tg.count(tokenizer, texts).top(10**9)
        assert {key.decode(): n for key, n in counted} == {piece: n for piece, n in pretokens.items() if piece}
        path = tmp_path / f"{place}.txt"
        path.write_text("".join(texts), encoding="utf-8")
        with monkeypatch.context() as patched:
            patched.setattr(corpus_module, "BLOCK", 12)
            assert tg.count(tokenizer, path) == builders.count_through_upstream(tokenizer, path)


@pytest.mark.parametrize("document", [t5_like, *CONVERTED])
def test_a_document_that_is_read_in_parts_counts_as_a_whole_with_compiled_rules(document, tmp_path):
    tokenizer = tg.load(builders.write(tmp_path / "model", document()))
    words = [
        "the",
        " cat",
        "  kass",
        " ",
        "\n",
        "\t",
        "\u00a0",
        "\u3000",
        "▁",
        "¨",
        "ﬁ",
        "é",
        "</s>",
        "<unk> ",
        " <pad>",
    ]
    text = "".join(random.Random(8).choices(words, k=200_000))
    path = tmp_path / "t.txt"
    path.write_text(text, encoding="utf-8")
    parts = tg.count(tokenizer, path, count_options=tg.CountOptions(memory=25_000_000))
    assert parts == builders.count_through_upstream(tokenizer, path)


@pytest.mark.parametrize("document", [t5_like, converted, builders.word_piece])
def test_a_line_of_any_length_is_cut_at_white_space_for_encoders(document, tmp_path):
    tokenizer = tg.load(builders.write(tmp_path / "model", document()))
    part, times = "Tere õhtust, KASS!  the cat, é ", 1_000_000
    (tmp_path / "t.txt").write_text(part * times, encoding="utf-8")
    once = tg.count(tokenizer, [part]).top(10**9)
    assert tg.count(tokenizer, tmp_path / "t.txt").top(10**9) == [(pretoken, n * times) for pretoken, n in once]
