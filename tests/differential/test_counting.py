"""Fast counting against the library's own pipeline, on every kind of tokenizer and on text from everywhere."""

import random
import sys
import unicodedata

import builders
import pytest
from test_upstream import STRANGE, texts_of_joined_tokens
from tokenizers import Tokenizer as Upstream

import tokengraft as tg


def texts_of_every_category(count, seed):
    """Short texts over a few characters of every Unicode category, spaces and newlines among them."""
    generator = random.Random(seed)
    categories = {}
    for code in range(sys.maxunicode + 1):
        if not 0xD800 <= code < 0xE000:
            categories.setdefault(unicodedata.category(chr(code)), []).append(chr(code))
    pool = [generator.choice(categories[name]) for name in sorted(categories) for _ in range(12)]
    pool += list(" \n\r\t'/aAé1") * 12
    return ["".join(generator.choices(pool, k=generator.randrange(40))) for _ in range(count)]


def texts_of_random_bytes(count, seed):
    generator = random.Random(seed)
    return [generator.randbytes(generator.randrange(60)).decode(errors="replace") for _ in range(count)]


def assert_fast_equals_slow(tokenizer, texts):
    fast = tg.count(tokenizer, iter(texts))
    slow = builders.count_through_upstream(tokenizer, iter(texts))
    assert fast == slow


@pytest.fixture(scope="module")
def texts():
    return STRANGE + texts_of_every_category(4000, seed=11) + texts_of_random_bytes(2000, seed=12)


def test_tiny_tokenizers_count_alike_fast_and_slow(tiny_folder, texts):
    tokenizer = tg.load(tiny_folder)
    assert_fast_equals_slow(tokenizer, texts + texts_of_joined_tokens(tokenizer, 500, seed=13))


def test_real_tokenizers_count_alike_fast_and_slow(real_folder, texts):
    tokenizer = tg.load(real_folder)
    assert_fast_equals_slow(tokenizer, texts + texts_of_joined_tokens(tokenizer, 2000, seed=14))


def assert_tokens_equal_whole_documents(tokenizer, upstream, texts):
    """Token frequencies from counts are those of encoding every document whole: cutting changed nothing."""
    whole = {}
    for encoded in upstream.encode_batch(texts, add_special_tokens=False):
        for token in encoded.ids:
            whole[token] = whole.get(token, 0) + 1
    assert tg.count(tokenizer, iter(texts)).tokens(tokenizer) == dict(sorted(whole.items()))


def test_counting_pieces_equals_encoding_whole_documents(real_folder, texts):
    tokenizer = tg.load(real_folder)
    upstream = Upstream.from_file(str(real_folder / "tokenizer.json"))
    joined = texts_of_joined_tokens(tokenizer, 2000, seed=15)
    assert_tokens_equal_whole_documents(tokenizer, upstream, texts + joined)


@pytest.mark.shared_data
class TestSharedData:
    LANGUAGES = (
        *("est_Latn", "eng_Latn", "rus_Cyrl", "hin_Deva", "jpn_Jpan"),
        *("zho_Hans", "arb_Arab", "tha_Thai", "kor_Hang"),
    )

    def flores(self, folder):
        for language in self.LANGUAGES:
            yield (folder.parent / "devtest" / f"{language}.devtest").read_text(encoding="utf-8")

    def test_real_text_counts_alike_fast_and_slow(self, shared_folder, texts):
        tokenizer = tg.load(shared_folder)
        lines = [line for text in self.flores(shared_folder) for line in text.splitlines()[:300]]
        assert_fast_equals_slow(tokenizer, texts + lines + texts_of_joined_tokens(tokenizer, 1000, seed=16))

    def test_whole_documents_of_real_text_have_the_same_tokens(self, shared_folder):
        tokenizer = tg.load(shared_folder)
        upstream = Upstream.from_file(str(shared_folder / "tokenizer.json"))
        documents = [
            "\n".join(text.splitlines()[at : at + 50]) for text in self.flores(shared_folder) for at in (0, 50)
        ]
        assert_tokens_equal_whole_documents(tokenizer, upstream, documents)

    @pytest.mark.parametrize("name", ["gemma3", "llama2", "mistral_v3"])
    def test_pieces_stay_short_in_chinese_and_japanese(self, shared_data, name):
        tokenizer = tg.load(shared_data / name)
        for language in ("jpn_Jpan", "zho_Hans"):
            text = (shared_data / "devtest" / f"{language}.devtest").read_text(encoding="utf-8")
            counts = tg.count(tokenizer, iter([text]))
            assert max(len(pretoken.decode()) for pretoken, _ in counts.top(len(counts))) < 120
