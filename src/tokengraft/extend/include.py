"""Word lists: merges that make every word of a list one token, before anything is learned.

The forms of the words are found by `forms`, the merges by `word_merges`. Here the two are put together for a tokenizer,
and every word is proven by encoding it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.errors import OptionError, printable
from tokengraft.extend.extension import IncludedWord, LearnedMerge
from tokengraft.extend.forms import Form, forms_of
from tokengraft.extend.word_merges import MergeBase, MergeLimits, NewMerge, Pair, Pieces, WordMerges
from tokengraft.representation import shown
from tokengraft.tokenizer.edit import add_tokens, before_whitespace_merges, first_whitespace_merge, unreachable_ranks
from tokengraft.tokenizer.tokenizer import Tokenizer

UNSPELLED = "it has a character that the vocabulary cannot spell"
LONGEST = 256
"""The most pieces that are merged into one token. More would take minutes, and no such token is of use."""


@shown
@checked
@dataclass(frozen=True)
class WordList:
    """Words that should become tokens.

    Without ``exact``, a word becomes a token after a space and at the start of a text, as the pipeline sees it there:
    ``Ġword`` and ``word`` for most byte-level types, ``▁word`` alone for most SentencePiece types. White space around
    it does not matter. With ``exact`` it is taken literally, leading spaces included.

    Examples:
        >>> tok = tg.load("model")
        >>> extension = tg.extend(tok, tg.count(tok, "et.txt"), 20, include=tg.WordList(("ibuprofen", "COX-2")))
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
        words = self.words
        if not words:
            raise OptionError("the word list is empty", hint="list one word per line, or leave out --include")
        for word in words:
            _require_word(word)
        object.__setattr__(self, "words", tuple(dict.fromkeys(words)))


def _require_word(word: object) -> None:
    if not isinstance(word, str):
        raise OptionError(f"the word list has {word!r}, which is not a string", hint="pass strings")
    if not word.strip():
        raise OptionError(f"the word list has the blank word {word!r}", hint="take blank lines out of the list")
    if len(word.splitlines()) > 1 or word.splitlines()[0] != word:
        raise OptionError(f"the word {word!r} has a line break", hint="list one word per line")
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"the word {word!r} is not valid Unicode: {error.reason}", hint="correct it") from error


@dataclass(frozen=True)
class ListLimits:
    """What the merges of a word list may not do."""

    refusal: Callable[[str], str | None] = lambda _: None
    """Why a string may not become a token; None if it may."""
    allow_pair: Callable[[str, str], bool] = lambda _, __: True
    """For text that must not change: whether two tokens may be merged."""
    allow_character: Callable[[str], bool] = lambda _: True
    """SentencePiece types: whether a character that the vocabulary lacks may be added."""
    forbidden: frozenset[str] = frozenset()
    """Strings that are neither made nor merged: added tokens, bytes."""
    made_for: tuple[Fingerprint, ...] = ()
    """SentencePiece types: how each counted text was cut. Tokens across a cut are refused."""


@dataclass(frozen=True)
class Included:
    """The merges of a word list."""

    words: tuple[IncludedWord, ...] = ()
    """Every form of every word, in the order of the list."""
    characters: tuple[str, ...] = ()
    """SentencePiece types: characters of the words that the vocabulary lacked."""
    merges: tuple[LearnedMerge, ...] = ()
    """In order; their frequencies are 0."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The new tokens that the merges make."""
        return tuple(merge.left + merge.right for merge in self.merges if merge.new)

    @property
    def intermediates(self) -> tuple[str, ...]:
        """New tokens that are no words of the list: the parts that the words are merged from."""
        words = {word.token for word in self.words}
        return tuple(token for token in self.tokens if token not in words)

    def added_to(self, tokenizer: Tokenizer, more_characters: Sequence[str] = ()) -> Tokenizer:
        """The tokenizer with the list, and with more characters."""
        tokens = (*self.characters, *more_characters, *self.tokens)
        if not tokens and not self.merges:
            return tokenizer
        return add_tokens(tokenizer, tokens, [(merge.left, merge.right) for merge in self.merges])

    def counted(self, extended: Tokenizer, tables: Sequence[_core.Counts]) -> tuple[LearnedMerge, ...]:
        """The merges with how often each applies in counted texts, given the tokenizer with the list."""
        if not self.merges:
            return ()
        byte_level, made = extended.kind == "byte-level", Counter[int]()
        for table in tables:
            made.update(dict(table.tokens(extended.bpe, byte_level=byte_level, by_merges=True, uses=True)))
        ids = extended.ids
        return tuple(merge._replace(frequency=made.get(ids[merge.left + merge.right], 0)) for merge in self.merges)


def included_merges(tokenizer: Tokenizer, words: WordList, limits: ListLimits | None = None) -> Included:
    """Merges that make every word of a list one token.

    Each form of a word (see `forms_of`) that the pre-tokenizer keeps whole becomes one token by merges that are
    appended to those of the tokenizer. Tokens in between are shared by words. Every token is proven: its string, and
    running text with it, is encoded with the result. A form that cannot become a token is listed with the reason.

    For SentencePiece types, missing characters of the words are added. The words need not keep the rules of
    SentencePiece's trainer, such as the longest piece, with one exception: a token across a place where the counted
    text was cut is refused, because training on that text would not see it. Count with other rules to allow it.

    The merges do not depend on the order of the words.
    """
    limits = limits or ListLimits()
    forms = [(word, form) for word in words.words for form in forms_of(tokenizer, word, exact=words.exact)]
    state = _Search(tokenizer, limits, {form.string: form for _, form in forms if form.string is not None})
    characters, merges = state.run()
    return Included(
        words=tuple(dict.fromkeys(_included_word(word, form, state.reasons) for word, form in forms)),
        characters=characters,
        merges=tuple(LearnedMerge(left, right, 0, new) for left, right, new in merges),
    )


def _included_word(word: str, form: Form, reasons: Mapping[str, str]) -> IncludedWord:
    if form.string is None or form.string in reasons:
        return IncludedWord(word, None, printable(form.reason or reasons[form.string or ""]))
    return IncludedWord(word, form.string, None)


@dataclass
class _Search:
    """Finds the merges of some forms. ``reasons`` has the forms that cannot become tokens, and why."""

    tokenizer: Tokenizer
    limits: ListLimits
    forms: Mapping[str, Form]
    reasons: dict[str, str] = field(default_factory=dict)

    def run(self) -> tuple[tuple[str, ...], list[NewMerge]]:
        """The characters to add, and the merges."""
        cut = self._cut_pairs()
        for string in self.forms:
            reason = self._refusal(string, cut)
            if reason:
                self.reasons[string] = reason
        not_yet = [string for string in self.forms if not self._is_one_token(self.tokenizer, string)]
        while True:
            left_out = len(self.reasons)
            wanted = [string for string in not_yet if string not in self.reasons]
            characters = self._missing_characters(wanted)
            base = add_tokens(self.tokenizer, characters, []) if characters else self.tokenizer
            merges = self._merges(base, wanted)
            self._prove(base, merges)
            if len(self.reasons) == left_out:
                return characters, merges

    def _is_one_token(self, tokenizer: Tokenizer, string: str) -> bool:
        """Whether a form, and running text with it, is encoded as its token."""
        token_id = tokenizer.core_vocabulary.id_of(string)
        if token_id is None or tokenizer.bpe.encode(string) != [token_id]:
            return False
        return any(token_id in tokenizer.bpe.encode(pretoken) for pretoken in self._pretokens(string))

    def _pretokens(self, string: str) -> list[str]:
        """The pretokens of running text with a form."""
        pieces = (piece for text in self.forms[string].texts for piece in self.tokenizer.pretokenize(text))
        return [piece for piece in pieces if isinstance(piece, str)]

    def _refusal(self, string: str, cut: frozenset[str]) -> str | None:
        """Why a form cannot become a token, as far as it is known before any merge is made."""
        if string in self.limits.forbidden:
            return "it is spelled like an added token or a byte"
        if string in self.tokenizer.ids:
            return None
        known = self.tokenizer.core_vocabulary.id_of
        missing = [character for character in dict.fromkeys(string) if known(character) is None]
        byte_level = self.tokenizer.kind == "byte-level"
        if missing and (byte_level or not all(map(self.limits.allow_character, missing))):
            return UNSPELLED
        crossed = next((string[at : at + 2] for at in range(len(string)) if string[at : at + 2] in cut), None)
        if crossed:
            return f"SentencePiece's rules split text between `{crossed[0]}` and `{crossed[1]}` (--rule changes them)"
        return self.limits.refusal(string)

    def _cut_pairs(self) -> frozenset[str]:
        """The pairs of characters of the forms between which some counted text was cut."""
        vocabulary = _core.Vocabulary({string: at for at, string in enumerate(self.forms)}, [])
        bpe = _core.Bpe(vocabulary, ignore_merges=False, byte_fallback=False, unk_token=None, fuse_unk=False)
        cut = set[str]()
        for text in self.limits.made_for:
            cut.update({*_core.Cutter(bpe, text.rules, []).joined()} - text.joined if text.rules else ())
        return frozenset(cut)

    def _missing_characters(self, strings: Sequence[str]) -> tuple[str, ...]:
        """The characters that the vocabulary lacks, by code point."""
        known = self.tokenizer.core_vocabulary.id_of
        used = {character for string in strings for character in string}
        return tuple(sorted(character for character in used if known(character) is None))

    def _merges(self, base: Tokenizer, strings: Sequence[str]) -> list[NewMerge]:
        """Merges that make these forms. Forms that cannot be made get a reason."""
        merge_base, pieces = _merge_base(base), self._pieces(base, strings)
        allowed = MergeLimits(
            self.limits.forbidden, lambda string: self.limits.refusal(string) is None, self.limits.allow_pair
        )
        first = list[str]()
        while True:
            made = WordMerges(merge_base, pieces, allowed)
            stuck = made.make(first)
            if not stuck:
                return made.merges
            # What other words share may close the only way to a word: such a word is made before the others.
            impossible = [string for string in stuck if string in first]
            for string in impossible:
                self.reasons[string] = _why_stuck(merge_base, string, pieces.pop(string), allowed)
            first = [string for string in first if string in pieces]
            first += [string for string in stuck if string in pieces and string not in first]

    def _pieces(self, base: Tokenizer, strings: Sequence[str]) -> dict[str, Pieces]:
        """The pieces of every form, if running text has them too."""
        before_runs = before_whitespace_merges(base)
        found = dict[str, Pieces]()
        for string in strings:
            ids = before_runs.bpe.encode_by_merges(string)
            pieces = tuple(base.strings[token_id] for token_id in ids)
            in_text = [before_runs.bpe.encode_by_merges(pretoken) for pretoken in self._pretokens(string)]
            if "".join(pieces) != string:
                self.reasons[string] = UNSPELLED
            elif len(pieces) > LONGEST:
                self.reasons[string] = (
                    f"it has {len(pieces):,} pieces, and at most {LONGEST:,} are merged into one token"
                )
            elif not any(_has(whole, ids) for whole in in_text):
                self.reasons[string] = f"in `{self.forms[string].texts[0]}`, a token of the tokenizer spans its edge"
            else:
                found[string] = pieces
        return found

    def _prove(self, base: Tokenizer, merges: Sequence[NewMerge]) -> None:
        """Encodes every form with the merges. A form that is not one token gets a reason."""
        tokens = [left + right for left, right, new in merges if new]
        extended = add_tokens(base, tokens, [(left, right) for left, right, _ in merges]) if merges else base
        for string in self.forms:
            if string not in self.reasons and not self._is_one_token(extended, string):
                self.reasons[string] = f"in `{self.forms[string].texts[0]}`, other merges break it"


def _has(ids: Sequence[int], part: Sequence[int]) -> bool:
    return any(ids[at : at + len(part)] == part for at in range(len(ids) - len(part) + 1))


def _merge_base(base: Tokenizer) -> MergeBase:
    end = first_whitespace_merge(base)

    @cache
    def listed() -> Mapping[Pair, int]:
        return {pair: rank for rank, pair in enumerate(base.merge_strings()[:end])}

    return MergeBase(frozenset(base.ids), listed, end, unreachable_ranks(base))


def _why_stuck(base: MergeBase, string: str, pieces: Pieces, limits: MergeLimits) -> str:
    """Why a form cannot be made: the limits, or text that must not change."""
    without = replace(limits, allow_pair=lambda _, __: True)
    if not WordMerges(base, {string: pieces}, without).make([]):
        return "its merges would change text that must not change"
    return "the limits allow none of the tokens that it could be merged from"
