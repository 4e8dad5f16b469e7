"""Orders that take leaves only: tokens that no kept token is built from. Nothing kept becomes unreachable."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from heapq import heapify, heappop, heappush

Splits = Mapping[int, tuple[int, int]]


def by_frequency(splits: Splits, candidates: Collection[int], counts: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """Leaves by count, rarest first, equal ones by id, highest first. The paper's Algorithm 1.

    When a token goes, its occurrences become occurrences of its two parts.

    >>> list(by_frequency({3: (1, 2), 4: (3, 1)}, {3, 4}, {3: 5, 4: 2}))
    [(4, 2), (3, 7)]
    """
    flowing = Counter(counts)

    def flow(token: int) -> None:
        for part in splits.get(token, ()):
            flowing[part] += flowing[token]

    return _leaves(splits, candidates, lambda token: flowing[token], flow)


def by_id(splits: Splits, candidates: Collection[int]) -> Iterator[tuple[int, int]]:
    """Leaves by id, highest first; a token that becomes one waits for its turn among those that are.

    >>> list(by_id({3: (1, 2), 4: (3, 1), 9: (3, 2)}, {3, 4, 9}))
    [(9, 9), (4, 4), (3, 3)]
    """
    return ((token, token) for token, _ in _leaves(splits, candidates, lambda _: 0, lambda _: None))


def _leaves(
    splits: Splits,
    candidates: Collection[int],
    count: Callable[[int], int],
    leaves: Callable[[int], None],
) -> Iterator[tuple[int, int]]:
    """Candidates as they become leaves, by count, then by highest id, each with its count; ``leaves`` is told of it."""
    users = Counter(part for parts in splits.values() for part in parts)
    queue = [(count(token), -token) for token in candidates if not users[token]]
    heapify(queue)
    while queue:
        decided_by, negative = heappop(queue)
        token = -negative
        yield token, decided_by
        leaves(token)
        for part in splits.get(token, ()):
            users[part] -= 1
            if not users[part] and part in candidates:
                heappush(queue, (count(part), -part))
