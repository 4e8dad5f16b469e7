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
WITH_FACTS = frozenset(("fvt-script-norm", "length-weighted", CONTEXT))
"""Initialisers that need the facts of a plan."""

__all__ = [
    "CONTEXT",
    "INITIALISERS",
    "Initialiser",
    "NewTokens",
    "TableInfo",
    "require_counts",
    "require_facts",
    "require_initialisers",
    "require_untied",
]


def require_initialisers(*names: str | None) -> None:
    """Refuses names of initialisers that do not exist. None is accepted.

    Raises:
        OptionError: A name does not exist. The hint lists those that do.
    """
    for name in names:
        if name is not None and name not in INITIALISERS:
            raise OptionError(f"there is no initialiser {name!r}", hint=f"pass one of {', '.join(INITIALISERS)}")


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
