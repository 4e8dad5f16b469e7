"""Documents as tokens, by the core: the ids are those of `Tokenizer.encode`, which runs the `tokenizers` crate."""

from collections import Counter

import builders
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits.inputs import PIPELINES

import tokengraft as tg
from tokengraft import _core
from tokengraft.measure import segments
from tokengraft.measure.segments import Segmenter, same_pipelines, token_totals

SHAPES = {**builders.TINY, **PIPELINES}
texts = st.lists(
    st.one_of(
        st.text(st.sampled_from("ab thecistu1 ж,õ\t\n猫é\u0301\u3000▁"), max_size=30),
        st.lists(st.sampled_from(["<|endoftext|>", "<s>", " the", "kass", "  ", "cat", "\r\n"])).map("".join),
    ),
    max_size=5,
)


@pytest.fixture(scope="module", params=sorted(SHAPES))
def tokenizer(request, tmp_path_factory):
    return tg.load(builders.write(tmp_path_factory.mktemp("segment"), SHAPES[request.param]()))


@settings(max_examples=25)
@given(documents=texts)
def test_tokens_of_documents_are_those_of_the_tokenizer(tokenizer, documents):
    found = Segmenter(tokenizer).segment(documents)
    expected = [tokenizer.encode(document) for document in documents]
    assert [found.document(place).tolist() for place in range(len(documents))] == expected
    totals = token_totals(tokenizer, documents)
    assert totals.lengths.tolist() == found.lengths.tolist() == [*map(len, expected)]
    assert totals.counted == Counter(found.ids.tolist())
    by_merges = [
        1 if isinstance(piece, int) else len(tokenizer.core_model.encode(piece, by_merges=True))
        for document in documents
        for piece in tokenizer.pretokenize(document)
    ]
    assert found.n_by_merges == sum(by_merges)


@pytest.fixture(scope="module")
def extended(tokenizer):
    counts = tg.count(tokenizer, iter(["the cat sat on the mat, kass istus õhtul"] * 3))
    return tg.extend(tokenizer, counts, 8).apply(tokenizer)


@settings(max_examples=25)
@given(documents=texts)
def test_tokenizers_of_one_pipeline_share_pretokens_and_have_their_own_tokens(tokenizer, extended, documents):
    both = {"base": tokenizer, "extended": extended}
    for names in same_pipelines(both):
        for name, found in zip(names, Segmenter(*(both[n] for n in names)).segment_by_each(documents), strict=True):
            alone = Segmenter(both[name]).segment(documents)
            assert found.ids.tolist() == alone.ids.tolist()
            assert found.lengths.tolist() == alone.lengths.tolist()
            assert found.n_by_merges == alone.n_by_merges
    assert same_pipelines({"one": tokenizer, "same": tokenizer}) == [["one", "same"]]


def test_long_documents_are_processed_in_parts_with_the_same_tokens(tokenizer):
    words = "the cat sat on <s> mat, kass  istus\nmatil 12345 õhtu <|endoftext|>猫は x" * 8 + "ab" * 999
    document = f"{words} " * (1_300_000 // len(words.encode()))
    found = Segmenter(tokenizer).segment(["a b", document, "c"])
    assert found.document(1).tolist() == tokenizer.encode(document)
    assert found.document(2).tolist() == tokenizer.encode("c")


def test_all_scores_are_the_same_for_batches_of_any_size(tokenizer, monkeypatch):
    documents = [
        "",
        "the <s>",
        "<|end|> kass",
        " ",
        "猫ж the cat",
        "the cat sat",
        "",
        *builders.TEXT[:4],
        "<|start|>",
    ] * 3
    new = tg.extend(tokenizer, tg.count(tokenizer, iter(["kass istus teisel"] * 9)), 4).apply(tokenizer)
    pair = {"old": tokenizer, "new": new}
    whole = tg.evaluate(pair, {"t": iter(documents)})
    expected = [tokenizer.encode(document) for document in documents]
    assert whole.scores[0].tokens == sum(map(len, expected))
    assert whole.scores[0].never_produced == len(tokenizer.ids) - len({i for ids in expected for i in ids})
    for size in (1, 7, 100):
        monkeypatch.setattr(segments, "BATCH_CHARACTERS", size)
        assert tg.evaluate(pair, {"t": iter(documents)}) == whole


def test_bytes_characters_and_words_are_those_of_python():
    """Every white space of Python separates words."""
    texts = [f"a{chr(code)}b" for code in range(0x10000) if not 0xD800 <= code < 0xE000]
    texts += ["", " ", "a\x1cb\u3000c\xa0 d\ne\u200bf ", "😀 õ\n"]
    for text in texts:
        assert _core.text_size([text]) == (len(text.encode()), len(text), len(text.split()))
    assert _core.text_size(["a b", "c", "d"]) == (5, 5, 4)
