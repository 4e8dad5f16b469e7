"""Real rank files out of PyPI packages, after extending by 1,000, pruning by 1,000 and both.

Compared with mistral-common, tiktoken and Meta's loader on text drawn from the vocabulary, random bytes, and FLORES.
"""

from base64 import b64decode
from pathlib import Path

import builders
import pytest
import tiktoken
from mistral_common.tokens.tokenizers.tekken import Tekkenizer
from rank_files import TEXTS, drawn

import tokengraft as tg

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
