"""Word lists: merges that make every word of a list one token, before anything is learned.

`word_merges` finds the forms of the words and the merges. Here every word is proven by encoding it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tokengraft import _core
from tokengraft.errors import OptionError, printable
from tokengraft.learn.extension import IncludedWord, LearnedMerge
from tokengraft.learn.word_merges import Form, MergeBase, MergeLimits, NewMerge, Pair, Pieces, WordMerges, forms_of
from tokengraft.representation import frozen_strings, require_fields, shown
from tokengraft.tokenizer.edit import add_tokens, before_whitespace_merges, first_whitespace_merge, unreachable_ranks
from tokengraft.tokenizer.tokenizer import Tokenizer

UNSPELLED = "it has a character that the vocabulary cannot spell"
LONGEST = 256
"""The most pieces that are merged into one token. More would take minutes, and no such token is of use."""


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
            raise OptionError("the word list is empty", hint="list one word per line, or leave out --include")
        for word in words:
            _require_word(word)
        object.__setattr__(self, "words", tuple(dict.fromkeys(words)))


def _require_word(word: str) -> None:
    if not word.strip():
        raise OptionError(f"the word list has the blank word {word!r}", hint="take blank lines out of the list")
    if len(word.splitlines()) > 1 or word.splitlines()[0] != word:
        raise OptionError(f"the word {word!r} has a line break", hint="list one word per line")
    try:
        word.encode()
    except UnicodeEncodeError as error:
        raise OptionError(f"the word {word!r} is not valid Unicode: {error.reason}", hint="correct it") from error


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
        made = Counter[int]()
        for table in tables:
            made.update(dict(table.tokens(extended.core_model, by_merges=True, uses=True)))
        ids = extended.ids
        return tuple(merge._replace(frequency=made.get(ids[merge.left + merge.right], 0)) for merge in self.merges)


def included_merges(tokenizer: Tokenizer, words: WordList, limits: MergeLimits | None = None) -> Included:
    """Merges that make every word of a list one token, appended to those of the tokenizer.

    Each form of a word (see `forms_of`) that the pre-tokenizer keeps whole becomes one token. Tokens in between are
    shared by words. Every token is proven: its string, and running text with it, is encoded with the result. A form
    that cannot become a token is listed with the reason. The merges do not depend on the order of the words.

    For SentencePiece types, missing characters of the words are added. The words need not keep the rules of
    SentencePiece's trainer, such as the longest piece, with one exception: a token across a place where the counted
    text was cut is refused, because training on that text would not see it. Count with other rules to allow it.
    """
    limits = limits or MergeLimits()
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
    limits: MergeLimits
    forms: Mapping[str, Form]
    reasons: dict[str, str] = field(default_factory=dict)

    def run(self) -> tuple[tuple[str, ...], list[NewMerge]]:
        """The characters to add, and the merges."""
        cut = self._cut_pairs()
        reasons = ((string, self._refusal(string, cut)) for string in self.forms)
        self.reasons.update((string, reason) for string, reason in reasons if reason)
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
        if token_id is None or tokenizer.core_model.encode(string) != [token_id]:
            return False
        return any(token_id in tokenizer.core_model.encode(pretoken) for pretoken in self._pretokens(string))

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
        bpe = _core.Model.bpe(
            vocabulary,
            byte_level=self.tokenizer.kind == "byte-level",
            ignore_merges=False,
            byte_fallback=False,
            unk_token=None,
            fuse_unk=False,
        )
        made_for = [(text.rules, text.joined) for text in self.limits.made_for if text.rules]
        return frozenset().union(*({*_core.Cutter(bpe, rules, []).limits()[0]} - joined for rules, joined in made_for))

    def _missing_characters(self, strings: Sequence[str]) -> tuple[str, ...]:
        """The characters that the vocabulary lacks, by code point."""
        known = self.tokenizer.core_vocabulary.id_of
        used = {character for string in strings for character in string}
        return tuple(sorted(character for character in used if known(character) is None))

    def _merges(self, base: Tokenizer, strings: Sequence[str]) -> list[NewMerge]:
        """Merges that make these forms. Forms that cannot be made get a reason."""
        merge_base, pieces = _merge_base(base), self._pieces(base, strings)
        first = list[str]()
        while True:
            made = WordMerges(merge_base, pieces, self.limits)
            stuck = made.make(first)
            if not stuck:
                return made.merges
            # What other words share may close the only way to a word: such a word is made before the others.
            impossible = [string for string in stuck if string in first]
            for string in impossible:
                self.reasons[string] = _why_stuck(merge_base, string, pieces.pop(string), self.limits)
            first = [string for string in first if string in pieces]
            first += [string for string in stuck if string in pieces and string not in first]

    def _pieces(self, base: Tokenizer, strings: Sequence[str]) -> dict[str, Pieces]:
        """The pieces of every form, if running text has them too."""
        before_runs = before_whitespace_merges(base)
        found = dict[str, Pieces]()
        for string in strings:
            ids = before_runs.core_model.encode(string, by_merges=True)
            pieces = tuple(base.strings[token_id] for token_id in ids)
            in_text = [before_runs.core_model.encode(pretoken, by_merges=True) for pretoken in self._pretokens(string)]
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
