"""Word lists: every word of a list becomes one token, before anything is learned from text.

`forms_of`: a word as the pipeline sees it, after a space and at the start of a text.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, option, printable
from tokengraft.learn.extension import IncludedWord
from tokengraft.learn.limits import Limits
from tokengraft.learn.trainer import LearnedMerges, is_visible, learned_merges, may_be_added_by, never_made, refusal_by
from tokengraft.representation import frozen_strings, require_fields, shown
from tokengraft.tokenizer.edit import Pair, add_tokens, before_whitespace_merges, with_characters
from tokengraft.tokenizer.kind import spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

_BEFORE = ("", "(", "\n", "a", "1", ".")
"""Text after which a literal word may be a whole pretoken."""
_SHOWN = 6
SPLIT = "the pre-tokenizer splits it into"
"""How the reason begins for a word that merges cannot make one token."""


class Form(NamedTuple):
    """A word at one place in a text."""

    string: str | None
    """As the vocabulary spells it; None if it is not kept whole."""
    reason: str | None
    """Why it is not kept whole."""
    texts: tuple[str, ...] = ()
    """Running texts that have the form."""


def forms_of(tokenizer: Tokenizer, word: str, *, exact: bool) -> list[Form]:
    """The distinct forms of a word.

    Those of its text after a space and at the start of a text, or with ``exact`` the one of its literal text. The
    pipeline decides what a form is: it may normalize the word or put a space before it. For byte-level types a form is
    a whole pretoken. For SentencePiece types it may be a part of one.
    """
    places = (("a", " " + word.strip()), ("", word.strip()))
    in_text = (_form(tokenizer, _pieces_after(tokenizer, *place), "".join(place) + " a") for place in places)
    forms = [_literal(tokenizer, word)] if exact else [*in_text]
    return [*{(form.string, form.reason): form for form in reversed(forms)}.values()][::-1]


def _literal(tokenizer: Tokenizer, line: str) -> Form:
    literal = spell(line.encode(), tokenizer.kind)
    found = [(before, _pieces_after(tokenizer, before, line)) for before in _BEFORE]
    texts = tuple(before + line for before, pieces in found if pieces == [literal])
    if texts:
        return Form(literal, None, texts)
    # The normalizer changes it. At the start of a text it may also be given a space, so other places are asked first.
    whole = [(before, pieces) for before, pieces in found[1:] + found[:1] if pieces and len(pieces) == 1]
    before, pieces = whole[0] if whole else found[0]
    return _form(tokenizer, pieces, before + line)


def _pieces_after(tokenizer: Tokenizer, before: str, text: str) -> list[str | int] | None:
    """The pretokens of a text that follows another; None if the two are not kept apart."""
    head, pieces = tokenizer.pretokenize(before) if before else [], tokenizer.pretokenize(before + text)
    while head and pieces and head[0] == pieces[0]:
        head, pieces = head[1:], pieces[1:]
    if not head:
        return pieces
    first, last = pieces[0] if pieces else 0, head[0]
    if len(head) > 1 or not isinstance(first, str) or not isinstance(last, str) or not first.startswith(last):
        return None
    # Merges of a SentencePiece type do not depend on where a pretoken begins.
    return [first[len(last) :], *pieces[1:]] if tokenizer.kind == "sentencepiece" else None


def _form(tokenizer: Tokenizer, pieces: Sequence[str | int] | None, text: str) -> Form:
    if pieces is None:
        return Form(None, "the pre-tokenizer does not keep it apart from the text before it", (text,))
    strings = [piece for piece in pieces if isinstance(piece, str)]
    texts = [token_bytes(string, tokenizer.kind).decode(errors="replace") for string in strings]
    added = [tokenizer.strings[piece] for piece in pieces if isinstance(piece, int)]
    if added:
        alone = len(added) == 1 and not "".join(texts).strip()
        return Form(None, "it is an added token" if alone else f"it has the added token `{added[0]}`", (text,))
    if len(strings) == 1 and strings[0]:
        return Form(strings[0], None, (text,))
    if not any(strings):
        return Form(None, "the normalizer removes it", (text,))
    shown = [part for part in (texts[0].removeprefix(" "), *texts[1:]) if part]
    more = ", …" if len(shown) > _SHOWN else ""
    split = ", ".join(f"`{part}`" for part in shown[:_SHOWN])
    return Form(None, f"{SPLIT} {split}{more}", (text,))


UNSPELLED = "it has a character that the vocabulary cannot spell"
LONGEST = 256
"""The longest form, in bytes or characters, whichever the vocabulary merges. No longer token is of use."""


@shown
@dataclass(frozen=True)
class WordList:
    """Words that should become tokens.

    Without ``exact``, a word becomes a token after a space and at the start of a text, as the pipeline sees it there:
    ``Ġword`` and ``word`` for most byte-level types, ``▁word`` alone for most SentencePiece types. White space around
    it does not matter. With ``exact`` it is taken literally, leading spaces included.

    Examples:
        >>> tok = tg.load("model")
        >>> extension = tg.extend(tok, tg.count(tok, "et.txt"), 20, include=tg.learn.WordList(("ibuprofen", "COX-2")))
        >>> [(word.word, word.token) for word in extension.included]
        [('ibuprofen', 'Ġibuprofen'), ('ibuprofen', 'ibuprofen'), ('COX-2', None)]
        >>> extension.included[2].reason
        'the pre-tokenizer splits it into `COX`, `-`, `2`'
        >>> new = extension.apply(tok)
        >>> [new.strings[token_id] for token_id in new.encode("an ibuprofen")]
        ['an', 'Ġibuprofen']
    """

    words: tuple[str, ...]
    """The words. Each is taken once."""
    exact: bool = False
    """Take the words literally; otherwise with and without a leading space, as the pipeline would see them."""

    def __post_init__(self) -> None:
        require_fields(self)
        words = frozen_strings("words", self.words)
        if not words:
            raise OptionError(
                "the word list is empty", hint=f"list one word per line, or leave out {option('include')}"
            )
        for word in words:
            if not word.strip():
                raise OptionError(f"the word list has the blank word {word!r}", hint="take blank lines out of the list")
            if len(word.splitlines()) > 1 or word.splitlines()[0] != word:
                raise OptionError(f"the word {word!r} has a line break", hint="list one word per line")
            try:
                word.encode()
            except UnicodeEncodeError as error:
                raise OptionError(
                    f"the word {word!r} is not valid Unicode: {error.reason}", hint="correct it"
                ) from error
        object.__setattr__(self, "words", tuple(dict.fromkeys(words)))


class ListedWords(NamedTuple):
    """What a word list adds to a tokenizer."""

    words: tuple[IncludedWord, ...] = ()
    """Every form of every word, in the order of the list."""
    characters: tuple[str, ...] = ()
    """SentencePiece types: characters of the words that the vocabulary lacked."""
    learned: LearnedMerges = LearnedMerges()
    """The merges in order; their frequencies are those among the forms."""


def listed_words(
    tokenizer: Tokenizer,
    words: WordList,
    limits: Limits,
    *,
    preserve: PretokenCounts | None = None,
    counted: Sequence[PretokenCounts] = (),
) -> ListedWords:
    """The merges that make every word of a list one token, appended to those of the tokenizer.

    Each form of a word (see `forms_of`) that the pre-tokenizer keeps whole becomes one token. The trainer learns on
    these forms alone, each counted once, until no pair is left that may be merged. A form of several tokens has a pair,
    so it ends as one token, unless the limits or the preserved text forbid all pairs that it has left. Then it is
    listed with the reason, and the others are learned again without it. Every form is proven: its string, and running
    text with it, is encoded with the result. The merges do not depend on the order of the words.

    For SentencePiece types, missing characters of the words are added. The words need not keep the rules of
    SentencePiece's trainer, such as the longest piece, with one exception: a token across a place where a ``counted``
    text was cut is refused, because training on that text would not see it. Count with other rules to allow it.
    """
    listed = [(word, form) for word in words.words for form in forms_of(tokenizer, word, exact=words.exact)]
    forms = {form.string: form for _, form in listed if form.string is not None}
    reasons = _refusals(tokenizer, forms, limits, preserve, counted)
    several = [string for string, form in forms.items() if not _is_one_token(tokenizer, string, form)]
    known, any_pair = tokenizer.core_vocabulary.id_of, replace(limits, min_count=1)
    while True:
        wanted = [string for string in several if string not in reasons]
        characters = tuple(sorted({c for string in wanted for c in string if known(c) is None}))
        base, learned = with_characters(tokenizer, characters), LearnedMerges()
        if wanted:
            most = sum(map(len, wanted))  # every merge shortens one of them
            learned = learned_merges(base, _counted_once(tokenizer, wanted), most, any_pair, preserve=preserve)
        extended = add_tokens(base, learned.tokens, learned.pairs) if learned.merges else base
        usable = {string: form for string, form in forms.items() if string not in reasons}
        broken = [string for string, form in usable.items() if not _is_one_token(extended, string, form)]
        if not broken:
            break
        both = before_whitespace_merges(base), before_whitespace_merges(extended)
        preserved = {(pair.left, pair.right) for pair in learned.refused}
        reasons |= {string: _why_broken(both, string, forms[string], preserved) for string in broken}
    words_of = (
        IncludedWord(word, None, printable(reason)) if reason else IncludedWord(word, form.string, None)
        for word, form in listed
        for reason in [form.reason or reasons.get(form.string or "")]
    )
    return ListedWords(tuple(dict.fromkeys(words_of)), characters, learned)


def _refusals(
    tokenizer: Tokenizer,
    forms: Mapping[str, Form],
    limits: Limits,
    preserve: PretokenCounts | None,
    counted: Sequence[PretokenCounts],
) -> dict[str, str]:
    """The forms that cannot become tokens, with the reasons, as far as they are known before anything is learned."""
    known, forbidden = tokenizer.core_vocabulary.id_of, frozenset(never_made(tokenizer))
    may_be_added, refusal = may_be_added_by(limits, preserve), refusal_by(tokenizer, limits)
    byte_level, cut, reasons = tokenizer.kind == "byte-level", _cut_pairs(tokenizer, forms, counted), dict[str, str]()
    letters = "bytes" if byte_level else "characters"
    for string in forms:
        missing = [character for character in dict.fromkeys(string) if known(character) is None]
        crossed = next((string[at : at + 2] for at in range(len(string)) if string[at : at + 2] in cut), None)
        if string in forbidden:
            reasons[string] = "it is spelled like an added token or a byte"
        elif string in tokenizer.ids:
            continue
        elif missing and (byte_level or not all(is_visible(each) and may_be_added(each) for each in missing)):
            reasons[string] = UNSPELLED
        elif crossed:
            between = f"`{crossed[0]}` and `{crossed[1]}`"
            reasons[string] = f"SentencePiece's rules split text between {between} (--rule changes them)"
        elif len(string) > LONGEST:
            reasons[string] = f"it has {len(string):,} {letters}, and at most {LONGEST:,} are merged into one token"
        elif reason := refusal(string):
            reasons[string] = reason
    return reasons


def _cut_pairs(tokenizer: Tokenizer, forms: Iterable[str], counted: Sequence[PretokenCounts]) -> frozenset[str]:
    """The pairs of characters of the forms between which some counted text was cut."""
    bpe = _core.Model.bpe(
        _core.Vocabulary({string: at for at, string in enumerate(forms)}, []),
        byte_level=tokenizer.kind == "byte-level",
        ignore_merges=False,
        byte_fallback=False,
        unk_token=None,
        fuse_unk=False,
    )
    made_for = [(text.fingerprint.rules, text.fingerprint.joined) for text in counted if text.fingerprint.rules]
    return frozenset().union(*({*_core.Cutter(bpe, rules, []).limits()[0]} - joined for rules, joined in made_for))


def _counted_once(tokenizer: Tokenizer, strings: Iterable[str]) -> _core.Counts:
    """Forms as counted pretokens."""
    byte_level = tokenizer.kind == "byte-level"
    rows = sorted(token_bytes(string, "byte-level") if byte_level else string.encode() for string in strings)
    offsets = np.cumsum([0, *map(len, rows)], dtype="<u8")
    return _core.Counts(b"".join(rows), offsets.tobytes(), np.ones(len(rows), "<u8").tobytes())


def _is_one_token(tokenizer: Tokenizer, string: str, form: Form) -> bool:
    """Whether a form, and running text with it, is encoded as its token."""
    token_id, model = tokenizer.core_vocabulary.id_of(string), tokenizer.core_model
    if token_id is None or model.encode(string) != [token_id]:
        return False
    return any(token_id in model.encode(pretoken) for pretoken in _pretokens(tokenizer, form))


def _pretokens(tokenizer: Tokenizer, form: Form) -> list[str]:
    """The pretokens of running text with a form."""
    pieces = (piece for text in form.texts for piece in tokenizer.pretokenize(text))
    return [piece for piece in pieces if isinstance(piece, str)]


def _why_broken(both: tuple[Tokenizer, Tokenizer], string: str, form: Form, preserved: set[Pair]) -> str:
    """Why a form is not one token, given the tokenizers before and after training, and pairs of preserved text."""
    base, extended = both
    pieces = [extended.strings[token_id] for token_id in extended.core_model.encode(string, by_merges=True)]
    if "".join(pieces) != string:
        return UNSPELLED
    if not preserved.isdisjoint(pairwise(pieces)):
        return "its merges would change text that must not change"
    if len(pieces) > 1:
        return "the limits allow none of the tokens that it could be merged from"
    encode = partial(base.core_model.encode, by_merges=True)
    ids, in_text = encode(string), map(encode, _pretokens(base, form))
    is_apart = any(ids == whole[at : at + len(ids)] for whole in in_text for at in range(len(whole)))
    return f"in `{form.texts[0]}`, {'other merges break it' if is_apart else 'a token of the tokenizer spans its edge'}"
