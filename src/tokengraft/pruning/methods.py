"""The methods of pruning (`ORDERS`), the leaf orders that they use, and how useful tokens are that a text lacks.

A token is expected as often as its two parts would meet by chance, and so are parts that do not occur themselves. So a
token with a character that the text lacks is not expected at all.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Literal, NamedTuple, get_args

from tokengraft import _core
from tokengraft.counts.count import NO_SCRIPT
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, option
from tokengraft.tokenizer.inspect import is_whole_pretoken, tokens_of
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


Method = Literal[
    "leaf-expected",
    "leaf-frequency",
    "frequency",
    "merge",
    "last-id",
    "last-id-leaf",
    "script",
    "script-leaf",
    "unreachable",
]
METHODS: tuple[Method, ...] = get_args(Method)
COUNTED: tuple[Method, ...] = ("leaf-expected", "leaf-frequency", "frequency", "merge")
"""Methods that use how often tokens occur in a text."""


@dataclass(frozen=True)
class Question:
    """The input of a method."""

    tokenizer: Tokenizer
    candidates: frozenset[int]
    """Tokens that may be removed."""
    counts: PretokenCounts | None
    scripts: Collection[str]
    by_merges: bool
    """Count tokens with merge skipping off."""

    def frequencies(self, *, by_merges: bool | None = None, uses: bool = False) -> Mapping[int, int]:
        """How often each token occurs in the text."""
        if self.counts is None:
            raise CountsError(
                "this order is decided by counts, and none were given",
                hint=f"pass {option('counts')} or {option('corpus')}",
            )
        return self.counts.tokens(
            self.tokenizer, by_merges=self.by_merges if by_merges is None else by_merges, uses=uses
        )


Steps = Iterable[tuple[int, int]]
"""Tokens in order, each with the number that decided its position."""


def expected_usefulness(question: Question) -> dict[int, float]:
    """How useful tokens are expected to be that do not occur in the text; 0 for those that no text produces."""
    return usefulness(question.tokenizer, question.frequencies()) | dict.fromkeys(_unproduced(question), 0.0)


def _frequency(question: Question) -> Steps:
    frequencies = question.frequencies()
    return ((-negative, count) for count, negative in sorted((frequencies.get(i, 0), -i) for i in question.candidates))


def _merge(question: Question) -> Steps:
    """Uses by merges, but for the pretokens that merge skipping makes tokens that merges do not: those use one token.

    Other pretokens that are tokens count with the merges they skip, which make the same token. Without them a token
    could have more uses than its parts, and these would be removed before it.
    """
    merges, uses = (
        _core.Remaining(question.tokenizer.core_model),
        Counter(question.frequencies(by_merges=True, uses=True)),
    )
    frequencies = {} if question.by_merges else question.frequencies()
    skipped = {i: frequencies[i] for i in question.tokenizer.unreachable if frequencies.get(i)}

    def uses_of(token: int) -> dict[int, int]:
        return {i: skipped[token] * times for i, times in Counter(merges.uses(token)).items()}

    def more(token: int) -> Mapping[int, int]:
        merges.remove(token)
        return uses_of(token) if token in skipped else {}

    for token, count in skipped.items():
        uses[token] += count
        uses.subtract(uses_of(token))

    lengths = {token.id: len(token.string) for token in question.tokenizer.tokens}
    return by_uses(lengths, question.candidates, uses, more)


def _last_first(ids: Iterable[int]) -> Steps:
    return ((token_id, token_id) for token_id in sorted(ids, reverse=True))


def _foreign(question: Question) -> set[int]:
    """Tokens with a character of another script. A token that is only part of a character has no script."""
    tokens = question.tokenizer.tokens
    written = _core.scripts([token.bytes.decode(errors="replace") for token in tokens])
    known = {name for names in written for name in names}
    strange = sorted(set(question.scripts) - known)
    if strange:
        raise OptionError(
            f"no token is written in {strange[0]!r}",
            hint=f"name scripts as Unicode does; the tokenizer has {', '.join(sorted(known - NO_SCRIPT))}",
        )
    allowed = NO_SCRIPT | set(question.scripts)
    foreign = {token.id for token, names in zip(tokens, written, strict=True) if not allowed.issuperset(names)}
    return foreign & question.candidates


def _unproduced(question: Question) -> Iterator[int]:
    """Tokens that no input produces: neither by merges nor, where merges are skipped, as a whole pretoken."""
    tokenizer = question.tokenizer
    failing = question.candidates.intersection(tokenizer.unreachable)
    failing -= question.frequencies().keys() if question.counts else set()  # what occurs in the text is produced
    for token in tokens_of(tokenizer, sorted(failing)):
        if not is_whole_pretoken(tokenizer, token):
            yield token.id


ORDERS: Mapping[Method, Callable[[Question], Steps]] = {
    "leaf-expected": lambda question: by_frequency(
        question.tokenizer, question.candidates, question.frequencies(), expected_usefulness(question)
    ),
    "leaf-frequency": lambda question: by_frequency(question.tokenizer, question.candidates, question.frequencies()),
    "frequency": _frequency,
    "merge": _merge,
    "last-id": lambda question: _last_first(question.candidates),
    "last-id-leaf": lambda question: by_id(question.tokenizer, question.candidates),
    "script": lambda question: _last_first(_foreign(question)),
    "script-leaf": lambda question: by_id(question.tokenizer, _foreign(question)),
    "unreachable": lambda question: _last_first(_unproduced(question)),
}
"""What each method removes, in order."""


POWER, OFFSET = 0.25, 1000
"""Chosen by held-out text (`lab/prune_orders.py`): with the expected count alone, English loses words that its own
tokenizer lists early; with the id alone, other languages lose most of their unseen words."""


def usefulness(tokenizer: Tokenizer, counts: Mapping[int, int]) -> dict[int, float]:
    """How useful tokens are expected to be that do not occur in a text: by their parts, and by their ids.

    A low id says that a token was frequent in the text that the tokenizer was trained on.
    """
    return {token: usefulness_of(token, expected) for token, expected in Expected.of(tokenizer, counts).counts.items()}


def usefulness_of(token: int, expected: float) -> float:
    """How useful a token is that is expected so often."""
    return float(expected**POWER / (token + OFFSET))


class Expected(NamedTuple):
    """How often tokens are expected in a text, given how often each token occurs in it.

    In a text of n tokens, ``ab`` is expected ``a * b / n`` times. Here ``a`` is how often that token is in the text, by
    itself or inside another, plus how often it is expected. A token that merges cannot make is expected by the pieces
    that merges make of it; one of a model without merges by what its string is split into without it.
    """

    counts: dict[int, float]
    uses: dict[int, int]
    """How often tokens are in the text, by themselves or inside another."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, counts: Mapping[int, int]) -> "Expected":
        """How often tokens are expected, given how often each occurs."""
        return cls(*tokenizer.core_model.expected([*counts.items()], [token.id for token in tokenizer.added]))


def parts_of(tokenizer: Tokenizer, tokens: Iterable[int]) -> dict[int, list[int]]:
    """What some tokens are made of."""
    return dict(tokenizer.core_model.parts([*tokens], [token.id for token in tokenizer.added]))
