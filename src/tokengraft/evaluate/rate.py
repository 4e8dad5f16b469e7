"""`rate_on`: bytes per token of one text with many tokenizers."""

from collections.abc import Callable, Mapping

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.evaluate.metrics import share
from tokengraft.evaluate.segments import Text, lost_bytes, token_totals
from tokengraft.tokenizer.tokenizer import Tokenizer

Rate = Callable[[Tokenizer], float]
"""Bytes per token of a text, without the bytes that the tokenizer drops or replaces by its unknown token."""


def rate_on(text: Text | PretokenCounts) -> Rate:
    """A function from a tokenizer to its bytes per token on a text."""
    return _rate_on_counts(text) if isinstance(text, PretokenCounts) else _rate_on_documents(text)


def base_rate(rate: Rate, tokenizer: Tokenizer, name: str = "held-out") -> float:
    """Bytes per token of the base.

    Raises:
        OptionError: The text has no tokens.
    """
    base = rate(tokenizer)
    if not base:
        raise OptionError(f"the {name} text has no tokens", hint="pass text that the tokenizer can encode")
    return base


def _rate_on_counts(counts: PretokenCounts) -> Rate:
    def rate(tokenizer: Tokenizer) -> float:
        n_tokens = sum(counts.tokens(tokenizer).values())
        return _without(counts.totals.bytes, counts.lost(tokenizer), n_tokens)

    return rate


def _rate_on_documents(text: Text) -> Rate:
    n_bytes = text.n_bytes

    def rate(tokenizer: Tokenizer) -> float:
        found = token_totals(tokenizer, text.documents)
        return _without(n_bytes, found.lost, found.counted.total())

    return rate


def _without(n_bytes: int, lost: Mapping[bytes, int], n_tokens: int) -> float:
    return share(max(n_bytes - lost_bytes(lost), 0), n_tokens) or 0.0
