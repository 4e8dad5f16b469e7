"""Lengths and scripts of tokens."""

from collections import Counter
from collections.abc import Sequence

from tokengraft import _core

COMMON, PART = "Common", "part of a character"
"""The script of digits, punctuation and white space; and what stands for the script of a token without a complete
character of some script, if it has parts of one."""
_NOT_WRITING = frozenset((COMMON, "Inherited", "Unknown"))
QUARTERS = 4
"""Lengths are in quarters of a character."""


def token_length(data: bytes) -> int:
    """The length of a token in quarters of a character. A byte of an incomplete character is a quarter.

    >>> token_length(b" \\xc3\\xb5"), token_length(b"\\xc3"), token_length(b"a\\xe2\\x82")
    (8, 1, 6)
    """
    text = data.decode(errors="ignore")
    return QUARTERS * len(text) + len(data) - len(text.encode())


def token_scripts(tokens: Sequence[bytes]) -> list[str]:
    """The script of each token: that of most of its complete characters, of several the first.

    Digits, punctuation, white space and combining marks do not count. A token that has nothing else is `Common`, unless
    it has a part of a character.

    >>> token_scripts([b" cat", "猫が".encode(), b" 12", b" \\xd0", "в ".encode() + b"a1"])
    ['Latin', 'Han', 'Common', 'part of a character', 'Cyrillic']
    """
    texts = [data.decode(errors="ignore") for data in tokens]
    named = _core.scripts(texts)
    return [
        _script(text, [name for name in names if name not in _NOT_WRITING], whole=len(text.encode()) == len(data))
        for text, names, data in zip(texts, named, tokens, strict=True)
    ]


def _script(text: str, names: list[str], *, whole: bool) -> str:
    if len(names) == 1:
        return names[0]
    if not names:
        return COMMON if whole else PART
    written = [name for (name,) in _core.scripts(list(text)) if name not in _NOT_WRITING]
    return Counter(written).most_common(1)[0][0]  # of several that are equally frequent, the first
