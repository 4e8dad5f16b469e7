"""Orders that remove a token before the tokens it is built from. No kept token becomes unreachable."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

Splits = Mapping[int, tuple[int, int]]
Respell = Callable[[int, Collection[int]], Iterable[int]]
"""The tokens that the text of a token without a split is encoded as, once it and others are removed."""
MoreUses = Callable[[int, Collection[int]], Mapping[int, int]]
"""Uses of tokens that begin when a token is removed."""


def by_frequency(
    splits: Splits, candidates: Collection[int], counts: Mapping[int, int], respell: Respell = lambda *_: ()
) -> Iterator[tuple[int, int]]:
    """Leaves by count, rarest first, equal ones by id, highest first. The paper's Algorithm 1.

    When a token is removed, its count is added to the tokens that its text is then encoded as: to its two parts, or,
    for a token that merges cannot make, to what ``respell`` gives.

    >>> list(by_frequency({3: (1, 2), 4: (3, 1)}, {3, 4}, {3: 5, 4: 2}))
    [(4, 2), (3, 7)]
    """
    flowing, removed = Counter(counts), set[int]()

    def flow(token: int) -> None:
        removed.add(token)
        if flowing[token]:
            for part in splits.get(token) or respell(token, removed):
                flowing[part] += flowing[token]

    return _leaves(splits, candidates, lambda token: flowing[token], flow)


def by_uses(
    lengths: Mapping[int, int], candidates: Collection[int], uses: Mapping[int, int], more: MoreUses = lambda *_: {}
) -> Iterator[tuple[int, int]]:
    """Tokens by uses, rarest first, equal ones by length, longest first, then by id. The paper's Algorithm 2.

    A token is used where it is in the result and where it is merged into another, so its parts have at least as many
    uses as it has, and it is removed before them. ``more`` gives what must be counted once a token is removed.

    >>> list(by_uses({1: 1, 2: 1, 3: 2, 4: 3}, {3, 4}, {1: 9, 2: 7, 3: 7, 4: 2}))
    [(4, 2), (3, 7)]
    """
    total, removed = Counter(uses), set[int]()

    def remove(token: int) -> Iterable[int]:
        removed.add(token)
        total.update(more(token, removed))
        return ()

    order = _rarest_first(candidates, lambda token: (total[token], -lengths[token]), remove)
    return ((token, count) for token, (count, _) in order)


def by_id(splits: Splits, candidates: Collection[int]) -> Iterator[tuple[int, int]]:
    """Leaves by id, highest first; a token that becomes a leaf is taken in its turn.

    >>> list(by_id({3: (1, 2), 4: (3, 1), 9: (3, 2)}, {3, 4, 9}))
    [(9, 9), (4, 4), (3, 3)]
    """
    return ((token, token) for token, _ in _leaves(splits, candidates, lambda _: 0, lambda _: None))


def _leaves(
    splits: Splits, candidates: Collection[int], count: Callable[[int], int], removed: Callable[[int], None]
) -> Iterator[tuple[int, int]]:
    """Candidates as they become leaves, by count, then by highest id; ``removed`` is called for each."""
    users = Counter(part for parts in splits.values() for part in parts)

    def remove(token: int) -> Iterator[int]:
        removed(token)
        for part in splits.get(token, ()):
            users[part] -= 1
            if not users[part] and part in candidates:
                yield part

    order = _rarest_first((token for token in candidates if not users[token]), lambda token: (count(token), 0), remove)
    return ((token, decided_by) for token, (decided_by, _) in order)


def _rarest_first(
    tokens: Iterable[int], key: Callable[[int], tuple[int, int]], remove: Callable[[int], Iterable[int]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Tokens by key, smallest first, equal ones by highest id, each with its key.

    ``remove`` gives the tokens that become available by removing one. It may raise the keys of others, and must lower
    none: a token whose key has risen since it was queued is queued again.
    """
    queue = [(key(token), -token) for token in tokens]
    heapify(queue)
    while queue:
        queued, negative = heappop(queue)
        current = key(-negative)
        if current != queued:
            heappush(queue, (current, negative))
            continue
        yield -negative, current
        for token in remove(-negative):
            heappush(queue, (key(token), -token))
