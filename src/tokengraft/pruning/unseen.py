"""`unseen_cost`: how many more tokens text is expected to need that is like a counted one and was not counted."""

from collections.abc import Mapping
from math import prod

from tokengraft.pruning.methods import Expected, parts_of, usefulness_of
from tokengraft.pruning.order import PruneOrder
from tokengraft.tokenizer.tokenizer import Tokenizer

MUCH = 0.005
"""Above this share there is a warning."""
BURST = 2
"""How often a rare token occurs in a document that has it, about. Chosen by English text, where the measured increase
is 1.9 to 2.4 times the estimate without this factor. Elsewhere it is too small: 2.6 to 2.9 for medical text, 4 for
Russian, 2.1 to 8 for German, all with increases below 0.3 %."""


def unseen_cost(
    tokenizer: Tokenizer, order: PruneOrder, n: int, mixed: Mapping[int, int], kept: Mapping[int, int], factor: int
) -> float:
    """The expected increase of tokens in other text like ``kept``, if the first n tokens of an order are removed.

    Each occurrence of a token in the kept text is left out in turn, as in the estimate of Good and Turing: if the token
    would then be removed, other text is expected to lose it as often, times `BURST`, and to have two tokens instead.
    SmolLM2 with 1.7 MB of English kept, and 4,000 and 8,000 tokens removed: 0.44 % and 1.08 % are expected, and other
    English needs 0.44 % and 1.01 % more (`BURST` was chosen by this text); FLORES 0.55 % and 1.40 %.

    Args:
        tokenizer: The tokenizer.
        order: All tokens that may be removed, by `leaf-expected`.
        n: How many are removed.
        mixed: How often each token occurs in the counts that the order was made from.
        kept: How often each token occurs in the kept text, which is a part of these counts.
        factor: What the counts of the kept text are multiplied by in them.
    """
    gone = {removal.id for removal in order.removals[:n]}
    (expected, uses), parts, total = Expected.of(tokenizer, mixed), parts_of(tokenizer), max(sum(mixed.values()), 1)
    # All leaves below these limits are removed: an order takes the rarest leaf.
    most = max((removal.decided_by for removal in order.removals[:n]), default=0)
    unseen = (token for token in gone if not mixed.get(token))
    most_useful = max((usefulness_of(token, expected.get(token, 0.0)) for token in unseen), default=0.0)
    splits = tokenizer.structure.splits
    built_from = {part for token, pair in splits.items() if token not in gone for part in pair}
    leaves = {removal.id for removal in order.removals[n:]} - built_from

    def is_lost(token: int) -> bool:
        left = mixed[token] - factor
        if left or most:
            return left < most
        rates = ((uses.get(part, 0) - factor + expected.get(part, 0.0)) / total for part in parts.get(token, ()))
        return usefulness_of(token, total * prod(rates)) < most_useful

    removed = sum(count for token, count in kept.items() if token in gone)
    unlucky = sum(count for token, count in kept.items() if token in leaves and is_lost(token))
    return (removed + BURST * unlucky) / max(sum(kept.values()), 1)
