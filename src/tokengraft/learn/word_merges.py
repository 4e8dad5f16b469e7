"""Words as the pipeline sees them, and the merges that make each one token."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import combinations, pairwise
from typing import NamedTuple

from tokengraft.counts.fingerprint import Fingerprint
from tokengraft.tokenizer.kind import SPACE, spell, token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

_BEFORE = ("", "(", "\n", "a", "1", ".")
"""Text after which a literal word may be a whole pretoken."""
_SHOWN = 6


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
    return Form(None, f"the pre-tokenizer splits it into {split}{more}", (text,))


Pair = tuple[str, str]
Pieces = tuple[str, ...]
Rank = tuple[int, int, int]
MAX_PIECES = 9
"""Words of more pieces are first shortened by greedy steps: the search looks at 2^(pieces - 1) states."""


class NewMerge(NamedTuple):
    """A merge that was generated, and whether it makes a new token."""

    left: str
    right: str
    new: bool


@dataclass(frozen=True)
class MergeBase:
    """What the generated merges are appended to."""

    known: frozenset[str]
    """All tokens."""
    listed: Callable[[], Mapping[Pair, int]]
    """The listed merges with their ranks, without those of white space that merge last. Rarely needed."""
    n_merges: int
    """How many listed merges there are."""
    unreachable: Mapping[str, tuple[int, int]]
    """With a SentencePiece model: tokens that new ones may complete, with their ranks (see `unreachable_ranks`)."""


@dataclass(frozen=True)
class MergeLimits:
    """What generated merges may not do."""

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


class WordMerges:
    """Generates merges, one after the other. ``pieces`` has what is left of every word that is not one token yet."""

    def __init__(self, base: MergeBase, words: Mapping[str, Pieces], limits: MergeLimits) -> None:
        self._base, self._limits = base, limits
        self._targets = frozenset(words)
        self._new = set[str]()
        self._ranks = dict[Pair, Rank]()
        self._allowed = dict[Pair, bool]()
        self._words_with = dict[Pair, set[str]]()
        self._occurrences = Counter[Pair]()
        self._heap: list[tuple[int, Pair]] | None = None
        self.merges: list[NewMerge] = []
        self.pieces = dict(sorted(words.items()))
        for word, pieces in self.pieces.items():
            self._register(word, pieces)

    def make(self, first: Sequence[str]) -> list[str]:
        """Generates all merges, those of some words before all others. Returns the words that cannot be made."""
        for word in first:
            self._make_word(word)
        self._share()
        for word in sorted(self.pieces, key=lambda word: (len(self.pieces[word]), word)):
            self._make_word(word)
        return [word for word, pieces in self.pieces.items() if len(pieces) > 1]

    def _make_word(self, word: str) -> None:
        while len(self.pieces[word]) > 1:
            pair = self._best_pair(self.pieces[word])
            if pair is None:
                return
            self._append(pair)

    def _share(self) -> None:
        """Merges every pair that occurs in several words, the one that saves most first, then by its strings."""
        self._heap = [(-self._saved(pair), pair) for pair in self._words_with]
        heapify(self._heap)
        while self._heap:
            negative, pair = heappop(self._heap)
            if len(self._words_with.get(pair, ())) < 2 or not self._may_merge(pair):
                continue
            if self._saved(pair) != -negative:
                heappush(self._heap, (-self._saved(pair), pair))
            else:
                self._append(pair)
        self._heap = None

    def _saved(self, pair: Pair) -> int:
        """How many merges the words need less, minus the token that the pair costs."""
        return self._occurrences[pair] - self._cost(pair)

    def _cost(self, pair: Pair) -> int:
        product = pair[0] + pair[1]
        return int(not self._is_known(product) and product not in self._targets)

    def _is_known(self, string: str) -> bool:
        return string in self._base.known or string in self._new

    def _may_merge(self, pair: Pair) -> bool:
        if pair not in self._allowed:
            product, limits = pair[0] + pair[1], self._limits
            self._allowed[pair] = (
                not {*pair, product} & limits.forbidden
                # Runs of white space merge last, after every merge that is generated here.
                and bool(product.strip(SPACE))
                and limits.refusal(product) is None
                and limits.allow_pair(*pair)
            )
        return self._allowed[pair]

    def _append(self, pair: Pair) -> None:
        """Appends a merge and applies it to all words."""
        product = pair[0] + pair[1]
        completed = self._completed(product)
        for (left, right), rank in completed.items():
            self.merges.append(NewMerge(left, right, new=False))
            self._ranks[left, right] = rank
        self._ranks[pair] = (self._base.n_merges, 2, len(self.merges))
        self.merges.append(NewMerge(*pair, new=not self._is_known(product)))
        follow = bool(completed) or self._is_known(product)
        self._new.add(product)
        for word in list(self._words_with[pair]):
            pieces = self.pieces[word]
            for old, times in Counter(occurrences(pieces)).items():
                self._words_with[old].remove(word)
                self._occurrences[old] -= times
            self.pieces[word] = self._encoded(pieces, {}) if follow else replaced(pieces, pair)
            self._register(word, self.pieces[word])

    def _register(self, word: str, pieces: Pieces) -> None:
        for pair, times in Counter(occurrences(pieces)).items():
            self._words_with.setdefault(pair, set()).add(word)
            self._occurrences[pair] += times
            if self._heap is not None:
                heappush(self._heap, (-self._saved(pair), pair))

    def _completed(self, string: str) -> dict[Pair, Rank]:
        if self._is_known(string):
            return {}
        forbidden = self._limits.forbidden
        pairs = completions(string, self._base.unreachable, lambda s: self._is_known(s) and s not in forbidden)
        return {pair: (place, 0, order) for pair, (place, order) in pairs.items()}

    def _rank(self, pair: Pair) -> Rank | None:
        if pair in self._ranks:
            return self._ranks[pair]
        listed = self._base.listed().get(pair)
        return None if listed is None else (listed, 1, 0)

    def _encoded(self, pieces: Pieces, more: Mapping[Pair, Rank]) -> Pieces:
        """The pieces after all merges that apply, ``more`` included, in the order of the encoder."""
        left = list(pieces)
        while True:
            ranked = [
                (rank, at) for at, pair in enumerate(pairwise(left)) if (rank := more.get(pair, self._rank(pair)))
            ]
            if not ranked:
                return tuple(left)
            at = min(ranked)[1]
            left[at : at + 2] = [left[at] + left[at + 1]]

    def _after(self, pieces: Pieces, pair: Pair) -> Pieces:
        """The pieces of a word if a pair were the next merge."""
        product = pair[0] + pair[1]
        completed = self._completed(product)
        if completed or self._is_known(product):
            return self._encoded(pieces, {**completed, pair: (self._base.n_merges, 2, len(self.merges))})
        return replaced(pieces, pair)

    def _best_pair(self, pieces: Pieces) -> Pair | None:
        """The next merge of a word on the way that needs the fewest new tokens; None if there is no way."""
        if len(pieces) > MAX_PIECES:
            saved = {pair: n - self._cost(pair) for pair, n in Counter(occurrences(pieces)).items()}
            return max((pair for pair in saved if self._may_merge(pair)), key=saved.__getitem__, default=None)
        return (pieces[0], pieces[1]) if self._is_plain(pieces) else self._search(pieces, {})[1]

    def _search(self, pieces: Pieces, found: dict[Pieces, tuple[float, Pair | None]]) -> tuple[float, Pair | None]:
        """The fewest new tokens that make one token of these pieces, and the first merge of such a way."""
        if len(pieces) == 1:
            return 0, None
        if pieces not in found:
            best: tuple[float, Pair | None] = (float("inf"), None)
            for pair in dict.fromkeys(pairwise(pieces)):
                if self._may_merge(pair):
                    cost = self._cost(pair) + self._search(self._after(pieces, pair), found)[0]
                    best = min(best, (cost, pair), key=lambda way: way[0])
            found[pieces] = best
        return found[pieces]

    def _is_plain(self, pieces: Pieces) -> bool:
        """Whether every way to merge the pieces needs as many new tokens: none is known, and none occurs twice."""
        if len(set(pairwise(pieces))) < len(pieces) - 1:
            return False
        inner = (span for span in combinations(range(len(pieces) + 1), 2) if 1 < span[1] - span[0] < len(pieces))
        products = ("".join(pieces[start:end]) for start, end in inner)
        return all(
            not self._is_known(product) and product not in self._targets and self._limits.refusal(product) is None
            for product in products
        ) and all(self._may_merge(pair) for pair in left_to_right(pieces))


def left_to_right(pieces: Sequence[str]) -> Iterator[Pair]:
    """The pairs that merge pieces from left to right: ``(p1, p2), (p1p2, p3), ...``."""
    for at in range(1, len(pieces)):
        yield "".join(pieces[:at]), pieces[at]


def completions(
    string: str, unreachable: Mapping[str, tuple[int, int]], is_usable: Callable[[str], bool]
) -> dict[Pair, tuple[int, int]]:
    """The merges by which a new token completes tokens that could not be reached, with the ranks of those.

    ``unreachable`` is what `unreachable_ranks` gives. ``is_usable``: whether a string is a token that may be merged.

    >>> completions("ab", {"abc": (4, 0), "xab": (7, 0)}, lambda part: part in "abc")
    {('ab', 'c'): (4, 0)}
    """
    merges = dict[Pair, tuple[int, int]]()
    for product, rank in unreachable.items():
        pairs = [(string, product[len(string) :])] if product.startswith(string) else []
        pairs += [(product[: -len(string)], string)] if product.endswith(string) else []
        merges |= {pair: rank for pair in pairs if all(part == string or is_usable(part) for part in pair)}
    return merges


def replaced(pieces: Pieces, pair: Pair) -> Pieces:
    """The pieces with a pair merged wherever it occurs, from left to right.

    >>> replaced(("a", "a", "a", "b"), ("a", "a"))
    ('aa', 'a', 'b')
    """
    merged, at = list[str](), 0
    while at < len(pieces):
        is_pair = pieces[at : at + 2] == pair
        merged.append(pair[0] + pair[1] if is_pair else pieces[at])
        at += 2 if is_pair else 1
    return tuple(merged)


def occurrences(pieces: Pieces) -> list[Pair]:
    """The pairs of the pieces. Where a pair of equal pieces overlaps itself, it counts as often as it can be merged.

    >>> occurrences(("a", "a", "a", "b"))
    [('a', 'a'), ('a', 'b')]
    """
    pairs, last = list[Pair](), (-2, ("", ""))
    for at, pair in enumerate(pairwise(pieces)):
        if last != (at - 1, pair):
            pairs.append(pair)
            last = (at, pair)
    return pairs
