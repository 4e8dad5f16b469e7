"""Token string <-> bytes: the only module that knows how a vocabulary spells bytes.

There are two kinds. *Byte-level* vocabularies write every byte as one printable character (``" "`` is ``Ġ``).
*SentencePiece* vocabularies write text, with ``▁`` for a space, and ``<0xNN>`` for a single byte.
The bytes of a token need not be valid UTF-8 (1,352 tokens of Llama-3 are not): never decode and re-encode a token.
"""

import re
from typing import Literal

Kind = Literal["byte-level", "sentencepiece"]

SPACE = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_level_table() -> dict[str, int]:
    """Every character of the byte-level alphabet with its byte: printable Latin-1 stands for itself."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


BYTE_OF = _byte_level_table()
CHARACTER_OF = {byte: character for character, byte in BYTE_OF.items()}


def token_bytes(string: str, kind: Kind) -> bytes:
    """The bytes a token stands for when text is decoded.

    >>> token_bytes("Ġõ", "byte-level"), token_bytes("▁õ", "sentencepiece"), token_bytes("<0x41>", "sentencepiece")
    (b' \\xf5', b' \\xc3\\xb5', b'A')

    A byte-level token with a character outside the alphabet is plain text, as in the decoder of `tokenizers`.
    """
    if kind == "byte-level":
        try:
            return bytes([BYTE_OF[character] for character in string])
        except KeyError:
            return string.encode()
    byte = _BYTE_TOKEN.fullmatch(string)
    return bytes([int(byte[1], 16)]) if byte else string.replace(SPACE, " ").encode()


def spell(data: bytes, kind: Kind) -> str | None:
    """The token string for some bytes. None for a SentencePiece vocabulary if the bytes are not valid UTF-8.

    >>> spell(b" \\xc3\\xb5", "byte-level"), spell(b" \\xc3\\xb5", "sentencepiece"), spell(b"\\xc3", "sentencepiece")
    ('ĠÃµ', '▁õ', None)
    """
    if kind == "byte-level":
        return "".join(CHARACTER_OF[byte] for byte in data)
    try:
        return data.decode().replace(" ", SPACE)
    except UnicodeDecodeError:
        return None


def byte_token(byte: int) -> str:
    """The byte-fallback token of a byte: ``0x41 -> "<0x41>"``."""
    return f"<0x{byte:02X}>"
