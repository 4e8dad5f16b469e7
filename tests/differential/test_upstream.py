"""Every tokenizer against the `tokenizers` library: the same ids, and files that it reads as before."""

import random
from copy import copy

import pytest
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer as Upstream

import tokengraft as tg
from tokengraft.formats.huggingface import write_tokenizer_json

STRANGE = [
    "",
    " ",
    "  \t\n\r\n  x",
    "naïve café — “quotes” … 🙂‍↔️ ﬁ Å Å ㍿",
    "e\u0301 o\u0303 \u200d \ufeff \u00a0 \u3000",
    "tere õhtust, 12345 678! it's I'LL don't",
    "मैं हिन्दी में लिखता हूँ। 我喜欢猫。猫が好きです。 مرحبا بالعالم",
    "def f(x):\n\treturn {'a': x ** 2}  # ok\n\n\n",
]


def texts_of_joined_tokens(tokenizer, count, seed):
    """Text drawn from the vocabulary reaches merge conflicts that ordinary text never does."""
    generator = random.Random(seed)
    tokens = [token.bytes for token in tokenizer.tokens]
    return [b"".join(generator.choices(tokens, k=12)).decode(errors="replace") for _ in range(count)]


def assert_encodes_like_upstream(tokenizer, upstream, texts):
    for text in texts:
        assert tokenizer.encode(text) == upstream.encode(text, add_special_tokens=False).ids, repr(text)
    assert tokenizer.encode_batch(texts) == [tokenizer.encode(text) for text in texts]


def test_tiny_tokenizers_encode_like_upstream(tiny_folder):
    tokenizer = tg.load(tiny_folder)
    upstream = Upstream.from_file(str(tiny_folder / "tokenizer.json"))
    assert_encodes_like_upstream(tokenizer, upstream, STRANGE + texts_of_joined_tokens(tokenizer, 300, seed=1))


def test_real_tokenizers_encode_like_upstream(real_folder):
    tokenizer = tg.load(real_folder)
    upstream = Upstream.from_file(str(real_folder / "tokenizer.json"))
    assert_encodes_like_upstream(tokenizer, upstream, STRANGE + texts_of_joined_tokens(tokenizer, 1000, seed=2))


def assert_decodes_like_upstream(tokenizer, upstream, texts, seed):
    """Also random ids: halves of characters, spaces and byte tokens in places where no text has them."""
    generator = random.Random(seed)
    every = [token.id for token in tokenizer.tokens]
    bytes_first = [*every[:300], *(token.id for token in tokenizer.added)]
    drawn = [
        generator.choices(pool, k=generator.randrange(9)) for pool in (every, bytes_first) for _ in range(len(texts))
    ]
    for ids in [*map(tokenizer.encode, texts), *drawn, *([token_id] for token_id in every[:400])]:
        assert tokenizer.decode(ids) == upstream.decode(ids, skip_special_tokens=False), ids


def test_tiny_tokenizers_decode_like_upstream(tiny_folder):
    tokenizer = tg.load(tiny_folder)
    upstream = Upstream.from_file(str(tiny_folder / "tokenizer.json"))
    assert_decodes_like_upstream(tokenizer, upstream, STRANGE + texts_of_joined_tokens(tokenizer, 300, seed=1), seed=3)


def test_real_tokenizers_decode_like_upstream(real_folder):
    tokenizer = tg.load(real_folder)
    upstream = Upstream.from_file(str(real_folder / "tokenizer.json"))
    assert_decodes_like_upstream(tokenizer, upstream, STRANGE + texts_of_joined_tokens(tokenizer, 1000, seed=2), seed=4)
    if tokenizer.kind == "byte-level":  # without normalization, every text is decoded to itself
        assert [tokenizer.decode(tokenizer.encode(text)) for text in STRANGE] == STRANGE


def test_every_token_has_the_id_that_upstream_gives_it(real_folder):
    upstream = Upstream.from_file(str(real_folder / "tokenizer.json"))
    assert {token.string: token.id for token in tg.load(real_folder).tokens} == upstream.get_vocab()


def test_added_ids_are_the_ones_that_upstream_gives(tiny_folder):
    upstream = Upstream.from_file(str(tiny_folder / "tokenizer.json"))
    assert {token.content: token.id for token in tg.load(tiny_folder).added} == {
        token.content: token_id for token_id, token in upstream.get_added_tokens_decoder().items()
    }


def rewritten(folder):
    """The tokenizer of a folder without the bytes of its file, so that these are made again."""
    tokenizer = copy(tg.load(folder))
    assert tokenizer.original is None
    return tokenizer


def test_saving_an_unchanged_tokenizer_changes_no_byte(tiny_folder, tmp_path):
    saved = tg.save(rewritten(tiny_folder), tmp_path / "saved", verify=False)
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == {
        path.name: path.read_bytes() for path in tiny_folder.iterdir()
    }


def test_saving_an_unchanged_real_tokenizer_changes_no_byte(real_folder, tmp_path):
    saved = tg.save(rewritten(real_folder), tmp_path / "saved", verify=False)
    assert (saved / "tokenizer.json").read_bytes() == (real_folder / "tokenizer.json").read_bytes()


def test_llama3_has_588_unreachable_tokens_all_usable_whole(llama3_folder):
    found = tg.inspect(tg.load(llama3_folder))
    assert (found.unreachable, found.usable_whole, found.not_utf8) == (588, 588, 1352)


BYTES_PER_TOKEN = {
    "gemma3": (3.1254, 4.8719),
    "llama2": (2.4351, 4.2428),
    "llama3": (2.6442, 4.8617),
    "mistral_nemo": (2.9925, 4.7470),
    "mistral_v3": (2.4148, 4.4036),
    "qwen2_5": (2.6071, 4.7824),
    "smollm2": (2.3666, 4.7652),
}
UNREACHABLE = {"llama3": 588, "qwen2_5": 0}


@pytest.mark.shared_data
class TestSharedData:
    def test_file_is_written_back_byte_for_byte(self, shared_folder, tmp_path):
        saved = tg.save(rewritten(shared_folder), tmp_path / "saved", verify=False)
        for path in shared_folder.iterdir():
            assert (saved / path.name).read_bytes() == path.read_bytes(), path.name

    @pytest.mark.parametrize(("name", "expected"), UNREACHABLE.items())
    def test_unreachable_counts_are_the_published_ones(self, shared_data, name, expected):
        assert len(tg.load(shared_data / name).structure.unreachable) == expected

    def test_bytes_per_token_on_flores_are_the_published_ones(self, shared_folder):
        tokenizer = tg.load(shared_folder)
        for language, expected in zip(("est_Latn", "eng_Latn"), BYTES_PER_TOKEN[shared_folder.name], strict=True):
            path = shared_folder.parent / "devtest" / f"{language}.devtest"
            lines = path.read_text(encoding="utf-8").splitlines()
            tokens = sum(len(tokenizer.encode(line)) for line in lines)
            assert round(sum(len(line.encode()) for line in lines) / tokens, 4) == expected

    def test_text_of_joined_tokens_encodes_like_upstream(self, shared_folder):
        tokenizer = tg.load(shared_folder)
        upstream = Upstream.from_file(str(shared_folder / "tokenizer.json"))
        assert_encodes_like_upstream(tokenizer, upstream, STRANGE + texts_of_joined_tokens(tokenizer, 400, seed=3))


def test_transformers_and_tokenizers_objects_load_like_their_files(tiny_folder):
    from transformers import PreTrainedTokenizerFast

    file = tiny_folder / "tokenizer.json"
    expected = tg.load(file)
    wrapped = tg.load(PreTrainedTokenizerFast(tokenizer_file=str(file)))
    bare = tg.load(Upstream.from_file(str(file)))
    for loaded in (wrapped, bare):
        assert (dict(loaded.vocab), loaded.merges) == (dict(expected.vocab), expected.merges)
        assert loaded.added == expected.added
    assert "tokenizer_config.json" in wrapped.files


@pytest.mark.shared_data
class TestSentencePieceExtension:
    """Both forms of an extended SentencePiece type, on real text in five scripts."""

    @pytest.mark.parametrize(
        ("name", "language"),
        [
            *(("llama2", "est_Latn"), ("llama2", "rus_Cyrl"), ("mistral_v3", "hin_Deva"), ("mistral_v3", "jpn_Jpan")),
            ("gemma3", "zho_Hans"),
        ],
    )
    def test_forms_agree_every_new_token_is_reachable_and_text_is_shorter(self, name, language, shared_data):
        base = tg.load(shared_data / name)
        lines = (shared_data / "devtest" / f"{language}.devtest").read_text(encoding="utf-8").splitlines()
        assert len(lines) == 1012
        extension = tg.extend(base, tg.count(base, iter(lines)), 1000)
        extended = extension.apply(base)
        assert not {extended.vocab[token] for token in extension.tokens} & set(extended.structure.unreachable)
        ids = [extended.encode(line) for line in lines]
        assert sum(map(len, ids)) < 0.96 * sum(len(base.encode(line)) for line in lines)
        upstream = Upstream.from_str(write_tokenizer_json(extended).decode())
        assert [found.ids for found in upstream.encode_batch(lines, add_special_tokens=False)] == ids
        if extended.piece_file:
            model = SentencePieceProcessor(model_proto=extended.files[extended.piece_file])
            assert model.encode(lines) == ids


@pytest.mark.shared_data
class TestPruning:
    """Orders of real vocabularies."""

    @pytest.mark.parametrize(
        ("name", "method"),
        [("llama3", "leaf-frequency"), ("llama2", "leaf-frequency"), ("llama2", "merge"), ("llama2", "last-id-leaf")],
    )
    def test_no_kept_token_becomes_unreachable_and_unpruned_text_is_as_before(self, name, method, shared_data):
        base = tg.load(shared_data / name)
        lines = (shared_data / "devtest" / "est_Latn.devtest").read_text(encoding="utf-8").splitlines()
        order = tg.prune_order(base, tg.count(base, iter(lines)), method)
        pruned = order[: len(order) // 2].apply(base)
        assert not set(pruned.structure.unreachable) - set(base.structure.unreachable)
        gone = {removal.id for removal in order.removals[: len(order) // 2]}
        upstream = Upstream.from_str(write_tokenizer_json(pruned).decode())
        for line in lines:
            before, after = base.encode(line), pruned.encode(line)
            assert after == upstream.encode(line, add_special_tokens=False).ids
            assert after == before or gone.intersection(before)
