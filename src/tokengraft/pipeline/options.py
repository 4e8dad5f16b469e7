"""The options of an adaptation: text, sizes and more. Values are checked when they are created."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, Literal, NamedTuple

from tokengraft.checkpoint.rows import DEFAULT, HoleRows, Init
from tokengraft.checkpoint.table import TransplantOptions
from tokengraft.corpus.open import Corpus
from tokengraft.corpus.options import ReadOptions
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.counts.threads import CountOptions, HoldOut
from tokengraft.counts.weights import as_weight
from tokengraft.errors import OptionError, Progress, number, option, positive, seed, whole_number
from tokengraft.learn.include import WordList
from tokengraft.learn.limits import Limits
from tokengraft.learn.special import SpecialToken
from tokengraft.measure.choose_size import MAX_ADD, SizeOptions
from tokengraft.pruning.order import require_coverage
from tokengraft.pruning.removable import Protection
from tokengraft.representation import frozen_strings, require_fields, set_fields, shown
from tokengraft.tokenizer.marks import script_names

KEEP = "keep"
"""The name of the text to keep, if it has no other. No target may have it."""

Role = Literal["target", "keep", "test"]
Source = str | os.PathLike[str]
Balance = Literal["weights", "parity"]
Size = int | Literal["auto"]
"""A number of tokens, or `auto` to choose it on held-out text."""
OnStep = Callable[[str], object]
"""Called with the name of each step when it starts."""


@shown
class Target(NamedTuple):
    """A text to learn tokens from, such as one language."""

    corpus: Corpus
    weight: int | Fraction | str = 1
    """Its share of the mix is its weight divided by the sum of all weights. Its size has no effect."""


@shown
@dataclass(frozen=True)
class Sizes:
    """How many tokens to learn and to prune. ``"auto"``: the number is chosen on held-out text."""

    add: Size = 0
    remove: Size = 0
    swap: Size = 0
    """Prune N tokens and give their ids to N new ones. No shape and no other id changes."""
    max_add: int = MAX_ADD
    """The largest number of tokens to learn that may be chosen."""
    listed: bool = False
    """Words or special tokens are given, so that no size is needed."""

    def __post_init__(self) -> None:
        if self.swap and (self.add or self.remove):
            raise OptionError(
                f"{option('swap', self.swap)} was given together with {option('add', self.add)} "
                f"{option('remove', self.remove)}",
                hint=f"pass {option('swap', 'N')} alone, or {option('add', 'N')} and {option('remove', 'N')} without "
                "it",
            )
        set_fields(self, _size, "add", "swap", "remove")
        sizes = {"swap": self.swap, "add": self.add, "remove": self.remove}
        if negative := next((name for name, n in sizes.items() if n != "auto" and n < 0), None):
            raise OptionError(
                f"{option(negative)} is {sizes[negative]}; it must be at least 1",
                hint=f"pass {option(negative, 1)} or more, or drop it",
            )
        if not any(sizes.values()) and not self.listed:
            raise OptionError(
                "no number of tokens was given: how many to replace, to add or to remove",
                hint=f"pass {option('swap', 'auto')}, which chooses how many tokens to replace; or "
                f"{option('swap', 'N')}, {option('add', 'N')} or {option('remove', 'N')}",
            )

    @property
    def auto(self) -> bool:
        """Whether the number of tokens to learn is chosen."""
        return "auto" in (self.add, self.swap)

    @property
    def covering(self) -> bool:
        """Whether the number of tokens to prune is chosen, by the share of text that keeps its tokens."""
        return self.remove == "auto"

    @property
    def only_listed(self) -> bool:
        """Whether only words and special tokens are added, so that no text is read."""
        return not (self.add or self.remove or self.swap)

    def chosen(self, n: int) -> "Sizes":
        """The sizes with the number of tokens to learn that was chosen."""
        return replace(self, swap=n) if self.swap else replace(self, add=n)

    @property
    def learn(self) -> int:
        """Tokens to learn; the most, if their number is chosen."""
        n = self.swap or self.add
        return self.max_add if n == "auto" else n

    @property
    def prune(self) -> int:
        """Tokens to prune; if their number is chosen, the most of a swap, and the least otherwise."""
        if self.swap:
            return self.learn
        return 1 if self.remove == "auto" else self.remove

    @property
    def least_prune(self) -> int:
        """The fewest tokens that may be pruned: one, if their number is chosen."""
        return 1 if self.auto and self.swap else self.prune

    def rows(self, before: int, tokens: int) -> int:
        """Rows that the new tokenizer needs, if enough tokens can be learned; the most, if `auto` removes tokens.

        Args:
            before: Rows that the base needs: its highest id plus one.
            tokens: Tokens of the base. Fewer than its rows if some ids have no token.

        >>> Sizes(swap=10).rows(100, 90), Sizes(add=15).rows(100, 90), Sizes(remove=10).rows(100, 90)
        (100, 105, 80)
        """
        growth = self.learn - (0 if self.covering else self.prune)
        return max(before, tokens + growth) if growth >= 0 else tokens + growth


def _size(name: str, value: Any) -> Size:
    return "auto" if value == "auto" else whole_number(name, value, "'auto'")


@shown
@dataclass(frozen=True)
class AdaptOptions:
    """All options of an adaptation except its text and sizes."""

    init: Init | None = None
    """The initialiser for new embedding rows, as for `transplant`; by default `fvt-rare`."""
    output_init: Init | None = None
    """The initialiser for new rows of an untied output, as for `transplant`."""
    hole_rows: HoleRows | None = None
    """What rows without a token get, as for `transplant`; by default `lowest`."""
    as_adapter: bool = False
    """Write the tokenizer and an adapter of PEFT with the new rows, instead of the whole model. For a swap."""
    read_options: ReadOptions = field(default_factory=lambda: ReadOptions(documents="lines"))
    """How to read the corpora."""
    count_options: CountOptions = field(default_factory=CountOptions)
    """Engine, workers, memory and limits for counting, for each corpus."""
    limits: Limits = field(default_factory=Limits)
    """Which tokens may be learned."""
    preserve: Corpus | PretokenCounts | None = None
    """Text that must keep its tokens: none of them is pruned, and no pair of tokens in it is merged. It keeps its ids
    too, unless more tokens are pruned than learned; then there is a warning. Text files are preserved as a whole, and
    by line if that is how the corpora are read."""
    preserve_keep: bool = False
    """Preserve the text to keep, without its held-out documents."""
    preserve_exactly: bool = False
    """Preserve every pretoken, whatever it costs. By default, pretokens in a script that a target is written in are not
    preserved if they have less than 1 % of the letters of the text, and a result is refused that has less than a tenth
    of the gain that is possible without preserved text."""
    include: WordList | None = None
    """Words that become tokens before any is learned. Without a size, nothing else is learned."""
    include_added: bool = False
    """Words that the pre-tokenizer splits become added tokens."""
    max_helpers: int | None = None
    """Without a size: the most tokens that words are merged from. Words that cost the most are left out."""
    special: tuple[str, ...] = ()
    """Special tokens, each with an optional description after a tab, as for `add_special`."""
    like: str | None = None
    """The token whose row special tokens without a description begin as."""
    eos: str | None = None
    """The token that ends a text from now on."""
    pad: str | None = None
    """The token for padding from now on."""
    join_marks: tuple[str, ...] = ()
    """The scripts whose words are not cut at combining marks, as for `join_marks`."""
    balance: Balance = "weights"
    """Several targets: add them up by weight, or learn every next token for the one with the smallest gain."""
    parity_text: Mapping[str, Corpus] | None = None
    """With `parity`: the same sentences for every target, and in one more language, the reference."""
    max_share: float | None = None
    """With `parity`: the largest share of the new tokens that one target may get."""
    keep_llama_cpp_hash: bool | None = None
    """Keep the tokens and ids of the check text of llama.cpp's converter, so that it recognises the result. By default
    for a swap, if it recognises the base."""
    stacks: tuple[str, ...] = ()
    """Serving stacks that should be able to use the result, as for `check_serving`."""
    size: SizeOptions = field(default_factory=lambda: SizeOptions(multiple=64))
    """How `auto` chooses the number of new tokens."""
    keep_coverage: float | None = None
    """With ``remove="auto"``: the share of the tokens of the corpus and of all held-out text that stay; by default
    0.9995."""
    max_add: int = MAX_ADD
    """The largest number of new tokens that `auto` may choose."""
    protection: Protection = field(default_factory=Protection)
    """Tokens that are not pruned, in addition to those that are never pruned."""
    by_merges: bool = False
    """Prune by the paper's counts, which turn merge skipping off, as for `prune_order`."""
    hold_out: HoldOut = field(default_factory=HoldOut)
    """Which text is held out for evaluation."""
    report: bool | None = None
    """Write `report.html`; by default it is written."""
    test: Mapping[str, Corpus | PretokenCounts] | None = None
    """Texts of your choice to measure the result on, by name, in addition to held-out documents: whatever `evaluate`
    reads."""
    seed: int | None = None
    """The seed of initialisers that are random, and of functions; by default 0."""
    force: bool = False
    """Replace an earlier result."""
    quiet: bool = False
    """Show no progress. By default, each step and what is done of it are shown on stderr, unless ``on_step`` or
    ``progress`` is given, or `logging` shows messages of the level INFO."""
    on_step: OnStep | None = None
    """Called at the start of each step."""
    progress: Progress | None = None
    """Called as text is read and weights are written, in bytes, and as tokens are learned, in tokens."""

    def __post_init__(self) -> None:
        require_fields(self)
        set_fields(self, positive, "max_add")
        set_fields(self, frozen_strings, "stacks", "special", "join_marks")
        set_fields(self, number, "max_share")
        set_fields(self, require_coverage, "keep_coverage")
        set_fields(self, seed, "seed")
        set_fields(self, lambda name, names: script_names(names, name), "join_marks")
        for token in self.special:
            SpecialToken.of(token)
        _ = row_options(self)  # refuses initialisers that do not exist


def is_listed(options: AdaptOptions) -> bool:
    """Whether tokens or roles are given that need no text."""
    return bool(options.include or options.special or options.eos or options.pad)


def sizes_of(options: AdaptOptions, *, add: Size = 0, remove: Size = 0, swap: Size = 0) -> Sizes:
    """The sizes, with what the options say about them."""
    return Sizes(add, remove, swap, options.max_add, is_listed(options))


def row_options(options: AdaptOptions, pad_multiple: int | None = None) -> TransplantOptions:
    """How rows are made, with the padding that serving stacks need."""
    init, seed = options.init or DEFAULT, options.seed or 0
    return TransplantOptions(init, options.output_init, options.hole_rows, pad_multiple or "keep", seed)


SMALLEST_SHARE = Fraction(1, 1_000_000)


def shares(weights: Mapping[str, int | Fraction | str]) -> dict[str, Fraction]:
    """Weights as shares of 1.

    >>> shares({"et": 2, "lv": "1"})
    {'et': Fraction(2, 3), 'lv': Fraction(1, 3)}
    """
    ratios = {name: as_weight(weight) for name, weight in weights.items()}
    total = sum(ratios.values(), Fraction(0))
    for name, ratio in ratios.items():
        if ratio < SMALLEST_SHARE * total:
            raise OptionError(
                f"the weight {weights[name]} of `{name}` is less than a millionth of all weights",
                hint=f"give `{name}` a larger weight, as NAME=FILES:WEIGHT, or leave it out",
            )
    return {name: ratio / total for name, ratio in ratios.items()}
