"""`choose_size`: how many of the learned tokens to add, from one training run."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any

from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, number, option, positive, require_type
from tokengraft.learn.extension import Extension
from tokengraft.measure.segments import Text, open_text
from tokengraft.measure.sizes import Curve, Sizes, curve_of_extension, knee_of, rare_share, require_occurrences
from tokengraft.progress import stage
from tokengraft.representation import Table, set_fields, shown
from tokengraft.tokenizer.edit import require_base
from tokengraft.tokenizer.tokenizer import Tokenizer

MAX_ADD = 32_000
"""The largest size that is chosen by default."""
MAX_RARE = 0.25
MIN_SUPPORT = 100
MOST_RARE = 1 / 3
"""If a size that was given leaves a larger share of the new tokens rare, there is a warning."""
SPAN = 64
"""The largest size of the grid divided by the smallest, at most."""
BETWEEN = 16
"""Parts into which the search divides the interval between two sizes of the grid."""


@shown
@dataclass(frozen=True)
class SizeChoice:
    """A number of new tokens, and why."""

    size: int
    knee: int | None
    """The size after which 1,000 more tokens gain less than 1 %; None if the extension ends before it."""
    supported: int
    """The largest size at which few enough of the new tokens are rare; 0 if there is none."""
    reason: str
    """One sentence."""
    curve: Curve
    """The sizes that were measured."""

    def _facts(self) -> dict[str, Any]:
        return {"size": self.size, "knee": self.knee, "supported": self.supported, "reason": self.reason}

    def _tables(self) -> Iterator[Table]:
        return self.curve._tables()

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready data."""
        return {**self._facts(), "points": [point._asdict() for point in self.curve.points]}


@shown
@dataclass(frozen=True)
class SizeOptions:
    """What `choose_size` is asked for."""

    max_rare: float = MAX_RARE
    """At most this share of the new tokens may be rare."""
    min_support: int = MIN_SUPPORT
    """A token is rare if it occurs less often in the training text."""
    multiple: int = 1
    """The size is a multiple of this. If fewer tokens than that are learned or supported, it has no effect."""
    min_size: int = 1
    """No smaller size is chosen, such as the number of tokens of a word list. It need not be supported."""
    training_text: int | None = None
    """Bytes of target text that the model will be trained on; by default the text that was counted. Several passes over
    a text count once."""

    def __post_init__(self) -> None:
        set_fields(self, positive, "min_support", "multiple", "min_size", "training_text")
        set_fields(self, number, "max_rare")
        if not 0 <= self.max_rare <= 1:
            raise OptionError(
                f"{option('max_rare')} is {self.max_rare}; it must be a share from 0 to 1",
                hint=f"pass {option('max_rare', 0.25)}, for instance",
            )

    @property
    def limit(self) -> str:
        """What is beyond the limit, in words."""
        where = f" {_where(self.training_text)}" if self.training_text else ""
        return (
            f"more than {100 * self.max_rare:g} % of the new tokens occur fewer than {self.min_support:,} times{where}"
        )


@stage("choosing the number of new tokens")
def choose_size(
    tokenizer: Tokenizer,
    extension: Extension,
    counts: PretokenCounts,
    text: Text | PretokenCounts | Corpus,
    options: SizeOptions | None = None,
    *,
    read_options: ReadOptions | None = None,
) -> SizeChoice:
    """How many tokens of an extension to add: the knee of its curve, or fewer if too many tokens would be rare.

    Nothing is trained. About 20 sizes are measured, each four fifths of the next one, down to 1/64 of the extension.

    - The *knee* is the smallest of them from which no larger one gains 1 % for every 1,000 tokens more on the held-out
      text.
    - The *supported* size is the largest one at which at most ``max_rare`` of the new tokens occur fewer than
      ``min_support`` times in the training text, as the tokenizer of that size encodes it. If the next of the 20 sizes
      is beyond that limit, the interval between the two is divided into 16 parts and searched by bisection: the result
      is within the limit, and one part more is not.

    If ``training_text`` is stated, a token is expected to occur in it as often as in the counted text, times the ratio
    of their bytes. No loss is predicted: the limit only follows what runs with SmolLM2-135M show
    (`lab/experiments/results/continued-pretraining`). On text of another domain, the loss against the unchanged model
    grows with the number of new tokens (11 MB of Arabic: 5.5 % with 500, 7.6 % with 8,000; of Russian: 8.5 and 16.5 %),
    falls with more text (23 MB of Arabic: 4.0 and 5.9 %), and is absent in Estonian at every size up to 8,000.

    Args:
        tokenizer: The base of the extension.
        extension: The learned tokens, as many as may be added.
        counts: The text that they were learned from, not weighted.
        text: Held-out text: whatever `count` reads, a `Text`, or counts of the same pipeline.
        options: What is rare, and which sizes may be chosen.
        read_options: How to read the held-out text; by default text files have one document per line.

    Raises:
        OptionError: An option is out of range, the extension is shorter than ``min_size``, or the held-out text has no
            tokens.
        InvalidTokenizerError: The extension was learned for another tokenizer.
        CountsError: No size is supported, the first new tokens do not gain 1 % on the held-out text, or the counts are
            weighted.

    Examples:
        >>> tok = tg.load("model")
        >>> counts = tg.count(tok, "et.txt")
        >>> choice = tg.measure.choose_size(tok, tg.extend(tok, counts, 16), counts, "et.txt")
        >>> choice.size, choice.knee, choice.supported
        (12, None, 12)
        >>> print(choice.reason.replace(", but", ",\\nbut"))
        12 new tokens: the knee of the curve is beyond 16,
        but beyond 12 more than 25 % of the new tokens occur fewer than 100 times
    """
    require_type("extension", extension, Extension)
    require_type("options", options, SizeOptions, NoneType)
    options = options or SizeOptions()
    require_type("counts", counts, PretokenCounts)
    require_base(tokenizer, extension.base_hash, what="extension")
    require_occurrences(counts)
    if not len(extension):
        refused = f": {len(extension.refused):,} candidates were refused because they occur in the preserved text"
        raise CountsError(
            f"the extension has no tokens{refused * bool(extension.refused)}, so there is no size to choose",
            hint="preserve less text" if extension.refused else f"give more text, or lower {option('min_count')}",
        )
    if len(extension) < options.min_size:
        raise OptionError(
            f"the extension has {len(extension):,} tokens, and at least {options.min_size:,} are asked for",
            hint=f"learn more tokens: {option('max_add')}",
        )
    measured = open_text("text", text, read_options)
    sizes = grid(len(extension), options.multiple, options.min_size)
    every_size = Sizes(tokenizer, extension)
    occurrences = every_size.support(counts, options.training_text)
    curve = curve_of_extension(every_size, occurrences, measured, sizes)
    supported = supported_size(sizes, lambda size: rare_share(occurrences(size), options.min_support) or 0.0, options)
    smallest = sizes[0] if options.min_size > 1 else 0
    knee = knee_of([point for point in curve.points if point.tokens >= smallest])
    if options.min_size == 1 and not supported:
        raise CountsError(
            f"at every size, {options.limit}{'' if options.training_text else ' in the text'}: it is too little to "
            "choose a size",
            hint=f"give more text, pass {option('add')} with a number, lower {option('min_support')} or raise "
            f"{option('max_rare')}",
        )
    if knee == 0:
        first = curve.points[1]
        raise CountsError(
            f"the first {first.tokens:,} new tokens change bytes per token of the held-out text by {first.gain:+.1%}: "
            "less than 1 % for 1,000 tokens, so no size is worth its cost",
            hint=f"give held-out text like the text that was learned from, or pass {option('add')} with a number",
        )
    size = max(min(supported, sizes[-1] if knee is None else knee), smallest)
    at_knee = f"the knee of the curve is at {knee:,}" if knee else f"the knee of the curve is beyond {sizes[-1]:,}"
    if supported < size:
        reason = f"{size:,} new tokens, the fewest that were allowed, although {options.limit}"
    elif size == knee:
        reason = f"{size:,} new tokens, the knee of the curve: 1,000 more gain less than 1 %"
    elif supported < sizes[-1]:
        reason = f"{size:,} new tokens: {at_knee}, but beyond {size:,} {options.limit}"
    else:
        reason = f"{size:,} new tokens, all that were learned: the knee of the curve is beyond them"
    return SizeChoice(size, knee, supported, reason, curve)


def rare_warning(
    expected: Sequence[int], training_text: int | None = None, *, at_most: Sequence[int] | None = None
) -> str | None:
    """A warning if so many new tokens are rare that fewer should be added; None if they are not.

    If ``expected`` are lower bounds, ``at_most`` are upper bounds, and only tokens that are certainly rare are counted.

    >>> rare_warning([300, 250, 200, 40]) is None
    True
    >>> rare_warning([300, 99, 40, 2])
    '3 of the 4 new tokens occur fewer than 100 times in the text: their embedding rows will hardly be trained'
    >>> rare_warning([300, 99, 40, 2], at_most=[300, 100, 40, 2])[:32]
    'at least 2 of the 4 new tokens o'
    """
    perhaps, rare = (sum(times < MIN_SUPPORT for times in bounds) for bounds in (expected, at_most or expected))
    if rare <= MOST_RARE * len(expected):
        return None
    at_least = "at least " if rare < perhaps else ""
    return (
        f"{at_least}{rare:,} of the {len(expected):,} new tokens occur fewer than {MIN_SUPPORT} times "
        f"{_where(training_text)}: their embedding rows will hardly be trained"
    )


def _where(training_text: int | None) -> str:
    """In which text tokens are rare."""
    return f"in {training_text:,} bytes of training text" if training_text else "in the text"


def grid(largest: int, multiple: int, smallest: int = 1) -> list[int]:
    """About 20 sizes to measure, ascending, multiples of ``multiple`` with few digits.

    >>> grid(16_000, 1)
    [250, 350, 440, 560, 700, 870, 1000, 1300, 1700, 2100, 2600, 3300, 4100, 5200, 6500, 8100, 10000, 12000, 16000]
    >>> grid(1_000, 64, smallest=300)
    [320, 384, 448, 576, 768, 960]
    >>> grid(5, 64)
    [5]
    """
    top = _down(largest, multiple, digits=20)
    if top == 0 or top < smallest:
        return [largest]
    lowest = max(-(-smallest // multiple) * multiple, _down(top // SPAN, multiple, digits=2), multiple)
    sizes, size = {min(lowest, top), top}, top * 4 // 5
    while size * 7 // 8 > lowest:
        sizes.add(_down(size, multiple, digits=2))
        size = size * 4 // 5
    return sorted(sizes)


def _down(size: int, multiple: int, *, digits: int) -> int:
    """The size rounded down to a multiple, and where the multiple allows it, to so many digits."""
    power: int = 10 ** max(len(str(size)) - digits, 0)
    unit = max(power // multiple, 1) * multiple
    return size // unit * unit


def supported_size(sizes: Sequence[int], rare_at: Callable[[int], float], options: SizeOptions) -> int:
    """The largest size within the limit of rare tokens, as `choose_size` defines it; 0 if there is none.

    ``sizes`` are those of the grid, ascending. ``rare_at`` gives the share of rare tokens at any size.
    """
    within = max((size for size in sizes if rare_at(size) <= options.max_rare), default=0)
    beyond = next((size for size in sizes if size > within), None)
    if beyond is None:
        return within
    found = _search(within, beyond, options.multiple, rare_at, options)
    # Fewer tokens than one multiple are better than none.
    return found or _search(0, min(beyond, options.multiple), 1, rare_at, options)


def _search(within: int, beyond: int, multiple: int, rare_at: Callable[[int], float], options: SizeOptions) -> int:
    """The largest supported size between one within the limit and one beyond it, by bisection."""
    parts = (within + (beyond - within) * part // BETWEEN for part in range(1, BETWEEN))
    rounded = {_down(size, multiple, digits=3) for size in parts}
    between = sorted(size for size in rounded if max(within, options.min_size - 1) < size < beyond)
    n_within = bisect_right(between, options.max_rare, key=rare_at)
    return between[n_within - 1] if n_within else within
