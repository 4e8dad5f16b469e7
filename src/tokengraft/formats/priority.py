"""The order in which the tokens of a tokenizer merge, for formats in which a number of the token decides it."""

from collections.abc import Collection

from tokengraft.tokenizer.tokenizer import Tokenizer


def by_priority(tokenizer: Tokenizer, others: Collection[str]) -> list[str]:
    """Tokens in the order in which they merge, single characters first, without ``others``.

    A token that merges do not make stays behind the one before it.
    """
    places = {pair: place for place, pair in enumerate(tokenizer.merges)}
    splits, keys, last = tokenizer.structure.splits, dict[str, tuple[int, int]](), -1
    for token in tokenizer.tokens:
        if token.string not in others:
            last = places[splits[token.id]] if token.id in splits else last
            keys[token.string] = (-1 if len(token.string) == 1 else last, token.id)
    return sorted(keys, key=keys.__getitem__)
