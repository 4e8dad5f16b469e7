"""tiktoken: merges by the rank of the product, splits by one pattern, and does not normalize. Checked with 0.14."""

import base64
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.check.serving.model import not_checked
from tokengraft.check.serving.model_folder import ModelFolder
from tokengraft.check.transformers_loader import summary
from tokengraft.check.verify import sample_texts
from tokengraft.errors import OptionError, UnsupportedTokenizerError
from tokengraft.formats.convert import Target, convert
from tokengraft.formats.ranks import split_pattern
from tokengraft.tokenizer.tokenizer import Tokenizer

Ranks = Mapping[bytes, int]
"""The rank of every token. A pair merges if its product has a rank, the lowest first."""
CONVERT = "write one: `tokengraft convert FOLDER --to tiktoken`"


def findings(folder: ModelFolder) -> Iterator[Finding]:
    """What tiktoken makes of the file of ranks, compared with the tokenizer."""
    file = rank_file(folder.tokenizer)
    if file is None:
        detail = "there is no `.tiktoken` file and no `tokenizer.model` with ranks"
        yield Finding("rank file", "fail", detail, (), conversion_fix(folder.tokenizer, "tiktoken"))
        return
    try:
        ranks = _ranks(folder.tokenizer.files[file])
    except ValueError as error:
        yield Finding("rank file", "fail", f"`{file}` cannot be read: {error}", (), CONVERT)
        return
    yield Finding("rank file", "pass", f"`{file}` has {len(ranks):,} ranks")
    missing = [f"{byte:#04x}" for byte in range(256) if bytes([byte]) not in ranks]
    if missing:  # tiktoken would panic
        detail = f"{len(missing)} of 256 have no rank, and text with them cannot be encoded"
        yield Finding("bytes", "fail", detail, tuple(missing[:EVIDENCE]), CONVERT)
        return
    yield special_tokens(folder.tokenizer, ranks)
    yield same_ids(folder.tokenizer, ranks)


def conversion_fix(tokenizer: Tokenizer, to: Target) -> str:
    """The command that writes the tokenizer in a format; if none does, why."""
    command = f"tokengraft convert FOLDER --to {to}"
    try:
        convert(tokenizer, to)
        return f"write one: `{command}`"
    except UnsupportedTokenizerError as error:
        reason = error.message
    with suppress(OptionError, UnsupportedTokenizerError):
        convert(tokenizer, to, renumber=True)
        return f"write one: `{command} --renumber`, which changes ids, then `tokengraft transplant`"
    return f"use another stack: {reason}"


def _ranks(raw: bytes) -> Ranks:
    """The ranks in a file, as tiktoken reads them: a token in base64 and its rank on each line.

    Raises:
        ValueError: It is another kind of file, or two tokens have one rank, at which tiktoken panics.
    """
    pairs = (line.split() for line in raw.splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    if len({*ranks.values()}) < len(ranks):
        raise ValueError("two tokens have the same rank")
    return ranks


def rank_file(tokenizer: Tokenizer) -> str | None:
    """The name of the file of ranks, if there is one, damaged or not. Llama-3 calls it `tokenizer.model`."""
    if tokenizer.ranks and tokenizer.ranks.format == "tiktoken":
        return tokenizer.rank_file
    names = (name for name in tokenizer.files if name.endswith((".tiktoken", "tiktoken.model")))
    other = "tokenizer.model" if tokenizer.piece_file is None and "tokenizer.model" in tokenizer.files else None
    return next(names, other)


def special_tokens(tokenizer: Tokenizer, ranks: Ranks) -> Finding:
    """Whether added tokens have the ids after the ranks, where Meta's loader puts them."""
    name, ids = "special tokens", [token.id for token in tokenizer.added]
    wanted = [*range(len(ranks), len(ranks) + len(ids))]
    if ids == wanted:
        return Finding(name, "pass", f"{len(ids):,} added tokens have the ids after the ranks")
    taken = [f"{token.content!r} ({token.id:,})" for token in tokenizer.added if token.id in {*ranks.values()}]
    if taken:
        return Finding(name, "fail", f"{len(taken):,} have the id of a rank", tuple(taken[:EVIDENCE]), CONVERT)
    detail = f"not the ids from {len(ranks):,} on: Meta's loader for Llama-3 would give them others"
    return Finding(name, "note", detail, (), "pass the ids as `special_tokens` of `tiktoken.Encoding`")


def same_ids(tokenizer: Tokenizer, ranks: Ranks) -> Finding:
    """Whether tiktoken gives the ids of tokenizer.json for sample texts."""
    name, pattern = "encoding", split_pattern(tokenizer)
    if pattern is None:
        return not_checked(name, "the pipeline of tokenizer.json is not one split pattern, as tiktoken needs")
    if importlib.util.find_spec("tiktoken") is None:
        return not_checked(name, "tiktoken is not installed: `pip install tiktoken`")
    texts = sample_texts(tokenizer)
    try:
        encode = _encoding(pattern, ranks).encode_ordinary
        ids = [encode(text) for text in texts]
    except Exception as error:  # its own errors are ValueError and KeyError, and those of its regex engine
        return Finding(name, "fail", f"tiktoken refuses the pattern or the ranks: {summary(error)}", (), CONVERT)
    return compared(tokenizer, texts, ids, CONVERT)


def compared(tokenizer: Tokenizer, texts: list[str], ids: list[list[int]], fix: str) -> Finding:
    """Whether another library gave the ids of the tokenizer. Texts with added tokens are left out."""
    added = {token.id for token in tokenizer.added}
    ours = tokenizer.encode_batch(texts)
    pairs = [(text, a, b) for text, a, b in zip(texts, ours, ids, strict=True) if not added.intersection(a)]
    wrong = [f"{text!r}" for text, a, b in pairs if a != b]
    if not wrong:
        return Finding("encoding", "pass", f"the same ids for {len(pairs):,} sample texts")
    detail = f"other ids for {len(wrong):,} of {len(pairs):,} sample texts"
    return Finding("encoding", "fail", detail, tuple(wrong[:EVIDENCE]), fix)


def _encoding(pattern: str, ranks: Ranks) -> Any:
    import tiktoken

    return tiktoken.Encoding("check", pat_str=pattern, mergeable_ranks=dict(ranks), special_tokens={})
