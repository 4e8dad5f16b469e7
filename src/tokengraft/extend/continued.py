"""Continued BPE training: `extend`. The method of the paper, exactly; the loop is in the core (`train.rs`)."""

import re
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from types import MappingProxyType

from tokengraft import _core
from tokengraft.alphabet import token_bytes
from tokengraft.counts import PretokenCounts
from tokengraft.errors import CountsError, OptionError, UnsupportedTokenizerError, require_positive
from tokengraft.extend.extension import Extension, LearnedMerge
from tokengraft.tokenizer import Tokenizer

UNBOUNDED = 2**63 - 1
MAX_ID = 2**32 - 1


@dataclass(frozen=True)
class Limits:
    """Which tokens continued training may make."""

    min_count: int = 2
    """Pairs that occur less often are not merged."""
    max_token_bytes: int | None = None
    """The longest token, in bytes."""
    deny: Collection[str] = ()
    """Texts that must not become tokens; the next best pair takes their place."""
    deny_pattern: str | None = None
    """A regular expression that no text of a new token may match anywhere."""

    def __post_init__(self) -> None:
        for name in ("min_count", "max_token_bytes"):
            require_positive(name, getattr(self, name))
        if isinstance(self.deny, str):
            raise OptionError(f"`deny` is the string {self.deny!r}", hint="pass a list of strings: deny=['...']")
        try:
            re.compile(self.deny_pattern or "")
        except re.error as error:
            raise OptionError(
                f"{self.deny_pattern!r} is no regular expression: {error}", hint="mend --deny-pattern"
            ) from error


def extend(tokenizer: Tokenizer, counts: PretokenCounts, n: int, *, limits: Limits | None = None) -> Extension:
    """The next n tokens that BPE training would learn on the counted text, going on where the tokenizer stopped.

    Every new token is really produced: by its own merge, in the text it was learned from. Where fewer than n pairs are
    frequent enough, the result is shorter and says so.

    Args:
        tokenizer: The base. It is not changed.
        counts: What the text came to, counted with this tokenizer or another of the same pipeline.
        n: How many new tokens.
        limits: Which tokens may be made.

    Raises:
        OptionError: ``n`` is less than 1.
        UnsupportedTokenizerError: The tokenizer is SentencePiece-type, or cannot keep its ids.
        CountsError: The counts were made for another pipeline, or there are none.

    Example:
        >>> extend(tok, counts, 16_000).apply(tok)  # doctest: +SKIP
        <Tokenizer byte-level: 144,256 vocabulary entries, 296,150 merges>
    """
    limits = limits or Limits()
    require_extendable(tokenizer, n)
    counts.require(tokenizer)
    if not len(counts):
        raise CountsError("the counts are empty: there is no text to learn from", hint="count a corpus that has text")
    tokens, merges = _core.extend(
        tokenizer.bpe,
        counts.table,
        n,
        byte_level=True,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[token.content for token in tokenizer.added],
        at_hand=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=_judge(tokenizer, limits),
    )
    strings = [string for string, _ in sorted(tokenizer.vocab.items(), key=lambda item: item[1])] + tokens
    made = len(tokenizer.vocab)
    learned = []
    for left, right, product, frequency in merges:
        learned.append(LearnedMerge(strings[left], strings[right], frequency, product == made))
        made += product == made
    return Extension(tuple(learned), n, limits.min_count, _provenance(counts))


def require_extendable(tokenizer: Tokenizer, n: int) -> None:
    """Refuses, before any work is done, what `extend` cannot do.

    Raises:
        OptionError: ``n`` is not a number of tokens.
        UnsupportedTokenizerError: The tokenizer cannot be extended.
    """
    if not 1 <= n <= MAX_ID:
        raise OptionError(f"{n:,} new tokens were asked for", hint="ask for at least 1: --add 1000")
    if tokenizer.kind != "byte-level":
        raise UnsupportedTokenizerError(
            "continued training of SentencePiece-type tokenizers is not there yet",
            hint="pass a byte-level tokenizer (Llama-3, Qwen, Mistral-Nemo, GPT types)",
        )
    outside = [t.content for t in tokenizer.added if t.single_word and t.content not in tokenizer.vocab]
    if tokenizer.ignore_merges and outside:
        raise UnsupportedTokenizerError(
            f"the added token `{outside[0]}` must be a whole word and is not in the vocabulary; to keep its id it "
            "would be listed there, and merge skipping would then bring it out inside other words too",
            hint="set `single_word` to false for it, or `ignore_merges` to false",
        )


def _judge(tokenizer: Tokenizer, limits: Limits) -> Callable[[str], bool] | None:
    """What says of a token string whether it may become a token; None where everything may."""
    if not limits.deny and not limits.deny_pattern:
        return None
    denied = frozenset(limits.deny)
    pattern = re.compile(limits.deny_pattern) if limits.deny_pattern else None

    def allow(string: str) -> bool:
        text = token_bytes(string, tokenizer.kind).decode(errors="replace")
        return text not in denied and not (pattern and pattern.search(text))

    return allow


def _provenance(counts: PretokenCounts) -> MappingProxyType[str, object]:
    return MappingProxyType({"tokengraft": _core.__version__, "counted": asdict(counts.totals)})
