"""Tokens with ranks, as `.tiktoken` files and `tekken.json` list them, for checks. Nothing is written."""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from typing import Any

from tokengraft.check.finding import EVIDENCE, Finding
from tokengraft.tokenizer.tokenizer import Tokenizer

Ranks = Mapping[bytes, int]
"""The rank of every token. A pair merges if its product has a rank, the lowest first."""


def read_tiktoken(raw: bytes) -> Ranks:
    """The ranks in a `.tiktoken` file: a token in base64 and its rank on each line.

    Raises:
        ValueError: It is another kind of file, or lists a token or a rank twice.

    >>> read_tiktoken(b"AA== 0\\nAQ== 1\\n")
    {b'\\x00': 0, b'\\x01': 1}
    """
    pairs = [line.split() for line in raw.splitlines() if line]
    if any(len(pair) != 2 for pair in pairs):
        raise ValueError("a line is not a token and a rank")
    return _ranks((pair[0], int(pair[1])) for pair in pairs)


def read_tekken(document: Any) -> Ranks:
    """The ranks in a `tekken.json`, of the tokens that mistral-common uses.

    Raises:
        ValueError: It is another kind of file, a rank is not the place of its token, or there are too few tokens.
    """
    try:
        used = tekken_size(document) - tekken_specials(document)
        listed = [(entry["token_bytes"], entry["rank"]) for entry in document["vocab"]][: max(used, 0)]
    except (KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"it has no {error}" if isinstance(error, KeyError) else str(error)) from error
    if len(listed) < used:
        raise ValueError(f"it has {len(listed):,} tokens, and its sizes ask for {used:,}")
    wrong = next((place for place, (_, rank) in enumerate(listed) if rank != place), None)
    if wrong is not None:
        raise ValueError(f"the entry at {wrong:,} has the rank {listed[wrong][1]!r}")
    return _ranks(listed)


def tekken_size(document: Any) -> int:
    """The number of ids of a `tekken.json`, special tokens included."""
    return int(document["config"]["default_vocab_size"])


def tekken_specials(document: Any) -> int:
    """The number of special tokens of a `tekken.json`. The id of a token is its rank plus this number."""
    return int(document["config"]["default_num_special_tokens"])


def _ranks(listed: Iterable[tuple[bytes | str, Any]]) -> Ranks:
    ranks: dict[bytes, int] = {}
    n = 0
    for text, rank in listed:
        try:
            ranks[base64.b64decode(text, validate=True)] = rank
        except (binascii.Error, TypeError) as error:
            raise ValueError(f"{text!r:.40} is not base64") from error
        n += 1
    if len(ranks) != n or len({*ranks.values()}) != n:
        raise ValueError("a token or a rank is listed twice")
    return ranks


def parse_json(raw: bytes) -> Any:
    """The content of a JSON file.

    Raises:
        ValueError: It is not JSON.
    """
    try:
        return json.loads(raw)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def alphabet(ranks: Ranks) -> Finding:
    """Whether every byte has a rank. Encoding text with another one fails."""
    missing = [f"{byte:#04x}" for byte in range(256) if bytes([byte]) not in ranks]
    if not missing:
        return Finding("bytes", "pass", "all 256 have ranks")
    return Finding(
        "bytes", "fail", f"{len(missing)} of 256 have no rank", tuple(missing[:EVIDENCE]), "use another file"
    )


def same_tokens(tokenizer: Tokenizer, ranks: Ranks, offset: int, fix: str) -> Finding:
    """Whether a file of ranks has the tokens of tokenizer.json, with the same ids."""
    added = {token.id for token in tokenizer.added}
    ours = {token.bytes: token.id for token in tokenizer.tokens if token.id not in added}
    wrong = [f"{token!r} is {i:,} in tokenizer.json" for token, i in ours.items() if ranks.get(token, -1) + offset != i]
    wrong += [f"{token!r} is not in tokenizer.json" for token in ranks if token not in ours]
    if not wrong:
        return Finding("tokens", "pass", f"{len(ours):,}, with the ids of tokenizer.json")
    return Finding("tokens", "fail", f"{len(wrong):,} differ from tokenizer.json", tuple(wrong[:EVIDENCE]), fix)
