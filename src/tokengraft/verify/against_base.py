"""Checks of an edit: which tokens, ids and merges must be the same as in the base."""

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.formats.agreement import most_in_order
from tokengraft.tokenizer.added import FLAGS
from tokengraft.tokenizer.kind import SPACE
from tokengraft.tokenizer.known_tokens import RESERVED
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify.finding import EVIDENCE, Finding, finding, note

Pair = tuple[str, str]
PRESERVED = "preserved text"


def added_reachable(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether merges can produce every new token."""
    new = tokenizer.ids.keys() - base.ids.keys()
    wrong = [string for string in map(tokenizer.strings.__getitem__, tokenizer.unreachable) if string in new]
    return finding("added tokens reachable", wrong, f"all of {len(new):,} new tokens", "{n} new tokens are unreachable")


def specials(tokenizer: Tokenizer, base: Tokenizer) -> Finding:
    """Whether the added tokens of the base are still there, with the same flags. Reserved ones may be removed.

    An added token is split out of the text before BPE, also inside a word. So a learned token of the base that is an
    added one now changes segmentation, and is a failure. A new text is a note: nothing else is split differently.
    """
    before, after = ({token.content: token for token in t.added} for t in (base, tokenizer))
    # Other formats have no flag for what the pipeline does anyway; that added tokens are found in text is verified.
    flags = [flag for flag in FLAGS if flag != "normalized" or tokenizer.main == base.main]
    wrong, reserved = [], []
    for content, token in before.items():
        changed = [flag for flag in flags if content in after and getattr(after[content], flag) != getattr(token, flag)]
        if content not in tokenizer.ids and RESERVED.fullmatch(content):
            reserved.append(repr(content))
        elif content not in after:
            wrong.append(f"{content!r} {'is not added now' if content in tokenizer.ids else 'was removed'}")
        elif changed:
            values = (f"{flag} {getattr(token, flag)} → {getattr(after[content], flag)}" for flag in changed)
            wrong.append(f"{content!r}: {', '.join(values)}")
    new = [content for content in after if content not in before]
    wrong += [f"{c!r}, a learned token of the base, is an added token now" for c in new if c in base.ids]
    if (reserved or new) and not wrong:
        told = [f"{len(new):,} are new, and found in all text"] * bool(new)
        told += [f"{len(reserved):,} reserved ones were removed{' or renamed' * bool(new)}"] * bool(reserved)
        return note("special tokens", f"{', '.join(told)}, all others are the same", [*map(repr, new), *reserved])
    return finding("special tokens", wrong, f"all {len(before):,} added tokens", "{n} were removed, added or changed")


def places_of(ids: np.ndarray, some: np.ndarray) -> np.ndarray:
    """The places of some ids among all ids, which ascend. Where there are no holes, an id is its place.

    >>> places_of(np.array([0, 1, 5]), np.array([5, 0])).tolist(), places_of(np.arange(3), np.array([2, 0])).tolist()
    ([2, 0], [2, 0])
    """
    is_dense = len(ids) > 0 and ids[-1] == len(ids) - 1
    return some.astype(np.int64) if is_dense else np.searchsorted(ids, some)


class Applied:
    """The merges of a tokenizer that apply, in order: for each token that merges make, the one that makes it.

    There are a quarter of a million, so they stay numbers until somebody asks for a string.
    """

    def __init__(self, tokenizer: Tokenizer, ids: bytes, numbers: bytes) -> None:
        self._string_of, self._id_of = tokenizer.core_vocabulary.string_of, tokenizer.core_vocabulary.id_of
        self.rows = np.frombuffer(tokenizer.core_model.applied(), "<u4").reshape(-1, 3)
        """The ids of product, left and right part of each."""
        places = places_of(np.frombuffer(ids, "<u4"), self.rows)
        self.numbers = np.frombuffer(numbers, "<u4").astype(np.int64)[places]
        """The same as numbers that a token has in both tokenizers."""

    def products(self, places: Iterable[int]) -> list[str]:
        """The tokens that some of the merges make."""
        return [self._string(i) for i in self.rows[[*places], 0].tolist()]

    def pair(self, place: int) -> Pair:
        """The strings of a merge."""
        _, left, right = self.rows[place].tolist()
        return self._string(left), self._string(right)

    def merge_of(self, token: str) -> Pair | None:
        """The merge that makes a token; None if none does."""
        token_id = self._id_of(token)
        if token_id is None:
            return None
        ids, places = self._by_product
        at = int(np.searchsorted(ids, token_id))
        return self.pair(places[at]) if at < len(ids) and ids[at] == token_id else None

    @cached_property
    def _by_product(self) -> tuple[np.ndarray, np.ndarray]:
        """The ids of the tokens that merges make, sorted, and the place of the merge of each."""
        places = np.argsort(self.rows[:, 0])
        return self.rows[places, 0], places

    @cached_property
    def pairs(self) -> dict[str, Pair]:
        """All of them by the token that they make."""
        product, left, right = (map(self._string, column.tolist()) for column in self.rows.T)
        return dict(zip(product, zip(left, right, strict=True), strict=True))

    def _string(self, token_id: int) -> str:
        return self._string_of(token_id) or ""


@dataclass(frozen=True)
class Learned:
    """Which tokens were learned, derived from the merges that apply.

    The merge that makes a token is the same in every text (see docs/architecture.md), and all other merges that are
    listed for it never apply. An edit keeps the order of the merges of kept tokens and places learned merges after
    them, except that SentencePiece types merge runs of white space last. So if the merge of a token of the base follows
    a learned one, the token was removed and learned again, or its merge was moved.
    """

    before: Applied
    """The merges of the base."""
    after: Applied
    """Those of the tokenizer."""
    tokens: list[str]
    """The learned tokens in order, new ones and those of the base."""
    again: list[str]
    """The tokens of the base that were learned again."""
    start: int
    """The number of merges before the first learned one."""


def learned(tokenizer: Tokenizer, base: Tokenizer) -> Learned:
    """The tokens that were learned."""
    columns = tokenizer.core_vocabulary.numbered([], base.core_vocabulary, [])
    before, after = Applied(base, *columns[1]), Applied(tokenizer, *columns[0])
    ranks, products = _places(after.numbers[:, 1:], before.numbers[:, 1:]), after.numbers[:, 0]
    is_again = np.isin(products, before.numbers[:, 0])
    # An added token may be listed in one of the two vocabularies alone.
    is_new = products >= len(base.core_vocabulary)
    is_new[is_new] = [string not in base.ids for string in after.products(is_new.nonzero()[0])]
    highest = np.maximum.accumulate(np.concatenate([[-1], ranks]))
    # A token that merges could not make before gets its merge by its priority, perhaps among the kept ones.
    first = (is_new | ((ranks < 0) & is_again) | ((ranks >= 0) & (ranks < highest[:-1]))).nonzero()[0]
    start, end, following = int(first[0]) if len(first) else len(products), len(products), len(before.rows)
    while end > start and highest[start] < ranks[end - 1] < following:
        if after.products([end - 1])[0].strip(SPACE):
            break
        end, following = end - 1, ranks[end - 1]
    places = start + (is_new | is_again)[start:end].nonzero()[0]
    return Learned(before, after, after.products(places), after.products(places[is_again[places]]), start)


def _places(pairs: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Where each pair of numbers is among known ones; -1 for those that are not.

    >>> _places(np.array([[1, 2], [5, 1], [3, 4]]), np.array([[3, 4], [1, 2]])).tolist()
    [1, -1, 0]
    """
    wanted, keys = (rows[:, 0] << 32 | rows[:, 1] for rows in (pairs, known))
    keys = np.append(keys, -1)  # equal to none, and there may be no others
    order = np.argsort(keys)
    places = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
    return np.where(keys[places] == wanted, places, -1)


def merges(tokenizer: Tokenizer, base: Tokenizer, found: Learned) -> Finding:
    """Whether kept tokens are made by the same merges, in the order of the base and before all learned ones.

    If tokens were both removed and learned, some may have been learned again. These are a note, if they are no more
    than the tokens that were removed and added: beyond that, merges were moved. Merges that never apply are a note.
    """
    new, removed = len(tokenizer.ids.keys() - base.ids.keys()), len(base.ids.keys() - tokenizer.ids.keys())
    added = {token.content for token in tokenizer.added}
    before, after = found.before, found.after
    gone = (~np.isin(before.numbers[:, 0], after.numbers[:, 0])).nonzero()[0].tolist()
    lost = [(place, s) for place, s in zip(gone, before.products(gone), strict=True) if s in tokenizer.ids]
    wrong = [f"{before.pair(place)} no longer makes {string!r}" for place, string in lost if string not in added]
    if not new or not removed or len(found.again) > new + removed:
        wrong += _moved(found)
    more, fewer, moved = _listed(tokenizer, base, {*found.again})
    notes = [f"{string!r} was removed and learned again" for string in found.again]
    made = (~np.isin(after.numbers[:, 0], before.numbers[:, 0])).nonzero()[0].tolist()
    for place, string in zip(made, after.products(made), strict=True):
        if string in base.ids:
            pair = after.pair(place)
            explained = pair not in moved and bool(found.tokens or (removed and pair not in more))
            (notes if explained else wrong).append(f"{pair} makes {string!r}, which no merge of the base makes")
    if wrong:
        return finding("merges", wrong, "", "{n} are missing, new or out of order")
    for pairs, how in ((more, "is new"), (fewer, "is gone"), (moved, "was moved")):
        never = (pair for pair in pairs if pair not in [each.merge_of("".join(pair)) for each in (after, before)])
        notes += [f"{pair}, which never applies, {how}" for pair in never]
    if notes:
        return note("merges", f"{len(notes):,} differences that an edit explains", notes)
    return Finding("merges", "pass", "unchanged, with learned merges after them")


def _moved(found: Learned) -> list[str]:
    """The merges that are not those of the base or not in its order: as few as explain the difference."""
    before, after = found.before.pairs, found.after.pairs
    ranks = {pair: rank for rank, pair in enumerate(before.values())}
    in_order = {*most_in_order([pair for pair in after.values() if pair in ranks], ranks)}
    out = [s for s in after if s in before and after[s] not in in_order] or found.again
    return [
        f"{after[string]} is out of order"
        if after[string] == before[string]
        else f"{string!r} is made of {after[string]}, in the base of {before[string]}"
        for string in out
    ]


def _listed(tokenizer: Tokenizer, base: Tokenizer, again: set[str]) -> tuple[set[Pair], set[Pair], set[Pair]]:
    """Merges of kept tokens that are listed in one of the two alone, and those that are listed in another order."""
    ids, vocabulary = tokenizer.ids, tokenizer.core_vocabulary
    more, lacking, in_order = vocabulary.merge_difference(base.core_vocabulary, [*again])
    # A rank file and a SentencePiece model list no merges: every pair that makes a token merges.
    implies = tokenizer.main in (tokenizer.rank_file, tokenizer.piece_file)
    known = (pair for pair in more if "".join(pair) in base.ids and "".join(pair) not in again)
    kept = (pair for pair in lacking if again.isdisjoint((*pair, "".join(pair))))
    fewer = {pair for pair in kept if pair[0] in ids and pair[1] in ids and "".join(pair) in ids}
    moved = set[Pair]()
    if not in_order:
        ranks = {pair: rank for rank, pair in enumerate(base.merge_strings())}
        listed = (pair for pair in tokenizer.merge_strings() if pair in ranks)
        shared = [pair for pair in listed if again.isdisjoint((*pair, "".join(pair)))]
        moved = {*shared} - {*most_in_order(shared, ranks)}
    return set() if implies else {*known}, fewer, moved


def kept_ids(tokenizer: Tokenizer, base: Tokenizer, found: Learned) -> Finding:
    """Whether kept tokens have the same ids. A token that was removed and learned again may have any id."""
    was, n_kept = map(base.ids.get, tokenizer.ids), sum(map(base.ids.__contains__, tokenizer.ids))
    if sum(map(operator.eq, was, tokenizer.ids.values())) == n_kept:
        return Finding("kept ids", "pass", f"{n_kept:,} kept tokens have the same ids")
    both = [(base.ids[string], after, string) for string, after in tokenizer.ids.items() if string in base.ids]
    again = _with_new_ids(tokenizer, base, found)
    both.sort()
    kept = [(before, after) for before, after, string in both if string not in again]
    moved = [f"{before} → {after}" for before, after in kept if before != after]
    if not moved:
        detail = f"{len(kept):,} kept tokens have the same ids; {len(again):,} were removed and learned again"
        return note("kept ids", detail, sorted(again))
    in_order = all(a < b for (_, a), (_, b) in pairwise(kept)) and all(after <= before for before, after in kept)
    if in_order and len(tokenizer.ids) == tokenizer.n_rows:
        return note("kept ids", f"renumbered in order without holes, {len(moved):,} changed", moved)
    return finding("kept ids", moved, "", "{n} kept tokens have other ids")


def _with_new_ids(tokenizer: Tokenizer, base: Tokenizer, found: Learned) -> set[str]:
    """Tokens of the base that were learned again and may have another id.

    Learned tokens take free ids in ascending order. If theirs do not ascend, the ids are wrong, and the result is
    empty. Added tokens and the alphabet are not learned.
    """
    tokens = list(found.tokens)
    # subtle: the first ones learned again may still be in the order of the base. New ids ascend in the order of
    # learning, so a token with a changed id right before a learned one with a higher id was learned too.
    for place in reversed(range(found.start if tokens else 0)):
        [string] = found.after.products([place])
        if tokenizer.ids[string] == base.ids[string] or tokenizer.ids[string] >= tokenizer.ids[tokens[0]]:
            break
        tokens.insert(0, string)
    given = [tokenizer.ids[string] for string in tokens if base.ids.get(string) != tokenizer.ids[string]]
    if any(a > b for a, b in pairwise(given)):
        return set()
    return {string for string in tokens if string in base.ids} - {token.content for token in base.added}


def scored_again(tokenizer: Tokenizer, base: Tokenizer) -> list[str]:
    """Tokens of a Unigram base with other scores: removed and learned again, if an edit can explain so many."""
    new, removed = tokenizer.ids.keys() - base.ids.keys(), base.ids.keys() - tokenizer.ids.keys()
    rescored = [string for string, score in tokenizer.scores.items() if base.scores.get(string, score) != score]
    return rescored if new and removed and len(rescored) <= len(new) + len(removed) else []


def preserved(tokenizer: Tokenizer, base: Tokenizer, counts: PretokenCounts) -> Finding:
    """Whether every counted pretoken is encoded to the tokens and ids that it had."""
    changed = counts.changed(base, tokenizer)
    if len(changed):
        occurrences, total = changed.table.total(), max(counts.table.total(), 1)
        shown = (f"{text.decode(errors='replace')!r}, {count:,} times" for text, count in changed.top(EVIDENCE))
        detail = f"{len(changed):,} of {len(counts):,} distinct pretokens ({occurrences / total:.2%} of all) have other"
        return Finding(PRESERVED, "fail", f"{detail} tokens", tuple(shown))
    same = f"all {len(counts):,} distinct pretokens have the same"
    moved = [base.strings[i] for i in counts.tokens(base) if tokenizer.ids[base.strings[i]] != i]
    if moved:
        return note(PRESERVED, f"{same} tokens; {len(moved):,} of these have other ids", moved)
    return Finding(PRESERVED, "pass", f"{same} ids")
