"""Random vocabularies as rank files: edited ones encode as in tiktoken, conversions encode alike or are refused."""

import json
import random
from base64 import b64decode

import builders
import pytest
import tiktoken
from rank_files import encoding_file, isolated

import tokengraft as tg
from tokengraft import errors
from tokengraft.tokenizer.rank_file import ENCODING, LLAMA3

LETTERS = "aabc "


def random_tokens(generator, n):
    """Byte strings of a few letters, in random order: many cannot be reached by merges."""
    tokens = {"".join(generator.choices(LETTERS, k=generator.randint(2, 5))).encode() for _ in range(n)}
    shuffled = sorted(tokens)
    generator.shuffle(shuffled)
    return shuffled


def random_texts(generator, n=200):
    return ["".join(generator.choices("aabbc  é", k=generator.randint(0, 20))) for _ in range(n)]


def tiktoken_of(tokenizer):
    """The encoding of a tokenizer by tiktoken, from the files that would be written."""
    ranks = {b64decode(a): int(b) for a, b in (line.split() for line in tokenizer.files[tokenizer.main].splitlines())}
    pattern = json.loads(tokenizer.files[ENCODING])["pat_str"]
    specials = {token.content: token.id for token in tokenizer.added}
    return tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)


def assert_same(tokenizer, generator):
    encoding = tiktoken_of(tokenizer)
    for text in random_texts(generator):
        assert encoding.encode(text, allowed_special="all") == tokenizer.encode(text), text


@pytest.mark.parametrize("seed", range(40))
def test_extended_and_pruned_vocabularies_encode_as_in_tiktoken(seed, tmp_path):
    generator = random.Random(seed)
    tokens = [bytes([byte]) for byte in range(256)] + random_tokens(generator, 25)
    (tmp_path / "x.tiktoken").write_bytes(builders.tiktoken_file({token: at for at, token in enumerate(tokens)}))
    (tmp_path / ENCODING).write_bytes(encoding_file({"<s>": 5000}, LLAMA3 if seed % 2 else "[^q]+"))
    tokenizer = tg.load(tmp_path)
    assert_same(tokenizer, generator)
    for _ in range(4):
        counts = tg.count(tokenizer, iter(random_texts(generator, 30)))
        tokenizer = tg.extend(tokenizer, counts, generator.randint(1, 8)).apply(tokenizer)
        assert_same(tokenizer, generator)
        method = generator.choice(["leaf-frequency", "frequency", "last-id"])
        order = tg.prune_order(tokenizer, None if method == "last-id" else counts, method)
        tokenizer = order[: min(len(order), generator.randint(0, 6))].apply(tokenizer)
        assert_same(tokenizer, generator)
        tokenizer = tokenizer.compact()
        assert_same(tokenizer, generator)


@pytest.mark.parametrize("seed", range(120))
def test_a_conversion_encodes_alike_or_is_refused(seed, tmp_path):
    generator = random.Random(seed)
    base = isolated(builders.byte_level(), LLAMA3)
    known, merges = list("abcĠ"), []
    for _ in range(generator.randint(1, 25)):
        pair = [generator.choice(known), generator.choice(known)]
        if pair not in merges and len("".join(pair)) < 7:
            merges.append(pair)
            known += ["".join(pair)] if "".join(pair) not in known else []
    strings = [*builders.byte_alphabet(), *(token for token in known if len(token) > 1)]
    if seed % 3 == 0:
        generator.shuffle(strings)
    if seed % 4 == 0:
        strings.append("bacca")
    vocab = {token: at for at, token in enumerate(dict.fromkeys(strings))}
    model = base["model"] | {"vocab": vocab, "merges": merges, "ignore_merges": seed % 5 > 1}
    added = [builders.added(len(vocab) + at, text) for at, text in enumerate(["<s>", "<x>"])]
    tokenizer = tg.load(builders.write(tmp_path / "base", base | {"model": model, "added_tokens": added}))
    for renumber in (False, True):
        try:
            converted = tg.convert(tokenizer, "tiktoken", renumber=renumber)
        except errors.UnsupportedTokenizerError:
            continue
        assert_same(converted, generator)
        for text in [*random_texts(generator), "<s>a<x>"]:
            strings = [tokenizer.strings[i] for i in tokenizer.encode(text)]
            assert [converted.strings[i] for i in converted.encode(text)] == strings
