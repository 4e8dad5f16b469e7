"""How many tokens every held-out text can do without: `covered`."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, number, option
from tokengraft.tokenizer.tokenizer import Tokenizer

COVERAGE = 0.9995
"""The share of the tokens of every text that stay, if the number of tokens to remove is chosen by it."""
MANY = 20
"""If a text has so many documents, the one that loses the most tokens does not decide."""
NONE_COVERED = "without the first one, more tokens would change than --keep-coverage allows"
"""Why no token is removed."""
_BATCH = 256


def require_coverage(name: str, share: object) -> float:
    """A share of tokens that stay, as `PruneOrder.covering` takes it."""
    value = number(name, share)
    if not 0 < value <= 1:  # NaN too
        raise OptionError(
            f"{option(name)} is {value}; it must be above 0 and at most 1", hint=f"pass {option(name, COVERAGE)}"
        )
    return value


def coverage_reason(share: float, left_out: Iterable[Sequence[object]] = ()) -> str:
    """How a number of tokens to remove was chosen. ``left_out`` are the documents that were left out."""
    without = "".join(f"; left out: `{beginning}…`, where {lost:,} tokens change" for beginning, lost in left_out)
    return f"at least {share * 100:.10g} % of the tokens of the corpus and of every held-out text stay{without}"


class _Uses(NamedTuple):
    """Where the documents of a text use the tokens of an order."""

    beginnings: list[str]
    tokens: list[int]
    """All tokens of each document."""
    uses: list[tuple[int, int, int]]
    """The place of a token in the order, a document, and how often the token is in it, by place."""

    def first_beyond(self, share: float, n: int) -> int:
        """The first place of n whose token the text cannot do without."""
        # The sum of all but the largest number of lost tokens never falls, so the largest need not stay the same.
        has_many, lost, most, total = len(self.tokens) >= MANY, Counter[int](), 0, 0
        allowed = (1 - share) * (sum(self.tokens) - (max(self.tokens) if has_many else 0))
        for place, document, count in self.uses:
            lost[document] += count
            total += count
            most = max(most, lost[document]) if has_many else 0
            if total - most > allowed:
                return min(place, n)
        return n

    def left_out(self, share: float, n: int) -> Iterator[tuple[str, int]]:
        """The document without which n tokens would be too many, and how many of its tokens are lost."""
        lost = Counter[int]()
        for place, document, count in self.uses:
            lost[document] += count if place < n else 0
        if lost.total() > (1 - share) * sum(self.tokens):
            [(document, count)] = lost.most_common(1)
            yield self.beginnings[document], count


def covered(
    tokenizer: Tokenizer, order: Sequence[int], share: float, texts: Iterable[PretokenCounts | Iterable[str]]
) -> tuple[int, tuple[tuple[str, int], ...]]:
    """How many of the first tokens of an order, given by their ids, every text can do without, and what was left out.

    A text is its documents, or counts. Of at least `MANY` documents, the one that loses the most tokens does not
    decide: a few letters of another script in one article would keep nearly all tokens.
    """
    places = {token_id: place for place, token_id in enumerate(order)}
    measured, n = [_uses(tokenizer, places, text) for text in texts], len(order)
    for text in measured:
        n = text.first_beyond(share, n)
    return n, tuple(left for text in measured for left in text.left_out(share, n))


def _uses(tokenizer: Tokenizer, places: Mapping[int, int], text: PretokenCounts | Iterable[str]) -> _Uses:
    found = _Uses([], [], [])
    for beginning, tokens in _documents(tokenizer, text):
        document = len(found.beginnings)
        found.beginnings.append(beginning)
        found.tokens.append(sum(tokens.values()))
        found.uses.extend((places[i], document, count) for i, count in tokens.items() if i in places)
    if not sum(found.tokens):
        raise OptionError("a text to choose the size by has no tokens", hint="pass held-out text")
    found.uses.sort()
    return found


def _documents(tokenizer: Tokenizer, text: PretokenCounts | Iterable[str]) -> Iterator[tuple[str, Mapping[int, int]]]:
    """The beginning and the tokens of every document. Counts are one."""
    if isinstance(text, PretokenCounts):
        yield "", text.tokens(tokenizer)
        return
    documents = iter(text)
    while batch := [*islice(documents, _BATCH)]:
        for document, ids in zip(batch, tokenizer.encode_batch(batch), strict=True):
            yield document.strip()[:40], Counter(ids)
