"""How often tokens that do not occur in a text are expected in other text of the same kind.

A token is expected as often as its two parts would meet by chance, and so are parts that do not occur themselves. So a
token with a character that the text lacks is not expected at all.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from tokengraft.pruning.leaves import RemainingMerges
from tokengraft.tokenizer.tokenizer import Tokenizer

POWER, OFFSET = 0.25, 1000
"""Chosen by held-out text (`lab/prune_orders.py`): with the expected count alone, English loses words that its own
tokenizer lists early; with the id alone, other languages lose most of their unseen words."""


def usefulness(tokenizer: Tokenizer, counts: Mapping[int, int]) -> dict[int, float]:
    """How useful tokens are expected to be that do not occur in a text: by their parts, and by their ids.

    A low id says that a token was frequent in the text that the tokenizer was trained on.
    """
    return {token: expected**POWER / (token + OFFSET) for token, expected in expected_counts(tokenizer, counts).items()}


def expected_counts(tokenizer: Tokenizer, counts: Mapping[int, int]) -> dict[int, float]:
    """How often tokens are expected, given how often each token occurs in a text.

    In a text of n tokens, ``ab`` is expected ``a * b / n`` times. Here ``a`` is how often that token is in the text, by
    itself or inside another, plus how often it is expected. A token that merges cannot make is expected by the pieces
    that merges make of it; one of a model without merges by what its string is split into without it.
    """
    lengths = {token.id: len(token.bytes) for token in tokenizer.tokens}
    parts = _parts(tokenizer)
    shortest_first = sorted(parts, key=lambda token: (lengths[token], token))
    uses = Counter(counts)
    for token in reversed(shortest_first):
        if uses[token]:
            for part in parts[token]:
                uses[part] += uses[token]
    total = max(sum(counts.values()), 1)
    rates = {token: min(count / total, 1.0) for token, count in uses.items()}
    expected = dict[int, float]()
    for token in shortest_first:
        rate = 1.0
        for part in parts[token]:
            rate *= rates.get(part, 0.0)
        expected[token] = rate * total
        rates[token] = min(rates.get(token, 0.0) + rate, 1.0)
    return expected


def _parts(tokenizer: Tokenizer) -> Mapping[int, Iterable[int]]:
    """What every token is made of."""
    if tokenizer.algorithm != "BPE":
        return dict(tokenizer.core_model.parts())
    splits, merges = tokenizer.structure.splits, RemainingMerges(tokenizer)
    return {**splits} | {i: merges.encode(i, ()).tokens for i in tokenizer.structure.unreachable if i not in splits}
