"""`check`: verifies a tokenizer, alone or against its base. Each finding has evidence.

Works for any tokenizer, including one that another tool wrote.
"""

from collections.abc import Callable

from tokengraft.arguments import checked
from tokengraft.check import against_base, invariants
from tokengraft.check.finding import Check, Finding
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.counts.pretoken_counts import PretokenCounts
from tokengraft.errors import OptionError
from tokengraft.log import stage
from tokengraft.tokenizer.tokenizer import Tokenizer


@checked
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
    if preserve is not None and base is None:
        raise OptionError(
            "text to preserve was given without the base that it is compared with", hint="pass the base: --base SOURCE"
        )
    checks: list[Callable[[], Finding]] = [
        lambda: invariants.holes(tokenizer),
        lambda: invariants.alphabet(tokenizer, base),
        lambda: invariants.round_trip(tokenizer, base),
        lambda: invariants.added_found(tokenizer),
        lambda: invariants.reachable(tokenizer, base),
        lambda: invariants.files(tokenizer, base),
        lambda: invariants.loaders(tokenizer, base),
    ]
    if base is not None:
        checks += [
            lambda: against_base.added_reachable(tokenizer, base),
            lambda: against_base.specials(tokenizer, base),
            lambda: against_base.pipeline(tokenizer, base),
            lambda: against_base.merges(tokenizer, base),
            lambda: against_base.named_tokens(tokenizer, base),
            lambda: against_base.templates(tokenizer, base),
            lambda: against_base.kept_ids(tokenizer, base),
        ]
    if base is not None and preserve is not None:
        checks.append(lambda: against_base.preserved(tokenizer, base, preserve))
    with transformers_started():
        return Check(tuple(run() for run in checks))
