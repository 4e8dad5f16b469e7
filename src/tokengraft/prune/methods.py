"""The orders in which tokens may go: each a small function over the same structure."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from types import MappingProxyType
from typing import Literal, get_args

from tokengraft import _core
from tokengraft.counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError
from tokengraft.inspection import comes_out_whole
from tokengraft.prune.leaves import by_frequency, by_id
from tokengraft.prune.order import PruneOrder, Removal
from tokengraft.prune.removable import Protection, removable, token_text
from tokengraft.tokenizer import Tokenizer

Method = Literal[
    "leaf-frequency", "frequency", "merge", "last-id", "last-id-leaf", "script", "script-leaf", "unreachable"
]
METHODS: tuple[Method, ...] = get_args(Method)
COMMON = frozenset(("Common", "Inherited", "Unknown"))
"""Scripts that go with every other."""


@dataclass(frozen=True)
class Question:
    """What an order is decided from."""

    tokenizer: Tokenizer
    candidates: frozenset[int]
    """Tokens that may go."""
    counts: PretokenCounts | None
    scripts: Collection[str]

    def frequencies(self, *, by_merges: bool, uses: bool = False) -> Mapping[int, int]:
        """How often each token occurs in the text."""
        if self.counts is None:
            raise CountsError("this order is decided by counts, and none were given", hint="pass --counts or --corpus")
        return self.counts.tokens(self.tokenizer, by_merges=by_merges, uses=uses)


Steps = Iterable[tuple[int, int]]
"""Tokens in order, each with the number that decided it."""


def prune_order(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None = None,
    method: Method = "leaf-frequency",
    *,
    scripts: Collection[str] = (),
    protection: Protection | None = None,
) -> PruneOrder:
    """The order in which tokens may be taken away, of all that may be.

    Leaf orders and `merge` leave every kept token reachable; the others show what happens when one does not care.

    Args:
        tokenizer: The tokenizer. It is not changed.
        counts: The text whose tokens are to stay, for `leaf-frequency`, `frequency` and `merge`.
        method: `leaf-frequency` (the paper's Algorithm 1), `frequency`, `merge` (Algorithm 2), `last-id`,
            `last-id-leaf`, `script`, `script-leaf`, `unreachable`.
        scripts: For the script orders: the Unicode names of the scripts that stay, such as ``["Latin", "Cyrillic"]``.
        protection: What never goes, and what may although it does not by default.

    Raises:
        OptionError: There is no such method or script, or a protected token does not exist.
        CountsError: The order needs counts, or they were made for another pipeline.

    Example:
        >>> prune_order(tok, counts)[:16_000].apply(tok)  # doctest: +SKIP
        <Tokenizer byte-level: 112,256 vocabulary entries, 250,000 merges>
    """
    if method not in METHODS:
        raise OptionError(f"there is no method {method!r}", hint=f"take one of {', '.join(METHODS)}")
    if isinstance(scripts, str) or bool(scripts) != method.startswith("script"):
        raise OptionError(
            f"the method is {method} and the scripts are {scripts!r}",
            hint="name scripts, as a list, for the methods script and script-leaf, and for no other",
        )
    may_go = removable(tokenizer, protection or Protection())
    ordinary = may_go.ids - set(may_go.reserved)
    question = Question(tokenizer, ordinary, counts, scripts)
    strings = {token.id: token.string for token in tokenizer.tokens}
    first = ((token_id, token_id) for token_id in may_go.reserved)
    removals = tuple(Removal(strings[i], i, by) for i, by in chain(first, _METHODS[method](question)))
    kept = {**may_go.kept, "others": len(may_go.ids) - len(removals)}
    provenance = {"tokengraft": _core.__version__, "counted": asdict(counts.totals) if counts else None}
    return PruneOrder(method, removals, MappingProxyType(kept), MappingProxyType(provenance))


def _leaf_frequency(question: Question) -> Steps:
    frequencies = question.frequencies(by_merges=True)
    return by_frequency(question.tokenizer.structure.splits, question.candidates, frequencies)


def _frequency(question: Question) -> Steps:
    frequencies = question.frequencies(by_merges=False)
    return ((-negative, count) for count, negative in sorted((frequencies.get(i, 0), -i) for i in question.candidates))


def _merge(question: Question) -> Steps:
    """The paper's Algorithm 2: a token counts as often as it occurs and as it is merged into another."""
    frequencies = question.frequencies(by_merges=True, uses=True)
    lengths = {token.id: len(token.string) for token in question.tokenizer.tokens}
    ordered = sorted((frequencies.get(i, 0), -lengths[i], -i) for i in question.candidates)
    return ((-negative, count) for count, _, negative in ordered)


def _last_id(question: Question) -> Steps:
    return ((token_id, token_id) for token_id in sorted(question.candidates, reverse=True))


def _last_id_leaf(question: Question) -> Steps:
    return by_id(question.tokenizer.structure.splits, question.candidates)


def _script(question: Question) -> Steps:
    return ((token_id, token_id) for token_id in sorted(_foreign(question), reverse=True))


def _script_leaf(question: Question) -> Steps:
    return by_id(question.tokenizer.structure.splits, _foreign(question))


def _foreign(question: Question) -> set[int]:
    """Tokens with a character of another script; a part of a character has none."""
    tokens = question.tokenizer.tokens
    written = _core.scripts([token_text(question.tokenizer, token.string) for token in tokens])
    known = {name for names in written for name in names}
    strange = sorted(set(question.scripts) - known)
    if strange:
        raise OptionError(
            f"no token is written in {strange[0]!r}",
            hint=f"name scripts as Unicode does; the tokenizer has {', '.join(sorted(known - COMMON))}",
        )
    allowed = COMMON | set(question.scripts)
    foreign = {token.id for token, names in zip(tokens, written, strict=True) if not allowed.issuperset(names)}
    return foreign & question.candidates


def _unreachable(question: Question) -> Steps:
    """What no input can produce: neither by merges nor, where merges are skipped, as a whole pretoken."""
    return ((token_id, token_id) for token_id in sorted(_unproduced(question), reverse=True))


def _unproduced(question: Question) -> Iterator[int]:
    failing = question.candidates.intersection(question.tokenizer.structure.unreachable)
    for token in question.tokenizer.tokens:
        if token.id in failing and not comes_out_whole(question.tokenizer, token):
            yield token.id


_METHODS: Mapping[Method, Callable[[Question], Steps]] = {
    "leaf-frequency": _leaf_frequency,
    "frequency": _frequency,
    "merge": _merge,
    "last-id": _last_id,
    "last-id-leaf": _last_id_leaf,
    "script": _script,
    "script-leaf": _script_leaf,
    "unreachable": _unreachable,
}
