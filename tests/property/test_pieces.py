"""SentencePiece's rule: the trainer against the obvious version, both forms against each other and the library."""

import builders
import reference
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from test_bpe import LETTERS

import tokengraft as tg
from tokengraft.formats.vocabulary_files import read_piece_model

FILE = "tokenizer.model"


@st.composite
def piece_scores(draw):
    """Pieces over a few letters in random order of merit; parts may be missing, so that some cannot be reached."""
    words = st.text(LETTERS, min_size=2, max_size=5)
    return draw(st.lists(words, max_size=14, unique=True))


def texts_over(learned):
    joined = st.lists(st.sampled_from([*LETTERS, " ", "  ", *learned]), min_size=1, max_size=7).map("".join)
    return st.lists(joined, min_size=1, max_size=14)


def tokenizer_of(learned):
    raw = builders.piece_model(builders.pieces_of(learned, LETTERS, runs=("▁", "▁▁", "▁▁▁▁", "▁▁▁")))
    return read_piece_model({FILE: raw}, FILE)


@given(piece_scores(), st.data(), st.integers(1, 10), st.integers(1, 3))
def test_new_pieces_equal_those_of_the_obvious_trainer(learned, data, n, min_count):
    base, texts = tokenizer_of(learned), data.draw(texts_over(learned))
    words = {"▁" + text.replace(" ", "▁"): texts.count(text) for text in texts}
    counts = tg.count(base, iter(texts))
    found = tg.extend(base, counts, n, limits=tg.Limits(min_count=min_count), character_coverage=0)
    expected = reference.continued_by_score(words, base.piece_model.normal, n, min_count=min_count)
    assert [merge[:3] for merge in found.merges if merge.new] == expected
    for size in range(len(found)):
        part = found[: size + 1]
        assert (
            part.merges
            == tg.extend(base, counts, size + 1, limits=tg.Limits(min_count=min_count), character_coverage=0).merges
        )


@given(piece_scores(), st.data(), st.integers(1, 10))
def test_both_forms_and_the_library_split_alike_after_an_extension(learned, data, n):
    base, texts = tokenizer_of(learned), data.draw(texts_over(learned))
    extension = tg.extend(base, tg.count(base, iter(texts)), n, limits=tg.Limits(min_count=1), character_coverage=0)
    extended = extension.apply(base)
    library = SentencePieceProcessor(model_proto=extended.files[FILE])
    more = data.draw(texts_over([*learned, *(token for token in extension.tokens if "▁" not in token)]))
    for text in texts + more:
        assert extended.encode(text) == library.encode(text)
    scores = extended.piece_model.normal
    assert len({scores[token] for token in extension.tokens}) == len(extension)
    for token in extension.tokens:
        assert extended.core_model.encode(token, by_merges=True) == [extended.vocab[token]]
