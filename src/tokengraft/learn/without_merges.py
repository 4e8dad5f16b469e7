"""Extension of models without merges: Unigram and WordPiece. The training loop is in the core."""

from dataclasses import replace

from tokengraft import _core
from tokengraft.errors import Progress, UnsupportedTokenizerError, option, printable
from tokengraft.learn.allowed import (
    UNBOUNDED,
    Training,
    WordListError,
    allowed_by,
    may_be_added_by,
    missing_characters,
    never_made,
    provenance_of,
    refusal_by,
)
from tokengraft.learn.extension import Extension, IncludedWord, LearnedMerge, RefusedPair
from tokengraft.learn.forms import forms_of
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits, Parity, rules_of
from tokengraft.tokenizer.kind import CONTINUATION
from tokengraft.tokenizer.tokenizer import Tokenizer


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
        forbidden=[*never_made(tokenizer)],
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        allow=allowed_by(tokenizer, limits),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        progress=report if progress else None,
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
