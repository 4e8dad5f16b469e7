"""`learned_merges`: continued BPE training in the core, on counted text or on the forms of a word list.

What may become a token, by the limits, the preserved text and the tokenizer; and characters that a vocabulary lacks.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, replace
from fractions import Fraction
from typing import NamedTuple
from unicodedata import category

from tokengraft import _core
from tokengraft.corpus.options import Totals
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, number, option
from tokengraft.learn.extension import LearnedMerge, RefusedPair
from tokengraft.learn.limits import Limits, Parity, languages_of, rules_of
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.edit import before_whitespace_merges, unreachable_ranks
from tokengraft.tokenizer.kind import CONTINUATION, SPACE, byte_token, token_bytes
from tokengraft.tokenizer.piece_model import NORMAL
from tokengraft.tokenizer.tokenizer import Tokenizer

UNBOUNDED = 2**63 - 1
CHARACTER_COVERAGE = 0.9995
RESERVED = "\u2585\ufffd"
"""The character that SentencePiece's trainer reserves, and the replacement character of invalid UTF-8."""


class WordListError(OptionError):
    """A word list needs more new tokens than were asked for."""

    def __init__(self, message: str, *, hint: str, needed: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.needed = needed
        """New tokens that it needs, characters included."""


class Training(NamedTuple):
    """What is learned on, what must not change, and which tokens may be made."""

    counts: PretokenCounts | Parity
    preserve: PretokenCounts | None
    limits: Limits
    character_coverage: float


def refusal_by(tokenizer: Tokenizer, limits: Limits) -> Callable[[str], str | None]:
    """A function that says why the limits forbid a token; None if they do not."""
    allow, scripts = allowed_by(tokenizer, limits), list(limits.script_names)

    def refusal(string: str) -> str | None:
        data = token_bytes(string, tokenizer.kind)
        if limits.max_token_bytes is not None and len(data) > limits.max_token_bytes:
            return f"it has {len(data):,} bytes, and {limits.max_token_bytes:,} are allowed"
        whole = data.decode(errors="ignore").removeprefix(" ")
        within = _core.of_scripts(whole, scripts) if scripts else whole
        outside = next((character for character in whole if character not in within), None)
        if outside:
            return f"the character {outside!r} is of none of the scripts {', '.join(scripts)}"
        if allow is None or allow(string):
            return None
        text = data.decode(errors="replace")
        return f"the text {text!r} is denied" if text in limits.deny else "the limits do not allow it"

    return refusal


def allowed_by(tokenizer: Tokenizer, limits: Limits, *, runs: bool = True) -> Callable[[str], bool] | None:
    """A function that says whether a string may become a token; None if all may.

    ``runs``: whether runs of white space may, if the tokenizer is of a SentencePiece type.
    """
    if not limits.deny and not limits.deny_pattern and (runs or tokenizer.kind != "sentencepiece"):
        return None
    denied = frozenset(limits.deny)
    pattern = re.compile(limits.deny_pattern) if limits.deny_pattern else None

    def allow(string: str) -> bool:
        text = token_bytes(string, tokenizer.kind).decode(errors="replace")
        is_run = tokenizer.kind == "sentencepiece" and not string.strip(SPACE)
        return text not in denied and not (pattern and pattern.search(text)) and (runs or not is_run)

    return allow


def may_be_added_by(limits: Limits, preserve: PretokenCounts | None) -> Callable[[str], bool]:
    """A function that says whether the limits and the preserved text allow a new character."""
    preserved = {character for character, _ in preserve.table.characters()} if preserve else set[str]()
    scripts = list(limits.script_names)
    return lambda character: character not in preserved and (not scripts or bool(_core.of_scripts(character, scripts)))


def never_made(tokenizer: Tokenizer) -> Iterator[str]:
    """Strings that no merge may make: added tokens, bytes, and whatever SentencePiece does not merge."""
    yield from (token.content for token in tokenizer.added)
    if tokenizer.byte_fallback:
        yield from map(byte_token, range(256))
    if tokenizer.piece_model:
        yield from (piece.string for piece in tokenizer.piece_model.pieces if piece.type != NORMAL)


def missing_characters(
    tokenizer: Tokenizer, counts: PretokenCounts | Parity, character_coverage: float
) -> tuple[str, ...]:
    """The characters to add to a vocabulary that is not byte-level, most frequent first, equal ones by code point.

    WordPiece has two tokens for a character: one at the front of a word, and one inside, spelled with ``##``.

    White space and control characters are not added, because SentencePiece's trainer does not treat them as parts of
    words. Neither are characters that byte fallback encodes as one token.
    """
    if not 0 <= number("character_coverage", character_coverage) <= 1:
        raise OptionError(
            f"the character coverage is {character_coverage}",
            hint=f"pass a share from 0 to 1: {option('character_coverage', 0.9995)}",
        )
    if tokenizer.kind == "byte-level" or not character_coverage:
        return ()
    known = tokenizer.ids.keys()
    counted = Counter[str]()
    for text in languages_of(counts):
        visible = {character: count for character, count in text.table.characters() if is_visible(character)}
        if tokenizer.kind == "wordpiece":
            first = {character: n for character, n in text.table.characters(first=True) if character in visible}
            inside = {CONTINUATION + character: n - first.get(character, 0) for character, n in visible.items()}
            visible = first | {form: n for form, n in inside.items() if n}
        counted.update(visible)
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


def is_visible(character: str) -> bool:
    """Whether SentencePiece's trainer treats a character as part of a word."""
    return character != SPACE and character not in RESERVED and not character.isspace() and category(character) != "Cc"


def _is_known(character: str, known: Collection[str], tokenizer: Tokenizer) -> bool:
    return character in known or (tokenizer.byte_fallback and character.isascii())


def provenance_of(
    tokenizer: Tokenizer, counts: PretokenCounts | Parity, preserve: PretokenCounts | None
) -> FrozenDict[str, object]:
    """What an extension was learned from."""
    rules, languages = rules_of(tokenizer, counts), languages_of(counts)
    provenance: dict[str, object] = {
        "tokengraft": _core.__version__,
        "counted": asdict(sum((text.totals for text in languages), Totals())),
        "rules": asdict(rules) if rules else None,
        "normalize": languages[0].normalize,
    }
    if isinstance(counts, Parity):
        provenance["languages"] = {name: asdict(text.totals) for name, text in counts.counts.items()}
        provenance["reference"] = asdict(counts.reference.totals) if counts.reference else None
    if preserve:
        provenance["preserved"] = asdict(preserve.totals)
    return FrozenDict(provenance)


class LearnedMerges(NamedTuple):
    """Merges in order, the pairs that were refused on the way, and with `Parity` the language of every merge."""

    merges: tuple[LearnedMerge, ...] = ()
    refused: tuple[RefusedPair, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def tokens(self) -> list[str]:
        """The new tokens."""
        return [merge.left + merge.right for merge in self.merges if merge.new]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of the merges."""
        return [(merge.left, merge.right) for merge in self.merges]


def learned_merges(
    tokenizer: Tokenizer,
    counts: PretokenCounts | Parity | _core.Counts,
    n: int,
    limits: Limits,
    *,
    preserve: PretokenCounts | None = None,
    progress: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """The merges that make the next n tokens.

    A bare table has the forms of a word list. They need not keep the rules of SentencePiece's trainer.
    """
    parity, parallel = counts if isinstance(counts, Parity) else None, None
    if parity and parity.parallel is not None and parity.reference is not None:
        parallel = [text.table for text in parity.parallel.values()], parity.reference.table
    if isinstance(counts, _core.Counts):
        tables, rules = [counts], None
    else:
        tables, rules = [text.table for text in languages_of(counts)], rules_of(tokenizer, counts)
    merges, refused, languages = _core.extend(
        before_whitespace_merges(tokenizer).core_model,
        tables,
        n,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*never_made(tokenizer)],
        # Runs of white space are never learned: they merge last, after any merge that would use them.
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        unreachable_ranks=[(string, *rank) for string, rank in unreachable_ranks(tokenizer).items()],
        max_candidates=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=allowed_by(tokenizer, limits, runs=rules is not None),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        parallel=parallel,
        max_share=Fraction(str(parity.max_share)).as_integer_ratio() if parity else (1, 1),
        progress=progress,
    )
    return LearnedMerges(
        tuple(LearnedMerge(*merge) for merge in merges),
        tuple(RefusedPair(*pair) for pair in refused),
        tuple(parity.languages[language] for language in languages) if parity else (),
    )
