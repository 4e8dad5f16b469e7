"""`TokenFacts`: what initialisers use of tokens beside their rows: lengths, scripts, similar tokens. Plain data.

It is part of a `VocabPlan`, so that code for tensors needs no strings.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tokengraft import _core
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.tokenizer import Tokenizer

COMMON, PART = "Common", "part of a character"
"""The script of digits, punctuation and white space; and what stands for the script of a token without a complete
character of some script, if it has parts of one."""
_NOT_WRITING = frozenset((COMMON, "Inherited", "Unknown"))
QUARTERS = 4
"""Lengths are in quarters of a character."""


@dataclass(frozen=True)
class TokenFacts:
    """Lengths and scripts of the tokens of a plan, and the kept tokens that new ones resemble.

    Examples:
        >>> tok = tg.load("model")
        >>> facts = tg.plan(tok, tok).facts
        >>> cat = tok.ids["Ġcat"]
        >>> facts.lengths[cat], facts.scripts[cat]
        (16, 'Latin')
    """

    lengths: tuple[int, ...]
    """By old id, in quarters of a character: 4 for a complete character, 1 for a byte of an incomplete one, 0 without
    a token."""
    scripts: tuple[str | None, ...]
    """By old id: the Unicode name of a token's script. None for added tokens and tokens of a single byte, whose rows
    are not typical, and without a token."""
    new_scripts: tuple[str | None, ...]
    """The same by new id, for new tokens. None for all others."""
    similar: Mapping[int, int] | None = None
    """By new id: the old id of the kept token that occurs beside the most similar tokens. Only for new tokens that
    occur often enough. None if no counts were given."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "lengths": list(self.lengths),
            "scripts": list(self.scripts),
            "new_scripts": list(self.new_scripts),
            "similar": None if self.similar is None else [list(pair) for pair in self.similar.items()],
        }

    @classmethod
    def parse(cls, document: Any, rows_before: int, rows_after: int) -> "TokenFacts":
        """The facts that a file has.

        Raises:
            TypeError: A value has the wrong type.
            ValueError: There are too few or too many values, or a row does not exist.
        """
        lengths, scripts = tuple(map(_natural, document["lengths"])), tuple(map(_name, document["scripts"]))
        new_scripts = tuple(map(_name, document["new_scripts"]))
        similar = document["similar"]
        pairs = {_natural(new): _natural(old) for new, old in similar or ()}
        if {len(lengths), len(scripts)} != {rows_before} or len(new_scripts) != rows_after:
            raise ValueError(f"it does not have facts of {rows_before:,} old and {rows_after:,} new rows")
        if any(new >= rows_after or old >= rows_before for new, old in pairs.items()):
            raise ValueError("it has similar tokens beyond its rows")
        return cls(lengths, scripts, new_scripts, None if similar is None else FrozenDict(pairs))


def token_facts(old: Tokenizer, new: Tokenizer, new_ids: Iterable[int]) -> TokenFacts:
    """Lengths and scripts of the tokens of a plan.

    Args:
        old: The old tokenizer.
        new: The new tokenizer.
        new_ids: The ids of the new tokens.
    """
    lengths = [0] * old.n_rows
    for token in old.tokens:
        lengths[token.id] = token_length(token.bytes)
    return TokenFacts(tuple(lengths), _scripts(old), _scripts(new, frozenset(new_ids)))


def token_length(data: bytes) -> int:
    """The length of a token in quarters of a character. A byte of an incomplete character is a quarter.

    >>> token_length(b" \\xc3\\xb5"), token_length(b"\\xc3"), token_length(b"a\\xe2\\x82")
    (8, 1, 6)
    """
    text = data.decode(errors="ignore")
    return QUARTERS * len(text) + len(data) - len(text.encode())


def _scripts(tokenizer: Tokenizer, ids: frozenset[int] | None = None) -> tuple[str | None, ...]:
    """The scripts of typical tokens by id; of all, or of those with the given ids."""
    added = {token.id for token in tokenizer.added}
    tokens = [
        token
        for token in tokenizer.tokens
        if token.id not in added and len(token.bytes) > 1 and (ids is None or token.id in ids)
    ]
    scripts: list[str | None] = [None] * tokenizer.n_rows
    for token, script in zip(tokens, token_scripts([token.bytes for token in tokens]), strict=True):
        scripts[token.id] = script
    return tuple(scripts)


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


def _natural(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is not a number of a token")
    return value


def _name(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r} is not the name of a script")
    return value
