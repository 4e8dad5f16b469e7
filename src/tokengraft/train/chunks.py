"""`chunks`: documents cut at places that do not depend on a tokenizer, so that all models read the same bytes."""

from collections.abc import Iterable, Iterator
from itertools import islice

CHUNK_BYTES = 1500
"""The default size of a chunk. At four bytes per token it is a context of a few hundred tokens."""


def chunks(documents: Iterable[str], max_bytes: int = CHUNK_BYTES) -> Iterator[str]:
    """The documents, cut into parts of at most ``max_bytes`` bytes. Joined, they are the documents again.

    A part ends before white space in its second half, if there is some, else between two characters.

    Examples:
        >>> list(chunks(["one two three", "four"], 8))
        ['one two', ' three', 'four']
        >>> list(chunks(["õõõõõ"], 5))
        ['õõ', 'õõ', 'õ']
    """
    for document in documents:
        raw, at = document.encode(), 0
        while at < len(raw):
            end = _end(raw, at, max_bytes)
            yield raw[at:end].decode()
            at = end


def _end(raw: bytes, start: int, max_bytes: int) -> int:
    limit = start + max_bytes
    if limit >= len(raw):
        return len(raw)
    space = max(raw.rfind(space, start + max_bytes // 2, limit + 1) for space in (b" ", b"\n"))
    if space > start:
        return space
    while raw[limit] & 0xC0 == 0x80:  # not inside a character
        limit -= 1
    return limit


def steps_of(parts: Iterable[str], step_bytes: int, steps: int) -> Iterator[list[str]]:
    """The parts in groups of at least ``step_bytes`` bytes, in order; the last ones are left out if they are fewer.

    Examples:
        >>> list(steps_of(["aa", "bb", "cc", "dd", "ee"], 3, 9))
        [['aa', 'bb'], ['cc', 'dd']]
    """
    return islice(_groups(parts, step_bytes), steps)


def _groups(parts: Iterable[str], step_bytes: int) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for part in parts:
        group.append(part)
        size += len(part.encode())
        if size >= step_bytes:
            yield group
            group, size = [], 0
