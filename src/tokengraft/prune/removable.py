"""Which tokens may be removed, whatever the method."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from tokengraft.arguments import checked
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.frozen import FrozenDict, frozen_strings
from tokengraft.representation import shown
from tokengraft.tokenizer.alphabet import SPACE, byte_token, token_bytes
from tokengraft.tokenizer.rewrite import stale_files
from tokengraft.tokenizer.tokenizer import Tokenizer

RESERVED = re.compile(r"<unused_?\d+>|<\|?reserved_[a-z_]*\d+\|?>|\[control_\d+\]|<SPECIAL_\d+>")
"""Added tokens that models keep for later: Gemma, Llama-3, Mistral, tekken."""


@shown
@checked
@dataclass(frozen=True)
class Protection:
    """What is never removed, and what may be removed although by default it is kept."""

    tokens: Collection[str] = ()
    """Tokens, as strings of the vocabulary or as text. The tokens that they are built from are kept too."""
    pattern: str | None = None
    """A regular expression; a token whose text matches it anywhere is kept, with what it is built from."""
    characters: bool = False
    """Single characters may be removed, where byte fallback can spell them."""
    reuse_reserved: bool = False
    """Reserved added tokens that nothing uses, such as ``<unused42>``, may be removed. They are removed first."""
    highest_id: bool = False
    """The token with the highest id is kept, so that the embedding keeps its number of rows if ids do not move."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tokens", frozen_strings(self.tokens))
        try:
            re.compile(self.pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.pattern!r} is no regular expression: {error}", hint="correct --protect-pattern"
            ) from error


@dataclass(frozen=True)
class Removable:
    """The tokens that may be removed, and why the others may not."""

    ids: frozenset[int]
    reserved: tuple[int, ...]
    """The reserved added tokens among them, highest id first."""
    kept: FrozenDict[str, int]
    """How many tokens are kept, by reason."""


def removable_tokens(tokenizer: Tokenizer, protection: Protection, counts: PretokenCounts | None = None) -> Removable:
    """The tokens of a tokenizer that may be removed.

    Added tokens, the unknown token and atomic tokens (bytes, `<0xNN>`, single characters) are always kept.

    Args:
        tokenizer: The tokenizer.
        protection: What else is kept, and which exceptions there are.
        counts: The counts of a text. Reserved tokens that occur in it are kept.

    Raises:
        OptionError: A protected token does not exist, or characters could not be encoded any more.
    """
    reserved = _reserved(tokenizer, counts) if protection.reuse_reserved else set()
    added = {token.id for token in tokenizer.added} - reserved
    named = {tokenizer.model.get("unk_token"), *_named(tokenizer)}
    added |= {token_id for string, token_id in tokenizer.ids.items() if string in named} - reserved
    if tokenizer.kind == "sentencepiece":
        # Runs of `▁` have equal scores: their merge order stays defined only if all of them are kept.
        added |= {token_id for string, token_id in tokenizer.ids.items() if not string.strip(SPACE)}
    atomic = set(tokenizer.structure.atomic) - added
    if protection.characters:
        atomic -= _spelled_characters(tokenizer)
    only = _only_spelling(tokenizer) - added - atomic
    protected = _protected(tokenizer, protection) - added - atomic - only
    built = _with_parts(tokenizer, added | only | protected) - added - only - protected - atomic
    kept = {
        "added or named": added,
        "atomic": atomic,
        "the only spelling of a character": only,
        "protected": protected,
        "parts of those": built,
    }
    ids = {token.id for token in tokenizer.tokens}.difference(*kept.values())
    return Removable(
        ids=frozenset(ids),
        reserved=tuple(sorted(reserved & ids, reverse=True)),
        kept=FrozenDict({reason: len(tokens) for reason, tokens in kept.items()}),
    )


def _named(tokenizer: Tokenizer) -> Iterator[str]:
    """Tokens that settings, special-token maps and post-processors name. Padding may be an ordinary token."""
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        try:
            content = json.loads(tokenizer.files.get(name, b"{}"))
        except (ValueError, RecursionError):
            continue
        for key, value in content.items() if isinstance(content, dict) else ():
            if key.endswith(("_token", "_tokens")):
                for item in value if isinstance(value, list) else [value]:
                    yield str(item.get("content") if isinstance(item, dict) else item)
    steps = [tokenizer.document.get("post_processor")]
    while steps:
        step = steps.pop()
        if isinstance(step, dict):
            steps += step.get("processors") or []
            specials = step.get("special_tokens")
            for special in specials.values() if isinstance(specials, dict) else ():
                yield from map(str, special.get("tokens") or ())
            yield from (str(step[name][0]) for name in ("sep", "cls") if isinstance(step.get(name), list))


def _reserved(tokenizer: Tokenizer, counts: PretokenCounts | None) -> set[int]:
    """Reserved added tokens that occur in no chat template, post-processor, setting or counted text."""
    listings = ("added_tokens.json", "vocab.json", "merges.txt", tokenizer.piece_file, *stale_files(tokenizer.files))
    settings = [raw for name, raw in tokenizer.files.items() if name not in listings]
    # `added_tokens_decoder` lists every added token, as `added_tokens` does: being listed is not being used.
    texts = [_without_listing(raw) for raw in settings]
    texts.append(str({name: value for name, value in tokenizer.document.items() if name != "added_tokens"}))
    candidates = [token for token in tokenizer.added if RESERVED.fullmatch(token.content)]
    counted = counts.added if counts else {}
    unused = [token for token in candidates if not counted.get(token.content)]
    return {token.id for token in unused if not any(token.content in text for text in texts)}


def _without_listing(raw: bytes) -> str:
    return re.sub(r'"added_tokens_decoder"\s*:\s*\{(?:[^{}]|\{[^{}]*\})*\}', "", raw.decode(errors="replace"))


def _spelled_characters(tokenizer: Tokenizer) -> set[int]:
    """Single characters that byte fallback can encode once they are removed. Not ``▁``, which means a space."""
    if not _spells_all_bytes(tokenizer):
        raise OptionError(
            "single characters cannot be removed: the tokenizer has no byte fallback that could spell them",
            hint="leave out --prune-characters",
        )
    return {i for string, i in tokenizer.vocab.items() if len(string) == 1 and string != SPACE}


def _only_spelling(tokenizer: Tokenizer) -> set[int]:
    """Tokens that only merge skipping produces and that have a character that is no token by itself.

    Without them, their text would be dropped or become the unknown token.
    """
    if not tokenizer.ignore_merges or _spells_all_bytes(tokenizer):
        return set()
    vocab, unreachable = tokenizer.vocab, set(tokenizer.structure.unreachable)
    return {i for string, i in vocab.items() if i in unreachable and any(c not in vocab for c in string)}


def _spells_all_bytes(tokenizer: Tokenizer) -> bool:
    return tokenizer.byte_fallback and all(byte_token(byte) in tokenizer.vocab for byte in range(256))


def _protected(tokenizer: Tokenizer, protection: Protection) -> set[int]:
    highest = {tokenizer.n_rows - 1} if protection.highest_id and tokenizer.n_rows else set[int]()
    if not protection.tokens and not protection.pattern:
        return highest
    texts = {token.id: token.bytes.decode(errors="replace") for token in tokenizer.tokens}
    by_text: dict[str, set[int]] = {}
    for token_id, text in texts.items():
        by_text.setdefault(text, set()).add(token_id)
    protected: set[int] = set()
    for wanted in protection.tokens:
        ids = by_text.get(wanted, set()) | ({tokenizer.ids[wanted]} if wanted in tokenizer.ids else set())
        if not ids:
            raise OptionError(
                f"{wanted!r} is to be protected and is no token", hint="write tokens as text, with any leading space"
            )
        protected |= ids
    pattern = re.compile(protection.pattern) if protection.pattern else None
    return highest | protected | {i for i, text in texts.items() if pattern and pattern.search(text)}


def _with_parts(tokenizer: Tokenizer, roots: Iterable[int]) -> set[int]:
    """The tokens and everything that they are built from."""
    tokens, left = set[int](), list(roots)
    while left:
        token = left.pop()
        if token not in tokens:
            tokens.add(token)
            left.extend(tokenizer.structure.splits.get(token, ()))
    return tokens


def token_text(tokenizer: Tokenizer, string: str) -> str:
    """The text of a token. Invalid UTF-8 becomes U+FFFD."""
    return token_bytes(string, tokenizer.kind).decode(errors="replace")
