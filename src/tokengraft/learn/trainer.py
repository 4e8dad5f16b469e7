"""`learned_merges`: continued BPE training in the core, on counted text or on the forms of a word list."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import NamedTuple

from tokengraft import _core
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.learn.allowed import UNBOUNDED, allowed_by, never_made
from tokengraft.learn.extension import LearnedMerge, RefusedPair
from tokengraft.learn.limits import Limits, Parity, languages_of, rules_of
from tokengraft.tokenizer.edit import before_whitespace_merges, unreachable_ranks
from tokengraft.tokenizer.tokenizer import Tokenizer


class LearnedMerges(NamedTuple):
    """Merges in order, the pairs that were refused on the way, and with `Parity` the language of every merge."""

    merges: tuple[LearnedMerge, ...] = ()
    refused: tuple[RefusedPair, ...] = ()
    languages: tuple[str, ...] = ()

    @property
    def tokens(self) -> list[str]:
        """The new tokens."""
        return [merge.left + merge.right for merge in self.merges if merge.new]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The pairs of the merges."""
        return [(merge.left, merge.right) for merge in self.merges]


def learned_merges(
    tokenizer: Tokenizer,
    counts: PretokenCounts | Parity | _core.Counts,
    n: int,
    limits: Limits,
    *,
    preserve: PretokenCounts | None = None,
    progress: Callable[[int], object] | None = None,
) -> LearnedMerges:
    """The merges that make the next n tokens.

    A bare table has the forms of a word list. They need not keep the rules of SentencePiece's trainer.
    """
    parity, parallel = counts if isinstance(counts, Parity) else None, None
    if parity and parity.parallel is not None and parity.reference is not None:
        parallel = [text.table for text in parity.parallel.values()], parity.reference.table
    if isinstance(counts, _core.Counts):
        tables, rules = [counts], None
    else:
        tables, rules = [text.table for text in languages_of(counts)], rules_of(tokenizer, counts)
    merges, refused, languages = _core.extend(
        before_whitespace_merges(tokenizer).core_model,
        tables,
        n,
        min_count=limits.min_count,
        max_token_bytes=limits.max_token_bytes or UNBOUNDED,
        forbidden=[*never_made(tokenizer)],
        # Runs of white space are never learned: they merge last, after any merge that would use them.
        rules=replace(rules, allow_whitespace_only_pieces=False) if rules else None,
        unreachable_ranks=[(string, *rank) for string, rank in unreachable_ranks(tokenizer).items()],
        max_candidates=4 * n + 1000,  # measured: a quarter quicker than keeping all of a million pairs
        allow=allowed_by(tokenizer, limits, runs=rules is not None),
        scripts=list(limits.script_names) if limits.scripts else None,
        preserved=preserve.table if preserve else None,
        parallel=parallel,
        max_share=Fraction(str(parity.max_share)).as_integer_ratio() if parity else (1, 1),
        progress=progress,
    )
    return LearnedMerges(
        tuple(LearnedMerge(*merge) for merge in merges),
        tuple(RefusedPair(*pair) for pair in refused),
        tuple(parity.languages[language] for language in languages) if parity else (),
    )
