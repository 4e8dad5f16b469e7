"""Texts of several sizes whose number of distinct words grows as that of real text does.

    python -m lab.benchmarks.texts TEXT SIZE OUT

A smaller text has the lines whose hash is below a limit. A larger text is the whole text, followed by altered copies.
In the n-th copy, two thirds of the words, chosen by their hash, have one letter replaced: an ASCII letter by one that
is n places further in the alphabet, another letter by a neighbour in its Unicode block. A word is a run of bytes
without spaces. A word is altered in the same way wherever it occurs. With two altered copies, the number of distinct
pretokens grows by 3^0.69 (measured with Llama-3's pattern), as it does from a third of the text to the whole.
"""

import sys
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

import numpy as np
import numpy.typing as npt

ALTERED = 2 / 3
BLOCK = 1 << 24
_MULTIPLIER = np.uint64(0xBF58476D1CE4E5B9)
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
"""For words shorter than eight bytes: which bytes belong to them."""
Bytes = npt.NDArray[np.uint8]


def write_text(text: Path, size: int, out: Path) -> Path:
    """Writes a text of about ``size`` bytes, made from another, and returns its path."""
    whole = text.stat().st_size
    with out.open("wb") as stream:
        if size < 0.95 * whole:
            stream.writelines(_sampled_lines(text, size / whole))
            return out
        left, copy = size, 0
        while left > 0.05 * whole:
            for block in _blocks(text):
                part = block if len(block) <= left else block[: block.rfind(b"\n", 0, left) + 1]
                stream.write(altered(part, copy))
                left -= len(block)
                if left <= 0:
                    break
            copy += 1
    return out


def _sampled_lines(text: Path, share: float) -> Iterator[bytes]:
    limit, salt = int(share * (1 << 32)), str(share).encode()[:16]  # a sample of a sample must be a sample
    with text.open("rb") as lines:
        for line in lines:
            if int.from_bytes(blake2b(line, digest_size=4, salt=salt).digest(), "little") < limit:
                yield line


def _blocks(text: Path) -> Iterator[bytes]:
    with text.open("rb") as stream:
        while block := stream.read(BLOCK):
            yield block + stream.readline()


def altered(block: bytes, copy: int) -> bytes:
    """A block of text as the n-th copy has it. The copy with the number 0 is the text itself.

    >>> altered("the cat sat; õunad ja põõsas\\n".encode(), 1).decode()
    'the cbt sau; õunad ka põõsas\\n'
    """
    if not copy:
        return block
    data = np.frombuffer(block, np.uint8).copy()
    starts, lengths = _words(data)
    hashes = _hashes(data, starts, lengths)
    chosen = hashes % np.uint64(1 << 16) < ALTERED * (1 << 16)
    places = starts[chosen] + (hashes[chosen] >> np.uint64(20)) % lengths[chosen].astype(np.uint64)
    _replace(data, places.astype(np.int64), copy)
    return data.tobytes()


def _words(data: Bytes) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The starts and lengths of runs without spaces and control characters."""
    inside = np.zeros(len(data) + 2, np.int8)
    inside[1:-1] = data > 0x20
    edges = np.flatnonzero(np.diff(inside))
    return edges[::2], edges[1::2] - edges[::2]


def _hashes(data: Bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """A hash of the first sixteen bytes and the length of each word."""
    padded = np.append(data, np.zeros(16, np.uint8))
    eights = np.ndarray(len(data) + 8, "<u8", padded, strides=(1,))  # the eight bytes from each place on
    hashes = lengths.astype(np.uint64)
    for place in (0, 8):
        part = eights[starts + place] & _MASKS[np.clip(lengths - place, 0, 8)]
        hashes = (hashes ^ part) * _MULTIPLIER
        hashes ^= hashes >> np.uint64(32)
    return hashes


def _replace(data: Bytes, places: npt.NDArray[np.int64], copy: int) -> None:
    """Replaces the letters at some places, in place. Punctuation and digits stay."""
    lower = places[(data[places] | 0x20) - np.uint8(ord("a")) < 26]
    base = data[lower] & 0xE0 | 1
    data[lower] = base + (data[lower] - base + copy) % 26
    # subtle: only the last byte of a character changes, and only its lowest bits, so that the text stays UTF-8. C2, E2
    # and E3 80 start punctuation and spaces, which must stay.
    last = places[(data[places] & 0xC0) == 0x80]
    last = last[(np.append(data, 0)[last + 1] & 0xC0) != 0x80]
    for before in (2, 1):
        pair = data[last - before], data[last - before + 1]
        last = last[(pair[0] != 0xC2) & (pair[0] != 0xE2) & ~((pair[0] == 0xE3) & (pair[1] == 0x80))]
    data[last] ^= np.uint8(copy % 8 or 1)


if __name__ == "__main__":
    print(write_text(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))
