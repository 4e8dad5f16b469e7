"""What the removal of tokens costs: which tokens are gone (`removed_summary`), and how many more tokens text needs.

`unseen_cost`: in text that is like a counted one and was not counted. `prune_curve`: in held-out text, by size.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, NamedTuple
from unicodedata import category

import numpy as np

from tokengraft import _core
from tokengraft.counts.count import NO_SCRIPT
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.progress import stage
from tokengraft.pruning.methods import Expected, parts_of, usefulness_of
from tokengraft.pruning.order import PruneOrder
from tokengraft.representation import FrozenDict
from tokengraft.tokenizer.kind import token_bytes
from tokengraft.tokenizer.tokenizer import Tokenizer

EXAMPLES = 6
"""How many examples a group has."""


class TokenGroup(NamedTuple):
    """Tokens of one kind or script."""

    name: str
    tokens: int
    examples: tuple[str, ...]
    """The text of the tokens that are most frequent in the counted text, most frequent first. Bytes that are not
    valid UTF-8 are escaped."""


class RemovedTokens(NamedTuple):
    """Removed tokens by kind and by script, the largest group first."""

    kinds: tuple[TokenGroup, ...] = ()
    """Every token is in one of them."""
    scripts: tuple[TokenGroup, ...] = ()
    """By the Unicode name of the script. A token without letters is in none of them, and one of two scripts in both."""

    characters: tuple[str, ...] = ()
    """Characters that no token spells any more: they become the unknown token."""

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        groups = {"kinds": self.kinds, "scripts": self.scripts}
        listed = {name: [group._asdict() for group in members] for name, members in groups.items()}
        return listed | ({"characters": [*self.characters]} if self.characters else {})


def removed_summary(base: Tokenizer, removed: Iterable[int]) -> RemovedTokens:
    """A summary of removed tokens, given their ids, rare ones first, as a `PruneOrder` has them."""
    ids, added = [*removed][::-1], {token.id for token in base.added}
    data = {token_id: token_bytes(base.strings[token_id], base.kind) for token_id in ids}
    texts = [_text(data[token_id]) for token_id in ids]
    examples = [data[token_id].decode(errors="backslashreplace") for token_id in ids]
    kinds = ["reserved" if i in added else _kind(text) for i, text in zip(ids, texts, strict=True)]
    scripts = [set(names) - NO_SCRIPT for names in _core.scripts([text or "" for text in texts])]
    return RemovedTokens(
        _groups(zip(kinds, examples, strict=True)),
        _groups((name, text) for names, text in zip(scripts, examples, strict=True) for name in sorted(names)),
        lost_characters(base, {*ids}),
    )


def lost_characters(base: Tokenizer, removed: Collection[int]) -> tuple[str, ...]:
    """The characters that lost a token of their own: at the beginning of a word, or inside one. Bytes spell BPE's."""
    if base.algorithm == "BPE" or base.spells_everything:
        return ()
    atomic = base.structure.atomic
    single = {token.id: token.bytes.decode(errors="replace") for token in base.tokens if token.id in atomic}
    return tuple(sorted({text for token_id, text in single.items() if token_id in removed}))


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _kind(text: str | None) -> str:
    """The kind of a token.

    >>> [_kind(text) for text in (" cat", "\\n\\n", "12", "):", ".append", None)]
    ['words', 'white space', 'digits', 'punctuation', 'letters with punctuation', 'partial characters']
    """
    if text is None:
        return "partial characters"
    classes = {category(character)[0] for character in text.strip()}  # L letter, M mark, N number, P and S punctuation
    if not classes:
        return "white space"
    if classes == {"N"}:
        return "digits"
    if not classes & {"L", "M"}:
        return "punctuation"
    return "words" if classes <= {"L", "M"} else "letters with punctuation"


def _groups(named: Iterable[tuple[str, str]]) -> tuple[TokenGroup, ...]:
    members = dict[str, list[str]]()
    for name, text in named:
        members.setdefault(name, []).append(text)
    groups = (TokenGroup(name, len(texts), tuple(texts[:EXAMPLES])) for name, texts in members.items())
    return tuple(sorted(groups, key=lambda group: (-group.tokens, group.name)))


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

    The order is by `leaf-expected`, and has all tokens that may be removed. ``mixed`` and ``kept`` are how often each
    token occurs in the counts that it was made from, and in the kept text, which is in them ``factor`` times.
    """
    gone = {removal.id for removal in order.removals[:n]}
    (expected, uses), total = Expected.of(tokenizer, mixed), max(sum(mixed.values()), 1)
    # All leaves below these limits are removed: an order takes the rarest leaf.
    most = max((removal.decided_by for removal in order.removals[:n]), default=0)
    unseen = (token for token in gone if not mixed.get(token))
    most_useful = max((usefulness_of(token, expected.get(token, 0.0)) for token in unseen), default=0.0)
    applied = np.frombuffer(tokenizer.core_model.applied(), "<u4").reshape(-1, 3)
    built_from = applied[~np.isin(applied[:, 0], [*gone]), 1:]
    leaves = (kept.keys() & {removal.id for removal in order.removals[n:]}).difference(built_from.ravel().tolist())
    parts = parts_of(tokenizer, (token for token in leaves if mixed[token] == factor))

    def is_lost(token: int) -> bool:
        left = mixed[token] - factor
        if left or most:
            return left < most
        rates = ((uses.get(part, 0) - factor + expected.get(part, 0.0)) / total for part in parts.get(token, ()))
        return usefulness_of(token, total * prod(rates)) < most_useful

    removed = sum(count for token, count in kept.items() if token in gone)
    unlucky = sum(count for token, count in kept.items() if token in leaves and is_lost(token))
    return (removed + BURST * unlucky) / max(sum(kept.values()), 1)


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
        gone = set(order.tokens[:size])  # not the ids of the order: an equal tokenizer may have others
        ids = {token_id for token, token_id in tokenizer.ids.items() if token not in gone}
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
