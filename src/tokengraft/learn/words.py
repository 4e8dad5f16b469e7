"""Words without a text: `include` makes every word of a list one token, by training on the list alone."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from tokengraft.counts.count import count
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, positive, printable, require_type, whole_number
from tokengraft.learn.continued import extend_pieces, listed_forms, require_extendable
from tokengraft.learn.extension import Extension, IncludedWord
from tokengraft.learn.include import SPLIT, WordList, forms_of, listed_words
from tokengraft.learn.limits import Limits
from tokengraft.learn.special import SpecialToken, add_special, refusals
from tokengraft.learn.trainer import Training, provenance_of
from tokengraft.progress import logger
from tokengraft.tokenizer.tokenizer import Tokenizer


def include(
    tokenizer: Tokenizer,
    words: WordList | Sequence[str],
    *,
    limits: Limits | None = None,
    max_helpers: int | None = None,
    added: bool = False,
) -> Tokenizer:
    """The tokenizer with a token for every word, after a space and at the start of a text. No text is needed.

    `logging` shows the words that cannot be one token, with the reasons. `include_words` gives them as data.

    Args:
        tokenizer: The tokenizer. It is not changed.
        words: The words, or a `WordList` with options.
        limits: Which tokens may be made.
        max_helpers: The most tokens that words may be merged from and that are no words. Words that cost the most are
            left out. For BPE; other models need none.
        added: Make words that the pre-tokenizer splits, such as ``COX-2``, added tokens.

    Raises:
        OptionError: The list is empty, or has a blank word or a line break.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.include(tok, ["ibuprofen", "COX-2"], added=True)
        >>> [new.strings[i] for i in new.encode("an ibuprofen COX-2")]
        ['an', 'Ġibuprofen', 'Ġ', 'COX-2']
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    listed: WordList | None = words if isinstance(words, WordList) else WordList(words)  # type: ignore[arg-type]
    found = split_words(tokenizer, listed) if added and listed else SplitWords([], listed, ())
    extension = include_words(tokenizer, found.others, limits or Limits(), max_helpers=max_helpers)
    for word in (*found.left_out, *extension.included):
        if word.token is None:
            logger.warning("%r is no token: %s", word.word, word.reason)
    # Words first: in a vocabulary without merges, added tokens follow all others.
    return add_special(extension.apply(tokenizer) if len(extension) or extension.merges else tokenizer, found.tokens)


def include_words(
    tokenizer: Tokenizer,
    words: WordList | None,
    limits: Limits,
    *,
    max_helpers: int | None = None,
    preserve: PretokenCounts | None = None,
) -> Extension:
    """The extension that makes words tokens, and says which of them cannot be one, with the reasons."""
    most = None if max_helpers is None else whole_number("max_helpers", max_helpers)
    if most is not None and most < 0:
        positive("max_helpers", most)
    dropped, left = dict[str, str](), words
    while True:
        extension = _extension(tokenizer, left, limits, preserve)
        costly = {} if most is None else _costly(extension, most)
        if not costly or left is None or words is None:
            break
        dropped |= {
            word: f"it needs {n:,} helper tokens, and {most:,} are allowed in all" for word, n in costly.items()
        }
        rest = tuple(word for word in words.words if word not in dropped)
        left = replace(words, words=rest) if rest else None
    if words is None or not dropped:
        return extension
    found: dict[str, list[IncludedWord]] = {word: [IncludedWord(word, None, why)] for word, why in dropped.items()}
    for form in extension.included:
        found.setdefault(form.word, []).append(form)
    return replace(extension, included=tuple(form for word in words.words for form in found[word]))


def _extension(
    tokenizer: Tokenizer, words: WordList | None, limits: Limits, preserve: PretokenCounts | None
) -> Extension:
    counts = count(tokenizer, iter([" ".join(words.words) if words else " "]))
    nothing = Extension((), 0, limits.min_count, tokenizer.content_hash, provenance_of(tokenizer, counts, preserve))
    if words is None:
        return nothing
    if tokenizer.algorithm != "BPE":
        forms = listed_forms(tokenizer, words, limits)
        new = {form.token for form in forms if form.token is not None and form.token not in tokenizer.ids}
        if not new:
            return replace(nothing, included=forms)
        require_extendable(tokenizer, len(new))
        return extend_pieces(tokenizer, Training(counts, preserve, limits, 0.0), len(new), words, None)
    listed = listed_words(tokenizer, words, limits, preserve=preserve)
    n = len(listed.characters) + len(listed.learned.tokens)
    if n:
        require_extendable(tokenizer, n)
    merges = listed.learned.merges
    return replace(
        nothing,
        merges=merges,
        asked=n,
        characters=listed.characters,
        included=listed.words,
        list_merges=len(merges),
    )


def _costly(extension: Extension, most: int) -> dict[str, int]:
    """The words to leave out so that ``most`` helpers are left, each with the number of helpers that it needs.

    The next one is the word that most helpers are for alone.
    """
    helpers = {*extension.intermediates}
    parts = {merge.left + merge.right: (merge.left, merge.right) for merge in extension.merges if merge.new}
    needed: dict[str, set[str]] = {}
    for form in extension.included:
        found, open_tokens = needed.setdefault(form.word, set()), [form.token] if form.token else []
        while open_tokens:
            for part in parts.get(open_tokens.pop(), ()):
                open_tokens.append(part)
                found |= {part} & helpers
    users: dict[str, set[str]] = {helper: set() for helper in helpers}
    for word, found in needed.items():
        for helper in found:
            users[helper].add(word)
    alone = Counter(next(iter(words)) for words in users.values() if len(words) == 1)
    heap, costly = [(-alone[word], -len(found), word) for word, found in needed.items() if found], dict[str, int]()
    heapify(heap)
    while len(users) > most and heap:
        cost, _, word = heappop(heap)
        if word in costly or -cost < alone[word]:
            continue  # a later entry has what it costs now
        costly[word] = len(needed[word])
        for helper in needed[word]:
            users[helper].discard(word)
            if not users[helper]:
                del users[helper]
            elif len(users[helper]) == 1:
                (last,) = users[helper]
                alone[last] += 1
                heappush(heap, (-alone[last], -len(needed[last]), last))
    return costly


class SplitWords(NamedTuple):
    """The words of a list, by whether the pre-tokenizer keeps them whole."""

    tokens: list[SpecialToken]
    """Words that are split everywhere, as added tokens."""
    others: WordList | None
    """All other words."""
    left_out: tuple[IncludedWord, ...]
    """Words that are split and cannot be added tokens, with the reason."""


def split_words(tokenizer: Tokenizer, words: WordList) -> SplitWords:
    """The words that merges cannot make one token, because the pre-tokenizer splits them, as added tokens.

    Such a token is found as a whole word, before the text is split. A space before it stays a token of its own, so that
    decoding gives the text back.
    """
    forms: Mapping[str, list[str]] = {
        word: [form.reason or "" for form in forms_of(tokenizer, word, exact=words.exact)] for word in words.words
    }
    split = [word for word, reasons in forms.items() if all(reason.startswith(SPLIT) for reason in reasons)]
    left_out, tokens = dict[str, str](), dict[str, SpecialToken]()
    for word in split:
        try:
            tokens[word] = SpecialToken(word.strip(), single_word=True, special=False)
        except OptionError as error:
            left_out[word] = error.message
    left_out |= {content: error.message for content, error in refusals(tokenizer, tokens.values()).items()}
    wanted = [token for word, token in tokens.items() if word not in left_out]
    new, plain = add_special(tokenizer, wanted), tokenizer.decode(tokenizer.encode("a x b"))
    for token in wanted if plain == "a x b" else ():  # the words are decoded as they are: is the space around them?
        text = f"a {token.content} b"
        decoded = new.decode(new.encode(text))
        if decoded != text:
            left_out[token.content] = f"as an added token, {text!r} would be decoded as {decoded!r}"
    rest = tuple(word for word in words.words if word not in split)
    return SplitWords(
        [token for token in wanted if token.content not in left_out],
        replace(words, words=rest) if rest else None,
        tuple(IncludedWord(word, None, printable(reason)) for word, reason in left_out.items()),
    )
