"""Extensions by number of new tokens, from one training run: bytes per token of held-out text, and rare tokens.

`curve` measures a text and finds the knee. `Sizes.support` is how often each new token occurs in the text that it was
learned from. A token that occurs rarely is rarely trained: its embedding row stays close to what it was initialised
with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import log, log1p
from typing import Any, NamedTuple

import numpy as np

from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.count import count
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, option, positive, require_list, require_type, whole_number
from tokengraft.learn.continued import extend
from tokengraft.learn.extension import Extension
from tokengraft.learn.limits import Limits
from tokengraft.measure.metrics import share
from tokengraft.measure.segments import Text, lost_bytes, open_text, text_warnings, token_totals
from tokengraft.progress import stage
from tokengraft.representation import Table, sentences, shown
from tokengraft.tokenizer.tokenizer import Tokenizer

KNEE = 0.01
"""The knee is where 1,000 more tokens gain less than this share."""
Support = Callable[[int], list[int]]
"""For a number of new tokens: how often each of them occurs, as the tokenizer of that size encodes the text."""


class CurvePoint(NamedTuple):
    """An extension of one size."""

    tokens: int
    bytes_per_token: float
    gain: float
    """Relative increase of bytes per token against the base."""
    parameters: int | None
    """Parameters that the new rows add to the model; None if its width was not given."""
    below_10: float | None = None
    """The share of the new tokens that occur fewer than 10 times in the text that they were learned from, as the
    tokenizer of this size encodes it; None without new tokens. If a training text is stated, in that text."""
    below_100: float | None = None
    """The same for fewer than 100 times."""
    below_1000: float | None = None
    """The same for fewer than 1,000 times."""


@shown
@dataclass(frozen=True)
class Curve:
    """Bytes per token by the number of new tokens, 0 first."""

    text: str
    points: tuple[CurvePoint, ...]
    extension: Extension
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the held-out text was read."""

    def _facts(self) -> dict[str, Any]:
        return {"text": self.text, "knee": self.knee, "tokens learned": len(self.extension)}

    def _tables(self) -> Iterator[Table]:
        yield Table("sizes", CurvePoint._fields, self.points, len(self.points))
        yield from sentences("warnings", self.warnings)

    @property
    def knee(self) -> int | None:
        """The smallest size after which 1,000 more tokens gain less than 1 %; None if no point is past the knee."""
        return knee_of(self.points)


def knee_of(points: Sequence[CurvePoint]) -> int | None:
    """The smallest size from which no larger one gains 1 % for every 1,000 tokens more; None if there is none.

    All larger sizes are compared, not only the next: a few tokens that the text lacks do not make a knee.
    """

    def is_flat(here: CurvePoint, after: CurvePoint) -> bool:
        thousands = (after.tokens - here.tokens) / 1000
        # subtle: logarithms, because the power may be too large for a float
        return log(after.bytes_per_token / here.bytes_per_token) / thousands < log1p(KNEE)

    for place, here in enumerate(points[:-1], start=1):
        if all(is_flat(here, after) for after in points[place:]):
            return here.tokens
    return None


@stage("measuring sizes")
def curve(
    tokenizer: Tokenizer,
    counts: PretokenCounts,
    text: Text | PretokenCounts | Corpus,
    sizes: Iterable[int],
    *,
    limits: Limits | None = None,
    rows_width: int | None = None,
    read_options: ReadOptions | None = None,
) -> Curve:
    """Bytes per token of held-out text by number of new tokens. Trains once, for the largest size.

    Args:
        tokenizer: The base.
        counts: The text to learn from.
        text: The held-out text: whatever `count` reads, a `Text`, or counts of the same pipeline.
        sizes: Numbers of new tokens.
        limits: As for `extend`.
        rows_width: Parameters per token: the hidden size, or twice that if the output is untied.
        read_options: How to read the held-out text; by default text files have one document per line.

    Raises:
        OptionError: No size was given, or one below 1.
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("counts", counts, PretokenCounts)
    rows_width = positive("rows_width", rows_width) if rows_width else None
    require_list("sizes", sizes, "whole numbers")
    wanted = sorted({whole_number("sizes", size) for size in sizes})
    if not wanted or wanted[0] < 1:
        raise OptionError(
            f"the sizes are {wanted}; at least one is needed, and all must be at least 1",
            hint=f"pass numbers of tokens: {option('sizes')} 1000 2000 4000",
        )
    measured = open_text("text", text, read_options)
    every_size = Sizes(tokenizer, extend(tokenizer, counts, wanted[-1], limits=limits))
    return curve_of_extension(every_size, every_size.support(counts), measured, wanted, rows_width)


def curve_of_extension(
    every_size: "Sizes",
    occurrences: Support,
    text: Text | PretokenCounts,
    sizes: Iterable[int],
    rows_width: int | None = None,
) -> Curve:
    """As `curve`, of what was learned already, given how often its tokens occur.

    Sizes that the extension does not reach are left out; if it reaches none, its own size is measured.
    """
    extension, rate_of = every_size.extension, every_size.bytes_per_token(text)
    base = rate_of(0)
    if not base:
        raise OptionError("the held-out text has no tokens", hint="pass text that the tokenizer can encode")
    reached = [size for size in sizes if size <= len(extension)] or [len(extension)] * bool(len(extension))

    def point(rate: float, occurring: Sequence[int]) -> CurvePoint:
        size = len(occurring)
        rare = (rare_share(occurring, below) for below in (10, 100, 1000))
        return CurvePoint(size, rate, rate / base - 1, size * rows_width if rows_width else None, *rare)

    measured = (point(rate_of(size), occurrences(size)) for size in reached)
    name = text.name if isinstance(text, Text) else "counts"
    return Curve(name, (point(base, ()), *measured), extension, text_warnings(name, text))


def default_sizes(largest: int) -> Sequence[int]:
    """1,000, 2,000, 4,000 and so on, up to the largest.

    >>> default_sizes(16_000)
    [1000, 2000, 4000, 8000, 16000]
    """
    sizes = [1000 * 2**step for step in range(40) if 1000 * 2**step < largest]
    return [*sizes, largest]


def bytes_per_token(tokenizer: Tokenizer, text: Text | PretokenCounts) -> float:
    """Bytes per token of a text, without the bytes that the tokenizer drops or replaces by its unknown token."""
    if isinstance(text, PretokenCounts):
        n_bytes, n_tokens, lost = text.totals.bytes, sum(text.tokens(tokenizer).values()), text.lost(tokenizer)
    else:
        found = token_totals(tokenizer, text.documents)
        n_bytes, n_tokens, lost = text.n_bytes, found.counted.total(), found.lost
    return share(max(n_bytes - lost_bytes(lost), 0), n_tokens) or 0.0


class NewMerges(NamedTuple):
    """The merges that an extended vocabulary has more than its base, and that stand together in it."""

    first_rank: int
    numbers: list[int]
    """The number of each, which never falls."""
    of_tokens: list[int]
    """For every new token, the number of the first merge that makes it: its size has the merges up to that number."""


class Sizes:
    """An extension of a tokenizer at every size.

    One encoding of a text serves all sizes if the new merges stand together in the table, in the order in which sizes
    get them. After them may be those of white space. Otherwise each size needs a tokenizer of its own. ``extended`` is
    the tokenizer with the extension, if it is known.
    """

    def __init__(self, tokenizer: Tokenizer, extension: Extension, extended: Tokenizer | None = None) -> None:
        self.tokenizer, self.extension, self.extended = tokenizer, extension, extended or extension.apply(tokenizer)
        self._merges: NewMerges | None = None
        if tokenizer.algorithm == "BPE" and not extension.characters:
            by_product = tokenizer.main in (tokenizer.rank_file, tokenizer.piece_file)
            self._merges = self._merges_by_product() if by_product else self._listed_merges()

    @property
    def is_one_run(self) -> bool:
        """Whether one encoding of a text serves all sizes."""
        return self._merges is not None

    def _listed_merges(self) -> NewMerges | None:
        """The merges of the extension, each with its number, if they are all that is new."""
        old, new, merges = self.tokenizer.core_vocabulary, self.extended.core_vocabulary, self.extension.merges
        first, n_merges = new.common_merges(old), len(merges)
        if (
            new.n_merges != old.n_merges + n_merges
            or new.merge_strings(first, first + n_merges) != [(merge.left, merge.right) for merge in merges]
            or new.merge_strings(first + n_merges) != old.merge_strings(first)
        ):
            return None
        return NewMerges(first, [*range(n_merges)], [number for number, merge in enumerate(merges) if merge.new])

    def _merges_by_product(self) -> NewMerges | None:
        """All merges that make new tokens, each with the place of its token, if they stand in that order.

        Rank files and SentencePiece models merge every pair that makes a token. So a size has the merges of all its
        tokens. Those that make an old token of a new one apply only after the latter was merged.
        """
        tokens = self.extension.tokens
        found = self.extended.core_vocabulary.merges_of([*tokens])
        ranks, numbers = [rank for rank, _ in found], [number for _, number in found]
        first = ranks[0] if ranks else 0
        if ranks != [*range(first, first + len(ranks))] or numbers != sorted(numbers):
            return None
        return NewMerges(first, numbers, [*range(len(tokens))])

    def _growth(self, counts: PretokenCounts, merges: NewMerges) -> tuple[bytes, bytes, bytes, list[int]]:
        counts.require(self.extended)
        ids = (self.extended.ids[token] for token in self.extension.tokens)
        new_tokens = list(zip(ids, merges.of_tokens, strict=True))
        return counts.table.growth(
            self.extended.core_model,
            first_rank=merges.first_rank,
            merge_numbers=merges.numbers,
            new_tokens=new_tokens,
        )

    def _at(self, size: int) -> Tokenizer:
        return self.extension[:size].apply(self.tokenizer) if size else self.tokenizer

    def support(self, counts: PretokenCounts, training_text: int | None = None) -> Support:
        """A function from a number of new tokens to the occurrences of each, or those expected in a training text.

        An occurrence inside a longer token does not count, so this is not the frequency of the token's merge.
        """
        ratio, merges = text_ratio(counts, training_text), self._merges
        if merges is None:

            @cache
            def encoded(size: int) -> list[int]:
                cut = self._at(size)
                total = counts.tokens(cut)
                return expected((total.get(cut.ids[token], 0) for token in self.extension.tokens[:size]), ratio)

            return encoded
        numbers, places, changes = (np.frombuffer(column, "<i8") for column in self._growth(counts, merges)[:3])

        @cache
        def occurrences(size: int) -> list[int]:
            occurring = np.zeros(size, np.int64)
            end = np.searchsorted(numbers, merges.of_tokens[size - 1], side="right") if size else 0
            np.add.at(occurring, places[:end], changes[:end])
            return expected(occurring.tolist(), ratio)

        return occurrences

    def bytes_per_token(self, text: Text | PretokenCounts) -> Callable[[int], float]:
        """A function from a number of new tokens to bytes per token of a text."""
        base, merges = self.tokenizer, self._merges
        # A whole pretoken that skips its merges may have characters that no token has.
        is_constant = base.spells_everything or not base.ignore_merges
        if merges is None or not is_constant or (isinstance(text, Text) and not text.documents):
            return lambda size: bytes_per_token(self._at(size), text)
        counts = text if isinstance(text, PretokenCounts) else count(self.extended, iter(text.documents))
        totals, n_added = self._growth(counts, merges)[3], sum(counts.added.values())
        n_bytes = text.totals.bytes if isinstance(text, PretokenCounts) else text.n_bytes
        kept = max(n_bytes - lost_bytes(counts.lost(self.extended)), 0)

        def rate(size: int) -> float:
            n_numbers = merges.of_tokens[size - 1] + 1 if size else 0
            return share(kept, totals[n_numbers] + n_added) or 0.0

        return rate


_UNBOUNDED = 2**63
"""Far more than any text has tokens."""


def text_ratio(counts: PretokenCounts, training_text: int | None) -> Fraction:
    """Bytes of the text that a model will be trained on, divided by those that were counted; 1 if it is not stated.

    Weights change counts, but not the bytes of the text: weighted counts are refused.
    """
    if training_text is None:
        return Fraction(1)
    require_occurrences(counts)
    return Fraction(positive("training_text", training_text), max(counts.totals.bytes, 1))


def require_occurrences(counts: PretokenCounts) -> None:
    """Refuses counts that were weighted: they do not say how often a token occurs."""
    total, pretokens = counts.table.total(), counts.totals.pretokens
    if total > pretokens or (total < pretokens and counts.min_count <= 1):
        raise CountsError(
            "the counts were weighted, so they do not say how often a token occurs in the training text",
            hint=f"count each text without {option('weight')}, which `tokengraft extend` takes too; or give a number "
            f"of tokens and drop {option('training_text')}",
        )


def expected(occurring: Iterable[int], ratio: Fraction) -> list[int]:
    """Occurrences in the training text, given those in the counted text, rounded down.

    >>> expected([3, 10, 250], Fraction(5, 2))
    [7, 25, 625]
    """
    numerator, denominator = ratio.as_integer_ratio()
    return [times * numerator // denominator for times in occurring]


def support_bounds(extension: Extension, has_merges: bool = True) -> tuple[list[int], list[int]]:
    """At least and at most how often each token of an extension occurs in the text it was learned from.

    Needs no text. A token occurs as often as its pair when it was learned, less the later merges that use it. Of
    the pairs in a run of equal tokens, at least half is merged. New characters, tokens that were learned with `Parity`,
    and those of a model without merges have no bound.
    """
    unknown = extension.tokens if extension.languages or not has_merges else extension.characters
    least = dict.fromkeys(extension.tokens, 0)
    most = least | dict.fromkeys(unknown, _UNBOUNDED)
    if len(unknown) == len(least):
        return [*least.values()], [*most.values()]
    for merge in extension.merges:
        times, product = merge.frequency, merge.left + merge.right
        fewest = times // 2 if merge.left == merge.right else times
        for part in (merge.left, merge.right):
            if part in least:
                least[part] -= times
                most[part] -= fewest
        if merge.new:
            least[product] += fewest
            most[product] += times
    return [*least.values()], [*most.values()]


def rare_share(occurring: Sequence[int], below: int) -> float | None:
    """The share of tokens with fewer than ``below`` occurrences; None if there are no tokens.

    >>> rare_share([3, 10, 250, 99], 100)
    0.75
    """
    return share(sum(times < below for times in occurring), len(occurring))


def most_frequent_in(
    token_ids: Iterable[int], frequencies: Mapping[str, Mapping[int, int]], n_bytes: Mapping[str, int]
) -> dict[str, int]:
    """For each text, how many of the tokens are more frequent in it than in any other, relative to its bytes.

    >>> most_frequent_in([1, 2, 3], {"et": {1: 4, 2: 1}, "lv": {1: 2, 2: 1}}, {"et": 400, "lv": 100})
    {'et': 0, 'lv': 2}
    """
    found = dict.fromkeys(frequencies, 0)
    for token_id in token_ids:
        rates = {name: times.get(token_id, 0) / (n_bytes[name] or 1) for name, times in frequencies.items()}
        best = max(rates, key=rates.__getitem__, default="")
        if best and rates[best]:
            found[best] += 1
    return found
