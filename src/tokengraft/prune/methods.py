"""`prune_order`: the methods that decide in which order tokens are removed, one small function each."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Literal, get_args

from tokengraft import _core
from tokengraft.arguments import checked
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError
from tokengraft.frozen import FrozenDict
from tokengraft.log import stage
from tokengraft.prune.leaves import by_frequency, by_id, by_uses
from tokengraft.prune.order import PruneOrder, Removal
from tokengraft.prune.remaining import RemainingMerges
from tokengraft.prune.removable import Protection, removable_tokens, token_text
from tokengraft.tokenizer.tokenizer import Tokenizer

Method = Literal[
    "leaf-frequency", "frequency", "merge", "last-id", "last-id-leaf", "script", "script-leaf", "unreachable"
]
METHODS: tuple[Method, ...] = get_args(Method)
COUNTED: tuple[Method, ...] = ("leaf-frequency", "frequency", "merge")
"""Methods that use how often tokens occur in a text."""
COMMON = frozenset(("Common", "Inherited", "Unknown"))
"""Scripts that are always kept."""


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
            raise CountsError("this order is decided by counts, and none were given", hint="pass --counts or --corpus")
        return self.counts.tokens(
            self.tokenizer, by_merges=self.by_merges if by_merges is None else by_merges, uses=uses
        )


Steps = Iterable[tuple[int, int]]
"""Tokens in order, each with the number that decided its position."""


@checked
@stage("ordering tokens for pruning")
def prune_order(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None = None,
    method: Method = "leaf-frequency",
    *,
    scripts: Collection[str] = (),
    protection: Protection | None = None,
    by_merges: bool = False,
) -> PruneOrder:
    """The order in which tokens are removed, for all tokens that may be removed.

    Leaf orders and `merge` leave every kept token reachable. The other methods are baselines for comparison.

    Args:
        tokenizer: The tokenizer. It is not changed.
        counts: The text whose tokens are to be kept, for `leaf-frequency`, `frequency` and `merge`.
        method: `leaf-frequency` (the paper's Algorithm 1), `frequency`, `merge` (Algorithm 2), `last-id`,
            `last-id-leaf`, `script`, `script-leaf`, `unreachable`.
        scripts: For the script orders: Unicode names of the scripts to keep, such as ``["Latin", "Cyrillic"]``.
        protection: What is never removed, and what may be removed although by default it is kept.
        by_merges: Count tokens with merge skipping (`ignore_merges`) off, as the paper does. Tokens that only merge
            skipping produces then count 0 and are removed first. By default tokens count as the tokenizer encodes.

    Raises:
        OptionError: There is no such method or script, a protected token does not exist, or ``by_merges`` is set for a
            method that does not count.
        CountsError: The order needs counts, or they were made for another pipeline.

    Examples:
        >>> tok = tg.load("model")
        >>> small = tg.prune_order(tok, tg.count(tok, ["et.txt", "en.txt"]))[:16].apply(tok)
        >>> len(tok.tokens), len(small.tokens)
        (397, 381)
    """
    _require_options(method, scripts, by_merges)
    removable = removable_tokens(tokenizer, protection or Protection(), counts)
    question = Question(tokenizer, removable.ids - set(removable.reserved), counts, scripts, by_merges)
    reserved = ((token_id, token_id) for token_id in removable.reserved)
    removals = tuple(Removal(tokenizer.strings[i], i, by) for i, by in chain(reserved, _METHODS[method](question)))
    kept = {**removable.kept, "others": len(removable.ids) - len(removals)}
    provenance = {
        "tokengraft": _core.__version__,
        "counted": asdict(counts.totals) if counts else None,
        "by_merges": by_merges if method in COUNTED else None,
    }
    return PruneOrder(method, removals, tokenizer.content_hash, FrozenDict(kept), FrozenDict(provenance))


def _require_options(method: str, scripts: Collection[str], by_merges: bool) -> None:
    if method not in METHODS:
        raise OptionError(f"there is no method {method!r}", hint=f"choose one of {', '.join(METHODS)}")
    if isinstance(scripts, str) or bool(scripts) != method.startswith("script"):
        raise OptionError(
            f"the method is {method} and the scripts are {scripts!r}",
            hint="pass --scripts, or a list of scripts, with the methods script and script-leaf and with no other",
        )
    if by_merges and method not in COUNTED:
        raise OptionError(
            f"the method {method} counts no tokens, and counting by merges was asked for",
            hint=f"leave out --by-merges, or choose one of {', '.join(COUNTED)}",
        )


def _leaf_frequency(question: Question) -> Steps:
    merges = RemainingMerges(question.tokenizer)
    return by_frequency(
        question.tokenizer.structure.splits,
        question.candidates,
        question.frequencies(),
        lambda token, removed: merges.encode(token, removed).tokens,
    )


def _frequency(question: Question) -> Steps:
    frequencies = question.frequencies()
    return ((-negative, count) for count, negative in sorted((frequencies.get(i, 0), -i) for i in question.candidates))


def _merge(question: Question) -> Steps:
    """Uses by merges, but for the pretokens that merge skipping makes tokens that merges do not: those use one token.

    Other pretokens that are tokens count with the merges they skip, which make the same token. Without them a token
    could have more uses than its parts, and these would be removed before it.
    """
    merges, uses = RemainingMerges(question.tokenizer), Counter(question.frequencies(by_merges=True, uses=True))
    frequencies = {} if question.by_merges else question.frequencies()
    skipped = {i: frequencies[i] for i in question.tokenizer.structure.unreachable if frequencies.get(i)}
    for token, count in skipped.items():
        uses[token] += count
        uses.subtract(_times(count, merges.encode(token, ()).uses))

    def more(token: int, removed: Collection[int]) -> Mapping[int, int]:
        return _times(skipped[token], merges.encode(token, removed).uses) if token in skipped else {}

    lengths = {token.id: len(token.string) for token in question.tokenizer.tokens}
    return by_uses(lengths, question.candidates, uses, more)


def _times(count: int, tokens: Iterable[int]) -> dict[int, int]:
    return {token: count * times for token, times in Counter(tokens).items()}


def _last_id(question: Question) -> Steps:
    return ((token_id, token_id) for token_id in sorted(question.candidates, reverse=True))


def _last_id_leaf(question: Question) -> Steps:
    return by_id(question.tokenizer.structure.splits, question.candidates)


def _script(question: Question) -> Steps:
    return ((token_id, token_id) for token_id in sorted(_foreign(question), reverse=True))


def _script_leaf(question: Question) -> Steps:
    return by_id(question.tokenizer.structure.splits, _foreign(question))


def _foreign(question: Question) -> set[int]:
    """Tokens with a character of another script. A token that is only part of a character has no script."""
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
    """Tokens that no input produces: neither by merges nor, where merges are skipped, as a whole pretoken."""
    return ((token_id, token_id) for token_id in sorted(_unproduced(question), reverse=True))


def _unproduced(question: Question) -> Iterator[int]:
    failing = question.candidates.intersection(question.tokenizer.structure.unreachable)
    failing -= (
        question.frequencies().keys() if question.counts else set()
    )  # tokens that occur in the text are reachable
    for token in question.tokenizer.tokens:
        if token.id in failing and not question.tokenizer.is_whole_pretoken(token):
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
