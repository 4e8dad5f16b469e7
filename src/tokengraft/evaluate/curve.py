"""`curve`: bytes per token by number of new tokens, from one training run, and the knee of the curve."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import log, log1p
from numbers import Integral
from typing import Any, NamedTuple

from tokengraft.arguments import checked, wrong_type
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.evaluate.rate import base_rate, rate_on
from tokengraft.evaluate.segments import Text, open_text, text_warnings
from tokengraft.evaluate.support import rare_share, support
from tokengraft.extend.continued import extend
from tokengraft.extend.extension import Extension
from tokengraft.extend.limits import Limits
from tokengraft.log import stage
from tokengraft.representation import Table, sentences, shown
from tokengraft.tokenizer.tokenizer import Tokenizer

KNEE = 0.01
"""The knee is where 1,000 more tokens gain less than this share."""


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
    tokenizer of this size encodes it; None without new tokens."""
    below_100: float | None = None
    """The same for fewer than 100 times."""
    below_1000: float | None = None
    """The same for fewer than 1,000 times."""


@shown
@checked
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


@checked
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
    wanted = checked_sizes(sizes)
    measured = open_text("text", text, read_options)
    extension = extend(tokenizer, counts, wanted[-1], limits=limits)
    rate = rate_on(measured)
    base = base_rate(rate, tokenizer)
    points = [CurvePoint(0, base, 0.0, 0 if rows_width else None)]
    occurrences = support(tokenizer, extension, counts)
    for size in reached(wanted, extension):
        parameters = size * rows_width if rows_width else None
        points.append(curve_point(rate(extension[:size].apply(tokenizer)), base, occurrences(size), parameters))
    return curve_of(measured, points, extension)


def checked_sizes(sizes: Iterable[int]) -> list[int]:
    """Numbers of new tokens, ascending.

    Raises:
        OptionError: There is none, or one is below 1.
    """
    given = [*sizes]
    wrong = [size for size in given if not isinstance(size, Integral) or isinstance(size, bool)]
    if wrong:
        raise wrong_type("a size", wrong[0], ["a whole number"])
    wanted = sorted(set(map(int, given)))
    if not wanted or wanted[0] < 1:
        raise OptionError(
            f"the sizes are {wanted}; at least one is needed, and all must be at least 1",
            hint="pass numbers of tokens: --sizes 1000 2000 4000",
        )
    return wanted


def reached(sizes: Sequence[int], extension: Extension) -> list[int]:
    """The sizes that an extension has; if it has none of them, its own size, unless that is 0."""
    return [size for size in sizes if size <= len(extension)] or [len(extension)] * bool(len(extension))


def curve_point(rate: float, base: float, occurring: Sequence[int], parameters: int | None = None) -> CurvePoint:
    """A point of the curve, from the bytes per token of both tokenizers and the occurrences of the new tokens."""
    rare = (rare_share(occurring, below) for below in (10, 100, 1000))
    return CurvePoint(len(occurring), rate, rate / base - 1, parameters, *rare)


def curve_of(text: Text | PretokenCounts, points: Iterable[CurvePoint], extension: Extension) -> Curve:
    """The curve of these points, with the name of the text and the warnings about it."""
    name = text.name if isinstance(text, Text) else "counts"
    return Curve(name, tuple(points), extension, text_warnings(name, text))


def default_sizes(largest: int) -> Sequence[int]:
    """1,000, 2,000, 4,000 and so on, up to the largest.

    >>> default_sizes(16_000)
    [1000, 2000, 4000, 8000, 16000]
    """
    sizes = [1000 * 2**step for step in range(40) if 1000 * 2**step < largest]
    return [*sizes, largest]
