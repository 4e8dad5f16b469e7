"""Word lists on real tokenizers: a thousand medical terms and some names, found by the libraries in running text."""

import re
from collections import Counter

import pyarrow.parquet as pq
import pytest
from sentencepiece import SentencePieceProcessor

import tokengraft as tg

NAMES = ["Paracetamol", "AeroChamber", "ÄrzteKammer", "GraftMax", "猫薬", "naïve", "Zyrtec-D", "COVID19", "New York"]


@pytest.fixture(scope="module")
def terms(corpora):
    """Terms of medium frequency in the medical corpus."""
    texts = pq.read_table(corpora / "medical_en.parquet", columns=["text"]).column("text").to_pylist()
    words = Counter(word for text in texts for word in re.findall(r"[A-Za-z]{7,}", text))
    return [word for word, _ in words.most_common(2000)][1000:]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["llama2", "llama3", "qwen2_5"])
def test_the_libraries_find_every_word_in_running_text(name, shared_data, terms):
    base = tg.load(shared_data / name)
    counts = tg.count(base, shared_data / "devtest" / "eng_Latn.devtest")
    extension = tg.extend(base, counts, 2500, include=[*terms, *NAMES])
    extended = extension.apply(base)
    library, model = extended.to_tokenizers(), extended.piece_model
    pieces = SentencePieceProcessor(model_proto=extended.files[extended.piece_file]) if model else None
    left_out = {word.word for word in extension.included if word.token is None}
    assert left_out <= set(NAMES)
    assert {"Zyrtec-D", "COVID19", "New York"} <= left_out
    for word in extension.included:
        if word.token is not None:
            text = f"The {word.word} was" if word.token[0] in "Ġ▁" else f"{word.word} was"
            token_id = extended.ids[word.token]
            assert token_id in library.encode(text, add_special_tokens=False).ids
            assert pieces is None or token_id in pieces.encode(text)
    for token in extension.tokens:
        assert extended.core_model.encode(token, by_merges=True) == [extended.ids[token]]
