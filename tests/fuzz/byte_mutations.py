"""Mutations of bytes, whatever the format: flip, cut, insert, duplicate, splice."""

from random import Random

INTERESTING = (b"\0", b"\xff", b"\x7f", b"\x80", b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xed\xa0\x80", b"\xef\xbb\xbf")
INTERESTING += (
    b"\n",
    b"\r\n",
    b" ",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"-1",
    b"1e999",
    b"18446744073709551616",
)


def mutate_bytes(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """The bytes with one to three changes.

    Args:
        raw: The bytes.
        random: Decides everything.
        donors: Other files of which parts are spliced in.
    """
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        raw = random.choice(_CHANGES)(raw, random, donors)
    return raw


def _flip(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    if not raw:
        return raw
    at = random.randrange(len(raw))
    return raw[:at] + bytes([raw[at] ^ (1 << random.randrange(8))]) + raw[at + 1 :]


def _replace(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    piece = random.choice(INTERESTING)
    at = random.randrange(len(raw) + 1)
    return raw[:at] + piece + raw[at + len(piece) :]


def _insert(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    piece = random.choice(INTERESTING) if random.random() < 0.7 else random.randbytes(random.randint(1, 8))
    at = random.randrange(len(raw) + 1)
    return raw[:at] + piece + raw[at:]


def _span(raw: bytes, random: Random) -> tuple[int, int]:
    start = random.randrange(len(raw) + 1)
    return start, min(len(raw), start + random.choice((1, 2, 4, 8, 30, 200)))


def _delete(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:start] + raw[end:]


def _duplicate(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    start, end = _span(raw, random)
    return raw[:end] + raw[start:end] * random.choice((1, 1, 2, 50)) + raw[end:]


def _cut(raw: bytes, random: Random, _: list[bytes]) -> bytes:
    return raw[: random.randrange(len(raw) + 1)]


def _splice(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    other = random.choice(donors) if donors else raw
    start, end = _span(other, random)
    at = random.randrange(len(raw) + 1)
    return raw[:at] + other[start:end] + raw[at + random.choice((0, end - start)) :]


_CHANGES = (_flip, _flip, _replace, _insert, _delete, _duplicate, _cut, _splice)
