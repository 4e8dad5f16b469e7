"""Continued BPE training: `extend`. The method of the paper; the training loop is in the core."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from types import NoneType
from typing import NamedTuple

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import (
    CountsError,
    OptionError,
    Progress,
    UnsupportedTokenizerError,
    require_type,
    whole_number,
)
from tokengraft.learn.allowed import (
    CHARACTER_COVERAGE,
    UNBOUNDED,
    Texts,
    WordListError,
    allowed_by,
    is_visible,
    may_be_added_by,
    missing_characters,
    never_made,
    provenance_of,
    refusal_by,
)
from tokengraft.learn.extension import Extension, LearnedMerge, RefusedPair
from tokengraft.learn.include import Included, WordList, included_merges
from tokengraft.learn.limits import Limits, Parity, languages_of, require_texts, rules_of, texts_of
from tokengraft.learn.without_merges import extend_pieces
from tokengraft.learn.word_merges import MergeLimits
from tokengraft.progress import stage
from tokengraft.tokenizer.edit import add_tokens, before_whitespace_merges, require_room, unreachable_ranks
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_ID = 2**32 - 1


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
    texts = Texts(counts, preserve)
    if tokenizer.algorithm != "BPE":
        return extend_pieces(tokenizer, texts, n, limits, character_coverage, include, progress)
    included = _included(tokenizer, texts, limits, include)
    spelled = add_tokens(tokenizer, included.characters, []) if included.characters else tokenizer
    missing = missing_characters(spelled, counts, character_coverage)
    more_characters = tuple(filter(may_be_added_by(limits, preserve), missing))
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
        provenance=provenance_of(tokenizer, texts),
        characters=characters[:n],
        refused=tuple(pair._replace(place=listed + pair.place) for pair in learned.refused),
        languages=("",) * listed + learned.languages if isinstance(counts, Parity) else (),
        included=included.words,
        list_merges=listed,
    )


def _included(tokenizer: Tokenizer, texts: Texts, limits: Limits, include: WordList | Sequence[str] | None) -> Included:
    """The merges of a word list, if there is one."""
    if include is None:
        return Included()
    words = include if isinstance(include, WordList) else WordList(include)  # type: ignore[arg-type]  # any sequence
    pairs = preserved_pairs(tokenizer, texts.preserve) if texts.preserve else frozenset()
    may_be_added = may_be_added_by(limits, texts.preserve)
    return included_merges(
        tokenizer,
        words,
        MergeLimits(
            refusal=refusal_by(tokenizer, limits),
            allow_pair=lambda left, right: (left, right) not in pairs,
            allow_character=lambda character: is_visible(character) and may_be_added(character),
            forbidden=frozenset(never_made(tokenizer)),
            made_for=tuple(text.fingerprint for text in (*texts_of(texts.counts), *filter(None, [texts.preserve]))),
        ),
    )


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


class _Learned(NamedTuple):
    merges: tuple[LearnedMerge, ...] = ()
    refused: tuple[RefusedPair, ...] = ()
    languages: tuple[str, ...] = ()


def _require_spelled(tokenizer: Tokenizer, counts: PretokenCounts) -> None:
    """Refuses text with characters that the vocabulary drops: tokens would span the dropped characters."""
    lost = counts.lost(tokenizer) if tokenizer.model.get("unk_token") is None else None
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
    tokenizer: Tokenizer, texts: Texts, n: int, limits: Limits, progress: Callable[[int], object] | None
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
        forbidden=[*never_made(tokenizer)],
        # Runs of white space are never learned: they merge last, after any merge that would use them.
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        unreachable_ranks=[(string, *rank) for string, rank in unreachable_ranks(tokenizer).items()],
        max_candidates=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=allowed_by(tokenizer, limits),
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
