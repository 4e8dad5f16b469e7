"""`check`: verifies a tokenizer, alone or against its base. Each finding has evidence.

Works for any tokenizer, including one that another tool wrote.
"""

from collections.abc import Callable

from tokengraft.check import against_base, invariants
from tokengraft.check.finding import Check, Finding
from tokengraft.check.transformers_loader import transformers_started
from tokengraft.tokenizer.tokenizer import Tokenizer


def check(tokenizer: Tokenizer, base: Tokenizer | None = None) -> Check:
    """The results of all checks of a tokenizer; with a base, also of the checks of an edit.

    Args:
        tokenizer: The tokenizer.
        base: The tokenizer that it was made from, if any.

    Examples:
        >>> tok = tg.load("model")
        >>> new = tg.extend(tok, tg.count(tok, "et.txt"), 16).apply(tok)
        >>> result = tg.check(new, base=tok)
        >>> {finding.outcome for finding in result.findings}
        {'pass'}
        >>> result.raise_for_failures()
    """
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
    with transformers_started():
        return Check(tuple(run() for run in checks))
