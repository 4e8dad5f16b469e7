"""`extend`: continued training, the method of the paper; and the same for Unigram and WordPiece, which have no merges.

The training loops are in the core.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import NoneType

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import (
    CountsError,
    OptionError,
    Progress,
    UnsupportedTokenizerError,
    option,
    printable,
    require_type,
    whole_number,
)
from tokengraft.learn.extension import Extension, IncludedWord, LearnedMerge, RefusedPair
from tokengraft.learn.include import ListedWords, WordList, forms_of, listed_words
from tokengraft.learn.limits import Limits, Parity, all_texts, languages_of, require_texts, rules_of
from tokengraft.learn.trainer import (
    CHARACTER_COVERAGE,
    UNBOUNDED,
    LearnedMerges,
    Training,
    WordListError,
    allowed_by,
    learned_merges,
    may_be_added_by,
    missing_characters,
    never_made,
    provenance_of,
    refusal_by,
)
from tokengraft.progress import stage
from tokengraft.tokenizer.edit import add_tokens, require_room, with_characters
from tokengraft.tokenizer.kind import CONTINUATION
from tokengraft.tokenizer.known_tokens import require_ids
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
        include: Words that become tokens before anything is learned from the text, by training on them alone. They and
            the tokens in between count towards n. ``Extension.included`` has the result for every word.
        progress: Called as tokens are learned, with (`learning`, tokens since the last call, ``n``).

    Raises:
        OptionError: ``n`` is less than 1 or than the word list needs, ``character_coverage`` is not from 0 to 1, or the
            word list is empty or has a blank word or a line break.
        UnsupportedTokenizerError: The tokenizer cannot keep its ids, or new tokens would get ids that are taken for
            timestamps or codes.
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
    words = WordList(include) if include is not None and not isinstance(include, WordList) else include  # type: ignore[arg-type]
    if tokenizer.algorithm != "BPE":
        return extend_pieces(tokenizer, Training(counts, preserve, limits, character_coverage), n, words, progress)
    texts, listed = all_texts(counts), ListedWords()
    if words:
        counted = [*texts, preserve] if preserve else texts
        listed = listed_words(tokenizer, words, limits, preserve=preserve, counted=counted)
    spelled = with_characters(tokenizer, listed.characters)
    missing = missing_characters(spelled, counts, character_coverage)
    characters = (*listed.characters, *filter(may_be_added_by(limits, preserve), missing))
    _require_size(n, listed, characters)
    base = tokenizer
    if characters or listed.learned.merges:
        base = add_tokens(tokenizer, [*characters, *listed.learned.tokens], listed.learned.pairs)
    for text in texts:
        _require_spelled(base, text)
    given, learned = len(characters) + len(listed.learned.tokens), LearnedMerges()
    if given < n:
        report = _reporting(progress, n, given)
        learned = learned_merges(base, counts, n - given, limits, preserve=preserve, progress=report)
    # How often each merge of the list applies in the text.
    uses = Counter[int]()
    for text in languages_of(counts) if listed.learned.merges else ():
        uses.update(dict(text.table.tokens(base.core_model, by_merges=True, uses=True)))
    merges = [merge._replace(frequency=uses[base.ids[merge.left + merge.right]]) for merge in listed.learned.merges]
    return Extension(
        merges=(*merges, *learned.merges),
        asked=n,
        min_count=limits.min_count,
        base_hash=tokenizer.content_hash,
        provenance=provenance_of(tokenizer, counts, preserve),
        characters=characters[:n],
        refused=tuple(pair._replace(place=len(merges) + pair.place) for pair in learned.refused),
        languages=("",) * len(merges) + learned.languages if isinstance(counts, Parity) else (),
        included=listed.words,
        list_merges=len(merges),
    )


def _reporting(progress: Progress | None, n: int, given: int = 0) -> Callable[[int], None] | None:
    """What the core tells how many tokens it has learned, besides those that were ``given``."""
    reported = 0

    def report(done: int) -> None:
        nonlocal reported
        if progress:
            progress("learning", given + done - reported, n)
        reported = given + done

    return report if progress else None


def _require_size(n: int, listed: ListedWords, characters: Sequence[str]) -> None:
    """Refuses a word list that needs more than n tokens."""
    tokens = listed.learned.tokens
    # Characters of the text come after those of the words, and before merges.
    needed = len(characters) + len(tokens) if tokens else len(listed.characters)
    if needed <= n:
        return
    n_words = len({*tokens} & {word.token for word in listed.words})
    of_text = len(characters) - len(listed.characters)
    parts = [f"{n_words:,} words", f"{len(tokens) - n_words:,} tokens in between"]
    parts += [f"{len(listed.characters):,} characters"] * bool(listed.characters)
    parts += [f"{of_text:,} missing characters of the text"] * bool(of_text)
    lower = "; `tokengraft extend --character-coverage` with a lower share adds fewer characters" if of_text else ""
    raise WordListError(
        f"the word list{' and characters' * bool(of_text)} need{'' if of_text else 's'} {needed:,} new tokens "
        f"({', '.join(parts)}), {n:,} were asked for",
        hint=f"pass {option('add', needed)} or more, or a shorter list{lower}",
        needed=needed,
    )


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


def require_extendable(tokenizer: Tokenizer, n: int, *, removed: int = 0) -> None:
    """Refuses what `extend` cannot do, before any work is done. ``removed`` tokens are pruned first."""
    if not 1 <= n <= MAX_ID:
        raise OptionError(
            f"{n:,} new tokens were asked for; expected 1 to {MAX_ID:,}",
            hint=f"pass another number, such as {option('add', 1000)}",
        )
    outside = [t.content for t in tokenizer.added if t.single_word and t.content not in tokenizer.vocab]
    if tokenizer.ignore_merges and outside:
        raise UnsupportedTokenizerError(
            f"the added token `{outside[0]}` must be a whole word and is not in the vocabulary; to keep its id it "
            "would be listed there, and merge skipping would then bring it out inside other words too",
            hint="set `single_word` to false for it, or `ignore_merges` to false",
        )
    require_room(tokenizer, n, removed=removed)
    require_ids(tokenizer, n, removed)


def extend_pieces(
    tokenizer: Tokenizer, training: Training, n: int, words: WordList | None, progress: Progress | None
) -> Extension:
    """The extension of a Unigram or WordPiece model."""
    counts, preserve, limits, character_coverage = training
    if isinstance(counts, Parity):
        raise UnsupportedTokenizerError(
            f"the tokenizer is {tokenizer.algorithm}, and languages are balanced for BPE only",
            hint=f"count all texts together, or leave out {option('balance', 'parity')}",
        )
    if len(tokenizer.pipeline.pieces("a a")) == 1:
        raise UnsupportedTokenizerError(
            f"the tokenizer is {tokenizer.algorithm} and its pipeline does not split words: a whole document is one "
            "pretoken",
            hint="use a tokenizer whose `pre_tokenizer` splits words, such as Metaspace with `split`; or only prune it",
        )
    included = listed_forms(tokenizer, words, limits) if words else ()
    strings = list(dict.fromkeys(word.token for word in included if word.token and word.token not in tokenizer.ids))
    may_be_added = may_be_added_by(limits, preserve)
    missing = missing_characters(tokenizer, counts, character_coverage)
    characters = [form for form in missing if may_be_added(form.removeprefix(CONTINUATION)) and form not in strings]
    given = [*characters, *strings]
    if strings and len(given) > n:
        raise WordListError(
            f"the word list and missing characters need {len(given):,} new tokens, {n:,} were asked for",
            hint=f"pass {option('add', len(given))} or more, or a shorter list",
            needed=len(given),
        )
    rules = rules_of(tokenizer, counts)
    found, learned, refused = _core.extend_pieces(
        tokenizer.core_model,
        counts.table,
        n,
        given=given,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*never_made(tokenizer)],
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        allow=allowed_by(tokenizer, limits),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        progress=_reporting(progress, n),
    )
    scores = {token: score for token, score in zip(given, found, strict=False) if score is not None}
    listed = list[LearnedMerge]()
    for string in (string for string in strings if string in scores):
        # A word has no merge: it is recorded as the token of the tokenizer that it begins with, and the rest.
        first = tokenizer.strings[tokenizer.core_model.encode(string)[0]]
        left = first if string.startswith(first) else string[:1]
        listed.append(LearnedMerge(left, string[len(left) :], 0, True))
    lost = "its token would change text that must not change, or would be unreachable"
    included = tuple(
        word
        if word.token is None or word.token in scores or word.token in tokenizer.ids
        else IncludedWord(word.word, None, lost)
        for word in included
    )
    extension = Extension(
        merges=(*listed, *(LearnedMerge(left, right, count, True) for left, right, count, _ in learned)),
        asked=n,
        min_count=limits.min_count,
        base_hash=tokenizer.content_hash,
        provenance=provenance_of(tokenizer, counts, preserve),
        characters=tuple(character for character in characters if character in scores),
        scores=(*scores.values(), *(score for *_, score in learned)) if tokenizer.scores else (),
        refused=tuple(RefusedPair(*pair[:3], place=len(listed) + pair[3]) for pair in refused),
        included=included,
        list_merges=len(listed),
    )
    if not listed:
        return extension
    # Tokens that are learned later may take their places: the first ones alone are those of a shorter training.
    extended = extension[: extension.n_listed].apply(tokenizer)
    made = dict(counts.table.tokens(extended.core_model, by_merges=False, uses=False))
    counted = [merge._replace(frequency=made.get(extended.ids[merge.left + merge.right], 0)) for merge in listed]
    return replace(extension, merges=(*counted, *extension.merges[len(listed) :]))


def listed_forms(tokenizer: Tokenizer, words: WordList, limits: Limits) -> tuple[IncludedWord, ...]:
    """The forms of the words of a list; those that cannot become tokens with the reason."""
    refusal, forbidden, found = refusal_by(tokenizer, limits), frozenset(never_made(tokenizer)), list[IncludedWord]()
    for word in words.words:
        for form in forms_of(tokenizer, word, exact=words.exact):
            reason = form.reason
            if form.string is not None and form.string in forbidden:
                reason = "it is spelled like an added token or a byte"
            elif form.string is not None and form.string not in tokenizer.ids:
                reason = refusal(form.string)
            found.append(IncludedWord(word, None if reason else form.string, printable(reason) if reason else None))
    return tuple(dict.fromkeys(found))
