"""The library that owns each file format: how it encodes and decodes with the files of a folder."""

import base64
import json
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from tokengraft import Tokenizer
from tokengraft.formats.vocabulary_files import split_pattern
from tokengraft.tokenizer import Token
from tokengraft.tokenizer.kind import SPACE
from tokengraft.tokenizer.rank_file import ENCODING

_APART = "\ue0f7"
"""A private character, which no vocabulary has."""


class Library(NamedTuple):
    """A folder as its own library reads it."""

    name: str
    encode: Callable[[list[str]], list[list[int]]]
    decode: Callable[[list[int]], str | bytes]
    encode_token: Callable[[Token], list[int]]
    """The ids of the text of a token alone, as merges make them."""
    finds_added: bool = True
    """Whether it finds the text of special tokens in ordinary text."""


def library_of(folder: Path, tokenizer: Tokenizer, encoding: str = "") -> Library:
    """The library that owns the main file of a folder.

    Args:
        folder: The folder.
        tokenizer: The tokenizer that was loaded from it or written to it.
        encoding: The name of an encoding of tiktoken, whose own pattern and special tokens are used.
    """
    if tokenizer.main == "tokenizer.json":
        return _tokenizers(folder / tokenizer.main)
    if tokenizer.main == "tekken.json":
        return _tekken(folder / tokenizer.main)
    if tokenizer.main == tokenizer.rank_file:
        return _tiktoken(folder / tokenizer.main, tokenizer, encoding)
    return _sentencepiece(folder / tokenizer.main)


def _tokenizers(path: Path) -> Library:
    from tokenizers import Tokenizer as Upstream

    upstream = Upstream.from_file(str(path))
    upstream.no_truncation()
    upstream.no_padding()
    return Library(
        "tokenizers",
        lambda texts: [found.ids for found in upstream.encode_batch(texts, add_special_tokens=False)],
        lambda ids: upstream.decode(ids, skip_special_tokens=False),
        lambda token: [found.id for found in upstream.model.tokenize(token.string)],
    )


def _sentencepiece(path: Path) -> Library:
    from sentencepiece import SentencePieceProcessor

    model = SentencePieceProcessor(model_file=str(path))

    def encode_token(token: Token) -> list[int]:
        # After a character that no piece has, so that nothing is put in front of the token or merges with it.
        before = len(model.encode(_APART))
        return model.encode(_APART + token.string.replace(SPACE, " "))[before:]

    return Library("sentencepiece", model.encode, model.decode, encode_token, finds_added=False)


def _tekken(path: Path) -> Library:
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tekken = Tekkenizer.from_file(path)
    return Library(
        "mistral-common",
        lambda texts: [tekken.encode(text, bos=False, eos=False) for text in texts],
        lambda ids: tekken.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP),
        lambda token: [tekken.num_special_tokens + rank for rank in tekken._model._encode_single_piece(token.bytes)],
        finds_added=False,
    )


def _tiktoken(path: Path, tokenizer: Tokenizer, encoding: str) -> Library:
    import tiktoken

    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    own = _published(encoding) if encoding else {}
    beside = path.parent / ENCODING
    given = json.loads(beside.read_bytes()) if beside.exists() else {}
    # The pattern of the owner; the special tokens as written, which a change may have moved.
    pattern = own.get("pat_str") or given.get("pat_str") or split_pattern(tokenizer)
    specials = given.get("special_tokens") or own.get("special_tokens")
    if isinstance(specials, list):
        specials = {text: max(ranks.values()) + 1 + place for place, text in enumerate(specials)}
    specials = specials if specials is not None else {token.content: token.id for token in tokenizer.added}
    loaded = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=specials)
    return Library(
        "tiktoken",
        lambda texts: [loaded.encode(text, allowed_special="all") for text in texts],
        loaded.decode_bytes,
        lambda token: loaded._encode_single_piece(token.bytes),
    )


def _published(encoding: str) -> dict[str, Any]:
    """Pattern and special tokens of one of tiktoken's encodings, without its ranks, which it would download."""
    from unittest import mock

    from tiktoken_ext import openai_public

    with mock.patch.object(openai_public, "load_tiktoken_bpe", return_value={}):
        published: dict[str, Any] = openai_public.ENCODING_CONSTRUCTORS[encoding]()
        return published


def versions() -> dict[str, str]:
    """The versions of the libraries that are compared with."""
    return {name: version(name) for name in ("tokenizers", "sentencepiece", "tiktoken", "mistral-common")}
