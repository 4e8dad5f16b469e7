"""`prune_order`: which tokens are removed first. `PruneOrder` is the result. `covered`: how many may be removed."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain, islice
from types import NoneType
from typing import Any, NamedTuple

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, number, option, require_type, whole_number
from tokengraft.progress import stage
from tokengraft.pruning.methods import COUNTED, METHODS, ORDERS, Method, Question
from tokengraft.pruning.removable import Protection, removable_tokens
from tokengraft.representation import FrozenDict, Table, shown
from tokengraft.tokenizer.edit import EditResult, remove_tokens, require_base, require_tokens
from tokengraft.tokenizer.kind import readable
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


@shown
class Removal(NamedTuple):
    """A token to remove, and the number that decided its position in the order."""

    token: str
    id: int
    decided_by: int
    """The count or the id that the order is sorted by."""

    def _shown(self) -> dict[str, Any]:
        return self._asdict() | {"token": readable(self.token)}


@shown
@dataclass(frozen=True)
class PruneOrder(EditResult):
    """Which tokens to remove, first to last. The order of n tokens is the beginning of the order of more.

    Examples:
        >>> tok = tg.load("model")
        >>> order = tg.prune_order(tok, tg.count(tok, "en.txt"))
        >>> [(removal.token, removal.id) for removal in order.removals[-2:]]
        [('th', 257), ('at', 256)]
        >>> len(tok.tokens) - len(order[:16].apply(tok).tokens)
        16
    """

    _what = "a prune order"
    _command = "tokengraft prune --order FILE"
    _in_a_file = ("method", "base_hash", "kept", "provenance", "removals")
    method: str
    removals: tuple[Removal, ...]
    base_hash: str
    """The `Tokenizer.content_hash` of the tokenizer it was made for; `apply` refuses any other."""
    kept: Mapping[str, int] = field(default_factory=FrozenDict)
    """How many tokens are never removed, by reason."""
    provenance: Mapping[str, Any] = field(default_factory=FrozenDict)
    """Version, totals of the counted text, and whether tokens were counted by merges alone (`by_merges`)."""

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens, as the vocabulary spells them."""
        return tuple(removal.token for removal in self.removals)

    def __len__(self) -> int:
        return len(self.removals)

    def stops(self) -> str:
        """A message: why the other tokens are kept."""
        reasons = [f"{count:,} {reason}" for reason, count in self.kept.items() if count]
        return "kept are " + ", ".join(reasons) if reasons else "there are no others"

    def bound_to(self, tokenizer: Tokenizer) -> "PruneOrder":
        """The order with the ids that this tokenizer has, which must be equal to the one that it was made for.

        Equal tokenizers may have other ids: one without the holes of the other has the same `content_hash`. `apply` and
        `covering` do this themselves.

        Raises:
            InvalidTokenizerError: It is not the tokenizer that the order was made for.
        """
        require_base(tokenizer, self.base_hash, what="prune order")
        require_tokens(tokenizer, self.tokens)
        removals = tuple(removal._replace(id=tokenizer.ids[removal.token]) for removal in self.removals)
        return replace(self, removals=removals)

    def covering(self, tokenizer: Tokenizer, share: float, *texts: PretokenCounts | Iterable[str]) -> "PruneOrder":
        """The longest beginning of the order that leaves this share of the tokens of every text as it is.

        Pass text that the order was not made from: its own text keeps all of its tokens much longer. Text without
        tokens is refused, because it could do without all of them. If a text is given by its documents, and has at
        least 20, the one that loses the most tokens is left out, and ``left_out`` has it if that changed the size.

        Examples:
            >>> tok = tg.load("model")
            >>> order = tg.prune_order(tok, tg.count(tok, "en.txt"))
            >>> [len(order.covering(tok, share, tg.count(tok, "et.txt"))) for share in (1, 0.9, 0.5)]
            [39, 79, 109]
        """
        share = require_coverage("share", share)
        order = self.bound_to(tokenizer)
        if not texts:
            raise OptionError("no text was given to choose a size by", hint="pass counts of held-out text")
        n, left_out = covered(tokenizer, [removal.id for removal in order.removals], share, texts)
        provenance = FrozenDict({**self.provenance, "left_out": left_out}) if left_out else self.provenance
        return replace(order._first(n), provenance=provenance)

    @property
    def left_out(self) -> tuple[tuple[str, int], ...]:
        """Documents that `covering` left out: the beginning of each, and how many of its tokens change."""
        return tuple((str(beginning), int(lost)) for beginning, lost in self.provenance.get("left_out", ()))

    def _first(self, n: int) -> "PruneOrder":
        if n < 0:
            raise self._cannot_cut(slice(n))
        if n > len(self):
            raise OptionError(
                f"{n:,} tokens are to be removed, `{self.method}` can remove {len(self):,}; {self.stops()}",
                hint=f"pass {option('remove', len(self))} or less, protect fewer tokens "
                f"({option('no_protect_defaults')}), or choose another {option('method')}",
            )
        return replace(self, removals=self.removals[:n])

    def _facts(self) -> dict[str, Any]:
        return {"method": self.method, "tokens": len(self), "others": self.stops(), "base": self.base_hash[:12]}

    def _tables(self) -> Iterator[Table]:
        rows = (tuple(removal._shown().values()) for removal in self.removals)
        yield Table("tokens, first removed first", ("token", "id", "decided by"), rows, len(self))

    def _edited(self, tokenizer: Tokenizer) -> Tokenizer:
        return remove_tokens(tokenizer, self.tokens)

    @classmethod
    def _parsed(cls, document: Any, base_hash: str) -> "PruneOrder":
        removals = [Removal(*removal) for removal in document["removals"]]
        for token, token_id, decided_by in removals:
            if not (isinstance(token, str) and isinstance(token_id, int) and isinstance(decided_by, int)):
                raise TypeError(f"{(token, token_id, decided_by)!r} is no removal")
        return cls(
            method=str(document["method"]),
            removals=tuple(removals),
            base_hash=base_hash,
            kept=FrozenDict({str(reason): int(count) for reason, count in document["kept"].items()}),
            provenance=FrozenDict(document["provenance"]),
        )


@stage("ordering tokens for pruning")
def prune_order(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None = None,
    method: Method = "leaf-expected",
    *,
    scripts: Collection[str] = (),
    protection: Protection | None = None,
    by_merges: bool = False,
) -> PruneOrder:
    """The order in which tokens are removed, for all tokens that may be removed.

    Leaf orders and `merge` leave every kept token reachable. The other methods are baselines for comparison.

    Args:
        tokenizer: The tokenizer. It is not changed.
        counts: The text whose tokens are to be kept, for the methods that count.
        method: `leaf-expected`: the rarest leaves, and among those that do not occur, first those that are least
            expected in other text of the same kind: unreachable ones, then by their parts and ids. `leaf-frequency`
            (the paper's Algorithm 1): the rarest leaves, by id where none occurs. `frequency`, `merge` (Algorithm 2),
            `last-id`, `last-id-leaf`, `script`, `script-leaf`, `unreachable`.
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
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("counts", counts, PretokenCounts, NoneType)
    require_type("protection", protection, Protection, NoneType)
    if method not in METHODS:
        raise OptionError(f"there is no method {method!r}", hint=f"choose one of {', '.join(METHODS)}")
    if isinstance(scripts, str) or bool(scripts) != method.startswith("script"):
        raise OptionError(
            f"the method is {method} and the scripts are {scripts!r}",
            hint=f"pass {option('scripts')}, or a list of scripts, with the methods script and script-leaf and with no "
            "other",
        )
    if by_merges and method not in COUNTED:
        raise OptionError(
            f"the method {method} counts no tokens, and counting by merges was asked for",
            hint=f"leave out {option('by_merges')}, or choose one of {', '.join(COUNTED)}",
        )
    if tokenizer.algorithm != "BPE" and (by_merges or method == "merge"):
        raise OptionError(
            f"the tokenizer is {tokenizer.algorithm}, and has no merges to count by",
            hint=f"choose another {option('method')}",
        )
    removable = removable_tokens(tokenizer, protection or Protection(), counts)
    question = Question(tokenizer, removable.ids - set(removable.reserved), counts, scripts, by_merges)
    reserved = ((token_id, token_id) for token_id in removable.reserved)
    decided, strings = chain(reserved, ORDERS[method](question)), tokenizer.strings
    # As `Removal(...)`, without a call of Python for each of a quarter of a million tokens.
    removals = tuple(map(partial(tuple.__new__, Removal), ((strings[i], i, by) for i, by in decided)))
    kept = {**removable.kept, "others": len(removable.ids) - len(removals)}
    provenance = {
        "tokengraft": _core.__version__,
        "counted": asdict(counts.totals) if counts else None,
        "by_merges": by_merges if method in COUNTED else None,
    }
    return PruneOrder(method, removals, tokenizer.content_hash, FrozenDict(kept), FrozenDict(provenance))


def prune(
    tokenizer: Tokenizer,
    counts: PretokenCounts | None,
    n: int,
    *,
    method: Method = "leaf-expected",
    scripts: Collection[str] = (),
    protection: Protection | None = None,
    by_merges: bool = False,
) -> PruneOrder:
    """The first n tokens of the `prune_order`, to be applied to the tokenizer as an extension is.

    The other options are those of `prune_order`.

    Raises:
        OptionError: Fewer than n tokens can be removed, or as `prune_order`.
        CountsError: As `prune_order`.

    Examples:
        >>> tok = tg.load("model")
        >>> small = tg.prune(tok, tg.count(tok, ["et.txt", "en.txt"]), 16).apply(tok)
        >>> len(tok), len(small)
        (397, 381)
    """
    n = whole_number("n", n)
    if n < 0:
        raise OptionError(f"{n} tokens are to be removed; it must be 0 or more", hint="pass n=1000, for instance")
    order = prune_order(tokenizer, counts, method, scripts=scripts, protection=protection, by_merges=by_merges)
    return order[:n]
