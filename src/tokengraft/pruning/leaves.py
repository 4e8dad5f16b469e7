"""Orders that remove a token before the tokens it is built from."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from tokengraft.tokenizer.tokenizer import Tokenizer

MoreUses = Callable[[int], Mapping[int, int]]
"""Uses of tokens that begin when a token is removed."""


def by_frequency(
    tokenizer: Tokenizer,
    candidates: Iterable[int],
    counts: Mapping[int, int],
    expected: Mapping[int, float] | None = None,
) -> list[tuple[int, int]]:
    """Leaves by count, rarest first, equal ones by id, highest first, each with its count. The paper's Algorithm 1.

    When a token is removed, its count is added to the tokens that its text is then encoded as: to its two parts, or,
    for a token that merges cannot make, to what is left to encode it. Tokens with a count of 0 go by how often they are
    ``expected``, if that is given.
    """
    return tokenizer.core_model.leaf_order([*candidates], [*counts.items()], [*(expected or {}).items()])


def by_id(tokenizer: Tokenizer, candidates: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Leaves by id, highest first; a token that becomes a leaf is taken in its turn."""
    return ((token, token) for token, _ in by_frequency(tokenizer, candidates, {}))


def by_uses(
    lengths: Mapping[int, int], candidates: Collection[int], uses: Mapping[int, int], more: MoreUses = lambda _: {}
) -> Iterator[tuple[int, int]]:
    """Tokens by uses, rarest first, equal ones by length, longest first, then by id. The paper's Algorithm 2.

    A token is used where it is in the result and where it is merged into another, so its parts have at least as many
    uses as it has, and it is removed before them. ``more`` gives what must be counted once a token is removed. It may
    raise the uses of others: a token whose uses have risen since it was queued is queued again.

    >>> list(by_uses({1: 1, 2: 1, 3: 2, 4: 3}, {3, 4}, {1: 9, 2: 7, 3: 7, 4: 2}))
    [(4, 2), (3, 7)]
    """
    total = Counter(uses)
    queue = [(total[token], -lengths[token], -token) for token in candidates]
    heapify(queue)
    while queue:
        queued, length, negative = heappop(queue)
        current = total[-negative]
        if current != queued:
            heappush(queue, (current, length, negative))
            continue
        yield -negative, current
        total.update(more(-negative))
