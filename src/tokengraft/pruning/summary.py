"""`removed_summary`: how many tokens were removed, by kind and by script, with examples."""

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple
from unicodedata import category

from tokengraft import _core
from tokengraft.counts.scripts import NO_SCRIPT
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

EXAMPLES = 6
"""How many examples a group has."""


class TokenGroup(NamedTuple):
    """Tokens of one kind or script."""

    name: str
    tokens: int
    examples: tuple[str, ...]
    """The text of the tokens that are most frequent in the counted text, most frequent first. Bytes that are not
    valid UTF-8 are escaped."""


class RemovedTokens(NamedTuple):
    """Removed tokens by kind and by script, the largest group first."""

    kinds: tuple[TokenGroup, ...] = ()
    """Every token is in one of them."""
    scripts: tuple[TokenGroup, ...] = ()
    """By the Unicode name of the script. A token without letters is in none of them, and one of two scripts in both."""

    characters: tuple[str, ...] = ()
    """Characters that no token spells any more: they become the unknown token."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        groups = {"kinds": self.kinds, "scripts": self.scripts}
        listed = {name: [group._asdict() for group in members] for name, members in groups.items()}
        return listed | ({"characters": [*self.characters]} if self.characters else {})


def removed_summary(base: Tokenizer, removed: Iterable[int]) -> RemovedTokens:
    """A summary of removed tokens, given their ids, rare ones first, as a `PruneOrder` has them."""
    ids, added = [*removed][::-1], {token.id for token in base.added}
    data = {token_id: token_bytes(base.strings[token_id], base.kind) for token_id in ids}
    texts = [_text(data[token_id]) for token_id in ids]
    examples = [data[token_id].decode(errors="backslashreplace") for token_id in ids]
    kinds = ["reserved" if i in added else _kind(text) for i, text in zip(ids, texts, strict=True)]
    scripts = [set(names) - NO_SCRIPT for names in _core.scripts([text or "" for text in texts])]
    return RemovedTokens(
        _groups(zip(kinds, examples, strict=True)),
        _groups((name, text) for names, text in zip(scripts, examples, strict=True) for name in sorted(names)),
        lost_characters(base, {*ids}),
    )


def lost_characters(base: Tokenizer, removed: Collection[int]) -> tuple[str, ...]:
    """The characters that lost a token of their own: at the beginning of a word, or inside one. Bytes spell BPE's."""
    if base.algorithm == "BPE" or base.spells_everything:
        return ()
    atomic = base.structure.atomic
    single = {token.id: token.bytes.decode(errors="replace") for token in base.tokens if token.id in atomic}
    return tuple(sorted({text for token_id, text in single.items() if token_id in removed}))


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _kind(text: str | None) -> str:
    """The kind of a token.

    >>> [_kind(text) for text in (" cat", "\\n\\n", "12", "):", ".append", None)]
    ['words', 'white space', 'digits', 'punctuation', 'letters with punctuation', 'partial characters']
    """
    if text is None:
        return "partial characters"
    classes = {category(character)[0] for character in text.strip()}  # L letter, M mark, N number, P and S punctuation
    if not classes:
        return "white space"
    if classes == {"N"}:
        return "digits"
    if not classes & {"L", "M"}:
        return "punctuation"
    return "words" if classes <= {"L", "M"} else "letters with punctuation"


def _groups(named: Iterable[tuple[str, str]]) -> tuple[TokenGroup, ...]:
    members = dict[str, list[str]]()
    for name, text in named:
        members.setdefault(name, []).append(text)
    groups = (TokenGroup(name, len(texts), tuple(texts[:EXAMPLES])) for name, texts in members.items())
    return tuple(sorted(groups, key=lambda group: (-group.tokens, group.name)))
