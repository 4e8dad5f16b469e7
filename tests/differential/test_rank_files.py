"""Real rank files out of PyPI packages, after extending by 1,000, pruning by 1,000 and both.

Compared with mistral-common, tiktoken and Meta's loader on text drawn from the vocabulary, random bytes, and FLORES.
"""

from base64 import b64decode
from pathlib import Path

import builders
import pytest
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from rank_files import TEXTS, counts_of, drawn

import tokengraft as tg
from tokengraft.formats.vocabulary_files import split_pattern
from tokengraft.tokenizer.rank_file import PATTERNS

ROOT = Path(__file__).parents[2]
LANGUAGES = ("est_Latn", "hin_Deva", "zho_Hans", "tha_Thai", "arb_Arab")


@pytest.fixture(scope="module")
def corpus():
    """The text that new tokens are learned from: that of this project."""
    paths = [*(ROOT / "docs").glob("*.md"), *(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    return [path.read_text(encoding="utf-8") for path in sorted(paths)]


def tekken_path():
    return builders._package("mistral_common") / "data" / "tekken_240911.json"


def edits(base, corpus):
    """The tokenizer without 1,000 tokens, with 1,000 more, and both."""
    counts = tg.count(base, iter(corpus))
    pruned = tg.prune_order(base, counts)[:1000].apply(base)
    small = pruned.compact()
    return {
        "pruned with holes": pruned,
        "extended": tg.extend(base, counts, 1000).apply(base),
        "both": tg.extend(small, counts, 1000).apply(small),
    }


def tekken_edits(corpus):
    return edits(tg.load(tekken_path()), corpus)


def llama3_edits(corpus):
    """Edits of Llama-3 as a tokenizer.json, converted back: new tokens move its special tokens."""
    path = builders._package("llama_models") / "llama3" / "tokenizer.model"
    base = tg.convert(tg.load(path), "huggingface")
    return {name: tg.convert(new, "tiktoken", renumber=True) for name, new in edits(base, corpus).items()}


def tekken_encode(tokenizer, folder):
    loaded = Tekkenizer.from_file(tg.save(tokenizer, folder, verify=False) / "tekken.json")
    assert loaded.n_words == tokenizer.n_rows
    return lambda text: loaded.encode(text, bos=False, eos=False)


def llama3_encode(tokenizer, folder):
    from llama_models.llama3.tokenizer import Tokenizer

    loaded = Tokenizer(tg.save(tokenizer, folder, verify=False) / "tokenizer.tiktoken")
    assert loaded.special_tokens == {token.content: token.id for token in tokenizer.added}
    return lambda text: loaded.encode(text, bos=False, eos=False, allowed_special="all")


FAMILIES = {"tekken": (tekken_edits, tekken_encode), "llama3": (llama3_edits, llama3_encode)}


@pytest.fixture(scope="module", params=FAMILIES)
def edited(request, corpus, tmp_path_factory):
    """Every edit by name: the tokenizer, and the encoder of the library that loaded its file."""
    make, load = FAMILIES[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    return {name: (tokenizer, load(tokenizer, folder / name)) for name, tokenizer in make(corpus).items()}


def test_libraries_agree_after_edits(edited):
    for name, (tokenizer, encode) in edited.items():
        for text in [*TEXTS, *drawn(tokenizer, 300)]:
            assert encode(text) == tokenizer.encode(text), (name, text)


@pytest.mark.shared_data
def test_libraries_agree_on_flores_after_edits(edited, shared_data):
    files = [shared_data / "devtest" / f"{name}.devtest" for name in LANGUAGES]
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()[::4]]
    for name, (tokenizer, encode) in edited.items():
        for text in lines:
            assert encode(text) == tokenizer.encode(text), (name, text)


def test_a_tokenizer_json_of_llama3_becomes_the_official_file_and_back(llama3_folder):
    converted = tg.convert(tg.load(llama3_folder), "tiktoken")
    official = builders._package("llama_models") / "llama3" / "tokenizer.model"
    assert converted.files["tokenizer.tiktoken"] == official.read_bytes()
    assert tg.convert(tg.load(official), "huggingface").merges == tg.load(llama3_folder).merges


def test_llama4_encodes_as_in_tiktoken():
    path = builders._package("llama_models") / "llama4" / "tokenizer.model"
    tokenizer = tg.load(path)
    ranks = {b64decode(a): int(b) for a, b in (line.split() for line in path.read_bytes().splitlines())}
    specials = {token.content: token.id for token in tokenizer.added}
    pattern = tokenizer.document["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
    encoding = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    for text in [*TEXTS, *specials, *drawn(tokenizer, 500)]:
        assert encoding.encode(text, allowed_special="all") == tokenizer.encode(text), text


@pytest.mark.parametrize("name", sorted({*PATTERNS} - {"p50k_base", "r50k_base"}))
def test_known_patterns_split_as_in_tiktoken_whatever_the_character(name):
    """Characters from all over Unicode, in several places, by both regex engines, with the tokens of Llama-3."""
    path = builders._package("llama_models") / "llama3" / "tokenizer.model"
    tokenizer = tg.load(path, pattern=name)
    ranks = {b64decode(a): int(b) for a, b in (line.split() for line in path.read_bytes().splitlines())}
    encoding = tiktoken.Encoding("x", pat_str=PATTERNS[name], mergeable_ranks=ranks, special_tokens={})
    assert split_pattern(tokenizer) == PATTERNS[name]
    for point in [*range(0x250), *range(0x250, 0x30000, 37)]:
        character = "" if 0xD800 <= point < 0xE000 else chr(point)
        text = f"a{character}b {character}1{character}{character} '{character} \n{character}\t"
        assert tokenizer.encode(text) == encoding.encode(text), text


def test_llama_loaders_read_what_is_written(tmp_path):
    """Meta's own loaders, which give special tokens the ids after the ranks."""
    pytest.importorskip("llama_models")
    from llama_models.llama3.tokenizer import Tokenizer as Llama3

    path = builders._package("llama_models") / "llama3" / "tokenizer.model"
    base = tg.load(path)
    assert Llama3(path).special_tokens == {token.content: token.id for token in base.added}
    texts = [*TEXTS, *drawn(base, 200)]
    counts = counts_of(base)
    pruned = tg.prune_order(base, counts, "last-id-leaf")[:1000].apply(base)
    for name, new in {"holes": pruned, "compact": pruned.compact()}.items():
        out = tg.save(new, tmp_path / name, verify=False)
        loader = Llama3(out / "tokenizer.model")
        assert loader.special_tokens == {token.content: token.id for token in new.added}
        for text in texts:
            assert loader.encode(text, bos=False, eos=False) == new.encode(text)
