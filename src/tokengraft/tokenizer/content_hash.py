"""The hash of everything that decides how text is split into tokens."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from tokengraft import _core


def content_hash(
    settings: list[Any], vocabulary: _core.Vocabulary, *, more: list[str], score_order: Sequence[str]
) -> str:
    """SHA-256, in hex, of a JSON array and of the merges.

    The array has the settings, all strings in order, and the strings of ``score_order``. Merges are places in the
    sorted strings: as exact as the strings, and several times as fast to hash. Extensions, prune orders and plans
    store the hash, so it must never change for the same tokenizer.

    Args:
        settings: The first elements of the array.
        vocabulary: The vocabulary and the merges.
        more: Tokens that the vocabulary lacks.
        score_order: The last elements of the array.
    """
    strings, merges = vocabulary.hashed_parts(more)
    first = json.dumps(settings, sort_keys=True)[:-1]
    last = "".join(f", {json.dumps(string)}" for string in score_order)
    return sha256(b"".join([f"{first}, ".encode(), strings, f"{last}]".encode(), merges])).hexdigest()
