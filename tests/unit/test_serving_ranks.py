"""Serving from rank files: tiktoken, mistral-common, and what llama.cpp and Ollama make of them."""

import builders
import pytest
from checks import edit, one, outcomes

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.verify.check_serving import pattern_hash

transformers = pytest.importorskip("transformers")  # imported here, so that no process has to be started for each check
PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def with_ranks(folder, specials_first=False):
    """A byte-level folder whose merges are by the rank of the product, and its ranks."""
    document = builders.byte_level()
    document["pre_tokenizer"] = builders.split_by(PATTERN)
    old = document["model"]["vocab"]
    alphabet = sorted((token for token in old if len(token) == 1), key=lambda token: token_bytes(token, "byte-level"))
    learned = [*alphabet, *sorted((token for token in old if len(token) > 1), key=old.__getitem__)]
    ranks = {token: rank for rank, token in enumerate(learned)}
    names = [token["content"] for token in document["added_tokens"]]
    ids = {name: place for place, name in enumerate(names)} if specials_first else {}
    vocab = ids | {token: rank + len(ids) for token, rank in ranks.items()}
    document["model"] |= {"vocab": vocab, "merges": builders.merges_by_rank(ranks, ranks)}
    document["added_tokens"] = [builders.added(vocab.get(name, len(vocab) + at), name) for at, name in enumerate(names)]
    builders.write(folder, document)
    return {token_bytes(token, "byte-level"): rank for token, rank in ranks.items()}


def write_tiktoken(folder, ranks):
    (folder / "tokenizer.model").write_bytes(builders.tiktoken_file(ranks))


def write_tekken(folder, ranks, **config):
    raw = builders.tekken_file([*ranks][256:], ["<|s0|>", "<|s1|>"], PATTERN, unused=0, **config)
    (folder / "tekken.json").write_bytes(raw)


def assert_refused(folder, stack):
    """Files that contradict each other are not loaded at all, or a check fails."""
    try:
        found = tg.check_serving(folder, stack)
    except errors.TokengraftError:
        return
    assert found.failures


def test_a_model_of_another_format_is_read_by_llama_cpp_and_ollama(tmp_path):
    write_tiktoken(tmp_path, with_ranks(tmp_path))
    edit(tmp_path / "config.json", architectures=["LlamaForCausalLM"], model_type="llama", vocab_size=500)
    for stack in ("llama.cpp", "ollama"):
        found = one(tmp_path, stack, "vocabulary")
        assert found.outcome == "fail"
        assert "not a SentencePiece model" in found.detail


def test_ollama_knows_the_pattern_of_llama_3(tmp_path):
    document = builders.byte_level() | {"pre_tokenizer": builders.split_by(builders.LLAMA3_PATTERN)}
    assert pattern_hash(document).startswith("d98f9631")
    folder = builders.write(tmp_path / "tok", document)
    assert one(folder, "ollama", "pre-tokenizer").detail.startswith("recognised as llama-bpe")


def test_tiktoken_agrees_with_the_ranks_of_the_tokenizer(tmp_path):
    ranks = with_ranks(tmp_path / "tok")
    assert one(tmp_path / "tok", "tiktoken", "rank file").outcome == "fail"
    write_tiktoken(tmp_path / "tok", ranks)
    assert set(outcomes(tmp_path / "tok", "tiktoken").values()) == {"pass"}
    (tmp_path / "tok" / "original").mkdir()
    (tmp_path / "tok" / "tokenizer.model").rename(tmp_path / "tok" / "original" / "tokenizer.model")
    assert set(outcomes(tmp_path / "tok", "tiktoken").values()) == {"pass"}


@pytest.mark.parametrize("pattern", [r"\p{L}+|\P{L}", "gpt2"])
def test_any_split_pattern_of_a_tiktoken_file_is_compared(tmp_path, pattern):
    """tiktoken drops text that a pattern does not match, so a file with an unknown one is not split as others are."""
    (tmp_path / "ranks.tiktoken").write_bytes(builders.tiktoken_file(builders.ranks_of(builders.byte_level())))
    tg.save(tg.load(tmp_path / "ranks.tiktoken", pattern=pattern), tmp_path / "tok")
    assert one(tmp_path / "tok", "tiktoken", "encoding").outcome == "pass"


def test_tiktoken_does_not_agree_with_other_ranks(tmp_path):
    ranks = with_ranks(tmp_path / "tok")
    first, last = list(ranks)[256], list(ranks)[-1]
    without = {token: rank for token, rank in ranks.items() if token != b"\x00"}
    for other in (ranks | {first: ranks[last], last: ranks[first]}, without, ranks | {last: 300, first: 300}):
        write_tiktoken(tmp_path / "tok", other)
        assert_refused(tmp_path / "tok", "tiktoken")


def test_mistral_common_agrees_with_the_ranks_of_the_tokenizer(tmp_path):
    write_tekken(tmp_path / "tok", with_ranks(tmp_path / "tok", specials_first=True))
    found = outcomes(tmp_path / "tok", "mistral-common")
    assert found.pop("embedding rows") == "note"
    assert set(found.values()) == {"pass"}


def test_mistral_common_does_not_agree_with_specials_behind_the_ranks(tmp_path):
    write_tekken(tmp_path / "tok", with_ranks(tmp_path / "tok"))
    assert_refused(tmp_path / "tok", "mistral-common")


def test_what_mistral_common_refuses_is_a_finding(tmp_path):
    write_tekken(tmp_path / "tok", with_ranks(tmp_path / "tok", specials_first=True), version="v999")
    found = one(tmp_path / "tok", "mistral-common", "encoding")
    assert found.outcome == "fail"
    assert "refuses" in found.detail
