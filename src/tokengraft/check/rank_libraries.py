"""Rank files as their own libraries read them: tiktoken, and mistral-common for tekken. Both are optional."""

from base64 import b64decode
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from tokengraft.formats.ranks import split_pattern
from tokengraft.tokenizer.tokenizer import Tokenizer

Encode = Callable[[str], list[int]]
_LIBRARIES = {"tiktoken": ("tiktoken", "tiktoken"), "tekken": ("mistral-common", "mistral_common")}


def rank_library(tokenizer: Tokenizer) -> str | None:
    """The library of the rank file of a tokenizer; None if there is no such file, or the library is not installed."""
    if tokenizer.ranks is None:
        return None
    name, module = _LIBRARIES[tokenizer.ranks.format]
    return name if find_spec(module) else None


def rank_encoder(folder: Path, tokenizer: Tokenizer) -> Encode:
    """How the library of a written rank file encodes text. mistral-common finds no special tokens in text."""
    path = folder / (tokenizer.rank_file or "")
    return _tiktoken(path, tokenizer) if rank_library(tokenizer) == "tiktoken" else _mistral_common(path)


def _tiktoken(path: Path, tokenizer: Tokenizer) -> Encode:
    import tiktoken

    # Not by `load_tiktoken_bpe`, which keeps a copy of every file it reads, by its path.
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    encoding = tiktoken.Encoding(
        path.name,
        pat_str=split_pattern(tokenizer) or "",
        mergeable_ranks={b64decode(token): int(rank) for token, rank in lines},
        special_tokens={token.content: token.id for token in tokenizer.added},
    )
    return lambda text: encoding.encode(text, allowed_special="all")


def _mistral_common(path: Path) -> Encode:
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    tekkenizer = Tekkenizer.from_file(path)
    return lambda text: tekkenizer.encode(text, bos=False, eos=False)
