"""Mutations of protocol buffers: field numbers, wire types, lengths, numbers, nested messages."""

import struct
from random import Random

VARINTS = (0, 1, 2, 5, 6, 7, 127, 128, 255, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 2**70)
FLOATS = (0.0, -0.0, -1.0, 1.0, 3.4e38, float("nan"), float("inf"), float("-inf"), -1e9, 1e-45)
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

Field = tuple[int, int, bytes]
"""Number, wire type, and the value without the length before it."""


def mutate_wire(raw: bytes, random: Random, donors: list[bytes]) -> bytes:
    """A message with one to three changes; a field may be changed inside."""
    fields = parse(raw)
    others = parse(random.choice(donors)) if donors else fields
    for _ in range(random.choice((1, 1, 2, 3))):
        fields = _changed(fields, random, others)
    return b"".join(write(field) for field in fields)


def parse(raw: bytes) -> list[Field]:
    """The fields of a message.

    Raises:
        ValueError: It is none.
    """
    fields, at = [], 0
    while at < len(raw):
        key, at = _varint(raw, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            _, end = _varint(raw, at)
        elif kind == LENGTH:
            size, at = _varint(raw, at)
            end = at + size
        elif kind in (FIXED64, FIXED32):
            end = at + (8 if kind == FIXED64 else 4)
        else:
            raise ValueError(f"wire type {kind}")
        if end > len(raw) or number == 0:
            raise ValueError("cut off")
        fields.append((number, kind, raw[at:end]))
        at = end
    return fields


def write(field: Field) -> bytes:
    """The bytes of a field."""
    number, kind, value = field
    return varint(number << 3 | kind) + (varint(len(value)) if kind == LENGTH else b"") + value


def varint(value: int) -> bytes:
    """A number in groups of seven bits."""
    groups = []
    while True:
        groups.append(value & 0x7F | (0x80 if value > 0x7F else 0))
        value >>= 7
        if not value:
            return bytes(groups)


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(raw) or shift > 70:
            raise ValueError("a number that does not end")
        value |= (raw[at] & 0x7F) << shift
        shift += 7
        at += 1
        if raw[at - 1] < 0x80:
            return value, at


def _changed(fields: list[Field], random: Random, others: list[Field]) -> list[Field]:
    if not fields:
        return [random.choice(others)] if others else []
    at = _place(fields, random)
    before, field, after = fields[:at], fields[at], fields[at + 1 :]
    kind = random.randrange(14)
    if kind == 0:
        return before + after
    if kind == 1:
        return [*before, *[field] * random.choice((2, 3, 40)), *after]
    if kind == 2:
        return [*before, random.choice(others), field, *after]
    if kind == 3:
        other = random.randrange(len(fields))
        swapped = list(fields)
        swapped[at], swapped[other] = fields[other], fields[at]
        return swapped
    return [*before, _changed_field(field, random), *after]


def _place(fields: list[Field], random: Random) -> int:
    """A field; those that are rare, such as settings after thousands of pieces, as often as the others together."""
    numbers = {number for number, _, _ in fields}
    wanted = random.choice(sorted(numbers))
    return random.choice([at for at, field in enumerate(fields) if field[0] == wanted])


def _changed_field(field: Field, random: Random) -> Field:
    number, kind, value = field
    how = random.randrange(10)
    if how == 0:
        return random.choice((0, 1, 2, 3, 5, 20, 45, 53, 2**28, 2**29 - 1)), kind, value
    if how == 1:
        return number, random.choice((VARINT, FIXED64, LENGTH, 3, 4, FIXED32, 6, 7)), value
    if kind == VARINT:
        return number, kind, varint(random.choice(VARINTS))
    if kind == FIXED32:
        return number, kind, struct.pack("<f", random.choice(FLOATS))
    if kind == LENGTH:
        return number, kind, _changed_value(value, random)
    return number, kind, random.randbytes(8)


def _changed_value(value: bytes, random: Random) -> bytes:
    """A nested message, changed inside, or other bytes."""
    try:
        inner = parse(value)
    except ValueError:
        inner = []
    if inner and random.random() < 0.85:
        return b"".join(write(field) for field in _changed(inner, random, inner))
    strings = (
        b"",
        b" ",
        b"\0",
        b"\xff",
        "▁".encode(),
        "▁▁".encode(),
        b"a",
        b"<unk>",
        b"<s>",
        b"<0x41>",
        b"\xed\xa0\x80",
    )
    return random.choice((*strings, value * 2, value[:-1], value + "▁".encode(), value[::-1], b"x" * 5000))
