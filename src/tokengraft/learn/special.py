"""Given tokens: `add_special` makes texts added tokens, which are matched whole before the text is split.

Rows that exist are used first: those of reserved tokens, which are renamed in all files, then ids without a token, then
those after the highest, where most models have padding.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any
from unicodedata import category

from tokengraft.errors import OptionError, UnsupportedTokenizerError, option, printable, require, require_type
from tokengraft.representation import FrozenDict, require_fields, shown
from tokengraft.tokenizer.added import FLAGS, SETTINGS, AddedToken
from tokengraft.tokenizer.edit import free_ids
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.known_tokens import require_ids, reserved_tokens
from tokengraft.tokenizer.tokenizer import Tokenizer

TOKENIZER_JSON = "tokenizer.json"
LONGEST = 256
"""The longest text of a given token, in characters."""


@shown
@dataclass(frozen=True)
class SpecialToken:
    """A text that becomes an added token, with the flags that `AddedToken` of transformers has."""

    content: str
    description: str = ""
    """What it means, in words: its row begins as the mean of the rows of these words."""
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = True

    def __post_init__(self) -> None:
        require_fields(self)
        text, shown = self.content, repr(self.content) if len(self.content) < 60 else f"{self.content[:50]!r}..."
        problem = ""
        if not text.strip():
            problem = "is blank"
        elif text != text.strip():
            problem = "begins or ends with white space; the flags `lstrip` and `rstrip` take it along"
        elif len(text) > LONGEST:
            problem = f"has {len(text):,} characters; at most {LONGEST} are allowed"
        elif odd := next((c for c in text if category(c) in ("Cc", "Cs", "Zl", "Zp")), None):
            problem = f"has the control character U+{ord(odd):04X}"
        require(
            not problem, f"the special token {shown} {problem}", f"correct it, or leave it out of {option('special')}"
        )

    @classmethod
    def of(cls, given: Any) -> "SpecialToken":
        """The token that a text, with its description after a tab, or an `AddedToken` of transformers describes."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            content, _, description = given.partition("\t")
            return cls(content, description.strip())
        if isinstance(getattr(given, "content", None), str):
            flags: dict[str, Any] = {flag: bool(getattr(given, flag, False)) for flag in FLAGS}
            return cls(given.content, **flags)
        require_type("a special token", given, str, SpecialToken)
        raise AssertionError


def add_special(
    tokenizer: Tokenizer,
    tokens: Iterable[Any],
    *,
    like: str | None = None,
    eos: str | None = None,
    pad: str | None = None,
    keep: Collection[str] = (),
) -> Tokenizer:
    """The tokenizer with special tokens, in every file that names tokens. No other token has another id.

    Reserved tokens that nothing uses, such as ``<unused0>``, are renamed first. Further tokens get ids without a token,
    and then ids after the highest. All other text is split as before.

    Args:
        tokenizer: The tokenizer. It is not changed.
        tokens: Texts, each with an optional description after a tab; `AddedToken` of transformers; or `SpecialToken`.
        like: A token whose row the new rows begin as, unless they have a description; by default, the mean of all.
        eos: The token that ends a text from now on, new or not. Configs of a model follow in `transplant`.
        pad: The token for padding from now on.
        keep: Reserved tokens that must not be renamed, such as those that a model's configs name.

    Raises:
        OptionError: A text is blank, too long or has control characters, is a token already, or contains one.
        UnsupportedTokenizerError: The tokenizer would not find a token in text, or cannot list it.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.add_special(tok, ["<tool>\\tcalls a function", "</tool>"])
        >>> [new.strings[i] for i in new.encode("the<tool>cat")]
        ['the', '<tool>', 'c', 'at']
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require(not isinstance(tokens, str), "`tokens` is one text; expected a list", 'pass a list: ["<tool>"]')
    given = dict[str, SpecialToken]()
    for token in map(SpecialToken.of, tokens):
        again = given.setdefault(token.content, token)
        message = f"the special token {token.content!r} is listed twice, with different descriptions or flags"
        require(again == token, message, "list it once")
    for error in refusals(tokenizer, given.values()).values():
        raise error
    ids, reserved = dict(tokenizer.ids), list[int]()
    if tokenizer.algorithm != "Unigram":  # there, a name has a score, and may be a part of the best split
        kept = {tokenizer.ids.get(token) for token in keep}
        reserved = sorted(reserved_tokens(tokenizer) - kept)
    new = dict(zip(given, reserved, strict=False))
    for token_id in new.values():
        del ids[tokenizer.strings[token_id]]
    others = [content for content in given if content not in new]
    require_ids(tokenizer, len(others))
    new |= dict(zip(others, islice(free_ids({*ids.values(), *new.values()}), len(others)), strict=True))
    flags = {content: {flag: getattr(token, flag) for flag in FLAGS} for content, token in given.items()}
    added = tuple(AddedToken(id=i, content=content, listed_id=i, **flags[content]) for content, i in new.items())
    roles = {"eos_token": eos, "pad_token": pad}
    named = {role: text for role, text in roles.items() if text is not None}
    for what, text in {"eos": eos, "pad": pad, "like": like}.items():
        known = tokenizer.ids if what == "like" else ids | new
        message = f"{option(what)} is {text!r}, which is no token{' of the model' * (what == 'like')}"
        require(text is None or text in known, message, f"pass {option(what)} with the exact text of a token")
    if named and SETTINGS not in tokenizer.files:
        raise UnsupportedTokenizerError(
            f"there is no `{SETTINGS}` that names roles", hint=f"leave out {option('eos')} and {option('pad')}"
        )
    if not given and not named:
        return tokenizer
    changed = tokenizer.edited(ids | new, learned=(), given=added, roles=named)
    _require_found(changed, given.values())
    starts = {content: _start(tokenizer, token, like) for content, token in given.items()}
    return replace(changed, starts=FrozenDict({**tokenizer.starts, **starts}))


def _start(tokenizer: Tokenizer, token: SpecialToken, like: str | None) -> tuple[str, ...]:
    """The tokens whose rows the row of a token begins as the mean of."""
    if token.description:
        return tuple(tokenizer.strings[token_id] for token_id in tokenizer.encode(token.description))
    return (like,) if like is not None else ()


def refusals(tokenizer: Tokenizer, tokens: Collection[SpecialToken]) -> dict[str, OptionError]:
    """Tokens that cannot be added, with the reasons.

    They exist, or loaders would find them at different places: inside each other. A whole word is found by one library
    alone, which takes the longest. Or the decoder would change them: that of byte-level vocabularies takes `ö` for a
    byte, as in every other token.
    """
    contents, added = {token.content for token in tokens}, {token.content for token in tokenizer.added}
    texts = {token_bytes(string, tokenizer.kind): string for string in tokenizer.ids if string not in added}
    visible, found = {text for text in added if text.strip()}, dict[str, OptionError]()
    all_texts, in_added = _by_length(visible | contents), _by_length(visible)
    given = _by_length(contents)
    around = {inner: text for text in visible for inner in _inside(text, given)}
    for token in tokens:
        content, shown = token.content, f"the special token {token.content!r}"
        ordinary = texts.get(content.encode(), content if content in tokenizer.ids else None)
        inner = next(_inside(content, in_added if token.single_word else all_texts), None)
        outer = around.get(content)
        if content in added or ordinary is not None:
            what = "an added token" if content in added else "an ordinary token of the vocabulary"
            found[content] = OptionError(
                f"{shown} is {what} already, with the id {tokenizer.ids[ordinary or content]:,}",
                hint="leave it out, or choose another text, such as `<...>`",
            )
        elif inner or outer:
            found[content] = OptionError(
                f"{shown} {'contains' if inner else 'is a part of'} the added token {inner or outer!r}: libraries "
                "differ in which of the two they find",
                hint="choose texts of which none contains another: `<act_1>` and `<act_10>`, not `act1` and `act10`",
            )
        elif tokenizer.ignore_merges and token.single_word and len(tokenizer.pretokenize(content)) == 1:
            found[content] = OptionError(
                f"{shown} must be a whole word, and merge skipping would bring it out inside other words too",
                hint="set `single_word` to false for it",
            )
        elif content not in (decoded := tokenizer.decode_strings(["a", content, "b"])):
            text = decoded.removeprefix("a").removesuffix("b").strip()
            found[content] = OptionError(
                f"{shown} would be decoded as {text!r}: the decoder of the tokenizer changes it",
                hint="choose a text in ASCII, such as `<...>`",
            )
        elif tokenizer.main != TOKENIZER_JSON and any(getattr(token, flag) for flag in FLAGS if flag != "special"):
            found[content] = OptionError(
                f"{shown} has flags that `{tokenizer.main}` has no place for",
                hint="convert the tokenizer first: `tokengraft convert --to huggingface`",
            )
    return found


def _by_length(texts: Collection[str]) -> dict[int, set[str]]:
    return {length: {text for text in texts if len(text) == length} for length in sorted({*map(len, texts)})}


def _inside(text: str, others: Mapping[int, set[str]]) -> Iterator[str]:
    """The other texts, by their length, that a text contains. There may be tens of thousands."""
    for length, known in others.items():
        parts = (text[at : at + length] for at in range(len(text) - length + 1) if length < len(text))
        yield from (part for part in parts if part in known)


def _require_found(tokenizer: Tokenizer, tokens: Iterable[SpecialToken]) -> None:
    """Refuses a tokenizer that does not find a given token in text."""
    for token in tokens:
        texts = [token.content, f"a {token.content} b", f"\n{token.content}\n"]
        for text, ids in zip(texts, tokenizer.encode_batch(texts), strict=True):
            if ids.count(tokenizer.ids[token.content]) != 1:
                raise UnsupportedTokenizerError(
                    f"the special token {token.content!r} is not found in {text!r}: the normalizer changes it, or "
                    "another token",
                    hint="set `normalized` to false for it, or choose another text",
                )


def given_rows(base: Tokenizer, new: Tokenizer, rows: int | None) -> Iterator[tuple[str, str]]:
    """Which rows new added tokens have: of reserved tokens, without a token, or new. ``rows`` are those of a model."""
    tokens = [token for token in new.added if token.content not in base.ids]
    before = base.strings if tokens else {}
    renamed = [token for token in tokens if token.id in before]
    padding = [token for token in tokens if token.id not in before and token.id < (rows or base.n_rows)]
    others = [token for token in tokens if token.id >= (rows or base.n_rows)]
    shown = ", ".join(f"`{before[t.id]}` → `{printable(t.content)}`" for t in renamed[:3]) + " …" * (len(renamed) > 3)
    for what, part in ((f"reserved tokens, renamed: {shown}", renamed), ("rows without a token", padding)):
        if part:
            yield "added tokens", f"{len(part):,} in {what}, ids {_ranges(part)}"
    if others:
        yield "added tokens", f"{len(others):,} in new rows, ids {_ranges(others)}"


def _ranges(tokens: list[AddedToken]) -> str:
    ids = sorted(token.id for token in tokens)
    return f"{ids[0]:,}" if len(ids) == 1 else f"{ids[0]:,} to {ids[-1]:,}"
