"""`check`: verifies a tokenizer, alone or against its base. Each finding has evidence.

Works for any tokenizer, including one that another tool wrote.
"""

from collections.abc import Iterator
from types import NoneType

from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError, require_type
from tokengraft.progress import stage
from tokengraft.tokenizer.tokenizer import Tokenizer
from tokengraft.verify import against_base, invariants
from tokengraft.verify.files_against_base import file_findings
from tokengraft.verify.finding import Check, Finding
from tokengraft.verify.transformers_loader import transformers_started


@stage("checking the tokenizer")
def check(tokenizer: Tokenizer, base: Tokenizer | None = None, *, preserve: PretokenCounts | None = None) -> Check:
    """The results of all checks of a tokenizer; with a base, also of the checks of an edit.

    Args:
        tokenizer: The tokenizer.
        base: The tokenizer that it was made from, if any.
        preserve: Counts of text that must be encoded to the same ids as with the base.

    Raises:
        OptionError: ``preserve`` is given without a base.
        CountsError: The counts of ``preserve`` were made for another pipeline.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> result = tg.check(new, base=tok)
        >>> {finding.outcome for finding in result.findings}
        {'pass'}
        >>> result.raise_for_failures()
    """
    require_type("tokenizer", tokenizer, Tokenizer)
    require_type("base", base, Tokenizer, NoneType)
    require_type("preserve", preserve, PretokenCounts, NoneType)
    if preserve is not None and base is None:
        raise OptionError(
            "text to preserve was given without the base that it is compared with", hint="pass the base: --base SOURCE"
        )
    with transformers_started():
        return Check((*_alone(tokenizer, base), *_against(tokenizer, base, preserve)))


def _alone(tokenizer: Tokenizer, base: Tokenizer | None) -> Iterator[Finding]:
    yield invariants.holes(tokenizer)
    yield invariants.alphabet(tokenizer, base)
    yield invariants.round_trip(tokenizer, base)
    yield invariants.added_found(tokenizer)
    yield invariants.reachable(tokenizer, base)
    yield invariants.files(tokenizer, base)
    yield invariants.loaders(tokenizer, base)


def _against(tokenizer: Tokenizer, base: Tokenizer | None, preserve: PretokenCounts | None) -> Iterator[Finding]:
    if base is None:
        return
    learned = against_base.learned(tokenizer, base)
    yield against_base.added_reachable(tokenizer, base)
    yield against_base.specials(tokenizer, base)
    yield against_base.merges(tokenizer, base, learned)
    yield against_base.kept_ids(tokenizer, base, learned)
    yield from file_findings(tokenizer, base, {*learned.again})
    if preserve is not None:
        yield against_base.preserved(tokenizer, base, preserve)
