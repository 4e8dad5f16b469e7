"""`curve`: bytes per token by number of new tokens, from one training run, and the knee of the curve."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log, log1p
from typing import NamedTuple

from tokengraft.corpus import Corpus, ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.evaluate.metrics import share
from tokengraft.evaluate.segments import Text, lost_bytes, open_text, segment, text_warnings
from tokengraft.extend import Extension, Limits, extend
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


@dataclass(frozen=True)
class Curve:
    """Bytes per token by the number of new tokens, 0 first."""

    text: str
    points: tuple[CurvePoint, ...]
    extension: Extension
    warnings: tuple[str, ...] = ()
    """What was replaced or skipped when the held-out text was read."""

    @property
    def knee(self) -> int | None:
        """The smallest size after which 1,000 more tokens gain less than 1 %; None if no point is past the knee."""
        for here, after in pairwise(self.points):
            thousands = (after.tokens - here.tokens) / 1000
            # subtle: logarithms, because the power may be too large for a float
            if log(after.bytes_per_token / here.bytes_per_token) / thousands < log1p(KNEE):
                return here.tokens
        return None


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
    wanted = sorted(set(sizes))
    if not wanted or wanted[0] < 1:
        raise OptionError(
            f"the sizes are {wanted}; at least one is needed, and all must be at least 1",
            hint="pass numbers of tokens: --sizes 1000 2000 4000",
        )
    measured = open_text("text", text, read_options)
    extension = extend(tokenizer, counts, wanted[-1], limits=limits)
    reached = [size for size in wanted if size <= len(extension)] or [len(extension)] * bool(len(extension))
    base = _rate(tokenizer, measured)
    if not base:
        raise OptionError("the held-out text has no tokens", hint="pass text that the tokenizer can encode")
    points = [CurvePoint(0, base, 0.0, 0 if rows_width else None)]
    for size in reached:
        rate = _rate(extension[:size].apply(tokenizer), measured)
        points.append(CurvePoint(size, rate, rate / base - 1, size * rows_width if rows_width else None))
    name = measured.name if isinstance(measured, Text) else "counts"
    return Curve(name, tuple(points), extension, text_warnings(name, measured))


def _rate(tokenizer: Tokenizer, text: Text | PretokenCounts) -> float:
    """Bytes per token, without the bytes that the tokenizer drops or replaces by its unknown token."""
    if isinstance(text, PretokenCounts):
        lost: Mapping[bytes, int] = text.lost(tokenizer)
        n_bytes, n_tokens = text.totals.bytes, sum(text.tokens(tokenizer).values())
    else:
        segments = segment(tokenizer, text)
        n_bytes, lost, n_tokens = text.n_bytes, segments.lost, sum(segments.lengths)
    return share(max(n_bytes - lost_bytes(lost), 0), n_tokens) or 0.0


def default_sizes(largest: int) -> Sequence[int]:
    """1,000, 2,000, 4,000 and so on, up to the largest.

    >>> default_sizes(16_000)
    [1000, 2000, 4000, 8000, 16000]
    """
    sizes = [1000 * 2**step for step in range(40) if 1000 * 2**step < largest]
    return [*sizes, largest]
