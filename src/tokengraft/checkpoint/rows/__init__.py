"""Initialisers for new embedding rows: one file with one function each, listed in `INITIALISERS`."""

from collections.abc import Mapping
from types import MappingProxyType

from tokengraft.checkpoint.rows.context import context
from tokengraft.checkpoint.rows.first_piece import first_piece
from tokengraft.checkpoint.rows.fvt import fvt
from tokengraft.checkpoint.rows.fvt_norm import fvt_norm
from tokengraft.checkpoint.rows.fvt_script_norm import fvt_script_norm
from tokengraft.checkpoint.rows.interface import Initialiser, NewTokens, TableInfo
from tokengraft.checkpoint.rows.last_piece import last_piece
from tokengraft.checkpoint.rows.length_weighted import length_weighted
from tokengraft.checkpoint.rows.mean import mean
from tokengraft.checkpoint.rows.mean_cov import mean_cov
from tokengraft.checkpoint.rows.random import random
from tokengraft.checkpoint.rows.weighted import weighted
from tokengraft.errors import OptionError
from tokengraft.plan import VocabPlan

INITIALISERS: Mapping[str, Initialiser] = MappingProxyType(
    {
        "fvt": fvt,
        "fvt-norm": fvt_norm,
        "fvt-script-norm": fvt_script_norm,
        "length-weighted": length_weighted,
        "weighted": weighted,
        "first-piece": first_piece,
        "last-piece": last_piece,
        "context": context,
        "mean": mean,
        "mean-cov": mean_cov,
        "random": random,
    }
)

CONTEXT = "context"
"""The initialiser that needs counted text."""
DEFAULT = "fvt"
RANDOM = frozenset(("mean-cov", "random"))
"""Initialisers that use a seed."""
RESCALED = frozenset(("fvt-norm", "fvt-script-norm"))
"""Initialisers that make rows longer. In an output, all logits of new tokens then become larger."""
WITH_FACTS = frozenset(("fvt-script-norm", "length-weighted", CONTEXT))
"""Initialisers that need the facts of a plan."""

__all__ = [
    "CONTEXT",
    "DEFAULT",
    "INITIALISERS",
    "RANDOM",
    "Initialiser",
    "NewTokens",
    "TableInfo",
    "chosen_initialisers",
    "require_counts",
    "require_facts",
    "require_initialisers",
    "require_untied",
    "rescaling_warnings",
]


def require_initialisers(*names: str | None) -> None:
    """Refuses names of initialisers that do not exist. None is accepted.

    Raises:
        OptionError: A name does not exist. The hint lists those that do.
    """
    for name in names:
        if name is not None and name not in INITIALISERS:
            raise OptionError(f"there is no initialiser {name!r}", hint=f"pass one of {', '.join(INITIALISERS)}")


def chosen_initialisers(init: str, output_init: str | None, *, tied: bool) -> tuple[str, str]:
    """The initialisers of input and output.

    By default, the output has that of the input, unless that rescales rows: then `fvt`.

    >>> chosen_initialisers("last-piece", None, tied=False), chosen_initialisers("fvt-script-norm", None, tied=False)
    (('last-piece', 'last-piece'), ('fvt-script-norm', 'fvt'))
    """
    return init, output_init or (DEFAULT if init in RESCALED and not tied else init)


def rescaling_warnings(chosen: tuple[str, str], *, tied: bool) -> tuple[str, ...]:
    """A warning if the rows of an output are rescaled."""
    if chosen[1] not in RESCALED:
        return ()
    where = "the model's output is tied to its input" if tied else "it was chosen for the output"
    return (
        f"the initialiser {chosen[1]} makes new rows longer, and {where}: before it is trained, the model will predict "
        f"new tokens almost everywhere; {DEFAULT} does not",
    )


def require_counts(given: bool, *names: str | None) -> None:
    """Refuses the initialiser `context` without counted text, and counted text without that initialiser.

    Raises:
        OptionError: One is given without the other.
    """
    if CONTEXT in names and not given:
        raise OptionError(
            f"the initialiser {CONTEXT} needs counts of text, and none were given",
            hint="pass --counts FILE (counts), made with `tokengraft count`; or another initialiser",
        )
    if given and CONTEXT not in names:
        raise OptionError(
            f"counts were given, which only the initialiser {CONTEXT} uses",
            hint=f"leave out --counts (counts), or pass --init {CONTEXT}",
        )


def require_facts(plan: VocabPlan, *names: str | None) -> None:
    """Refuses initialisers that need more than a plan has.

    Raises:
        OptionError: The plan has no facts about tokens, or was made without counts.
    """
    needed = next((name for name in names if name in WITH_FACTS), None)
    if needed is None:
        return
    if plan.facts is None:
        raise OptionError(
            f"the initialiser {needed} needs lengths and scripts of tokens, and the plan has none: it was written by "
            "an earlier version",
            hint="make it again: tg.plan(old, new), or `tokengraft plan OLD NEW --out FILE`",
        )
    if CONTEXT in names and plan.facts.similar is None:
        raise OptionError(
            f"the initialiser {CONTEXT} needs counts of text, and the plan was made without",
            hint="make the plan with them: tg.plan(old, new, counts=counts)",
        )


def require_untied(output_init: str | None, *, tied: bool) -> None:
    """Refuses an initialiser for the output of a model whose output shares its rows with the input.

    Raises:
        OptionError: ``output_init`` is given for a tied output.
    """
    if tied and output_init is not None:
        raise OptionError(
            f"an initialiser for the output ({output_init}) was given, but the model's output is tied to its input",
            hint="leave out --output-init (output_init)",
        )
