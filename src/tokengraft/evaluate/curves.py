"""`curves`: bytes per token of several languages by number of new tokens, and how far they are apart."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tokengraft.arguments import checked
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.evaluate.curve import checked_sizes, reached
from tokengraft.evaluate.rate import base_rate, rate_on
from tokengraft.evaluate.segments import Text, open_text
from tokengraft.extend.extension import Extension
from tokengraft.frozen import FrozenDict
from tokengraft.log import stage
from tokengraft.representation import Table, shown
from tokengraft.tokenizer.edit import require_base
from tokengraft.tokenizer.tokenizer import Tokenizer


class CurvesPoint(NamedTuple):
    """An extension of one size, measured on several languages."""

    tokens: int
    bytes_per_token: Mapping[str, float]
    gain: Mapping[str, float]
    """Relative increase of bytes per token against the base."""

    @property
    def spread(self) -> float:
        """The largest bytes per token divided by the smallest."""
        return max(self.bytes_per_token.values()) / min(self.bytes_per_token.values())

    @property
    def gain_spread(self) -> float:
        """The largest ratio of bytes per token to those of the base, divided by the smallest; 1 if all gain alike."""
        ratios = [1 + gain for gain in self.gain.values()]
        return max(ratios) / min(ratios)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {
            "tokens": self.tokens,
            "bytes_per_token": dict(self.bytes_per_token),
            "gain": dict(self.gain),
            "spread": self.spread,
            "gain_spread": self.gain_spread,
        }


@shown
@checked
@dataclass(frozen=True)
class Curves:
    """Bytes per token of every language by number of new tokens, 0 first."""

    languages: tuple[str, ...]
    points: tuple[CurvesPoint, ...]

    def _facts(self) -> dict[str, str]:
        return {"languages": ", ".join(self.languages)}

    def _tables(self) -> Iterator[Table]:
        rows = ((point.tokens, *point.bytes_per_token.values(), point.spread) for point in self.points)
        yield Table("bytes per token", ("tokens", *self.languages, "spread"), rows, len(self.points))

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {"languages": list(self.languages), "points": [point.as_dict() for point in self.points]}


@checked
@stage("measuring sizes")
def curves(
    tokenizer: Tokenizer, extension: Extension, texts: Mapping[str, Text | PretokenCounts], sizes: Iterable[int]
) -> Curves:
    """Bytes per token of every language by number of new tokens, and the spread. Nothing is trained.

    Args:
        tokenizer: The base of the extension.
        extension: The learned tokens.
        texts: Held-out text of each language: a `Text`, or counts of the same pipeline.
        sizes: Numbers of new tokens. Those that the extension does not have are left out.

    Raises:
        OptionError: There is no language or no size, a size is below 1, or a text has no tokens.
        InvalidTokenizerError: The extension was learned for another tokenizer.
        CountsError: Counts were made for another pipeline, were weighted, or lack rare pretokens.

    Examples:
        >>> tok = tg.load("model")
        >>> texts = {"et": tg.count(tok, "et.txt"), "en": tg.count(tok, "en.txt")}
        >>> both = tg.curves(tok, tg.extend(tok, texts["et"], 16), texts, [4, 16])
        >>> [(point.tokens, round(point.spread, 2), round(point.gain_spread, 2)) for point in both.points]
        [(0, 2.36, 1.0), (4, 1.85, 1.28), (16, 1.24, 1.9)]
    """
    if not texts:
        raise OptionError("no text was given", hint="pass at least one, with the name of its language")
    wanted = checked_sizes(sizes)
    require_base(tokenizer, extension.base_hash, what="extension")
    rates = {name: rate_on(open_text(name, text, None)) for name, text in texts.items()}
    base = {name: base_rate(rate, tokenizer, name) for name, rate in rates.items()}

    def point(size: int, measured: Mapping[str, float]) -> CurvesPoint:
        gain = {name: value / base[name] - 1 for name, value in measured.items()}
        return CurvesPoint(size, FrozenDict(measured), FrozenDict(gain))

    points = [point(0, base)]
    for size in reached(wanted, extension):
        extended = extension[:size].apply(tokenizer)
        points.append(point(size, {name: rate(extended) for name, rate in rates.items()}))
    return Curves(tuple(texts), tuple(points))
