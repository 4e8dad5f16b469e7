"""`prune_curve`: what it costs to remove more or fewer tokens, on held-out text, and what it saves."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.progress import stage
from tokengraft.pruning.order import PruneOrder
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.tokenizer import Tokenizer

PARTS = 8
"""The curve has the sizes at which the order is divided into so many equal parts, and the chosen size."""


class PrunePoint(NamedTuple):
    """A number of tokens to remove."""

    removed: int
    cost: Mapping[str, float]
    """For every held-out text, the relative increase of its tokens."""
    rows: int
    """Embedding rows that are left."""
    parameters: int | None
    """Parameters that are saved; None if the model is unknown."""
    bytes: int | None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return self._asdict() | {"cost": dict(self.cost)}


@stage("measuring sizes")
def prune_curve(
    tokenizer: Tokenizer,
    order: PruneOrder,
    chosen: int,
    texts: Mapping[str, PretokenCounts],
    *,
    left: Callable[[int], tuple[int, int, int]] | None = None,
    compact: bool = True,
) -> tuple[PrunePoint, ...]:
    """The tokens of every text at about eight sizes along an order, one of them ``chosen``.

    ``left`` gives, for the rows that tokens need, the rows of the model, and the parameters and bytes saved. A
    text with an added token that is removed is refused: its tokens cannot be counted then. So sizes that remove
    another one are left out.
    """
    used = {token for counts in texts.values() for token, count in counts.added.items() if count}
    most = next((place for place, token in enumerate(order.tokens) if token in used), len(order))
    if most < chosen:
        raise OptionError(
            f"the held-out text has the added token {order.tokens[most]!r}, which is removed",
            hint="leave that text out, or make the order with it",
        )
    sizes = sorted({chosen, *(len(order) * part // PARTS for part in range(1, PARTS))} - {0})
    sizes = [size for size in sizes if size <= most]
    before = {name: sum(counts.tokens(tokenizer).values()) for name, counts in texts.items()}
    if empty := [name for name, tokens in before.items() if not tokens]:
        raise OptionError(f"the held-out text {empty[0]!r} has no tokens", hint="pass other text, or leave it out")

    def point(size: int) -> PrunePoint:
        pruned = _pruned(tokenizer, order[:size])
        after = {name: sum(counts.tokens(pruned).values()) for name, counts in texts.items()}
        ids = set(tokenizer.ids.values()) - {removal.id for removal in order.removals[:size]}
        cost = FrozenDict({name: after[name] / before[name] - 1 for name in texts})
        rows = len(ids) if compact else max(ids) + 1
        return PrunePoint(size, cost, *(left(rows) if left else (rows, None, None)))

    return tuple(map(point, sizes))


def _pruned(tokenizer: Tokenizer, order: PruneOrder) -> Tokenizer:
    """The pruned tokenizer for encoding counts. Its files are not rewritten, which would take most of the time."""
    if tokenizer.main in (tokenizer.rank_file, tokenizer.piece_file):  # the merges follow from the file
        return order.apply(tokenizer)
    gone = set(order.tokens)
    ids = {token: token_id for token, token_id in tokenizer.ids.items() if token not in gone}
    return replace(tokenizer, core_vocabulary=tokenizer.core_vocabulary.edited(ids, []))
