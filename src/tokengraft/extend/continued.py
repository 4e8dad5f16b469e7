"""Continued BPE training: `extend`. The method of the paper; the training loop is in the core."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from unicodedata import category

from tokengraft import _core
from tokengraft.counts.fingerprint import piece_rules
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, UnsupportedTokenizerError, require_positive
from tokengraft.extend.extension import Extension, LearnedMerge
from tokengraft.frozen import FrozenDict
from tokengraft.tokenizer.alphabet import SPACE, byte_token, token_bytes
from tokengraft.tokenizer.edit import add_tokens, first_whitespace_merge, require_room, unreachable_ranks
from tokengraft.tokenizer.sentencepiece import NORMAL, PieceRules
from tokengraft.tokenizer.tokenizer import Tokenizer

UNBOUNDED = 2**63 - 1
MAX_ID = 2**32 - 1
CHARACTER_COVERAGE = 0.9995
RESERVED = "\u2585\ufffd"
"""The character that SentencePiece's trainer reserves, and the replacement character of invalid UTF-8."""


@dataclass(frozen=True)
class Limits:
    """Which tokens continued training may make."""

    min_count: int = 2
    """Pairs that occur less often are not merged."""
    max_token_bytes: int | None = None
    """The longest token, in bytes."""
    deny: Collection[str] = ()
    """Texts that must not become tokens. The next most frequent pair is merged instead."""
    deny_pattern: str | None = None
    """A regular expression that no text of a new token may match anywhere."""

    def __post_init__(self) -> None:
        for name in ("min_count", "max_token_bytes"):
            require_positive(name, getattr(self, name))
        if isinstance(self.deny, str):
            raise OptionError(f"`deny` is the string {self.deny!r}", hint="pass a list of strings: deny=['...']")
        try:
            re.compile(self.deny_pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.deny_pattern!r} is not a regular expression: {error}", hint="correct --deny-pattern"
            ) from error


def extend(
    tokenizer: Tokenizer,
    counts: PretokenCounts,
    n: int,
    *,
    limits: Limits | None = None,
    character_coverage: float = CHARACTER_COVERAGE,
) -> Extension:
    """The next n tokens that BPE training learns on the counted text, continuing from the tokenizer.

    Every new token is reachable: its own merges produce it. If fewer than n pairs are frequent enough, the result is
    shorter, and ``stopped`` says why. For SentencePiece types, missing characters are added first, and every new piece
    is one that SentencePiece's trainer would allow under the rules that the counts were made with.

    Args:
        tokenizer: The base. It is not changed.
        counts: The counts of the text, made with this tokenizer or another of the same pipeline.
        n: How many new tokens.
        limits: Which tokens may be made.
        character_coverage: SentencePiece types: the share of the text's characters that the vocabulary should have.
            Missing characters are added first, most frequent first, until it does. 0 adds none.

    Raises:
        OptionError: ``n`` is less than 1, or ``character_coverage`` not from 0 to 1.
        UnsupportedTokenizerError: The tokenizer cannot keep its ids.
        CountsError: The counts were made for another pipeline, or there are none, or the text has characters that the
            vocabulary would drop.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> len(tok.tokens), len(new.tokens)
        (397, 413)
    """
    limits = limits or Limits()
    require_extendable(tokenizer, n)
    counts.require(tokenizer)
    if not len(counts):
        raise CountsError("the counts are empty: there is no text to learn from", hint="count a corpus that has text")
    characters = missing_characters(tokenizer, counts, character_coverage)
    base = add_tokens(tokenizer, characters, []) if characters else tokenizer
    _require_spelled(base, counts)
    merges = _learn(base, counts, n - len(characters), limits) if n > len(characters) else ()
    return Extension(
        merges, n, limits.min_count, tokenizer.content_hash, _provenance(tokenizer, counts), characters[:n]
    )


def _require_spelled(tokenizer: Tokenizer, counts: PretokenCounts) -> None:
    """Refuses text with characters that the vocabulary drops: tokens would span the dropped characters."""
    if tokenizer.spells_everything or not tokenizer.bpe.drops_unknown:
        return
    lost = counts.lost(tokenizer)
    if not lost:
        return
    byte_level = tokenizer.kind == "byte-level"
    missing = {bytes([byte]) for byte in tokenizer.missing_bytes}
    named = {bytes([byte]) for text in lost for byte in text} & missing if byte_level else lost.keys()
    shown = ", ".join(f"0x{text.hex().upper()}" if byte_level else repr(text.decode()) for text in sorted(named)[:8])
    what = "bytes" if byte_level else "characters"
    raise CountsError(
        f"the text has {len(named):,} {what} that the vocabulary has no token for, such as {shown}: "
        f"{sum(lost.values()):,} characters of the text would be dropped, and tokens learned across the gaps",
        hint="give text without them, or a tokenizer that has a token for every byte"
        if byte_level
        else "pass --character-coverage 1 to add them, give text without them, or set `unk_token` in tokenizer.json",
    )


def _learn(tokenizer: Tokenizer, counts: PretokenCounts, n: int, limits: Limits) -> tuple[LearnedMerge, ...]:
    """The merges that make the next n tokens."""
    pieces = tokenizer.kind == "sentencepiece"
    # New merges are placed before those of white space, so training must not apply the latter.
    end, rules = first_whitespace_merge(tokenizer), _rules(tokenizer, counts)
    has_runs = end < tokenizer.core_vocabulary.n_merges
    before_runs = replace(tokenizer, merges=tokenizer.merges[:end]) if has_runs else tokenizer
    merges = _core.extend(
        before_runs.bpe,
        counts.table,
        n,
        byte_level=not pieces,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*_never_made(tokenizer)],
        # Runs of white space are never learned: they merge last, after any merge that would use them.
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        unreachable_ranks=[(string, *rank) for string, rank in unreachable_ranks(tokenizer).items()],
        max_candidates=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=_allow(tokenizer, limits),
    )
    return tuple(LearnedMerge(*merge) for merge in merges)


def _never_made(tokenizer: Tokenizer) -> Iterator[str]:
    """Strings that no merge may make: added tokens, bytes, and whatever SentencePiece does not merge."""
    yield from (token.content for token in tokenizer.added)
    if tokenizer.byte_fallback:
        yield from map(byte_token, range(256))
    if tokenizer.piece_model:
        yield from (piece.string for piece in tokenizer.piece_model.pieces if piece.type != NORMAL)


def missing_characters(tokenizer: Tokenizer, counts: PretokenCounts, character_coverage: float) -> tuple[str, ...]:
    """The characters to add to a SentencePiece-type vocabulary, most frequent first, equal ones by code point.

    White space and control characters are not added, because SentencePiece's trainer does not treat them as parts of
    words. Neither are characters that byte fallback encodes as one token.

    Raises:
        OptionError: ``character_coverage`` is not from 0 to 1.
    """
    if not 0 <= character_coverage <= 1:
        raise OptionError(
            f"the character coverage is {character_coverage}",
            hint="pass a share from 0 to 1: --character-coverage 0.9995",
        )
    if tokenizer.kind != "sentencepiece" or not character_coverage:
        return ()
    known = {token.string for token in tokenizer.tokens}
    counted = {character: count for character, count in counts.table.characters() if _is_visible(character)}
    total = sum(counted.values())
    covered = sum(count for character, count in counted.items() if _is_known(character, known, tokenizer))
    missing = [character for character in counted if not _is_known(character, known, tokenizer)]
    chosen: list[str] = []
    for character in sorted(missing, key=lambda character: (-counted[character], character)):
        # subtle: exact in whole numbers; a quotient would depend on how floats round
        if covered >= Fraction(str(character_coverage)) * total:
            break
        chosen.append(character)
        covered += counted[character]
    return tuple(chosen)


def _is_visible(character: str) -> bool:
    return character != SPACE and character not in RESERVED and not character.isspace() and category(character) != "Cc"


def _is_known(character: str, known: set[str], tokenizer: Tokenizer) -> bool:
    return character in known or (tokenizer.byte_fallback and character.isascii())


def require_extendable(tokenizer: Tokenizer, n: int) -> None:
    """Refuses what `extend` cannot do, before any work is done.

    Raises:
        OptionError: ``n`` is not a number of tokens.
        UnsupportedTokenizerError: The tokenizer cannot be extended.
    """
    if not 1 <= n <= MAX_ID:
        raise OptionError(
            f"{n:,} new tokens were asked for; expected 1 to {MAX_ID:,}", hint="pass another number, such as --add 1000"
        )
    outside = [t.content for t in tokenizer.added if t.single_word and t.content not in tokenizer.vocab]
    if tokenizer.ignore_merges and outside:
        raise UnsupportedTokenizerError(
            f"the added token `{outside[0]}` must be a whole word and is not in the vocabulary; to keep its id it "
            "would be listed there, and merge skipping would then bring it out inside other words too",
            hint="set `single_word` to false for it, or `ignore_merges` to false",
        )
    require_room(tokenizer)


def _allow(tokenizer: Tokenizer, limits: Limits) -> Callable[[str], bool] | None:
    """A function that says whether a string may become a token; None if all may."""
    if not limits.deny and not limits.deny_pattern:
        return None
    denied = frozenset(limits.deny)
    pattern = re.compile(limits.deny_pattern) if limits.deny_pattern else None

    def allow(string: str) -> bool:
        text = token_bytes(string, tokenizer.kind).decode(errors="replace")
        return text not in denied and not (pattern and pattern.search(text))

    return allow


def _rules(tokenizer: Tokenizer, counts: PretokenCounts) -> PieceRules | None:
    """The rules that new pieces must keep: those that the counts were made with."""
    return (counts.fingerprint.rules or piece_rules(tokenizer)) if tokenizer.kind == "sentencepiece" else None


def _provenance(tokenizer: Tokenizer, counts: PretokenCounts) -> FrozenDict[str, object]:
    rules = _rules(tokenizer, counts)
    return FrozenDict(
        {
            "tokengraft": _core.__version__,
            "counted": asdict(counts.totals),
            "rules": asdict(rules) if rules else None,
            "normalize": counts.normalize,
        }
    )
