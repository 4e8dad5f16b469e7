"""The slow, obvious versions that the core must equal."""

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from math import prod


def merge_all(symbols: list[str], ranks: Mapping[tuple[str, str], int]) -> tuple[list[str], list[tuple[str, str]]]:
    """The symbols after every merge, and the merges in the order they were applied.

    ["a", "b", "c"], {("a", "b"): 0} -> (["ab", "c"], [("a", "b")])
    """
    used = []
    while True:
        places = [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]
        if not places:
            return symbols, used
        _, at = min(places)
        used.append((symbols[at], symbols[at + 1]))
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


def encode(word: str, tokens: Collection[str], merges: Sequence[tuple[str, str]], *, ignore_merges: bool) -> list[str]:
    """A word as a tokenizer with these tokens alone encodes it: merges that make or use another are left out.

    "abc", ["a", "b", "c", "ab"], [("b", "c"), ("a", "b")], ignore_merges=False -> ["ab", "c"]
    """
    if ignore_merges and word in tokens:
        return [word]
    usable = [pair for pair in merges if {*pair, pair[0] + pair[1]} <= set(tokens)]
    return merge_all(list(word), {pair: rank for rank, pair in enumerate(usable)})[0]


def word_pieces(word: str, tokens: Collection[str], longest: int) -> list[str] | None:
    """A word as the longest tokens from left to right, later ones with `##`; None if it is unknown.

    "cats", ["c", "cat", "##s"], 100 -> ["cat", "##s"]
    """
    pieces, start = [], 0
    while start < len(word):
        ends = range(len(word), start, -1)
        found = [end for end in ends if "##" * (start > 0) + word[start:end] in tokens]
        if not found:
            return None
        pieces.append("##" * (start > 0) + word[start : found[0]])
        start = found[0]
    return pieces if len(word) <= longest else None


def best_score(word: str, scores: Mapping[str, float]) -> float:
    """The best sum of scores of all ways to split a word. An unknown character scores 10 less than the lowest."""
    unknown = min(scores.values()) - 10
    if not word:
        return 0.0
    pieces = [(word[:end], scores[word[:end]]) for end in range(1, len(word) + 1) if word[:end] in scores]
    pieces += [(word[0], unknown)] if word[0] not in scores else []
    return max(score + best_score(word[len(piece) :], scores) for piece, score in pieces)


def unreachable(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> list[str]:
    """The tokens of more than one character that do not encode to themselves."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    return [token for token in tokens if len(token) > 1 and merge_all(list(token), ranks)[0] != [token]]


def continued(
    pretokens: Mapping[str, int],
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    n: int,
    *,
    min_count: int = 2,
    ignore_merges: bool = False,
) -> list[tuple[str, str, int, bool]]:
    """Continued BPE training by the book: count all pairs, take the best, encode everything again.

    {"abab": 3}, ["a", "b"], [], 1 -> [("a", "b", 6, True)]
    """
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    known = set(tokens)
    whole = known if ignore_merges else set()
    words = {word: [word] if word in whole else merge_all(list(word), ranks)[0] for word in pretokens}
    learned: list[tuple[str, str, int, bool]] = []
    while sum(new for *_, new in learned) < n:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += pretokens[word]
        frequent = [(-count, pair) for pair, count in pairs.items() if count >= min_count]
        if not frequent:
            return learned
        negative, pair = min(frequent)
        ranks[pair] = len(ranks)
        learned.append((*pair, -negative, pair[0] + pair[1] not in known))
        known.add(pair[0] + pair[1])
        words = {word: merge_all(symbols, ranks)[0] for word, symbols in words.items()}
    return learned


def merge_by_score(symbols: list[str], scores: Mapping[str, float]) -> list[str]:
    """SentencePiece's rule: of all neighbours that make a piece, those that make the best one; leftmost first.

    ["a", "b", "c"], {"a": 0, "b": 0, "c": 0, "bc": -1, "ab": -2} -> ["a", "bc"]
    """
    while True:
        places = [(-scores[a + b], at) for at, (a, b) in enumerate(pairwise(symbols)) if a + b in scores]
        if not places:
            return symbols
        _, at = min(places)
        symbols = [*symbols[:at], symbols[at] + symbols[at + 1], *symbols[at + 2 :]]


def continued_by_score(
    pretokens: Mapping[str, int], scores: Mapping[str, float], n: int, *, min_count: int = 2
) -> list[tuple[str, str, int]]:
    """Continued training under SentencePiece's rule, by the book; every merge makes a new piece.

    Runs of white space merge after all else, `▁` stands at the front of a piece or nowhere, and 16 characters are most.
    """
    known = {piece: score for piece, score in scores.items() if len(piece) == 1 or piece.strip("▁")}
    learned: list[tuple[str, str, int]] = []
    while len(learned) < n:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in pretokens.items():
            for pair in pairwise(merge_by_score(list(word), known)):
                pairs[pair] += count
        frequent = [
            (-count, pair) for pair, count in pairs.items() if count >= min_count and not pair[1].startswith("▁")
        ]
        frequent = [
            (negative, pair)
            for negative, pair in frequent
            if not pair[0].startswith("▁▁") and len(pair[0] + pair[1]) <= 16
        ]
        if not frequent:
            break
        negative, pair = min(frequent)
        learned.append((*pair, -negative))
        known[pair[0] + pair[1]] = min(known.values()) - 1
    return learned


class ByMerges:
    """A model that encodes by ranked merges, and can learn more."""

    def __init__(self, tokens: Collection[str], merges: Sequence[tuple[str, str]], *, ignore_merges: bool = False):
        self.known = set(tokens)
        self.whole = set(tokens) if ignore_merges else set()
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}

    def encode(self, word: str) -> list[str]:
        return [word] if word in self.whole else merge_all(list(word), self.ranks)[0]

    def learn(self, pair: tuple[str, str]) -> bool:
        """Adds a merge; whether it makes a new token."""
        self.ranks[pair] = len(self.ranks)
        new = pair[0] + pair[1] not in self.known
        self.known.add(pair[0] + pair[1])
        return new


class ByScore:
    """A model that encodes by SentencePiece's rule, and can learn more."""

    def __init__(self, scores: Mapping[str, float]):
        self.scores = {piece: score for piece, score in scores.items() if len(piece) == 1 or piece.strip("▁")}

    def encode(self, word: str) -> list[str]:
        return merge_by_score(list(word), self.scores)

    def learn(self, pair: tuple[str, str]) -> bool:
        self.scores[pair[0] + pair[1]] = min(self.scores.values()) - 1
        return True


def may_be_piece(left: str, right: str) -> bool:
    """Whether two pieces may become one, by Llama's rules for letters."""
    return not right.startswith("▁") and not left.startswith("▁▁") and len(left + right) <= 16


def trained(
    texts: Mapping[str, Mapping[str, int]],
    model: ByMerges | ByScore,
    n: int,
    *,
    min_count: int = 2,
    may_merge: Callable[[str, str], bool] = lambda *_: True,
    preserved: Collection[str] = (),
    parallel: tuple[Mapping[str, Mapping[str, int]], Mapping[str, int]] | None = None,
    max_share: Fraction = Fraction(1),
) -> tuple[list[tuple[str, str, int, bool]], list[tuple[str, str, int, int]], list[str]]:
    """Training on several texts with preserved text, by the book: encode everything again before each step.

    Returns the merges, the refused pairs, and the language of every merge.
    """
    measured = parallel[0] if parallel else texts
    start = {name: _n_tokens(model, parallel[1] if parallel else texts[name]) for name in texts}
    merges: list[tuple[str, str, int, bool]] = []
    refused: list[tuple[str, str, int, int]] = []
    languages: list[str] = []
    never: set[tuple[str, str]] = set()
    while sum(new for *_, new in merges) < n:
        vetoed = {pair for word in preserved for pair in pairwise(model.encode(word))}
        share = {name: Fraction(_n_tokens(model, words), start[name]) for name, words in measured.items()}
        full = {name: languages.count(name) + 1 > max_share * (len(languages) + 1) for name in texts}
        best = None
        for name in sorted(texts, key=lambda name: (full[name], -share[name], name)):
            for count, pair in _candidates(model, texts[name], min_count):
                if pair in never:
                    continue
                if may_merge(*pair) and pair not in vetoed:
                    best = best or (name, count, pair)
                    break
                never.add(pair)
                if may_merge(*pair):
                    refused.append((*pair, count, len(merges)))
            if best:
                break
        if not best:
            break
        name, count, pair = best
        merges.append((*pair, count, model.learn(pair)))
        languages.append(name)
    return merges, refused, languages


def _n_tokens(model: ByMerges | ByScore, words: Mapping[str, int]) -> int:
    return sum(count * len(model.encode(word)) for word, count in words.items())


def _candidates(
    model: ByMerges | ByScore, words: Mapping[str, int], min_count: int
) -> Iterator[tuple[int, tuple[str, str]]]:
    """The pairs that occur often enough, most frequent first, equal ones in the order of their strings."""
    pairs: Counter[tuple[str, str]] = Counter()
    for word, count in words.items():
        for pair in pairwise(model.encode(word)):
            pairs[pair] += count
    for negative, pair in sorted((-count, pair) for pair, count in pairs.items() if count >= min_count):
        yield -negative, pair


def expected_count(
    token: str, tokens: Sequence[str], merges: Sequence[tuple[str, str]], counts: Mapping[str, int]
) -> Fraction:
    """How often the pieces of a token would meet by chance: every piece with its uses, and as often as expected."""
    total = max(sum(counts.values()), 1)

    def pieces(token: str) -> list[str]:
        split = _splits(tokens, merges).get(token)
        return [*split] if split else encode(token, [t for t in tokens if t != token], merges, ignore_merges=False)

    def inside(token: str) -> Counter[str]:
        """How often a token has every other in it, at any depth."""
        found = Counter(pieces(token) if len(token) > 1 else [])
        for part, times in list(found.items()):
            for deeper, more in inside(part).items():
                found[deeper] += times * more
        return found

    def rate(token: str) -> Fraction:
        uses = counts.get(token, 0) + sum(count * inside(other)[token] for other, count in counts.items())
        return min(Fraction(uses, total) + (chance(token) if len(token) > 1 else 0), Fraction(1))

    def chance(token: str) -> Fraction:
        return prod((rate(part) for part in pieces(token)), start=Fraction(1))

    return chance(token) * total


def leaf_order(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, str]],
    counts: Mapping[str, int],
    keep: set[str],
    expected: Mapping[str, float] | None = None,
) -> list[tuple[str, int]]:
    """Leaf-frequency pruning by the book: look for the rarest leaf among all that is left, again and again.

    The count of a removed token is added to what its own string is then encoded as. With counts that were taken by
    merges alone this is the paper's Algorithm 1. Tokens with a count of 0 go by what is ``expected``, if that is given.
    """

    def key(token: str) -> tuple[int, float, int]:
        count = counts.get(token, 0)
        return count, expected[token] if expected and not count else 0.0, -tokens.index(token)

    counts, left, order = dict(counts), list(tokens), []
    splits = _splits(tokens, merges)
    while True:
        used = {part for token in left for part in splits.get(token, ())}
        leaves = [token for token in left if token not in used and len(token) > 1 and token not in keep]
        if not leaves:
            return order
        token = min(leaves, key=key)
        count = counts.get(token, 0)
        left.remove(token)
        order.append((token, count))
        for part in encode(token, left, merges, ignore_merges=False):
            counts[part] = counts.get(part, 0) + count


def merge_order(
    tokens: Sequence[str], merges: Sequence[tuple[str, str]], words: Mapping[str, int], *, ignore_merges: bool
) -> list[tuple[str, int]]:
    """The paper's Algorithm 2 by the book, under merge skipping too: count all uses anew before each removal.

    A word that is an unreachable token uses that token alone while it is there; all others are counted by the merges
    of the whole tokenizer. Once the token is removed, its word is counted by the merges that were left then.
    """
    left, order = list(tokens), []
    uses = {}
    for word in words:
        uses[word] = [word] if ignore_merges and word in unreachable(tokens, merges) else _uses(word, tokens, merges)
    while True:
        total = Counter({token: 0 for token in left if len(token) > 1})
        for word, used in uses.items():
            total.update({token: times * words[word] for token, times in Counter(used).items()})
        candidates = [token for token in left if len(token) > 1]
        if not candidates:
            return order
        token = min(candidates, key=lambda token: (total[token], -len(token), -tokens.index(token)))
        left.remove(token)
        order.append((token, total[token]))
        if uses.get(token) == [token]:
            uses[token] = _uses(token, left, merges)


def _uses(word: str, tokens: Collection[str], merges: Sequence[tuple[str, str]]) -> list[str]:
    """The tokens of a word by merges, and every token that was merged into another on the way."""
    usable = [pair for pair in merges if {*pair, pair[0] + pair[1]} <= set(tokens)]
    final, used = merge_all(list(word), {pair: rank for rank, pair in enumerate(usable)})
    return [*final, *(part for pair in used for part in pair)]


def _splits(tokens: Sequence[str], merges: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """The last merge of every token that encodes to itself."""
    ranks = {pair: rank for rank, pair in enumerate(merges)}
    encoded = {token: merge_all(list(token), ranks) for token in tokens}
    return {token: used[-1] for token, (left, used) in encoded.items() if left == [token] and used}


WHITE_SPACE = "".join(map(chr, [*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)])) + (
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode's White_Space, without the separators of ASCII that `str.strip` adds."""


def document_hash(text: str) -> int:
    """The hash that decides which documents are held out, by the book."""
    raw = text.encode()
    words = [int.from_bytes(raw[at : at + 8].ljust(8, b"\0"), "little") for at in range(0, len(raw) + 1, 8)]
    state = 0xD1B54A32D192ED03
    for word in [*words, len(raw)]:
        product = (state ^ word) * 0x9E3779B97F4A7C15
        state = product % 2**64 ^ product >> 64
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        state = (state ^ state >> 33) * multiplier % 2**64
    return state ^ state >> 33


def pieces(text: str, longest: int) -> Iterator[str]:
    """The pieces of a document, cut between a letter or number and the space after it.

    A piece ends at the last cut in its first ``longest`` bytes, or else twice as many, and so on.
    """
    raw, size = text.encode(), longest
    while size < len(raw):
        head = raw[:size].decode(errors="ignore")
        ends = (at for at in range(1, len(head)) if head[at] in " \n" and unicodedata.category(head[at - 1])[0] in "LN")
        cut = len(head[: max(ends, default=0)].encode())
        if cut:
            yield raw[:cut].decode()
        raw, size = raw[cut:], longest if cut else 2 * size
    yield raw.decode()


def hold_out(documents: Sequence[str], one_in: int, max_bytes: int) -> tuple[list[str], list[str], int]:
    """The texts that are held out, in the order of their hashes, those that are counted, and the documents held out.

    Texts are documents, or pieces of those that have more than 8 kB or an eighth of the bytes. Eligible are distinct
    texts that are not blank, have at most an eighth of the bytes, and whose hash is a multiple of ``one_in``; held out
    is the longest prefix of them, by (hash, text), that fits. If none is eligible, it is the first of the others.
    """
    longest = min(max(max_bytes // 8, 1), 8192)
    texts = [(piece, place == 0) for text in documents for place, piece in enumerate(pieces(text, longest))]
    short = {text for text, _ in texts if text.strip(WHITE_SPACE) and len(text.encode()) <= max_bytes // 8}
    in_order = sorted(short, key=lambda text: (document_hash(text), text.encode()))
    held_out, size = [], 0
    for text in [text for text in in_order if document_hash(text) % one_in == 0] or in_order[:1]:
        size += len(text.encode())
        if size > max_bytes:
            break
        held_out.append(text)
    counted = [text for text, _ in texts if text not in held_out]
    return held_out, counted, sum(begins for text, begins in texts if text in held_out)
