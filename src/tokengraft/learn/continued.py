"""Continued BPE training: `extend`. The method of the paper; the training loop is in the core."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from fractions import Fraction
from types import NoneType
from typing import NamedTuple
from unicodedata import category

from tokengraft import _core
from tokengraft.corpus.options import Totals
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import (
    CountsError,
    OptionError,
    Progress,
    UnsupportedTokenizerError,
    number,
    printable,
    require_type,
    whole_number,
)
from tokengraft.learn.extension import Extension, IncludedWord, LearnedMerge, RefusedPair
from tokengraft.learn.include import Included, WordList, included_merges
from tokengraft.learn.limits import Limits, Parity, languages_of, require_texts, rules_of, texts_of
from tokengraft.learn.word_merges import MergeLimits, forms_of
from tokengraft.progress import stage
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.edit import add_tokens, before_whitespace_merges, require_room, unreachable_ranks
from tokengraft.tokenizer.kind import CONTINUATION, SPACE, byte_token, token_bytes
from tokengraft.tokenizer.piece_model import NORMAL
from tokengraft.tokenizer.tokenizer import Tokenizer

UNBOUNDED = 2**63 - 1
MAX_ID = 2**32 - 1
CHARACTER_COVERAGE = 0.9995
RESERVED = "\u2585\ufffd"
"""The character that SentencePiece's trainer reserves, and the replacement character of invalid UTF-8."""


@stage("learning new tokens")
def extend(
    tokenizer: Tokenizer,
    counts: PretokenCounts | Parity,
    n: int,
    *,
    limits: Limits | None = None,
    character_coverage: float = CHARACTER_COVERAGE,
    preserve: PretokenCounts | None = None,
    include: WordList | Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Extension:
    """The next n tokens that BPE training learns on the counted text, continuing from the tokenizer.

    Every new token is reachable: its own merges produce it. If fewer than n pairs are frequent enough, the result is
    shorter, and ``stopped`` says why. For SentencePiece types, missing characters are added first, and every new piece
    is one that SentencePiece's trainer would allow under the rules that the counts were made with.

    Unigram and WordPiece have no merges. There, the two neighbours become a token that save the most tokens, after all
    words that contain its text are split again. New tokens of Unigram get scores on the scale of the old ones.

    Args:
        tokenizer: The base. It is not changed.
        counts: The counts of the text, made with this tokenizer or another of the same pipeline; or `Parity`, the
            texts of several languages in balance.
        n: How many new tokens.
        limits: Which tokens may be made.
        character_coverage: The share of the text's characters that the vocabulary should have, if it is not byte-level.
            Missing characters are added first, most frequent first, until it does. 0 adds none.
        preserve: The counts of text whose segmentation must not change. A pair that occurs in it is never merged, and
            a character of it is not added: every pretoken of it keeps its ids, also rare ones in the script of the
            training text, which `adapt` leaves out. ``Extension.refused`` lists the pairs that would have been merged.
        include: Words that become tokens before anything is learned, by merges that are made for them. They and the
            tokens in between count towards n. ``Extension.included`` has the result for every word.
        progress: Called as tokens are learned, with (`learning`, tokens since the last call, ``n``).

    Raises:
        OptionError: ``n`` is less than 1 or than the word list needs, ``character_coverage`` is not from 0 to 1, or the
            word list is empty or has a blank word or a line break.
        UnsupportedTokenizerError: The tokenizer cannot keep its ids.
        CountsError: The counts were made for another pipeline, or there are none, or the text has characters that the
            vocabulary would drop.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> len(tok.tokens), len(new.tokens)
        (397, 413)
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("counts", counts, PretokenCounts, Parity)
    require_type("preserve", preserve, PretokenCounts, NoneType)
    require_type("limits", limits, Limits, NoneType)
    limits, n = limits or Limits(), whole_number("n", n)
    require_extendable(tokenizer, n)
    require_texts(tokenizer, counts, preserve)
    texts = _Texts(counts, preserve)
    if tokenizer.algorithm != "BPE":
        return _extend_pieces(tokenizer, texts, n, limits, character_coverage, include, progress)
    included = _included(tokenizer, texts, limits, include)
    spelled = add_tokens(tokenizer, included.characters, []) if included.characters else tokenizer
    missing = missing_characters(spelled, counts, character_coverage)
    more_characters = tuple(filter(_may_be_added(limits, preserve), missing))
    characters = (*included.characters, *more_characters)
    _require_room(n, included, characters)
    base = included.added_to(tokenizer, more_characters)
    for text in texts_of(counts):
        _require_spelled(base, text)
    left, listed, reported = n - len(characters) - len(included.tokens), len(included.merges), 0

    def report(done: int) -> None:
        nonlocal reported
        if progress:
            progress("learning", n - left + done - reported, n)
        reported = n - left + done

    learned = _learn(base, texts, left, limits, report if progress else None) if left > 0 else _Learned()
    return Extension(
        merges=(*included.counted(base, [text.table for text in languages_of(counts)]), *learned.merges),
        asked=n,
        min_count=limits.min_count,
        base_hash=tokenizer.content_hash,
        provenance=_provenance(tokenizer, texts),
        characters=characters[:n],
        refused=tuple(pair._replace(place=listed + pair.place) for pair in learned.refused),
        languages=("",) * listed + learned.languages if isinstance(counts, Parity) else (),
        included=included.words,
        list_merges=listed,
    )


def _extend_pieces(
    tokenizer: Tokenizer,
    texts: "_Texts",
    n: int,
    limits: Limits,
    character_coverage: float,
    include: WordList | Sequence[str] | None,
    progress: Progress | None,
) -> Extension:
    """The extension of a Unigram or WordPiece model."""
    counts, preserve = texts
    if isinstance(counts, Parity):
        raise UnsupportedTokenizerError(
            f"the tokenizer is {tokenizer.algorithm}, and languages are balanced for BPE only",
            hint="count all texts together, or leave out --balance parity",
        )
    words = _listed_words(tokenizer, limits, include)
    strings = list(dict.fromkeys(word.token for word in words if word.token and word.token not in tokenizer.ids))
    may_be_added = _may_be_added(limits, preserve)
    missing = missing_characters(tokenizer, counts, character_coverage)
    characters = [form for form in missing if may_be_added(form.removeprefix(CONTINUATION)) and form not in strings]
    given = [*characters, *strings]
    if strings and len(given) > n:
        raise WordListError(
            f"the word list and missing characters need {len(given):,} new tokens, {n:,} were asked for",
            hint=f"pass --add {len(given)} or more, or a shorter list",
            needed=len(given),
        )
    reported = 0

    def report(done: int) -> None:
        nonlocal reported
        if progress:
            progress("learning", done - reported, n)
        reported = done

    rules = rules_of(tokenizer, counts)
    found, learned, refused = _core.extend_pieces(
        tokenizer.core_model,
        counts.table,
        n,
        given=given,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*_never_made(tokenizer)],
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        allow=_allow(tokenizer, limits),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        progress=report if progress else None,
    )
    scores = {token: score for token, score in zip(given, found, strict=False) if score is not None}
    listed = [_listed_merge(tokenizer, string) for string in strings if string in scores]
    extension = Extension(
        merges=(*listed, *(LearnedMerge(left, right, count, True) for left, right, count, _ in learned)),
        asked=n,
        min_count=limits.min_count,
        base_hash=tokenizer.content_hash,
        provenance=_provenance(tokenizer, texts),
        characters=tuple(character for character in characters if character in scores),
        scores=(*scores.values(), *(score for *_, score in learned)) if tokenizer.scores else (),
        refused=tuple(RefusedPair(*pair[:3], place=len(listed) + pair[3]) for pair in refused),
        included=tuple(_as_added(word, tokenizer, scores) for word in words),
        list_merges=len(listed),
    )
    if not listed:
        return extension
    # Tokens that are learned later may take their places: the first ones alone are those of a shorter training.
    extended = extension[: extension.n_listed].apply(tokenizer)
    made = dict(counts.table.tokens(extended.core_model, by_merges=False, uses=False))
    counted = [merge._replace(frequency=made.get(extended.ids[merge.left + merge.right], 0)) for merge in listed]
    return replace(extension, merges=(*counted, *extension.merges[len(listed) :]))


def _listed_words(
    tokenizer: Tokenizer, limits: Limits, include: WordList | Sequence[str] | None
) -> tuple[IncludedWord, ...]:
    """The forms of the words of a list; those that cannot become tokens with the reason."""
    if include is None:
        return ()
    words = include if isinstance(include, WordList) else WordList(include)  # type: ignore[arg-type]  # any sequence
    refusal, forbidden, found = _refusal(tokenizer, limits), frozenset(_never_made(tokenizer)), list[IncludedWord]()
    for word in words.words:
        for form in forms_of(tokenizer, word, exact=words.exact):
            reason = form.reason
            if form.string is not None and form.string in forbidden:
                reason = "it is spelled like an added token or a byte"
            elif form.string is not None and form.string not in tokenizer.ids:
                reason = refusal(form.string)
            found.append(IncludedWord(word, None if reason else form.string, printable(reason) if reason else None))
    return tuple(dict.fromkeys(found))


def _listed_merge(tokenizer: Tokenizer, string: str) -> LearnedMerge:
    """A word of a list as the first token of the tokenizer that it begins with, and the rest."""
    first = tokenizer.strings[tokenizer.core_model.encode(string)[0]]
    left = first if string.startswith(first) else string[:1]
    return LearnedMerge(left, string[len(left) :], 0, True)


def _as_added(word: IncludedWord, tokenizer: Tokenizer, scores: Mapping[str, float]) -> IncludedWord:
    """A word after its token was added, or not."""
    if word.token is None or word.token in scores or word.token in tokenizer.ids:
        return word
    return IncludedWord(word.word, None, "its token would change text that must not change, or would be unreachable")


def _included(
    tokenizer: Tokenizer, texts: "_Texts", limits: Limits, include: WordList | Sequence[str] | None
) -> Included:
    """The merges of a word list, if there is one."""
    if include is None:
        return Included()
    words = include if isinstance(include, WordList) else WordList(include)  # type: ignore[arg-type]  # any sequence
    pairs = preserved_pairs(tokenizer, texts.preserve) if texts.preserve else frozenset()
    may_be_added = _may_be_added(limits, texts.preserve)
    return included_merges(
        tokenizer,
        words,
        MergeLimits(
            refusal=_refusal(tokenizer, limits),
            allow_pair=lambda left, right: (left, right) not in pairs,
            allow_character=lambda character: _is_visible(character) and may_be_added(character),
            forbidden=frozenset(_never_made(tokenizer)),
            made_for=tuple(text.fingerprint for text in (*texts_of(texts.counts), *filter(None, [texts.preserve]))),
        ),
    )


def _refusal(tokenizer: Tokenizer, limits: Limits) -> Callable[[str], str | None]:
    """A function that says why the limits forbid a token; None if they do not."""
    allow, scripts = _allow(tokenizer, limits), list(limits.script_names)

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


def _require_room(n: int, included: Included, characters: Sequence[str]) -> None:
    """Refuses a word list that needs more than n tokens."""
    # Characters of the text come after those of the words, and before merges.
    needed = len(characters) + len(included.tokens) if included.tokens else len(included.characters)
    if needed <= n:
        return
    n_words = len({*included.tokens} & {word.token for word in included.words})
    of_text = len(characters) - len(included.characters)
    parts = [f"{n_words:,} words", f"{len(included.tokens) - n_words:,} tokens in between"]
    parts += [f"{len(included.characters):,} characters"] * bool(included.characters)
    parts += [f"{of_text:,} missing characters of the text"] * bool(of_text)
    lower = "; `tokengraft extend --character-coverage` with a lower share adds fewer characters" if of_text else ""
    raise WordListError(
        f"the word list{' and characters' * bool(of_text)} need{'' if of_text else 's'} {needed:,} new tokens "
        f"({', '.join(parts)}), {n:,} were asked for",
        hint=f"pass --add {needed} or more, or a shorter list{lower}",
        needed=needed,
    )


class WordListError(OptionError):
    """A word list needs more new tokens than were asked for."""

    def __init__(self, message: str, *, hint: str, needed: int = 0) -> None:
        super().__init__(message, hint=hint)
        self.needed = needed
        """New tokens that it needs, characters included."""


class _Texts(NamedTuple):
    """What is learned on, and what must not change."""

    counts: PretokenCounts | Parity
    preserve: PretokenCounts | None


class _Learned(NamedTuple):
    merges: tuple[LearnedMerge, ...] = ()
    refused: tuple[RefusedPair, ...] = ()
    languages: tuple[str, ...] = ()


def _may_be_added(limits: Limits, preserve: PretokenCounts | None) -> Callable[[str], bool]:
    """A function that says whether the limits and the preserved text allow a new character."""
    preserved = {character for character, _ in preserve.table.characters()} if preserve else set[str]()
    scripts = list(limits.script_names)
    return lambda character: character not in preserved and (not scripts or bool(_core.of_scripts(character, scripts)))


def _require_spelled(tokenizer: Tokenizer, counts: PretokenCounts) -> None:
    """Refuses text with characters that the vocabulary drops: tokens would span the dropped characters."""
    lost = counts.lost(tokenizer) if tokenizer.core_model.drops_unknown else None
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
        else "add them with `tokengraft extend --character-coverage 1`, give text without them, or set `unk_token` in "
        "tokenizer.json",
    )


def _learn(
    tokenizer: Tokenizer, texts: _Texts, n: int, limits: Limits, progress: Callable[[int], object] | None
) -> _Learned:
    """The merges that make the next n tokens, and the pairs that were refused on the way."""
    counts, preserve = texts
    rules, parity = rules_of(tokenizer, counts), counts if isinstance(counts, Parity) else None
    parallel = None
    if parity and parity.parallel is not None and parity.reference is not None:
        parallel = [text.table for text in parity.parallel.values()], parity.reference.table
    merges, refused, languages = _core.extend(
        before_whitespace_merges(tokenizer).core_model,
        [text.table for text in languages_of(counts)],
        n,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*_never_made(tokenizer)],
        # Runs of white space are never learned: they merge last, after any merge that would use them.
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        unreachable_ranks=[(string, *rank) for string, rank in unreachable_ranks(tokenizer).items()],
        max_candidates=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=_allow(tokenizer, limits),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        parallel=parallel,
        max_share=Fraction(str(parity.max_share)).as_integer_ratio() if parity else (1, 1),
        progress=progress,
    )
    return _Learned(
        tuple(LearnedMerge(*merge) for merge in merges),
        tuple(RefusedPair(*pair) for pair in refused),
        tuple(parity.languages[language] for language in languages) if parity else (),
    )


def preserved_pairs(tokenizer: Tokenizer, preserve: PretokenCounts) -> frozenset[tuple[str, str]]:
    """The pairs of neighbouring tokens in preserved text, which must not be merged."""
    preserve.require(tokenizer)
    return frozenset(_core.pairs(before_whitespace_merges(tokenizer).core_model, preserve.table))


def _never_made(tokenizer: Tokenizer) -> Iterator[str]:
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
            hint="pass a share from 0 to 1: --character-coverage 0.9995",
        )
    if tokenizer.kind == "byte-level" or not character_coverage:
        return ()
    known = {token.string for token in tokenizer.tokens}
    counted = Counter[str]()
    for text in languages_of(counts):
        visible = {character: count for character, count in text.table.characters() if _is_visible(character)}
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


def _is_visible(character: str) -> bool:
    return character != SPACE and character not in RESERVED and not character.isspace() and category(character) != "Cc"


def _is_known(character: str, known: set[str], tokenizer: Tokenizer) -> bool:
    return character in known or (tokenizer.byte_fallback and character.isascii())


def require_extendable(tokenizer: Tokenizer, n: int) -> None:
    """Refuses what `extend` cannot do, before any work is done."""
    apart = [t.content for t in tokenizer.added if t.content not in tokenizer.vocab]
    if tokenizer.algorithm != "BPE" and apart:
        raise UnsupportedTokenizerError(
            f"the vocabulary does not list the added token `{apart[0]}`, so its id would move behind new tokens",
            hint="prune the tokenizer instead: `tokengraft prune`, or `tokengraft adapt --remove`",
        )
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


def _provenance(tokenizer: Tokenizer, texts: _Texts) -> FrozenDict[str, object]:
    counts, preserve = texts
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
